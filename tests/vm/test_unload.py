# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver is unbound and bound again between examples: what it leaves is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from work import plain

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.oracle.unload import left
from hmmbench.recipe import Environment, Recipe
from hmmbench.replay import replay
from hmmbench.target import VmTarget, judge
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "region-not-released.patch"
REBIND = Environment(audit="fill", rebind=True)


def test_what_the_script_says() -> None:
    assert left("") == []
    text = "left: 100-1ff : hmm_gpu-vram\nleft: the device cannot be bound again\nother\n"
    assert left(text) == ["100-1ff : hmm_gpu-vram", "the device cannot be bound again"]


def test_a_sound_driver_leaves_nothing(spec: MachineSpec) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        for _ in range(3):
            done = target.execute(plain().program, REBIND)
            assert judge(done).violations == []
        totals = target.sample()
        # Counted over the driver's lives; the audit goes on in each of them.
        assert totals.counts["faults"] >= 3
        assert min(totals.counts.values()) >= 0
        assert totals.audit_checks >= 3
        assert totals.machines == 1


def test_a_range_of_addresses_that_stays_taken(
    artifacts: Artifacts, spec: MachineSpec, tmp_path: Path
) -> None:
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(PATCH,)))
    )
    recipe = replace(plain(), environment=REBIND)
    recipe.write(tmp_path / "recipe.json")
    recipe = Recipe.read(tmp_path / "recipe.json")
    assert recipe.environment == REBIND
    with Opener(broken) as opener, VmTarget(opener) as target:
        found = replay(target, recipe)
        assert {v.oracle for v in found.violations} == {"leak"}
        assert "hmm_gpu-vram" in found.violations[0].message
    with Opener(spec) as opener, VmTarget(opener) as target:
        assert not replay(target, recipe).found
