# SPDX-License-Identifier: GPL-2.0-or-later
"""The bench's usual machine, from what the build made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hmmbench.vm.accel import Accel, probe
from hmmbench.vm.spec import MachineSpec

if TYPE_CHECKING:
    from hmmbench.build import Artifacts


def standard_spec(artifacts: Artifacts, accel: str = "tcg") -> MachineSpec:
    """Two processors, 1 GiB, one GPU with the device's default sizes."""
    return MachineSpec(
        qemu=artifacts.qemu,
        firmware=artifacts.qemu_data_dirs,
        kernel=artifacts.kernel_image,
        initramfs=artifacts.initramfs,
        accel=accel,
    )


#: Address spaces and contexts of an exact machine's GPU: enough for the programs of an example and
#: those before it that still go, so few that a driver that loses some runs out within a chain.
EXACT_IDS = 24


def exact_spec(spec: MachineSpec, cpus: int) -> MachineSpec:
    """The same machine, exact: docs/exact.md."""
    return replace(spec, exact=True, accel="tcg", cpus=cpus).with_gpu(
        asids=EXACT_IDS, contexts=EXACT_IDS
    )


def best_spec(artifacts: Artifacts) -> tuple[MachineSpec, Accel]:
    """The usual machine with the accelerator that works on this host, and why that one."""
    spec = standard_spec(artifacts)
    accel = probe(spec)
    return replace(spec, accel=accel.name), accel
