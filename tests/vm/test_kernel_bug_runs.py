# SPDX-License-Identifier: GPL-2.0-or-later
"""Bugs the kernel once had: the patches fit the kernel, and the bench finds one in seconds.

The others with `test --full`; those of another kernel than the usual one need its
build first (`hmmbench build --kernel latest`, `--kernel-debug`), which takes many minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench.base.ui import Ui
from hmmbench.build import Artifacts
from hmmbench.build.kernel_patch import files
from hmmbench.mutation import kernel_bugs
from hmmbench.mutation.trial import KILLED, How, run_one

ALWAYS = "bad-subpage"
BUGS = [b for b in kernel_bugs.load() if b.kernel == "lts"]


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name)
def test_applies(bug: kernel_bugs.KernelBug, artifacts: Artifacts, tmp_path: Path) -> None:
    source = artifacts.kernel_source_dir
    assert source is not None
    for name in files(bug.path):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, tmp_path / name)
    done = subprocess.run(
        ["patch", "-p1", "--batch", "--forward", "--fuzz=0", "-i", str(bug.path)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def _wanted() -> list[kernel_bugs.KernelBug]:
    if os.environ.get("HMMBENCH_FULL"):
        return [b for b in kernel_bugs.load() if not b.proof]
    return [b for b in BUGS if b.name == ALWAYS]


@pytest.mark.full("each kernel that is broken on purpose")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bug", _wanted(), ids=lambda b: b.name)
def test_is_found(bug: kernel_bugs.KernelBug, artifacts: Artifacts, tmp_path: Path) -> None:
    plain = artifacts.kernel_image.read_bytes()
    row = run_one(bug, Ui(quiet=True), tmp_path, How(seed=1, limit_s=300, shrink_s=20))
    assert row.status == KILLED, row
    # The usual kernel is what it was.
    assert artifacts.kernel_image.read_bytes() == plain
