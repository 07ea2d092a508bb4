# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations from a folder outside of the tree: programs have them, recipes name them.

That a machine runs one is in tests/vm/test_outside_run.py.  Each case is a process of its own:
families are loaded once for each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.base.outside import GROUP, VARIABLE

EXAMPLE = paths.project_root() / "tests/operations"

DRAWN = """
from random import Random
from hmmbench.campaign.generate import newest, program, size_of
from hmmbench.example.recipe import op_from_json, op_to_json
from hmmbench.model import cells, ops
data = Random(3).randbytes(size_of(100))
found = [o for o in program(data).ops if o.op == 300]
assert newest() >= 5
assert found
assert not any(o.op == 300 for o in program(data, grammar=4).ops)
assert all(op_from_json(0, op_to_json(o)) == o for o in found)
assert ops.of(found[0]).sentence(found[0], "it") == "populates it"
assert "populate" in cells.ROWS
"""

EXPORTED = """
from hmmbench.campaign.export_c import export
from hmmbench.example.recipe import Recipe
from hmmbench.guest.program import Op, Program
text = export(Recipe(Program([Op(1, len=4096, a=3), Op(300, phase=1, len=4096)])))
assert "THIS.c populate.c" in text
assert '{ OP(1, 0, 0, "populate"), .len = 0x1000, WANT(0) },' in text
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "mine"))


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, VARIABLE: str(folder), "PYTHONPATH": str(paths.project_root() / "harness")}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True)


def test_it_is_drawn_and_named(folder: Path) -> None:
    done = python(folder, "-c", DRAWN)
    assert done.returncode == 0, done.stderr


def test_a_reproducer_has_it(folder: Path) -> None:
    done = python(folder, "-c", EXPORTED)
    assert done.returncode == 0, done.stderr


def test_a_package_offers_one(folder: Path, tmp_path: Path) -> None:
    """A module of it is an entry point."""
    package = tmp_path / "site/theirs"
    shutil.copytree(folder, package)
    (package / "__init__.py").touch()
    info = tmp_path / "site/theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\npopulate = theirs.populate\n")
    env = {key: value for key, value in os.environ.items() if key != VARIABLE}
    env["PYTHONPATH"] = f"{paths.project_root() / 'harness'}:{tmp_path / 'site'}"
    done = subprocess.run([sys.executable, "-c", DRAWN], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (info / "entry_points.txt").write_text(f"[{GROUP}]\npopulate = theirs.nothing\n")
    done = subprocess.run([sys.executable, "-c", DRAWN], env=env, capture_output=True, text=True)
    assert "no module theirs.nothing" in done.stderr


def test_without_it_a_recipe_says_what_is_missing(tmp_path: Path) -> None:
    words = 'from hmmbench.example.recipe import op_from_json as f; f(0, {"op": "populate"})'
    env = {**os.environ, "PYTHONPATH": str(paths.project_root() / "harness")}
    env.pop(VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-c", words], env=env, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 1
    assert "there is no operation 'populate'" in done.stderr
    assert "--operations" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("300", "20", "has number 20"),
        ("number, name = 300", "title = 300", "has no number, or no name"),
        ("since = 5", "since = 1", "would never be drawn"),
        ('rows = ("populate",)', 'rows = ("mmap",)', "the row 'mmap' is another's"),
        ("OPERATIONS = ", "raise SystemExit(0)\nOPERATIONS = ", "SystemExit: 0"),
        ('"populate"\n', '"munmap"\n', "there is one of that name already"),
        ("OPERATIONS = ", "MINE = ", "has no OPERATIONS"),
        ("import PROT_RW", "import PROT_RX", "cannot import name 'PROT_RX'"),
    ],
)
def test_a_family_that_is_wrong_is_named(folder: Path, old: str, new: str, said: str) -> None:
    text = (folder / "populate.py").read_text()
    assert old in text
    (folder / "populate.py").write_text(text.replace(old, new))
    done = python(folder, "-m", "hmmbench", "--operations", str(folder), "run", "--help")
    assert done.returncode == 2
    assert said in done.stderr
    assert "populate.py" in done.stderr


@pytest.mark.parametrize("words", [["--operations"], ["--operations", ""]])
def test_no_folder(words: list[str], tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "hmmbench", *words, "run", "--help")
    assert done.returncode == 2
    assert "no folder with families of operations" in done.stderr


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "hmmbench", "--operations", str(tmp_path), "run", "--help")
    assert done.returncode == 2
    assert "no folder with families of operations" in done.stderr
