# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device notices reaches the user: a driver that never invalidates TLBs."""

from __future__ import annotations

from pathlib import Path

import pytest
import work

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign import runner
from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.oracle import mirror
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "no-tlb-invalidate.patch"


def test_a_check_becomes_a_finding(
    artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next program gets the address space number of the one before, and its TLB entries."""
    monkeypatch.setattr(runner, "program", lambda data, **_: work.plain().program)
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(PATCH,)))
    )
    with Opener(broken) as opener, VmTarget(opener) as target:
        tally = Campaign(target, tmp_path, seed=1, grammar=2, examples=10, injections=()).run()
    finding = tally.finding
    assert finding is not None
    assert finding.violation.oracle == "protocol"
    assert finding.operations <= 3
    assert finding.violation.details


def test_no_record_of_a_sound_driver(vm: Machine) -> None:
    assert vm.agent.execute("rmmod hmm_gpu && insmod /lib/modules/hmm_gpu.ko").status == 0
    assert mirror.read(vm.gpu.violations()).total == 0
