# SPDX-License-Identifier: GPL-2.0-or-later
"""Drivers broken by one line: `run` catches each, and its recipe tells it from the sound one.

Five classic ones only with `test --full` (minutes each); the one that is caught in seconds
is always run, so that a bench that sees nothing cannot pass.  `hmmbench mutants` runs the whole
set, without the replays.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign.replay import replay
from hmmbench.campaign.runner import Campaign
from hmmbench.example.recipe import Recipe
from hmmbench.example.vm_target import VmTarget
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

ALWAYS = "stale-pte-after-cpu-fault"
CLASSIC = (
    ALWAYS, "migrated-always-writable", "no-invalidate-wait", "no-read-retry", "no-tlb-invalidate",
)  # fmt: skip
PATCHES = [Path(__file__).parent.parent / "mutants" / f"{name}.patch" for name in CLASSIC]
REPLAYS = 10


def _wanted() -> list[Path]:
    if os.environ.get("HMMBENCH_FULL"):
        return PATCHES
    return [p for p in PATCHES if p.stem == ALWAYS]


@pytest.mark.full("the classic broken drivers, found and repeated")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("patch", _wanted(), ids=lambda p: p.stem)
def test_is_caught_shrunk_and_repeated(
    patch: Path, artifacts: Artifacts, spec: MachineSpec, tmp_path: Path
) -> None:
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(patch,)))
    )
    with Opener(broken) as opener, VmTarget(opener) as target:
        # With seed 1 the first failure is a rare race that takes all of its time to become small.
        campaign = Campaign(
            target, tmp_path, seed=2, grammar=2, examples=1500, delays=target.delay_points(),
            shrink_s=600, audit="fill",
        )
        tally = campaign.run()
        finding = tally.finding
        assert finding is not None, f"{patch.stem} survives {tally.examples} examples"
        recipe = Recipe.read(finding.recipe)
        assert len(recipe.program.ops) <= 10
        seen = 0
        for _ in range(REPLAYS):
            target.renew()
            seen += replay(target, recipe).found
        assert seen >= 9
    with Opener(spec) as opener, VmTarget(opener) as target:
        for _ in range(REPLAYS):
            target.renew()
            assert not replay(target, recipe).found
