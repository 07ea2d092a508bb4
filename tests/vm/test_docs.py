# SPDX-License-Identifier: GPL-2.0-or-later
"""The examples of docs/writing-tests.md, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hmmbench.base import paths
from hmmbench.campaign.replay import replay
from hmmbench.example.recipe import Recipe
from hmmbench.example.vm_target import VmTarget
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec


def block(language: str) -> str:
    text = (paths.project_root() / "docs" / "writing-tests.md").read_text()
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_recipe_runs_and_is_sound(spec: MachineSpec, tmp_path: Path) -> None:
    file = tmp_path / "my.json"
    file.write_text(block("json"))
    with Opener(spec) as opener, VmTarget(opener) as target:
        result = replay(target, Recipe.read(file))
        assert target.sample().to_device > 0
    assert result.executions == 20
    assert not result.found


def test_the_page_of_python_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^faults: [1-9]", done.stdout, re.MULTILINE)
    assert "stride" not in done.stdout
