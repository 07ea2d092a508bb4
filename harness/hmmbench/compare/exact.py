# SPDX-License-Identifier: GPL-2.0-or-later
"""This checkout and another one on exact machines: `exact --against`.

Each runs the same numbers of programs with its own Python (generator, encoder, channel, oracles),
in a process of its own.  On one guest and one QEMU, those of this checkout, all must be equal: a
change of Python that is only one of form changes nothing.  Where the guest is meant to differ, each
builds its own and the verdicts alone are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hmmbench.base import paths
from hmmbench.base.errors import EXIT_OK, EXIT_VIOLATION, EnvironmentFailure, UsageError
from hmmbench.base.ui import Ui
from hmmbench.campaign.repeat import Digest
from hmmbench.compare import checkouts

#: What is compared, what comes first in an execution first.
WHAT = tuple(field.name for field in dataclasses.fields(Digest) if field.name != "example")
VERDICT = "verdict"

#: Options of `exact` that a comparison needs, and one more for one guest.
NEEDED, ONE_GUEST = ("--examples", "--times", "--seed", "--json"), "--built"
GRAMMAR = "--grammar"


@dataclass(frozen=True)
class Differs:
    """A program of which two checkouts made something else."""

    example: int
    differs: tuple[str, ...]
    #: this checkout's and the other's
    verdicts: tuple[str, str]

    def __str__(self) -> str:
        text = f"example {self.example}: {', '.join(self.differs)} differ"
        if VERDICT in self.differs:
            text += f" (here {self.verdicts[0]}, there {self.verdicts[1]})"
        return text


def check(folder: Path, one_guest: bool, grammar: int) -> list[str]:
    """The words that ask the other checkout for that grammar.

    Raises UsageError with what its `exact` lacks.
    """
    with TemporaryDirectory(prefix="hmmbench-against-") as scratch:
        try:
            said = checkouts.hmmbench(folder, ["exact", "--help"], Path(scratch), (EXIT_OK,))
        except EnvironmentFailure as error:
            raise UsageError(
                f"--against: {folder} has no command `exact`, or does not start: {error.hint}"
            ) from error
    wanted = (*NEEDED, ONE_GUEST) if one_guest else NEEDED
    missing = [name for name in wanted if name not in said]
    if missing:
        hint = "It is older than exact --against."
        if missing == [ONE_GUEST]:
            hint += " With --verdicts each builds its own guest, and needs no such option."
        raise UsageError(f"--against: `exact` of {folder} has no {', '.join(missing)}", hint)
    if grammar > 1 and GRAMMAR not in said:
        raise UsageError(
            f"--against: {folder} makes other programs of a seed",
            f"Its grammar is the first: {GRAMMAR} 1.",
        )
    # One that is older than grammars has the first.
    return [GRAMMAR, str(grammar)] if GRAMMAR in said else []


def both(
    folder: Path, ours: Sequence[str], theirs: Sequence[str], ui: Ui
) -> tuple[list[Any], list[Any]]:
    """What this checkout and the one in `folder` say of their programs."""
    told = []
    with TemporaryDirectory(prefix="hmmbench-against-") as name:
        scratch = Path(name)
        for who, root, words in (("this", paths.project_root(), ours), ("other", folder, theirs)):
            answer = scratch / f"{who}.json"
            with ui.stage(f"executions: {who} checkout"):
                checkouts.hmmbench(
                    root, ["exact", *words, "--json", str(answer)], scratch,
                    (EXIT_OK, EXIT_VIOLATION),
                )  # fmt: skip
            programs = checkouts.read(answer).get("programs")
            if not isinstance(programs, list):
                raise UsageError(
                    f"--against: the result of `exact` in {root} has no programs",
                    "It is older than exact --against.",
                )
            told.append(programs)
    return told[0], told[1]


def compare(ours: Sequence[Any], theirs: Sequence[Any], what: Sequence[str]) -> list[Differs]:
    """Programs of which something differs.  Raises UsageError if there is nothing to compare."""
    others = {one["example"]: one for one in theirs}
    if sorted(others) != sorted(one["example"] for one in ours):
        raise UsageError("--against: the two checkouts ran other numbers of programs")
    out = []
    for one in ours:
        other = others[one["example"]]
        missing = [name for name in what if name not in one or name not in other]
        if missing:
            raise UsageError(f"--against: only one of the checkouts tells {', '.join(missing)}")
        differs = tuple(name for name in what if one[name] != other[name])
        if differs:
            out.append(Differs(one["example"], differs, (one[VERDICT], other[VERDICT])))
    return out
