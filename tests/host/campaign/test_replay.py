# SPDX-License-Identifier: GPL-2.0-or-later
"""What `replay` says where an exact machine's recipe is another execution than recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hmmbench.campaign.export_c import export
from hmmbench.campaign.replay import built_differs, elsewhere, parting
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops.mapping import Mmap
from hmmbench.vm import decisions
from hmmbench.vm.decisions import ENTRY, Record, What

PROGRAM = Program([Op(Mmap.number, len=4096, a=3)], (24, 600, 0, 0))
RECIPE = Recipe(PROGRAM, Environment(schedule="seed=1"), cpus=4, hash=0x77, built={"kernel": "a"})


def log(last: int = 9) -> np.ndarray:
    out = np.zeros(4, ENTRY)
    for n in range(4):
        out[n] = (10 * n, 5 * n, 0xFFFFFFFF81000000 + n, last if n == 3 else 9, What.OVER, n, 0, 0)
    return out


def test_the_same_execution_is_nothing_to_speak_of(tmp_path: Path) -> None:
    assert parting(RECIPE, Record(0x77, log()), tmp_path / "none") == ""
    older = Recipe(PROGRAM, cpus=4)
    assert parting(older, Record(0x78, log()), tmp_path / "none") == ""


def test_where_it_parted_is_said(tmp_path: Path) -> None:
    kept = tmp_path / decisions.KEPT
    decisions.write(kept, log())
    said = parting(RECIPE, Record(0x78, log(8)), kept)
    assert said.startswith("parted from the recorded execution at decision 3: CPU 3 runs 9 instr")
    assert "/ CPU 3 runs 8 instructions" in said


@pytest.mark.parametrize("content", [None, b"spoiled"])
def test_without_the_log_it_is_said_all_the_same(tmp_path: Path, content: bytes | None) -> None:
    kept = tmp_path / decisions.KEPT
    if content is not None:
        kept.write_bytes(content)
    said = parting(RECIPE, Record(0x78, log()), kept)
    assert "another execution than the recorded one; where they part is not known" in said
    assert str(kept) in said
    decisions.write(kept, log())
    assert "is no log of that" in parting(RECIPE, Record(0x78, log()), kept)
    assert "did not survive" in parting(RECIPE, None, kept)


def test_another_build_is_named() -> None:
    recipe = Recipe(PROGRAM, cpus=4, built={"kernel": "a", "driver": "b", "agent": "c"})
    assert built_differs(recipe, {"kernel": "a", "driver": "x", "device": "y"}) == ["driver"]
    assert built_differs(Recipe(PROGRAM, cpus=4), {"kernel": "a"}) == []


def test_numbers_are_of_their_own_build() -> None:
    recipe = Recipe(PROGRAM, Environment(schedule="seed=1 at=10,20,f+0x4"), cpus=4)
    assert elsewhere(recipe, []) == []
    named, numbers = elsewhere(recipe, ["driver", "kernel"])
    assert named == "another build than the recipe's: driver, kernel differ"
    assert numbers.startswith("2 of the recipe's places are numbers without a name, of the build")
    by_name = Recipe(PROGRAM, Environment(schedule="seed=1 at=f+0x4"), cpus=4)
    assert len(elsewhere(by_name, ["driver"])) == 1


def test_a_c_program_says_that_the_schedule_is_lost() -> None:
    env = Environment(("svm_after_zap 500",), schedule="seed=1")
    text = export(Recipe(PROGRAM, env, cpus=4))
    assert "Its schedule is lost here" in text
    assert "echo svm_after_zap 500 >" in text
    assert "schedule" not in export(Recipe(PROGRAM))
