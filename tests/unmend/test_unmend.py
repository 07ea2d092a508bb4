# SPDX-License-Identifier: GPL-2.0-or-later
"""Every defect that was mended is seen when it is put back, by its test and by no other."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from unmend import DOCUMENT, HERE, ROOT, apply, copy_checkout, meant, read, run, silent

PATCHES = sorted(HERE.glob("*.patch"))


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_applies_and_its_test_is_there(path: Path) -> None:
    unmend = read(path)
    apply(path, ROOT, dry=True)
    for test in unmend.tests:
        file, _, name = test.partition("::")
        function = name.rpartition("::")[2].partition("[")[0]
        assert re.search(rf"^\s*def {function}\(", (ROOT / file).read_text(), re.MULTILINE), test
    assert f"`{path.stem}`" in DOCUMENT.read_text(), f"{DOCUMENT.name} has no row for it"


def test_a_head_that_says_too_little_is_told(tmp_path: Path) -> None:
    patch = tmp_path / "x.patch"
    for head in ("One.\n", "One.\n\nClaim: 1.1\n", "One.\n\nClaim: 1.1\nTest: tests/x.py\n"):
        patch.write_text(f"{head}\ndiff --git a/x b/x\n")
        with pytest.raises(ValueError, match=r"x\.patch"):
            read(patch)


if os.environ.get("HMMBENCH_FULL"):

    @pytest.mark.full("each mended defect put back: its test fails, the others of its file pass")
    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
    def test_its_test_sees_it_and_no_other_does(path: Path, tmp_path: Path) -> None:
        unmend = read(path)
        copy_checkout(tmp_path)
        apply(path, tmp_path)
        passed = run(tmp_path, unmend)
        assert silent(unmend, passed) == [], "passed with the defect, or did not run"
        named = {test for test in passed for name in unmend.tests if meant(name, test)}
        assert [test for test in passed if not passed[test] and test not in named] == []
