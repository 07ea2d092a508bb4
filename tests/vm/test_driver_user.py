# SPDX-License-Identifier: GPL-2.0-or-later
"""What one user, or one program, must not do to others: driver_user.c says what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import work

from hmmbench.guest import splat
from hmmbench.suites import driver_life
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

HERE = Path(__file__).parent

#: A second GPU behind a port of its own, and where the guest finds it.
SECOND = (
    *("-device", "pcie-root-port,id=port2,bus=pcie.0,chassis=2,slot=2"),
    *("-device", "hmm-gpu,id=gpu1,bus=port2"),
)
ADDRESS = "0000:02:00.0"


def test_others_are_left_alone(
    spec: MachineSpec, snapshots: Snapshots, tmp_path: Path
) -> None:
    files = driver_life.build(tmp_path, [], work.WARNINGS)
    files["/tmp/driver_user"] = driver_life.compile_c(
        HERE / "driver_user.c", tmp_path, tmp_path / "driver_user", work.WARNINGS
    )
    with snapshots.open(replace(spec, extra=(*spec.extra, *SECOND))) as vm:
        for path, content in files.items():
            vm.agent.write_file(path, content, 0o755)
        vm.agent.check(f"ls /sys/bus/pci/drivers/hmm_gpu/{ADDRESS}")
        command = f"/tmp/driver_user {driver_life.KERNELS} {ADDRESS} 2>&1"
        result = vm.agent.execute(command, timeout=120)
        assert (result.status, "user passed" in result.output) == (0, True), result.output
        vm.agent.check("rmmod hmm_gpu")
        assert splat.scan(vm.console.text()) == []
