# SPDX-License-Identifier: GPL-2.0-or-later
"""Device-coherent memory: the CPU uses pages in VRAM where they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import work
from work import flags, migrate, mmap, query, run_ops, statuses, values

from hmmbench.campaign.runner import Campaign
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest import program as p
from hmmbench.guest import splat
from hmmbench.guest.program import Acc, Op
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess
from hmmbench.model.ops.moving import Evict, Policy
from hmmbench.model.ops.pins import PIPE, Pin, Unpin
from hmmbench.model.ops.processes import Fork, Sleep
from hmmbench.vm.machine import Machine
from hmmbench.vm.opener import Opener
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

N = 64


@pytest.fixture(scope="module")
def coherent(spec: MachineSpec) -> MachineSpec:
    return spec.with_gpu(coherent=True)


@pytest.fixture
def vm(coherent: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    """A machine of its own; a splat or a violation seen by the device fails the test."""
    with snapshots.open(coherent) as machine:
        machine.gpu.set_audit("access")
        yield machine
        machine.check()
        assert splat.scan(machine.console.text()) == []
        work.no_violation(machine)


def all_pages(kind: int, what: Acc, value: int = 0, **where: int) -> Op:
    """Each page once, on a lane of its own if a GPU does it."""
    return Op(kind, acc=[work.acc(what, i, value, lane=i) for i in range(N)], **where)


def test_both_use_a_page_in_vram(vm: Machine) -> None:
    assert vm.agent.hello()["coherent"] == 1
    cpu, gpu = CpuAccess.number, GpuAccess.number
    result = run_ops(vm, [
        mmap(N), all_pages(cpu, Acc.WRITE, 5), migrate(N, p.MIGRATE_DEVICE), query(N),
        all_pages(cpu, Acc.ADD, 1), all_pages(gpu, Acc.ADD, 10), all_pages(cpu, Acc.ADD, 1),
        query(N),
        # only phases order what different processes do
        Op(Fork.number, arg=1), all_pages(cpu, Acc.ADD, 100, proc=1, phase=1), query(N, phase=2),
        all_pages(cpu, Acc.READ, phase=2), migrate(N, p.MIGRATE_SYSTEM, phase=2),
        query(N, phase=2), all_pages(cpu, Acc.READ, phase=2),
    ])  # fmt: skip
    assert statuses(result) == [0] * 15
    assert (result.ops[2].aux0, result.ops[2].aux1) == (N, 0)
    device = p.Q_CPU_READ | p.Q_CPU_WRITE | p.Q_CPU_DEVICE
    assert flags(result, 3) == [device] * N
    # the CPU's accesses moved nothing
    gpu_too = p.Q_GPU_VALID | p.Q_GPU_WRITE | p.Q_GPU_ATOMIC | p.Q_GPU_VRAM
    assert flags(result, 7) == [device | gpu_too] * N
    assert work.driver_counters(vm)["cpu_faults"] == 0
    assert values(result, 5) == [6] * N
    # the child's writes made copies; the parent's pages are where they were
    assert [q & p.Q_CPU_DEVICE for q in flags(result, 10)] == [p.Q_CPU_DEVICE] * N
    assert values(result, 11) == [17] * N
    assert [q & p.Q_CPU_DEVICE for q in flags(result, 13)] == [0] * N
    assert values(result, 14) == [17] * N


def test_a_page_that_moved_before_it_was_made_exclusive_stays_an_ordinary_one(vm: Machine) -> None:
    """An exclusive entry of a page in VRAM would keep it from coming home."""
    for sleep in (4_000, 20_000, 100_000, 500_000):
        # Meanwhile the page moves: its fault was served, the right to atomics is not yet there.
        work.set_delays(vm, "exclusive_before_entry until migrate_before_map 1000000")
        result = run_ops(vm, [
            mmap(1), Op(Policy.number, arg=p.POLICY_EXCLUSIVE), work.cpu(work.acc(Acc.WRITE, 0, 5)),
            work.gpu(work.acc(Acc.READ, 0)),
            work.gpu(work.acc(Acc.ADD, 0, 10), phase=1),
            Op(Sleep.number, a=sleep, actor=1, phase=1),
            migrate(1, p.MIGRATE_DEVICE, a=p.MIGRATE_MAP, actor=1, phase=1),
            query(1, phase=2), Op(Evict.number, phase=2), query(1, phase=2),
            work.cpu(work.acc(Acc.READ, 0), phase=2),
        ])  # fmt: skip
        assert statuses(result) == [0] * 11
        if any(point.met for point in work.delay_points(vm)):
            break
    else:
        pytest.fail("the page never moved while the GPU waited")
    assert (result.ops[6].aux0, result.ops[6].aux1) == (1, 0)
    cpu = p.Q_CPU_READ | p.Q_CPU_WRITE | p.Q_CPU_DEVICE
    gpu = p.Q_GPU_VALID | p.Q_GPU_WRITE | p.Q_GPU_ATOMIC | p.Q_GPU_VRAM
    assert flags(result, 7) == [cpu | gpu]
    assert [q & p.Q_CPU_DEVICE for q in flags(result, 9)] == [0]
    assert values(result, 10) == [15]


def test_eviction_brings_them_home(vm: Machine) -> None:
    result = run_ops(vm, [
        mmap(N), all_pages(CpuAccess.number, Acc.WRITE, 7), migrate(N, p.MIGRATE_DEVICE),
        Op(Evict.number), query(N), all_pages(CpuAccess.number, Acc.READ),
    ])  # fmt: skip
    assert [q & p.Q_CPU_DEVICE for q in flags(result, 4)] == [0] * N
    assert values(result, 5) == [7] * N


def test_after_a_reset_and_a_reload_it_works_as_before(vm: Machine) -> None:
    """What happens to pages that are there meanwhile: test_driver_life.py."""
    write = all_pages(CpuAccess.number, Acc.WRITE, 9)
    ops = [mmap(N), write, migrate(N, p.MIGRATE_DEVICE), query(N)]
    device = [p.Q_CPU_READ | p.Q_CPU_WRITE | p.Q_CPU_DEVICE] * N
    assert flags(run_ops(vm, ops), 3) == device
    vm.reset_gpu()
    assert work.driver_counters(vm)["resets"] == 1
    assert flags(run_ops(vm, ops), 3) == device
    vm.agent.check("rmmod hmm_gpu && insmod /lib/modules/hmm_gpu.ko")
    assert flags(run_ops(vm, ops), 3) == device


def test_the_state_machine(coherent: MachineSpec, tmp_path: Path) -> None:
    with Opener(coherent) as opener, VmTarget(opener) as target:
        tally = Campaign(
            target, tmp_path / "out", seed=21, examples=40, delays=target.delay_points(),
            audit="access",
        ).run()  # fmt: skip
        assert [f.violation.message for f in tally.findings] == []
    assert target.totals.audit_checks > 1000
    assert target.totals.to_device > 0


def test_pages_that_a_pipe_has_stay_in_vram(vm: Machine) -> None:
    """Eviction comes to an end beside them, and takes them when they are let go."""
    n = 2
    result = run_ops(vm, [
        mmap(n), Op(CpuAccess.number, acc=[work.acc(Acc.WRITE, 0, 7)]),
        migrate(n, p.MIGRATE_DEVICE),
        Op(Pin.number, len=n * p.PAGE, arg=PIPE), query(n), Op(Evict.number), query(n),
        Op(Unpin.number), Op(Evict.number), query(n),
    ])  # fmt: skip
    assert [r.status for r in result.ops] == [0] * 10
    device = [[bool(q & p.Q_CPU_DEVICE) for q in flags(result, i)] for i in (4, 6, 9)]
    assert device == [[True, True], [True, True], [False, False]]
