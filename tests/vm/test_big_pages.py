# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that knows leaves of 64 KiB, and whose SMs share a micro-TLB."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec


@pytest.mark.parametrize("seed", [41, 42])
def test_the_state_machine(spec: MachineSpec, tmp_path: Path, seed: int) -> None:
    # (Of that grammar these seeds have folios of that size.)
    with Opener(spec.with_device("big-pages")) as opener, VmTarget(opener) as target:
        tally = Campaign(
            target, tmp_path / "out", seed=seed, examples=60, delays=target.delay_points(),
            audit="access", device="big-pages", grammar=4,
        ).run()  # fmt: skip
        assert [f.violation.message for f in tally.findings] == []
    assert target.totals.counts["maps_big"] > 20, "nothing was mapped by leaves of 64 KiB"


def test_no_such_leaf_where_the_device_knows_none(spec: MachineSpec, tmp_path: Path) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        Campaign(target, tmp_path / "out", seed=41, examples=20).run()
    assert target.totals.counts["maps"] > 100
    assert target.totals.counts["maps_big"] == 0
