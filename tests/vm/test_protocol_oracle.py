# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device notices reaches the user: a driver that never invalidates TLBs."""

from __future__ import annotations

from pathlib import Path

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.oracle import mirror
from hmmbench.runner import Campaign
from hmmbench.target import VmTarget
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.standard import best_spec

PATCH = Path(__file__).parent.parent / "mutants" / "no-tlb-invalidate.patch"


def test_a_check_becomes_a_finding(artifacts: Artifacts, tmp_path: Path) -> None:
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(PATCH,)))
    )
    with Opener(broken) as opener, VmTarget(opener) as target:
        tally = Campaign(target, tmp_path, seed=1, examples=100).run()
    (finding,) = tally.findings
    assert finding.violation.oracle == "protocol"
    assert finding.operations <= 10
    assert finding.violation.details


def test_no_record_of_a_sound_driver(vm: Machine) -> None:
    assert vm.agent.execute("rmmod hmm_gpu && insmod /lib/modules/hmm_gpu.ko").status == 0
    assert mirror.read(vm.violations()).total == 0
