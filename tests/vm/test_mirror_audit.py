# SPDX-License-Identifier: GPL-2.0-or-later
"""The mirror audit on the real machine: silent on a sound driver, loud on broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.campaign.generate import program, size_of
from hmmbench.campaign.runner import Campaign
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.oracle import mirror
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

MUTANTS = Path(__file__).parent.parent / "mutants"


def test_a_sound_driver_is_not_accused(spec: MachineSpec, tmp_path: Path) -> None:
    with Opener(spec) as opener, VmTarget(opener) as target:
        campaign = Campaign(
            target, tmp_path / "out", seed=12, examples=40, delays=target.delay_points(),
            audit="access",
        )  # fmt: skip
        tally = campaign.run()
        assert [f.violation.message for f in tally.findings] == []
        # it did look
        assert target.totals.audit_checks > 1000


def test_a_broken_driver_is_caught_by_the_mirror(artifacts: Artifacts, tmp_path: Path) -> None:
    """By what the device saw, whatever the values say."""
    patch = MUTANTS / "stale-pte-after-cpu-fault.patch"
    broken, _ = best_spec(
        ensure(BuildRequest(kernel_build=artifacts.kernel_build_dir, driver_patches=(patch,)))
    )
    with Opener(broken) as opener, VmTarget(opener) as target:
        for n in range(100):
            p = program(bytes((n * 31 + i * 7) & 255 for i in range(size_of(60))), n)
            done = target.execute(p, Environment(audit="fill"))
            if any(v.oracle == "mirror" for v in done.violations):
                return
            if done.tainted:
                target.renew()
        pytest.fail("the mirror audit did not see it in 100 examples")


def test_the_setting_survives_a_snapshot(spec: MachineSpec) -> None:
    """The encodings come from the driver, which was bound before the snapshot."""
    with Opener(spec) as opener, VmTarget(opener) as target:
        vm = target.vm
        assert mirror.read(vm.gpu.violations()).ready
        vm.gpu.set_audit("access")
        assert mirror.read(vm.gpu.violations()).checks == 0
        assert vm.gpu.audit_full() == 0  # nobody has a mirror
        # What the device has recorded is taken away with the execution.
        done = target.execute(program(bytes(size_of(40)), 1), Environment(audit="access"))
        assert done.violations == []
