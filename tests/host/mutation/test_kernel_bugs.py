# SPDX-License-Identifier: GPL-2.0-or-later
"""The set of kernel bugs: each says which bug it is, and the documentation shows the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.base.errors import UsageError
from hmmbench.build import BuildRequest, kernel_patch, normalise
from hmmbench.mutation import kernel_bugs

BUGS = kernel_bugs.load()
GOOD = """\
A sentence.

Class: a class
Row: 7
Subject: mm: fix it
CVE: CVE-2026-1
Kernel: latest debug
Made: reverted,
  nearly

--- a/mm/x.c
+++ b/mm/x.c
@@ -1 +1 @@
-a
+b
"""


def test_there_are_enough() -> None:
    assert len([b for b in BUGS if not b.proof]) >= 10
    assert len({b.row for b in BUGS}) >= 8


def test_the_documented_table_is_the_sets() -> None:
    text = (paths.project_root() / "docs/kernel-bugs.md").read_text()
    assert kernel_bugs.table(BUGS) in text


def test_a_head_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some-bug.patch"
    path.write_text(GOOD)
    bug = kernel_bugs.parse(path)
    assert (bug.name, bug.row, bug.kernel, bug.debug) == ("some-bug", 7, "latest", True)
    assert bug.source == "mm: fix it (CVE-2026-1)"
    assert bug.made == "reverted, nearly"
    assert bug.request() == BuildRequest(
        kernel="latest", kernel_variants=("debug",), kernel_patches=(path,)
    )
    assert "| some-bug | 7 | latest debug |" in kernel_bugs.table([bug])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("Row: 7\n", "", "no Row"),
        ("Row: 7\n", "Row: seven\n", "Row is a number"),
        ("Class: a class\n", "Class: a class\nClass: b\n", "twice"),
        ("latest debug", "newest", "Kernel is"),
        ("Made: reverted", "Done: reverted", "not understood"),
        ("b/mm/x.c", "b/include/linux/x.h", "x.h"),
        ("b/mm/x.c", "b/../x.c", "no patch for a built kernel"),
        ("A sentence.", "", "sentence of prose"),
    ],
)
def test_a_bad_head_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    path = tmp_path / "some-bug.patch"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=why):
        kernel_bugs.parse(path)


def test_names_are_checked(tmp_path: Path) -> None:
    (tmp_path / "some-bug.patch").write_text(GOOD)
    assert [b.name for b in kernel_bugs.choose([], tmp_path)] == ["some-bug"]
    with pytest.raises(UsageError, match="nonsense"):
        kernel_bugs.choose(["nonsense"], tmp_path)


def test_a_patch_that_is_none_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    path = tmp_path / "x.patch"
    path.write_text("nothing\n")
    with pytest.raises(UsageError, match="no file in it"):
        normalise(BuildRequest(kernel_patches=(path,)))
    with pytest.raises(UsageError, match="cannot read"):
        kernel_patch.files(tmp_path / "missing.patch")


def test_a_copied_build_folder_is_not_built_again(tmp_path: Path) -> None:
    """make's notes on the kernel's tools name the folder they were made in."""
    old, new = tmp_path / "linux", tmp_path / "linux-patched"
    note = new / "tools/objtool/.check.o.cmd"
    note.parent.mkdir(parents=True)
    note.write_text(f"cmd := gcc -I{old}/tools -c x.c\n/elsewhere{tmp_path.name}/linux2/x.h\n")
    other = new / "mm/.hmm.o.cmd"
    other.parent.mkdir()
    other.write_text(f"{old}/x\n")
    kernel_patch.move(old, new)
    assert f"-I{new}/tools " in note.read_text()
    assert "linux2/x.h" in note.read_text()
    assert other.read_text() == f"{old}/x\n"
