# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent's Makefile in a folder that persists: what changed is made again, nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench.base import paths


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for source in (paths.driver_sources(), paths.device_sources() / "include"):
        to = tmp_path / source.relative_to(paths.project_root())
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("*.o", "*.ko", "build"))
    return tmp_path


def make(tree: Path, *wanted: str) -> str:
    out = tree / "out"
    done = subprocess.run(
        ["make", "-C", tree / "guest-driver/user", f"OUT={out}", *(str(out / w) for w in wanted)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_header_that_is_gone_is_not_missed(tree: Path) -> None:
    source = tree / "guest-driver/user/lib/lines.c"
    text = source.read_text()
    header = source.with_name("gone.h")
    header.write_text("enum { GONE };\n")
    source.write_text('#include "gone.h"\n' + text)
    assert "lines.c" in make(tree, "lines.o")
    assert "lines.c" not in make(tree, "lines.o")
    header.unlink()
    source.write_text(text)
    assert "lines.c" in make(tree, "lines.o")


def test_other_flags_make_all_again(tree: Path) -> None:
    makefile = tree / "guest-driver/user/Makefile"
    assert "lines.c" in make(tree, "lines.o")
    makefile.write_text(makefile.read_text().replace("-O2", "-O1"))
    assert "-O1" in make(tree, "lines.o")
