# SPDX-License-Identifier: GPL-2.0-or-later
"""Areas that change by new calls, and lives of the GPU's file, in a machine."""

from __future__ import annotations

import errno

import pytest
from work import acc, cpu, gpu, migrate, mmap, run_ops, statuses, values

from hmmbench.guest import program as p
from hmmbench.guest.program import F_CTX1, F_NOWAIT, F_THREAD, PAGE, PROT_RW, Acc, MapKind, Op
from hmmbench.model.ops.advice import Zap
from hmmbench.model.ops.jobs import CloseGpu, GpuSpin
from hmmbench.model.ops.lives import Exec, OpenAs, ReceiveGpu, SendGpu, SplitGpu, UseHeld
from hmmbench.model.ops.mapping import Replace
from hmmbench.model.ops.processes import Exit, Spawn
from hmmbench.vm.machine import Machine

PERM = -errno.EPERM


def test_what_is_replaced_is_new_and_what_is_zapped_is_not(watched: Machine) -> None:
    result = run_ops(watched, [
        mmap(4), gpu(acc(Acc.WRITE, 0, 5)), migrate(4, p.MIGRATE_DEVICE),
        Op(Replace.number, len=2 * PAGE, arg=MapKind.ANON_SHARED, a=PROT_RW),
        gpu(acc(Acc.ADD, 0, 1)), cpu(acc(Acc.READ, 0)),
        Op(Zap.number, len=PAGE), gpu(acc(Acc.ADD, 0, 1)), cpu(acc(Acc.READ, 0)),
    ])  # fmt: skip
    assert statuses(result) == [0] * 9
    assert values(result, 5) == [1]
    assert values(result, 8) == [2]


def test_two_open_files_of_one_memory(watched: Machine) -> None:
    second = gpu(acc(Acc.ADD, 0, 10))
    second.flags = F_CTX1
    back = gpu(acc(Acc.ADD, 0, 100))
    thread = gpu(acc(Acc.ADD, 0, 1000))
    thread.flags = F_THREAD
    result = run_ops(watched, [
        mmap(1), Op(SplitGpu.number, a=1), gpu(acc(Acc.ADD, 0, 1)), migrate(1, p.MIGRATE_DEVICE),
        second, back, thread, cpu(acc(Acc.READ, 0)), Op(SplitGpu.number), gpu(acc(Acc.ADD, 0, 1)),
        cpu(acc(Acc.READ, 0)),
    ])  # fmt: skip
    assert statuses(result) == [0] * 11
    assert values(result, 7) == [1111]
    assert values(result, 10) == [1112]


@pytest.mark.parametrize("how", ["exit", "exec", "close"])
def test_a_file_outlives_the_memory_that_it_mirrors(watched: Machine, how: str) -> None:
    last = {
        "exit": Op(Exit.number), "exec": Op(Exec.number, a=1000), "close": Op(CloseGpu.number),
    }[how]  # fmt: skip
    held = [Op(UseHeld.number, proc=1, len=PAGE, arg=n) for n in (1, 2, 3, 4, 0)]
    other = mmap(1)
    theirs = gpu(acc(Acc.ADD, 0, 7))
    other.proc = theirs.proc = 1
    listed = [
        mmap(1), gpu(acc(Acc.WRITE, 0, 1)), Op(Spawn.number, arg=1), Op(SendGpu.number),
        Op(ReceiveGpu.number, proc=1), Op(GpuSpin.number, flags=F_NOWAIT, a=1 << 40), last,
        *held[:4], other, theirs, held[4],
    ]  # fmt: skip
    for phase, o in enumerate(listed):
        o.phase = phase
    result = run_ops(watched, listed)
    # The job has no memory any more, and nobody waits for it: how it ends is not seen.
    assert statuses(result)[:5] + statuses(result)[6:] == [0] * 6 + [0, PERM, PERM, PERM, 0, 0, 0]
    assert not result.died
    assert not result.live_nonzero


def test_another_user_opens_the_gpu(watched: Machine) -> None:
    result = run_ops(watched, [
        mmap(1), Op(OpenAs.number, arg=1000), gpu(acc(Acc.ADD, 0, 1)), Op(OpenAs.number, arg=1001),
        gpu(acc(Acc.ADD, 0, 1)), Op(CloseGpu.number), gpu(acc(Acc.ADD, 0, 1)),
        cpu(acc(Acc.READ, 0)),
    ])  # fmt: skip
    assert statuses(result) == [0] * 8
    assert values(result, 7) == [3]
    assert not result.live_nonzero
