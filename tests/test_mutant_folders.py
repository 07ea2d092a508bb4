# SPDX-License-Identifier: GPL-2.0-or-later
"""Mutants beside the set that every count goes through: each of them applies, and says what it is.

`exact` and `planted` were written, and committed, before anything ran on them: docs/mutants.md.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench import mutants, paths

FOLDERS = ("exact", "planted")

ALL = [
    pytest.param(mutant, id=f"{folder}/{mutant.name}")
    for folder in FOLDERS
    for mutant in mutants.load(mutants.folder() / folder)
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(paths.driver_sources(), root / "guest-driver")
    return root


def _applies(tree: Path, patch: Path) -> bool:
    """As it is, with no line of its surroundings left out."""
    done = subprocess.run(
        ["patch", "-p1", "--batch", "--forward", "--dry-run", "--fuzz=0", "-i", str(patch)],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode == 0


@pytest.mark.parametrize("mutant", ALL)
def test_applies(mutant: mutants.Mutant, tree: Path) -> None:
    assert _applies(tree, mutant.path)


def test_one_that_does_not_apply_is_noticed(tree: Path, tmp_path: Path) -> None:
    sound = mutants.load(mutants.folder() / "exact")[0].path.read_text()
    broken = tmp_path / "broken.patch"
    at = sound.rindex("\n-") + 2
    broken.write_text(sound[:at] + "x" + sound[at:])
    assert not _applies(tree, broken)


def test_none_of_them_is_in_the_set() -> None:
    paths_of_the_set = {m.path for m in mutants.load()}
    for folder in FOLDERS:
        assert not paths_of_the_set & {m.path for m in mutants.load(mutants.folder() / folder)}


@pytest.mark.parametrize("folder", ["exact", "planted"])
def test_docs_name_them(folder: str) -> None:
    text = (paths.project_root() / "docs" / "mutants.md").read_text()
    for mutant in mutants.load(mutants.folder() / folder):
        assert f"| {folder}/{mutant.name} |" in text
