# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations from a folder outside of the tree are run by a machine, and judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hmmbench.base import paths

EXAMPLE = paths.project_root() / "tests/operations"


def run(folder: Path, out: Path) -> tuple[int, dict[str, Any]]:
    """A short campaign with the operations of a folder: exit code and result."""
    env = {**os.environ, "PYTHONPATH": str(paths.project_root() / "harness")}
    done = subprocess.run(
        [sys.executable, "-m", "hmmbench", "--operations", folder, "run", "--examples", "20",
         "--seed", "5", "--jobs", "1", "--out", out, "--json", out / "result.json"],
        env=env, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, json.loads((out / "result.json").read_text())


@pytest.mark.timeout(600)
def test_a_folder_of_operations(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code, result = run(EXAMPLE, tmp_path / "out")
    assert code == 0
    assert result["grammar"] >= 5
    cells = [one for one in result["coverage"]["cells"] if one["operation"] == "populate"]
    assert sum(one["count"] for one in cells) > 10
    assert {one["residency"] for one in cells} >= {"not present", "system"}


@pytest.mark.timeout(600)
def test_what_it_answers_is_judged(tmp_path: Path) -> None:
    """Its C file does something else than its model says."""
    folder = shutil.copytree(EXAMPLE, tmp_path / "mine")
    text = (folder / "populate.c").read_text()
    wrong = "madvise(addr, op->len, MADV_POPULATE_WRITE) ? -errno : 0"
    assert wrong in text
    (folder / "populate.c").write_text(text.replace(wrong, "op->len > 8192 ? -ENOSYS : 0"))
    (tmp_path / "out").mkdir()
    code, result = run(folder, tmp_path / "out")
    assert code == 1
    (said,) = {one["message"] for one in result["violations"]}
    assert "populate" in said
    assert "ENOSYS" in said
    recipe = json.loads((tmp_path / "out/violation-1/recipe.json").read_text())
    assert [o["op"] for o in recipe["ops"]] == ["mmap", "populate"]
