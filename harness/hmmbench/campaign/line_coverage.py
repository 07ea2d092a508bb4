# SPDX-License-Identifier: GPL-2.0-or-later
"""Line coverage: which lines of the driver, of mm/hmm.c and of mm/migrate_device.c were executed.

The guest's kernel (build.BuildRequest.coverage) counts in memory and shows what it counted as
gcov's data files in debugfs.  A machine that is restored from a snapshot begins with the counts of
its boot, and what it counted is gone when it ends: so every machine is asked before that, and
what they say is added up line by line.  A machine that died cannot be asked.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build import Artifacts
from hmmbench.build.kernel import GCOV_FILES
from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine

GUEST = "/sys/kernel/debug/gcov"
DRIVER = "guest-driver/module"

#: file -> line -> times
Hits = dict[str, dict[int, int]]


@dataclass(frozen=True)
class FileLines:
    """One file's result.  `missed`: first and last line of each stretch without an executed
    line; comments and declarations between two such lines belong to it."""

    lines: int
    hit: int
    missed: list[tuple[int, int]]

    @property
    def percent(self) -> float:
        return round(100 * self.hit / self.lines, 1) if self.lines else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "lines": self.lines, "hit": self.hit, "percent": self.percent,
            "missed": [list(stretch) for stretch in self.missed],
        }  # fmt: skip


def parse(text: str, name: str, into: Hits) -> None:
    """Add what `gcov --json-format` says of one object file.

    name  -- of its source, as in the result.  Lines of headers in the object are left out: they
             belong to everybody who includes them.

    A line stands in it once for each function that has it, after inlining: it was executed if
    one of them was.  Raises ValueError if the text is something else.
    """
    data = json.loads(text)
    base = PurePosixPath(name).name
    if not isinstance(data, dict) or not isinstance(data.get("files"), list):
        raise ValueError("no gcov data")
    for entry in data["files"]:
        if PurePosixPath(entry["file"]).name != base:
            continue
        lines = into.setdefault(name, {})
        for line in entry["lines"]:
            number, count = int(line["line_number"]), int(line["count"])
            lines[number] = lines.get(number, 0) + max(0, count)


def summary(hits: Mapping[int, int]) -> FileLines:
    missed: list[tuple[int, int]] = []
    open_ = False
    for number in sorted(hits):
        if hits[number]:
            open_ = False
        elif open_:
            missed[-1] = (missed[-1][0], number)
        else:
            missed.append((number, number))
            open_ = True
    return FileLines(len(hits), sum(1 for n in hits.values() if n), missed)


def total(files: Iterable[FileLines]) -> FileLines:
    files = list(files)
    return FileLines(sum(f.lines for f in files), sum(f.hit for f in files), [])


@dataclass
class Collector:
    """Takes the counts of machines that are about to end.

    Each machine's thread may call take() and add(): `_lock` guards hits and machines.  The rest
    reads them when the machines are gone.

    notes     -- name of the source in the result -> the compiler's notes (.gcno)
    failed    -- why a machine could not be asked, for the report
    machines  -- how many were
    """

    notes: dict[str, Path]
    hits: Hits = field(default_factory=dict)
    machines: int = 0
    failed: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def of(cls, artifacts: Artifacts) -> Collector:
        build = artifacts.kernel_build_dir
        notes = {name: (build / name).with_suffix(".gcno") for name in GCOV_FILES}
        module = artifacts.module_dir
        notes |= {
            f"{DRIVER}/{path.relative_to(module).with_suffix('.c')}": path
            for path in sorted(module.rglob("*.gcno"))
        }
        # Not all that a user's own kernel counts is there.
        found = {name: path for name, path in notes.items() if path.is_file()}
        if not any(name.startswith(DRIVER) for name in found):
            raise EnvironmentFailure(f"the driver in {artifacts.module_dir} counts no lines")
        return cls(found)

    def take(self, vm: Machine) -> None:
        """Add the counts of a machine; one that does not answer is in `failed`."""
        try:
            listing = vm.agent.check(f"find {GUEST} -name '*.gcda'")
            data = {}
            for path in listing.split():
                name = self._source(path)
                if name is not None:
                    data[name] = vm.agent.read_file(path)
        except VmError as error:
            with self._lock:
                self.failed.append(f"a machine told nothing of its lines: {error.message}")
            return
        self.add(data)

    def _source(self, path: str) -> str | None:
        """The source whose counts these are; the guest has the build host's path of the object."""
        at = PurePosixPath(path).with_suffix(".c")
        for name in self.notes:
            if at.match(name):
                return name
        return None

    def add(self, data: Mapping[str, bytes]) -> None:
        """Add the counts in these data files (.gcda), by source."""
        with self._lock, tempfile.TemporaryDirectory(prefix="hmmbench-gcov-") as folder:
            for name, content in data.items():
                stem = (Path(folder) / name).with_suffix("")
                stem.parent.mkdir(parents=True, exist_ok=True)
                stem.with_suffix(".gcda").write_bytes(content)
                shutil.copyfile(self.notes[name], stem.with_suffix(".gcno"))
                parse(_gcov(stem.with_suffix(".gcda")), name, self.hits)
            self.machines += 1

    def results(self) -> dict[str, FileLines]:
        """By source; what no machine told of is left out."""
        return {name: summary(self.hits[name]) for name in sorted(self.hits)}

    def groups(self) -> dict[str, FileLines]:
        """The driver as a whole, and each file of the kernel."""
        results = self.results()
        driver = [f for name, f in results.items() if name.startswith(DRIVER)]
        return {
            "driver": total(driver),
            **{name: f for name, f in results.items() if not name.startswith(DRIVER)},
        }

    def to_json(self) -> dict[str, Any]:
        return {name: f.to_json() for name, f in self.results().items()}


def _gcov(path: Path) -> str:
    try:
        done = subprocess.run(
            ["gcov", "--json-format", "--stdout", path.name],
            cwd=path.parent, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise EnvironmentFailure("gcov is missing", "It is part of gcc.") from error
    if done.returncode:
        raise EnvironmentFailure(
            f"gcov cannot read the counts of {path.stem}: {done.stderr.strip()[:300]}",
            "It has to be of the gcc that built the kernel.",
        )
    return done.stdout
