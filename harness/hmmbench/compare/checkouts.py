# SPDX-License-Identifier: GPL-2.0-or-later
"""This checkout and another one, measured in turn: `bench --against`.

Each is a process of its own (its launcher, its Python, its builds), so that the two share
nothing but the host and the cache.  They take turns, in an order that is drawn for each pair: a
host that slows down, or is fast after a pause, weighs on both alike.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hmmbench.base import paths
from hmmbench.base.errors import EXIT_OK, EXIT_VIOLATION, EnvironmentFailure, UsageError
from hmmbench.base.processes import Children
from hmmbench.base.ui import Ui
from hmmbench.build import depends
from hmmbench.compare import figures as compare

#: Fewer say too little.
LEAST = 10

#: A process that is told to end has so long for its machines (seconds).
END_S = 30.0

#: Of the environment: what would make a checkout run another one's modules or builds.
_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "HMMBENCH_ARTIFACTS", "HMMBENCH_QEMU")


@dataclass
class Pairs:
    """What was measured so far: of each pair which was first, and both reports."""

    folder: Path
    seed: int
    pairs: list[dict[str, Any]] = field(default_factory=list)

    def figures(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        return [(compare.figures(p["this"]), compare.figures(p["other"])) for p in self.pairs]

    def compared(self) -> list[compare.Compared]:
        return compare.over_pairs(self.figures())

    def shared(self) -> compare.Shared:
        """By the names that any of the pairs has."""
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        for one, other in self.figures():
            ours |= one
            theirs |= other
        return compare.Shared.of(ours, theirs)

    def to_json(self) -> dict[str, Any]:
        shared = self.shared()
        return {
            "against": {"folder": str(self.folder), **depends.checkout(self.folder)},
            "seed": self.seed,
            "confidence": compare.CONFIDENCE,
            "figures": {one.name: one.to_json() for one in self.compared()},
            "only_this": shared.only_ours,
            "only_other": shared.only_theirs,
            "pairs": self.pairs,
        }


def checkout(folder: Path) -> Path:
    """The folder, if it is a checkout of hmmbench.  Raises UsageError with what it lacks."""
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--against: {folder} is not a folder")
    try:
        name = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    except (OSError, KeyError, TypeError, ValueError):
        name = None
    launcher = folder / "hmmbench"
    if name != "hmmbench" or not launcher.is_file() or not os.access(launcher, os.X_OK):
        raise UsageError(
            f"--against: {folder} is no checkout of hmmbench",
            "It is given the folder that holds pyproject.toml and the launcher ./hmmbench;"
            " git worktree add DIR COMMIT makes one.",
        )
    return folder


def measure(
    done: Pairs, count: int, options: Sequence[str], warm: Sequence[str] | None, ui: Ui,
    kept: Callable[[], None],
) -> None:  # fmt: skip
    """Fill `done` with `count` pairs.

    options -- of `bench`, for both
    warm    -- a command (and its options) that each runs once before: it builds, and makes the
               snapshot that the first measurement would else wait for; None for no such command
    kept    -- called after each pair: what is measured then is not lost
    """
    roots = {"this": paths.project_root(), "other": done.folder}
    rng = random.Random(done.seed)
    with TemporaryDirectory(prefix="hmmbench-against-") as name:
        scratch = Path(name)
        if warm is not None:
            for who, root in roots.items():
                with ui.stage(f"warming up: {who} checkout"):
                    # A driver that fails is told by the measurement, in its words.
                    hmmbench(root, warm, scratch, (EXIT_OK, EXIT_VIOLATION))
        with ui.stage("pairs") as stage:
            for n in range(count):
                order = ["this", "other"]
                rng.shuffle(order)
                reports = {}
                for who in order:
                    stage.progress(n, count, f"{who} checkout")
                    answer = scratch / f"{who}.json"
                    answer.unlink(missing_ok=True)
                    hmmbench(
                        roots[who], ["bench", *options, "--json", str(answer)], scratch, (EXIT_OK,)
                    )
                    reports[who] = read(answer)
                done.pairs.append({"first": order[0], **reports})
                kept()


def hmmbench(
    root: Path, words: Sequence[str], scratch: Path, good: Sequence[int]
) -> str:
    """Run a checkout's own launcher; what it said.  Raises EnvironmentFailure with its last
    words."""
    env = {name: value for name, value in os.environ.items() if name not in _OURS}
    # Wide enough for the names of options.
    env["COLUMNS"] = "200"
    log = scratch / "log"
    with (
        log.open("w") as stream,
        Children(END_S).start(
            [root / "hmmbench", *words], cwd=scratch, env=env, stdout=stream.fileno(),
            stderr=subprocess.STDOUT,
        ) as child,
    ):  # fmt: skip
        status = child.wait()
    said = log.read_text(errors="replace").strip()
    if status not in good:
        last = "\n".join(said.splitlines()[-6:])
        raise EnvironmentFailure(
            f"{root}/hmmbench {' '.join(words[:1])} ended with status {status}", last
        )
    return said


def read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EnvironmentFailure(f"a measurement left no result: {error}") from error
    if not isinstance(data, dict):
        raise EnvironmentFailure("a measurement's result is no JSON object")
    return data
