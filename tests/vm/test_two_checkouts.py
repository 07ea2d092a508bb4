# SPDX-License-Identifier: GPL-2.0-or-later
"""`exact --against`: this checkout and a copy of it do the same, unless the copy was changed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hmmbench import cli
from hmmbench.base import paths

LAUNCHER = """#!/bin/sh
PYTHONPATH={root}/harness exec {python} -m hmmbench "$@"
"""

#: In the generator: what a step does with what was drawn for it.
LINE, CHANGED = "self.rng.seed(seed)", "self.rng.seed(seed + 1)"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A copy, whose Python packages are ours."""
    root = tmp_path / "other"
    shutil.copytree(
        paths.project_root(), root,
        ignore=shutil.ignore_patterns(".git", "__pycache__", "hmmbench-out", ".*_cache"),
    )  # fmt: skip
    (root / "hmmbench").write_text(LAUNCHER.format(root=root, python=sys.executable))
    return root


@pytest.mark.timeout(900)
def test_a_copy_and_a_changed_generator(other: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ["exact", "--against", str(other), "--examples", "4", "--chain", "2", "--seed", "3"]
    words += ["--json", str(result)]
    assert cli.main(words) == 0
    data = json.loads(result.read_text())
    assert (data["executions"], data["equal"], data["parted"]) == (4, 4, [])
    assert {"program", "answer", "decisions", "memory", "verdict"} <= set(data["compared"])
    source = other / "harness/hmmbench/campaign/generate.py"
    text = source.read_text()
    assert text.count(LINE) == 1
    source.write_text(text.replace(LINE, CHANGED))
    assert cli.main(words) == 1
    data = json.loads(result.read_text())
    assert data["equal"] == 0
    assert all({"program", "answer", "decisions"} <= set(one["differs"]) for one in data["parted"])
