# SPDX-License-Identifier: GPL-2.0-or-later
"""Drivers broken by one line: `run` catches each, and its recipe tells it from the sound one.

Five classic ones only with `test --full` (minutes each); the one that is caught in seconds
is always run, so that a bench that sees nothing cannot pass.  `hmmbench mutants` runs the whole
set.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hmmbench import cli
from hmmbench.example.recipe import Recipe

ALWAYS = "stale-pte-after-cpu-fault"
CLASSIC = (
    ALWAYS, "migrated-always-writable", "no-invalidate-wait", "no-read-retry", "no-tlb-invalidate",
)  # fmt: skip
PATCHES = [Path(__file__).parent.parent / "mutants" / f"{name}.patch" for name in CLASSIC]


def _wanted() -> list[Path]:
    if os.environ.get("HMMBENCH_FULL"):
        return PATCHES
    return [p for p in PATCHES if p.stem == ALWAYS]


@pytest.mark.full("the classic broken drivers, found and repeated")
@pytest.mark.parametrize("patch", _wanted(), ids=lambda p: p.stem)
def test_is_caught_made_small_and_repeated(patch: Path, tmp_path: Path) -> None:
    broken = ["--driver-patch", str(patch)]
    out, result = tmp_path / "out", tmp_path / "replay.json"
    assert cli.main(["run", "--seed", "5", "--out", str(out), *broken]) == 1
    found = out / "violation-1/recipe.json"
    recipe = Recipe.read(found)
    chained = sum(len(link.program.ops) for link in recipe.chain)
    assert len(recipe.program.ops) + chained <= 10
    assert cli.main(["replay", str(found), "--json", str(result), *broken]) == 1
    assert json.loads(result.read_text())["executions"] == 1
    assert cli.main(["replay", str(found)]) == 0
