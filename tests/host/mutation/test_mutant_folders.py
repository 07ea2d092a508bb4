# SPDX-License-Identifier: GPL-2.0-or-later
"""Mutants beside the set that every count goes through: each of them applies, and says what it is.

`blind`, `exact`, `field`, `narrow`, `planted` were committed before anything ran on them:
docs/mutants.md.
`returned` puts mistakes back that this repository once made: docs/returned.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.mutation import mutants

FOLDERS = ("blind", "exact", "field", "narrow", "planted", "returned")

ALL = [
    pytest.param(mutant, id=f"{folder}/{mutant.name}")
    for folder in FOLDERS
    for mutant in mutants.load(mutants.folder() / folder)
]


#: A name in a table of docs/returned.md, perhaps with its folder.
_CELL = re.compile(r"[|] ((?:[a-z]+/)*[a-z0-9]+(?:-[a-z0-9]+)+(?:[.]patch)?) (?=[|])")

#: Of the device: no mutants of the driver, and for a checkout.
DEVICE = sorted((mutants.folder() / "returned" / "device").glob("*.patch"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(paths.driver_sources(), root / "guest-driver")
    core = paths.project_root() / "qemu-device" / "core"
    shutil.copytree(core, root / "qemu-device" / "core")
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


@pytest.mark.parametrize("patch", DEVICE, ids=lambda p: p.stem)
def test_of_the_device_applies(patch: Path, tree: Path) -> None:
    assert _applies(tree, patch)


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


def test_each_that_comes_back_is_in_the_list_and_each_in_the_list_is_there() -> None:
    text = (paths.project_root() / "docs" / "returned.md").read_text()
    named = set(_CELL.findall(text))
    returned = mutants.folder() / "returned"
    assert {m.name for m in mutants.load(returned)} <= named
    assert {f"returned/device/{p.stem}" for p in DEVICE} <= named
    for name in named:
        if "/" not in name:
            assert (returned / f"{name}.patch").is_file(), name
        elif name.startswith("tests/"):
            path = paths.project_root() / name
            assert path.is_file() or path.with_name(f"{path.name}.patch").is_file(), name
