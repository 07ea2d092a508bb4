# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest whose DMA goes to copies of pages: no GPU that shares memory is to be had there."""

from __future__ import annotations

from dataclasses import replace

from hmmbench.guest import splat
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec


def test_driver_refuses(spec: MachineSpec, snapshots: Snapshots) -> None:
    bounces = replace(spec, cmdline=(*spec.cmdline, "swiotlb=force"))
    with snapshots.open(bounces) as vm:
        said = vm.agent.check("dmesg | grep hmm_gpu; ls /sys/bus/pci/drivers/hmm_gpu/")
        assert "does not reach memory where it is" in said
        assert "0000:01:00.0" not in said.splitlines()
        assert splat.scan(vm.console.text()) == []
