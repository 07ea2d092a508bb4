# SPDX-License-Identifier: GPL-2.0-or-later
"""Device-exclusive access: atomics of the GPU keep the CPU away, and the CPU gets its page back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import work
from work import acc, cpu, flags, gpu, migrate, mmap, query, run_ops, statuses, values

from hmmbench.guest import program as p
from hmmbench.guest import splat
from hmmbench.guest.program import Acc, MapKind, Op
from hmmbench.model import ops
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.mapping import Mremap
from hmmbench.model.ops.moving import Policy, Query
from hmmbench.model.ops.processes import Fork, Sleep
from hmmbench.model.space import Space
from hmmbench.oracle import mapping
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec

EXCLUSIVE = p.POLICY_EXCLUSIVE
Q_EXCLUSIVE = p.Q_GPU_EXCLUSIVE


@pytest.fixture(scope="module")
def machine(spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    with snapshots.open(spec) as vm:
        vm.gpu.set_audit("access")
        yield vm


@pytest.fixture
def vm(machine: Machine) -> Iterator[Machine]:
    """The machine; a splat or a violation seen by the device fails the test."""
    machine.console.take()
    yield machine
    machine.check()
    assert splat.scan(machine.console.take()) == []
    assert work.no_violation(machine).checks


def test_an_atomic_takes_the_page_and_the_cpu_takes_it_back(vm: Machine) -> None:
    before = work.driver_counters(vm)["maps_exclusive"]
    n = 40
    result = run_ops(vm, [
        mmap(n),
        Op(Policy.number, arg=EXCLUSIVE),
        cpu(*[acc(Acc.WRITE, i, i) for i in range(n)]),
        gpu(acc(Acc.READ, 0), acc(Acc.WRITE, 1, 7)), query(2),
        gpu(*[acc(Acc.ADD, i, 100, lane=i) for i in range(n)]), query(n),
        gpu(*[acc(Acc.READ, i, lane=i) for i in range(n)]), query(n),
        cpu(acc(Acc.READ, 0), acc(Acc.ADD, 2, 1)), query(4),
        cpu(*[acc(Acc.READ, i) for i in range(n)]), query(n),
    ])  # fmt: skip
    assert statuses(result) == [0] * 13
    # reads and writes need no exclusive access ...
    assert [q & (p.Q_GPU_ATOMIC | Q_EXCLUSIVE) for q in flags(result, 4)] == [0, 0]
    # ... atomics do, and later reads do not end it
    wanted = p.Q_GPU_VALID | p.Q_GPU_WRITE | p.Q_GPU_ATOMIC | Q_EXCLUSIVE
    assert [q & wanted for q in flags(result, 6)] == [wanted] * n
    assert [q & wanted for q in flags(result, 8)] == [wanted] * n
    start = [0, 7, *range(2, n)]
    assert values(result, 7) == [v + 100 for v in start]
    # a CPU's touch ends it for that page alone
    assert [q & Q_EXCLUSIVE for q in flags(result, 10)] == [0, Q_EXCLUSIVE, 0, Q_EXCLUSIVE]
    assert not any(q & (Q_EXCLUSIVE | p.Q_GPU_VALID) for q in flags(result, 12))
    assert values(result, 11) == [v + 100 + (i == 2) for i, v in enumerate(start)]
    assert work.driver_counters(vm)["maps_exclusive"] >= before + n


def test_a_look_at_a_page_that_is_being_taken(vm: Machine) -> None:
    """Between the CPU's entry and the GPU's, QUERY shows a page the GPU alone may write.

    Also when nothing else runs: a fault may be served after its job has ended.  An oracle that
    took this for a bug once killed a driver that has none.
    """
    space = Space((0, 0, 0, 0))
    setup = [mmap(1), Op(Policy.number, arg=EXCLUSIVE)]
    for o in setup:
        ops.apply(space, o)
    looks: list[Op] = []
    for _ in range(60):
        looks += [Op(Sleep.number, a=20000, phase=1, actor=1), query(phase=1, actor=1)]
    work.set_delays(vm, "exclusive_before_map 1000000")
    try:
        result = run_ops(vm, [*setup, gpu(acc(Acc.ADD, 0, 1), phase=1), *looks, query(phase=2)])
    finally:
        work.set_delays(vm)
    seen = [i for i, o in enumerate(looks, start=3) if o.op == Query.number]
    between = p.Q_GPU_VALID | p.Q_GPU_WRITE
    assert [between] in [flags(result, i) for i in seen]
    assert [mapping.check(space, looks[i - 3], result.ops[i]) for i in seen] == [""] * len(seen)
    assert flags(result, len(result.ops) - 1)[0] & Q_EXCLUSIVE


def test_without_the_policy_no_page_is_exclusive(vm: Machine) -> None:
    before = work.driver_counters(vm)["maps_exclusive"]
    result = run_ops(vm, [
        mmap(1),
        gpu(acc(Acc.ADD, 0, 5)), query(),
        # from one mode into the other, and back
        Op(Policy.number, arg=EXCLUSIVE), query(), gpu(acc(Acc.ADD, 0, 5)), query(),
        Op(Policy.number, arg=p.POLICY_MAP), query(), gpu(acc(Acc.ADD, 0, 5)), query(),
        cpu(acc(Acc.READ, 0)),
    ])  # fmt: skip
    assert flags(result, 2)[0] & (p.Q_GPU_ATOMIC | Q_EXCLUSIVE) == p.Q_GPU_ATOMIC
    assert not flags(result, 4)[0] & p.Q_GPU_VALID
    assert flags(result, 6)[0] & Q_EXCLUSIVE
    assert not flags(result, 8)[0] & (p.Q_GPU_VALID | Q_EXCLUSIVE)
    assert flags(result, 10)[0] & (p.Q_GPU_ATOMIC | Q_EXCLUSIVE) == p.Q_GPU_ATOMIC
    assert values(result, 11) == [15]
    assert work.driver_counters(vm)["maps_exclusive"] == before + 1


@pytest.mark.parametrize(
    ("kind", "pages"),
    [(MapKind.ANON_SHARED, 8), (MapKind.FILE_SHARED, 8), (MapKind.FILE_PRIVATE, 8),
     (MapKind.HUGETLB_PRIVATE, 512), (MapKind.STACK, 8), (MapKind.GLOBAL, 8)],
)  # fmt: skip
def test_atomics_on_every_kind_of_memory(vm: Machine, kind: MapKind, pages: int) -> None:
    result = run_ops(vm, [
        mmap(pages, kind),
        Op(Policy.number, arg=EXCLUSIVE), cpu(acc(Acc.WRITE, 1, 11)),
        gpu(acc(Acc.ADD, 1, 1), acc(Acc.ADD, 2, 1, lane=1)),
        cpu(acc(Acc.ADD, 1, 1), acc(Acc.READ, 2)), gpu(acc(Acc.ADD, 1, 1), acc(Acc.READ, 1)),
    ], file_pages=(8, 0, 0, 0))  # fmt: skip
    assert statuses(result) == [0] * 6
    assert values(result, 4) == [12, 1]
    assert values(result, 5) == [13, 14]


def test_huge_pages_and_pages_in_vram(vm: Machine) -> None:
    """A huge page is split for it (or used as it is); VRAM needs no exclusive access."""
    n = 512
    result = run_ops(vm, [
        mmap(n),
        Op(Policy.number, arg=EXCLUSIVE),
        Op(Madvise.number, len=n * p.PAGE, a=Advice.HUGEPAGE, arg=Advice.HUGEPAGE),
        cpu(*[acc(Acc.WRITE, i, i) for i in range(0, n, 16)]),
        gpu(*[acc(Acc.ADD, i, 1, lane=i // 16) for i in range(0, n, 16)]),
        migrate(64, p.MIGRATE_DEVICE, off=64 * p.PAGE),
        gpu(*[acc(Acc.ADD, i, 1, lane=i // 16) for i in range(0, n, 16)]),
        cpu(*[acc(Acc.READ, i) for i in range(0, n, 16)]),
    ])  # fmt: skip
    assert statuses(result) == [0] * 8
    assert values(result, 7) == [i + 2 for i in range(0, n, 16)]


def test_the_first_small_page_of_a_huge_one(vm: Machine) -> None:
    """Its pieces are taken together or not at all, and one of them is in use already.

    The address range moves, so all of it has to be mapped again. A campaign found that the
    driver asked for ever.
    """
    n = 512
    result = run_ops(vm, [
        Op(Policy.number, arg=EXCLUSIVE),
        mmap(n),
        Op(Madvise.number, len=n * p.PAGE, a=Advice.HUGEPAGE),
        gpu(acc(Acc.ADD, 0, 5), acc(Acc.ADD, 3, 6, lane=1)),
        Op(Mremap.number, len=n * p.PAGE, arg=1, a=0, b=n * p.PAGE),
        gpu(acc(Acc.ADD, 0, 1, region=1), acc(Acc.ADD, 3, 1, region=1, lane=1)),
        cpu(acc(Acc.READ, 0, region=1), acc(Acc.READ, 3, region=1)),
    ])  # fmt: skip
    assert statuses(result) == [0] * 7
    assert values(result, 6) == [6, 7]


def test_the_head_of_a_huge_page_taken_back_in_part(vm: Machine) -> None:
    """Up to 6.14 its head takes all pages of it along, and never again once a CPU had some back."""
    n = 512
    result = run_ops(vm, [
        mmap(n),
        Op(Madvise.number, len=n * p.PAGE, a=Advice.HUGEPAGE),
        cpu(acc(Acc.WRITE, 0, 5)),
        Op(Policy.number, arg=EXCLUSIVE),
        gpu(acc(Acc.ADD, 0, 1)),
        cpu(acc(Acc.READ, 0), acc(Acc.READ, 2)),
        gpu(acc(Acc.ADD, 0, 1), acc(Acc.ADD, 2, 1)),
        cpu(acc(Acc.READ, 0), acc(Acc.READ, 2)),
    ])  # fmt: skip
    assert statuses(result) == [0] * 8
    assert values(result, 5) == [6, 0]
    assert values(result, 7) == [7, 1]


def test_both_at_once_and_a_fork(vm: Machine) -> None:
    """CPU and GPU count in the same pages at the same time; then a child has a copy."""
    n, rounds = 4, 200
    adds = [acc(Acc.ADD, i % n, 1) for i in range(n * rounds)]
    lanes = [acc(Acc.ADD, i % n, 1, lane=i % n) for i in range(n * rounds)]
    result = run_ops(vm, [
        mmap(n),
        Op(Policy.number, arg=EXCLUSIVE),
        gpu(*lanes, phase=1, actor=0), cpu(*adds, phase=1, actor=1),
        Op(Fork.number, arg=1, phase=2),
        gpu(*[acc(Acc.ADD, i, 1) for i in range(n)], phase=3),
        cpu(*[acc(Acc.READ, i) for i in range(n)], phase=4),
        cpu(*[acc(Acc.READ, i) for i in range(n)], phase=4, proc=1),
    ])  # fmt: skip
    assert statuses(result) == [0] * 8
    assert values(result, 6) == [2 * rounds + 1] * n
    assert values(result, 7) == [2 * rounds] * n


def test_a_fork_while_the_driver_holds_a_page(vm: Machine) -> None:
    """fork() fails while a page that is the device's alone is locked (docs/kernel-bugs.md): the
    agent asks again, and the child is a copy of what the GPU has added until then.
    """
    n = 8
    work.set_delays(vm, "exclusive_before_map 30000 1000")
    result = run_ops(vm, [
        mmap(n),
        Op(Policy.number, arg=EXCLUSIVE),
        gpu(*[acc(Acc.ADD, i, 1, lane=i) for i in range(n)], phase=1, actor=1),
        Op(Sleep.number, a=40000, phase=1),
        Op(Fork.number, arg=1, phase=1),
        cpu(*[acc(Acc.READ, i) for i in range(n)], phase=2),
        cpu(*[acc(Acc.READ, i) for i in range(n)], phase=2, proc=1),
    ])  # fmt: skip
    held = {point.name: point.hits for point in work.delay_points(vm)}
    work.set_delays(vm)
    assert held["exclusive_before_map"]
    assert statuses(result) == [0] * 7
    assert values(result, 5) == [1] * n
    assert set(values(result, 6)) <= {0, 1}
