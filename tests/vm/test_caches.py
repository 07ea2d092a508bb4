# SPDX-License-Identifier: GPL-2.0-or-later
"""A device with a data cache over VRAM and posted writes: what the driver flushes is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import work
from work import migrate, mmap, run_ops, statuses, values

from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest import program as p
from hmmbench.guest import splat
from hmmbench.guest.program import Acc, Op
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.mapping import Munmap
from hmmbench.model.ops.moving import Evict
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

N = 64
CPU, GPU = CpuAccess.number, GpuAccess.number


@pytest.fixture(scope="module")
def caches(spec: MachineSpec) -> MachineSpec:
    return spec.with_device("caches")


@pytest.fixture
def vm(caches: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    with snapshots.open(caches) as machine:
        machine.gpu.set_audit("access")
        yield machine
        machine.check()
        assert splat.scan(machine.console.text()) == []
        work.no_violation(machine)


def each(kind: int, what: Acc, value: int = 0, **where: int) -> Op:
    return Op(kind, acc=[work.acc(what, i, value, lane=i) for i in range(N)], **where)


def test_what_a_job_stored_is_there_when_it_is_over(vm: Machine) -> None:
    """In system memory: nothing is posted any more."""
    result = run_ops(vm, [mmap(N), each(CPU, Acc.WRITE, 5), each(GPU, Acc.WRITE, 7),
                          each(CPU, Acc.READ)])  # fmt: skip
    assert statuses(result) == [0] * 4
    assert values(result, 3) == [7] * N


@pytest.mark.parametrize("home", ["cpu", "migrate", "evict"])
def test_home_and_out_again(vm: Machine, home: str) -> None:
    """What the GPU wrote in VRAM comes home, and what the CPU then writes goes out."""
    away = {
        "cpu": [], "migrate": [migrate(N, p.MIGRATE_SYSTEM)], "evict": [Op(Evict.number, a=4 * N)],
    }[home]  # fmt: skip
    ops = [mmap(N), each(CPU, Acc.WRITE, 5)]
    reads = []
    for turn in range(3):
        ops += [migrate(N, p.MIGRATE_DEVICE), each(GPU, Acc.WRITE, 100 + turn), *away]
        reads.append(len(ops))
        ops += [each(CPU, Acc.READ), each(CPU, Acc.WRITE, 200 + turn),
                migrate(N, p.MIGRATE_DEVICE)]  # fmt: skip
        reads.append(len(ops))
        ops.append(each(GPU, Acc.READ))
    result = run_ops(vm, ops)
    want = [value for turn in range(3) for value in (100 + turn, 200 + turn)]
    assert [values(result, at) for at in reads] == [[value] * N for value in want]


def test_frames_of_memory_that_went_away(vm: Machine) -> None:
    """They are given back without a copy; the next owner's jobs see their own."""
    ops: list[Op] = []
    reads = []
    for turn in range(4):
        ops += [mmap(N), each(CPU, Acc.WRITE, 10 + turn), migrate(N, p.MIGRATE_DEVICE)]
        reads.append(len(ops))
        ops += [each(GPU, Acc.READ), each(GPU, Acc.WRITE, 90 + turn),
                Op(Munmap.number, len=N * p.PAGE)]  # fmt: skip
    result = run_ops(vm, ops)
    assert [values(result, at) for at in reads] == [[10 + turn] * N for turn in range(4)]


def test_a_reset_keeps_what_was_in_the_cache(vm: Machine) -> None:
    vm.reset_gpu()
    result = run_ops(vm, [mmap(N), each(CPU, Acc.WRITE, 5), migrate(N, p.MIGRATE_DEVICE),
                          each(GPU, Acc.WRITE, 7), each(CPU, Acc.READ)])  # fmt: skip
    assert values(result, 4) == [7] * N


def test_the_state_machine(caches: MachineSpec, tmp_path: Path) -> None:
    with Opener(caches) as opener, VmTarget(opener) as target:
        tally = Campaign(
            target, tmp_path / "out", seed=31, examples=60, delays=target.delay_points(),
            audit="access", device="caches",
        ).run()  # fmt: skip
        assert [f.violation.message for f in tally.findings] == []
    assert target.totals.to_device > 0
