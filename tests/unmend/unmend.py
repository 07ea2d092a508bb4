# SPDX-License-Identifier: GPL-2.0-or-later
"""The patches of this folder: what their heads say, and a copy of the checkout with one applied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENT = ROOT / "docs/closed-defects.md"


@dataclass(frozen=True)
class Unmend:
    """One patch.  `tests` are "FILE::NAME", all in one file."""

    path: Path
    sentence: str
    claim: str
    tests: tuple[str, ...]
    full: bool

    @property
    def file(self) -> str:
        return self.tests[0].partition("::")[0]


def read(path: Path) -> Unmend:
    """Raises ValueError, with what is wrong, for a head that does not say all."""
    head = path.read_text().partition("\ndiff --git ")[0]
    sentence, _, rest = head.partition("\n\n")
    fields = [line.partition(": ")[::2] for line in rest.splitlines() if ": " in line]
    claim = [value for key, value in fields if key == "Claim"]
    tests = tuple(value for key, value in fields if key == "Test")
    if not sentence or len(claim) != 1 or not tests:
        raise ValueError(f"{path.name}: a head has a sentence, one Claim:, and Test:")
    if not all("::" in test for test in tests) or len({t.partition("::")[0] for t in tests}) > 1:
        raise ValueError(f"{path.name}: Test: is FILE::NAME, and of one file")
    full = any(key == "Full" for key, _ in fields)
    return Unmend(path, " ".join(sentence.split()), claim[0], tests, full)


def copy_checkout(to: Path) -> None:
    """The files that git knows, and those that it would add, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def apply(patch: Path, tree: Path, *, dry: bool = False) -> None:
    """Raises AssertionError with what `patch` said, if it does not apply whole."""
    command = ["patch", "-p1", "--force", "--fuzz=0", "--no-backup-if-mismatch", "-i", str(patch)]
    done = subprocess.run(
        [*command, *(["--dry-run"] if dry else [])],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{patch.name}: {done.stdout}{done.stderr}"


def run(tree: Path, unmend: Unmend) -> dict[str, bool]:
    """{test: it passed} of the test's file in a tree."""
    report = tree / "junit.xml"
    inherited = ("HMMBENCH_ARTIFACTS", "HMMBENCH_QEMU", "HMMBENCH_FULL")
    environment = {k: v for k, v in os.environ.items() if k not in inherited}
    # This Python has all that it needs; ./hmmbench would install that anew for each.
    environment["PYTHONPATH"] = str(tree / "harness")
    words = [*(["--full"] if unmend.full else []), "--", unmend.file, f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "hmmbench", "test", *words],
        cwd=tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert report.is_file(), f"no test ran:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return {
        str(case.get("name")): case.find("failure") is None and case.find("error") is None
        for case in ElementTree.parse(report).getroot().iter("testcase")
    }


def meant(name: str, test: str) -> bool:
    """Whether a `Test:` names this one of the file's tests, alone or with all of its cases."""
    return name.rpartition("::")[2] in (test, test.partition("[")[0])


def silent(unmend: Unmend, passed: Mapping[str, bool]) -> list[str]:
    """The tests of a head that did not fail: of one with cases, not one of them."""
    return [
        name for name in unmend.tests
        if all(good for test, good in passed.items() if meant(name, test))
    ]  # fmt: skip
