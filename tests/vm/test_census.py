# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel says of a machine's memory, and of a process's, with a sound driver."""

from __future__ import annotations

import struct

import pytest
from work import acc, cpu, gpu, migrate, mmap, run_ops

from hmmbench.guest import program as p
from hmmbench.guest.program import PAGE, Acc, MapKind, Op, Program
from hmmbench.model.ops.accounts import Account, looked
from hmmbench.oracle import growth, unreferenced
from hmmbench.oracle.values import Checker
from hmmbench.vm.machine import Machine

N = 8
SWAPPED = 1 << 62

#: Memory of three kinds that the GPU has, some of it in VRAM.
USED = [
    mmap(N), cpu(*[acc(Acc.WRITE, i, i + 1) for i in range(N)]), migrate(N, p.MIGRATE_DEVICE),
    mmap(N, MapKind.ANON_SHARED, region=1), mmap(N, MapKind.FILE_PRIVATE, region=2),
    gpu(
        *[acc(Acc.ADD, i, 100) for i in range(N)],
        *[acc(Acc.WRITE, i, 7, region=1) for i in range(N)],
        *[acc(Acc.WRITE, i, 7, region=2) for i in range(0, N, 2)],
        *[acc(Acc.READ, i, region=2) for i in range(1, N, 2)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("again", [4, 16])
def test_a_sound_driver_leaves_nothing(watched: Machine, again: int) -> None:
    """All looks are printed by a failure: what grows without being a leak is excepted by name in
    agent/engine/census.c, or not counted."""
    result = run_ops(watched, USED, file_pages=(N, 0, 0, 0), again=again)
    assert growth.looked(result) >= again
    assert growth.check(result) is None, result.counters_after
    # What was answered is of the first run.
    assert [r.status for r in result.ops] == [0] * len(USED)


def test_accounts_agree(watched: Machine) -> None:
    ops = [
        *USED, Op(Account.number, len=N * PAGE, arg=1),
        Op(Account.number, region=1, len=N * PAGE, arg=1),
        Op(Account.number, region=2, len=N * PAGE, arg=1),
    ]  # fmt: skip
    for number, o in enumerate(ops):
        o.phase = number
    result = run_ops(watched, ops, file_pages=(N, 0, 0, 0))
    assert all(looked(o, r) for o, r in zip(ops[-3:], result.ops[-3:], strict=True))
    assert Checker(Program(ops, (N, 0, 0, 0)), result).run() is None
    entries = [e for e, _ in struct.iter_unpack("<QQ", result.ops[-3].data[48:])]
    assert len(entries) == N
    # In VRAM: swapped, to those who read pagemap; and of anonymous memory, says the sum.
    assert all(e & SWAPPED for e in entries)
    # (kilobytes that are counted)
    anon, *_ = struct.unpack_from("<6Q", result.ops[-3].data)
    assert anon >= N * 4


def test_a_scan_of_all_memory(vm: Machine) -> None:
    if not vm.hello.get("kmemleak"):
        pytest.skip("a kernel without kmemleak")
    run_ops(vm, USED, file_pages=(N, 0, 0, 0))
    assert unreferenced.check(vm) is None
