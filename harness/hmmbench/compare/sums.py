# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of parts added up: what `hmmbench sum` knows.

A part is a file that `run`, `mutants`, `selftests` or `exact` wrote with --json.  Parts of one
kind are added if what decides them is the same (NEEDED, of depends.py): their commits may differ.
Kernels are what a bar is usually tried on one after the other, so different ones are added, each
on a line of its own; the same name (lts) with another version or configuration is a difference.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hmmbench.base.errors import HmmbenchError, UsageError
from hmmbench.base.ui import Ui
from hmmbench.build import cache as files
from hmmbench.build import depends, kernel
from hmmbench.build.context import Context
from hmmbench.compare.feedback import Comparison
from hmmbench.mutation import kernel_bugs, mutants
from hmmbench.mutation.trial import ALIVE, ERROR, KILLED, Row

#: Which parts of the house decide a result of each kind, besides the kernel.
NEEDED = {
    "run": ("device", "driver", "agent", "oracles"),
    # What is found, and when, is the campaign's doing as well.
    "mutants": ("device", "driver", "agent", "oracles", "campaign"),
    "selftests": ("device", "driver", "oracles"),
    # Whether executions are equal: nobody judges what they did.
    "exact": ("device", "driver", "agent"),
}

#: What is counted of each kind, by its key in the file; a list counts by its length.
COUNTED = {
    "run": (
        "examples", "operations", "gpu_accesses", "audit_checks", "undecided", "violations",
    ),
    "mutants": (),
    "selftests": ("passed", "failed", "skipped", "expected_failures", "audit_checks"),
    "exact": ("executions", "equal", "parted"),
}  # fmt: skip

#: What a pass rests on: counted too, where a file has it.
EVIDENCE = {
    "run": (
        "gpu_faults", "pages_to_device", "promises", "promises_tried", "pages_to_read",
        "pages_read", "stores", "stores_there", "censuses", "censuses_taken", "accounts",
        "accounts_taken", "scans", "unscanned", "unready", "shortfalls",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One file.  `stale`: what it depended on that is another now; `unknown`: what could not be
    compared here."""

    path: Path
    kind: str
    data: dict[str, Any]
    stale: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def depends(self) -> dict[str, Any]:
        found: dict[str, Any] = self.data["depends"]
        return found

    @property
    def kernels(self) -> dict[str, str]:
        found: dict[str, str] = self.depends["kernel"]
        return found

    @property
    def needed(self) -> dict[str, str]:
        return {name: str(self.depends[name]) for name in NEEDED[self.kind]}

    @property
    def state(self) -> str:
        if self.stale:
            return f"stale: {', '.join(self.stale)}"
        return f"current, but for {', '.join(self.unknown)}" if self.unknown else "current"

    @property
    def broken_off(self) -> str:
        """Why the command did not come to its end; empty if it did."""
        if self.kind == "mutants":
            return ""
        return str(self.data.get("error", ""))

    @property
    def line(self) -> str:
        """What it is added under: its kernels and the machine's kind."""
        words = [" and ".join(f"{n} ({what.split()[0]})" for n, what in self.kernels.items())]
        words += [str(self.data[key]) for key in ("accel", "mode") if self.data.get(key)]
        return ", ".join(word for word in words if word)

    def count(self, key: str) -> int:
        value = self.data.get(key, 0)
        return len(value) if isinstance(value, list) else int(value)


@dataclass
class Mutant:
    """One mutant over all parts."""

    name: str
    rows: list[Row] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        """What it ran in; empty if none was built."""
        return ", ".join(sorted({name for row in self.rows for name in row.kernel}))

    @property
    def found(self) -> list[Row]:
        return [row for row in self.rows if row.status == KILLED]

    @property
    def word(self) -> str:
        """Found by any part is found.  An error says nothing."""
        if self.found:
            return "not equivalent" if any(row.declared for row in self.rows) else KILLED
        said = [row.status for row in self.rows if row.status != ERROR]
        return said[0] if said else ERROR

    @property
    def bad(self) -> bool:
        return self.word in (ALIVE, "not equivalent")

    @property
    def seconds(self) -> float | None:
        """The median of the parts that found it; of the times tried, if none did."""
        times = [row.seconds for row in self.found or self.rows if row.status != ERROR]
        return round(statistics.median(times), 3) if times else None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "kernel": self.kernel, "status": self.word,
            "tried": len(self.rows), "found": len(self.found), "seconds": self.seconds,
            "examples": [row.examples for row in self.found],
            "oracles": sorted({row.oracle for row in self.found}),
        }  # fmt: skip


@dataclass
class Group:
    """Parts of one kind that may be added."""

    kind: str
    parts: list[Part]

    def lines(self) -> dict[str, Counter[str]]:
        """The sums by kernel and machine."""
        found: dict[str, Counter[str]] = {}
        for part in self.parts:
            found.setdefault(part.line, Counter()).update(_counts(part))
        return found

    def total(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for part in self.parts:
            total.update(_counts(part))
        return total

    def machines(self) -> Counter[str]:
        """Examples of runs by machine (Report.portions); of older ones that is not known."""
        found: Counter[str] = Counter()
        for part in self.parts:
            for one in part.data.get("portions", ()):
                found[f"{one['machine']} ({one['kind']})"] += int(one["examples"])
        return found

    def again(self) -> list[str]:
        """Seeds that several runs share: the same examples, though no execution of threads is
        the other's."""
        seeds = Counter(
            f"seed {part.data['seed']} of {part.line}"
            for part in self.parts
            if self.kind == "run" and "seed" in part.data
        )
        return [words for words, times in seeds.items() if times > 1]

    def mutants(self) -> list[Mutant]:
        """By name.  Raises UsageError where a name stands for two patches."""
        found: dict[str, Mutant] = {}
        patches: dict[str, str] = {}
        for part in self.parts:
            for row in _rows(part, "mutants"):
                if patches.setdefault(row.name, row.patch) != row.patch:
                    raise UsageError(
                        f"{part.path}: {row.name} was another patch than in an earlier file"
                    )
                found.setdefault(row.name, Mutant(row.name)).rows.append(row)
        return [found[name] for name in sorted(found)]

    def feedback(self) -> Comparison:
        """Of what was run without and with it."""
        return Comparison.of(row for m in self.mutants() for row in m.rows)

    def controls(self) -> list[Row]:
        return [row for part in self.parts for row in _rows(part, "sound")]

    def false_alarms(self) -> list[str]:
        """What was said of the sound driver."""
        rows = [row for part in self.parts for row in _rows(part, "mutants") if row.false_alarm]
        rows += [row for row in self.controls() if row.status == KILLED]
        return [row.message for row in rows]

    @property
    def violated(self) -> bool:
        """What ends the command itself with 1."""
        total = self.total()
        if self.kind == "mutants":
            return any(m.bad for m in self.mutants()) or bool(self.false_alarms())
        return any(total[key] for key in ("violations", "failed", "parted")) or any(
            bool(part.data.get("trouble")) for part in self.parts
        )

    @property
    def lacking(self) -> bool:
        """A part, or a mutant, of which nothing can be said."""
        if self.kind == "mutants":
            rows = [row for m in self.mutants() for row in m.rows if m.word == ERROR]
            return bool(rows) or any(row.status == ERROR for row in self.controls())
        return any(part.broken_off not in ("", "interrupted") for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        kernels = {n: what for part in self.parts for n, what in part.kernels.items()}
        data = {
            "kind": self.kind,
            "depends": self.parts[0].needed | {"kernel": kernels},
            "commits": sorted({str(part.depends["commit"]) for part in self.parts}),
            "files": [str(part.path) for part in self.parts],
            "violated": self.violated,
            "again": self.again(),
        }
        if self.kind == "mutants":
            feedback = self.feedback()
            return data | {
                "mutants": [m.to_json() for m in self.mutants()],
                "false_alarms": self.false_alarms(),
                "sound_examples": sum(row.examples for row in self.controls()),
                **({"feedback": feedback.to_json()} if feedback.pairs else {}),
            }
        return data | {
            "lines": self.lines(), "total": self.total(), "machines": self.machines()
        }


def _counts(part: Part) -> dict[str, int]:
    keys = (*COUNTED[part.kind], *EVIDENCE.get(part.kind, ()))
    return {"parts": 1, **{key: part.count(key) for key in keys}}


def _rows(part: Part, key: str) -> list[Row]:
    return [Row.from_json(row) for row in part.data[key]]


def read(
    path: Path, now: Callable[[], Mapping[str, Any]], kernel_now: Callable[[str], str | None]
) -> Part:
    """A file, held against this checkout.

    now        -- what depends.of() says of it
    kernel_now -- what a kernel of this name is here; None if that is not known

    Raises UsageError if it is no result that can be added.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    kind = data.get("command") if isinstance(data, dict) else None
    if kind not in NEEDED:
        raise UsageError(
            f"{path} is no result that can be added: it is of {kind or 'no command'}",
            f"Results of {', '.join(NEEDED)} can, written with --json by this hmmbench or a later"
            " one.",
        )
    part = Part(path, kind, data)
    _check(part)
    here = now()
    stale = [name for name, what in part.needed.items() if here[name] != what]
    unknown = []
    for name, what in part.kernels.items():
        found = kernel_now(name)
        if found is None:
            unknown.append(f"kernel {name}, which is not built here")
        elif found != what:
            stale.append(f"kernel {name}")
    if kind == "mutants":
        stale += _stale_patches(part)
    return Part(path, kind, data, tuple(stale), tuple(unknown))


def _check(part: Part) -> None:
    """Raises UsageError for what a result of this kind has to have."""
    try:
        if not all(part.needed.values()):
            raise ValueError("what it depends on is not all there")
        for name, what in part.kernels.items():
            if not name or not what.split():
                raise ValueError("a kernel without a name or version")
        _counts(part)
        for key in COUNTED[part.kind]:
            if key not in part.data:
                raise KeyError(key)
        if part.kind == "mutants":
            _rows(part, "mutants")
            _rows(part, "sound")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{part.path} is no whole result of {part.kind}: {error!r}"
        ) from error


def _stale_patches(part: Part) -> list[str]:
    """Mutants whose patch is another now, or gone."""
    # The folders beside the set (--folder) have patches of the same names, perhaps.
    now = {
        (path.stem, files.file_digest(path))
        for folder in (mutants.folder(), kernel_bugs.folder())
        for path in folder.rglob("*.patch")
    }
    return [row.name for row in _rows(part, "mutants") if (row.name, row.patch) not in now]


@cache
def this_checkout() -> Mapping[str, Any]:
    return depends.of()


@cache
def kernel_here(name: str) -> str | None:
    """What lts or latest (perhaps with a variant's words) is for this checkout, if it is built.

    A folder's kernel, or a patched one, may be another one by now: that is not looked into.
    """
    which, *variant = name.split()
    if which not in ("lts", "latest") or not set(variant) <= set(kernel.VARIANTS):
        return None
    try:
        # By itself: the driver beside it may be one that was not built yet.
        found = kernel.find(Context(Ui(quiet=True)), which, tuple(variant))
        return None if found is None else depends.describe(found.release, found.build_dir)
    except HmmbenchError:
        return None


def twice(paths: Sequence[Path]) -> list[str]:
    """Pairs of files with the same content: a part that is added twice is a lie."""
    seen: dict[bytes, Path] = {}
    found = []
    for path in paths:
        sha = hashlib.sha256(path.read_bytes()).digest()
        if sha in seen:
            found.append(f"{seen[sha]} and {path}")
        seen[sha] = path
    return found


def groups(parts: Iterable[Part]) -> list[Group]:
    """Parts that may be added, in the order of NEEDED and of the files.

    Where a kernel's name stands for two kernels, those parts are added only to parts with all
    the same kernels.
    """
    found: dict[tuple[Any, ...], list[Part]] = {}
    for part in parts:
        found.setdefault((part.kind, *part.needed.values()), []).append(part)
    out: list[Group] = []
    for mine in found.values():
        named: dict[str, set[str]] = {}
        for part in mine:
            for name, what in part.kernels.items():
                named.setdefault(name, set()).add(what)
        apart: dict[tuple[Any, ...], list[Part]] = {}
        for part in mine:
            unclear = any(len(whats) > 1 for whats in named.values())
            apart.setdefault(
                tuple(sorted(part.kernels.items())) if unclear else (), []
            ).append(part)
        out += [Group(mine[0].kind, some) for some in apart.values()]
    return sorted(out, key=lambda group: list(NEEDED).index(group.kind))


def differences(one: Group, other: Group) -> list[str]:
    """In what two groups of a kind differ, in words."""
    a, b = one.parts[0], other.parts[0]
    found = [name for name, what in a.needed.items() if b.needed[name] != what]
    return found + [
        f"kernel {name}"
        for name, what in a.kernels.items()
        if b.kernels.get(name, what) != what
    ]
