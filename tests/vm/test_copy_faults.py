# SPDX-License-Identifier: GPL-2.0-or-later
"""A device whose copies report what they miss to the non-replayable ring, and wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec


@pytest.mark.parametrize("seed", [41, 42])
def test_the_state_machine(spec: MachineSpec, tmp_path: Path, seed: int) -> None:
    with Opener(spec.with_device("copy-faults")) as opener, VmTarget(opener) as target:
        tally = Campaign(
            target, tmp_path / "out", seed=seed, examples=60, delays=target.delay_points(),
            audit="access", device="copy-faults",
        ).run()  # fmt: skip
        assert [f.violation.message for f in tally.findings] == []
