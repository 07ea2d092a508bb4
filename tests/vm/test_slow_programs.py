# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that takes its time, on a busy host or at delay points, is not one that hangs."""

from __future__ import annotations

from work import acc, cpu, gpu, mmap

from hmmbench.example.judge import judge
from hmmbench.example.recipe import Environment
from hmmbench.example.vm_target import VmTarget
from hmmbench.guest.program import (
    BUSY_TIMES,
    MIGRATE_DEVICE,
    MIGRATE_MAP,
    PAGE,
    Acc,
    Op,
    Program,
)
from hmmbench.model.ops.moving import Evict, Migrate
from hmmbench.vm.opener import Opener
from hmmbench.vm.spec import MachineSpec

LIMIT_MS = 1000


def program(pages: int) -> Program:
    """One operation whose accesses fault one after the other."""
    ops = [
        mmap(pages),
        cpu(*(acc(Acc.WRITE, page, 5) for page in range(pages))),
        gpu(*(acc(Acc.ADD, page, 100) for page in range(pages))),
    ]
    for phase, op in enumerate(ops):
        op.phase = phase
    return Program(ops, (0, 0, 0, 0), timeout_ms=LIMIT_MS)


def test_delay_points_make_no_hang(spec: MachineSpec) -> None:
    waits = Environment(delays=("fault_before_replay 100000 1000 1",))
    with Opener(spec) as opener, VmTarget(opener) as target:
        done = target.execute(program(16), waits)
        assert done.result is not None
        assert judge(done).violations == []
        assert done.result.elapsed_ns > 1_500_000 * LIMIT_MS

        done = target.execute(program(300), waits)
        (violation,) = judge(done).violations
        assert violation.oracle == "progress"
        assert f"did not end in {BUSY_TIMES} s, though it does work" in violation.message


def test_taking_pages_away_one_by_one_is_work(spec: MachineSpec) -> None:
    """An eviction counts its pages when it has moved them all; each has an invalidation."""
    pages = 300
    ops = [
        mmap(pages),
        cpu(*(acc(Acc.WRITE, page, 5) for page in range(pages))),
        Op(Migrate.number, len=pages * PAGE, arg=MIGRATE_DEVICE, a=MIGRATE_MAP),
        Op(Evict.number),
    ]
    for phase, op in enumerate(ops):
        op.phase = phase
    slow = Environment(inject=("mmu.invalidate delay=8000000",))
    with Opener(spec) as opener, VmTarget(opener) as target:
        done = target.execute(Program(ops, (0, 0, 0, 0), timeout_ms=LIMIT_MS), slow)
    assert judge(done).violations == []
    assert done.result is not None
    assert done.result.ops[-1].time_ns > 1_500_000 * LIMIT_MS
