# SPDX-License-Identifier: GPL-2.0-or-later
"""Who gets hold of pages that the GPU has: calls of the kernel, and pins for long."""

from __future__ import annotations

import errno

import pytest
from test_files import judged
from work import acc, cpu, flags, gpu, migrate, mmap, query, statuses, values

from hmmbench.guest import program as p
from hmmbench.guest.program import MIGRATE_DEVICE, PAGE, PROT_NONE, Acc, MapKind, Op
from hmmbench.model.ops.mapping import Mprotect
from hmmbench.model.ops.moving import Evict
from hmmbench.model.ops.pins import WRITES, How, Pin, PinIo, Unpin
from hmmbench.model.ops.processes import Fork, Spawn
from hmmbench.vm.machine import Machine

N = 4


def io(how: How, length: int = N * PAGE, off: int = 0, **fields: int) -> Op:
    return Op(PinIo.number, arg=how, off=off, len=length, a=99, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", list(How), ids=lambda h: h.name)
def test_a_call_finds_what_is_in_vram_and_leaves_what_the_gpu_finds(
    watched: Machine, how: How
) -> None:
    forced = how in (How.PEEK, How.POKE)
    length, off = (512, PAGE - 256) if forced else (N * PAGE, 0)
    result = judged(watched, [
        mmap(N), gpu(*[acc(Acc.WRITE, i, i + 1, lane=i) for i in range(N)]),
        migrate(N, MIGRATE_DEVICE), io(how, length, off), query(N),
        gpu(*[acc(Acc.ADD, i, 1, lane=i) for i in range(N)]), migrate(N, MIGRATE_DEVICE),
        cpu(*[acc(Acc.READ, i) for i in range(N)]),
    ])  # fmt: skip
    assert result.ops[3].aux0 == length
    written = range(1, 2) if forced else range(N)
    assert values(result, 7) == [
        (99 if how in WRITES and i in written else i + 1) + 1 for i in range(N)
    ]  # fmt: skip


def test_a_debugger_reaches_what_is_protected_and_in_vram(watched: Machine) -> None:
    result = judged(watched, [
        mmap(1), gpu(acc(Acc.WRITE, 0, 7)), migrate(1, MIGRATE_DEVICE),
        Op(Mprotect.number, len=PAGE, a=PROT_NONE), io(How.PEEK, 8), io(How.POKE, 8),
        gpu(acc(Acc.READ, 0)), Op(Mprotect.number, len=PAGE, a=1), gpu(acc(Acc.READ, 0)),
        io(How.POKE, 8, 8), gpu(acc(Acc.READ, 0, byte=8)),
    ])  # fmt: skip
    assert statuses(result)[6] == -errno.EFAULT
    assert values(result, 8) + values(result, 10) == [99, 99]


def test_another_process_reaches_what_is_in_vram(watched: Machine) -> None:
    """Also one that has nothing to do with the GPU."""
    judged(watched, [
        mmap(N), Op(Spawn.number, arg=1), gpu(*[acc(Acc.WRITE, i, i + 1) for i in range(N)]),
        migrate(N, MIGRATE_DEVICE), io(How.VM_READ, proc=1, b=1), migrate(N, MIGRATE_DEVICE),
        io(How.VM_WRITE, proc=1, b=1), gpu(*[acc(Acc.READ, i) for i in range(N)]),
    ])  # fmt: skip


@pytest.mark.parametrize("kind", [MapKind.ANON_PRIVATE, MapKind.ANON_SHARED])
def test_pinned_pages_stay_and_stay_right(watched: Machine, kind: MapKind) -> None:
    pinned = Op(Pin.number, off=PAGE, len=2 * PAGE)
    result = judged(watched, [
        mmap(N, kind), gpu(*[acc(Acc.WRITE, i, i + 1, lane=i) for i in range(N)]),
        migrate(N, MIGRATE_DEVICE), pinned, query(N), migrate(N, MIGRATE_DEVICE), query(N),
        gpu(*[acc(Acc.ADD, i, 10, lane=i) for i in range(N)]), Op(Evict.number),
        Op(Fork.number, arg=1), cpu(*[acc(Acc.ADD, i, 100) for i in range(N)]),
        gpu(*[acc(Acc.ADD, i, 1000, lane=i) for i in range(N)]),
        Op(Unpin.number), migrate(N, MIGRATE_DEVICE), query(N),
        cpu(*[acc(Acc.READ, i) for i in range(N)]),
    ])  # fmt: skip
    private = kind == MapKind.ANON_PRIVATE
    for at in (4, 6):
        assert [bool(q & p.Q_CPU_DEVICE) for q in flags(result, at)][1:3] == [False] * 2
    assert result.ops[5].aux0 <= N - 2
    if private:
        assert [bool(q & p.Q_CPU_DEVICE) for q in flags(result, 6)] == [True, False, False, True]
    assert values(result, 15) == [1111 + i for i in range(N)]
