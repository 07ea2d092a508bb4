# SPDX-License-Identifier: GPL-2.0-or-later
"""Folios of all orders in a machine: what is put together, or moved about, stays what it is."""

from __future__ import annotations

import pytest
from work import acc, cpu, gpu, migrate, mmap, run_ops, statuses, values

from hmmbench.guest import program as p
from hmmbench.guest.program import HUGE, PAGE, Acc, Op
from hmmbench.model.ops.advice import Advice, Madvise
from hmmbench.model.ops.folios import SIZES, Collapse, Compact, Khugepaged, Mthp
from hmmbench.vm.machine import Machine


def test_pages_become_one_folio(watched: Machine) -> None:
    n = HUGE // PAGE
    places = (0, 1, 255, 511)
    result = run_ops(watched, [
        mmap(n), Op(Madvise.number, len=HUGE, a=Advice.NOHUGEPAGE),
        gpu(*[acc(Acc.WRITE, i, i + 1, lane=i) for i in places]),
        Op(Madvise.number, len=HUGE, a=Advice.HUGEPAGE), Op(Collapse.number, len=HUGE),
        gpu(*[acc(Acc.ADD, i, 1000, lane=i) for i in places]), migrate(n, p.MIGRATE_DEVICE),
        gpu(*[acc(Acc.ADD, i, 1000, lane=i) for i in places]),
        cpu(*[acc(Acc.READ, i) for i in places]),
    ])  # fmt: skip
    assert statuses(result) == [0] * 9
    assert values(result, 8) == [i + 2001 for i in places]


@pytest.mark.parametrize("kib", SIZES)
def test_a_folio_of_each_size_moves_and_stays_right(watched: Machine, kib: int) -> None:
    n = 2 * kib // 4
    result = run_ops(watched, [
        Op(Mthp.number, a=kib), mmap(n), cpu(*[acc(Acc.WRITE, i, i + 1) for i in range(0, n, 3)]),
        gpu(*[acc(Acc.ADD, i, 1000, lane=i % 32) for i in range(0, n, 3)]),
        migrate(n - 1, p.MIGRATE_DEVICE, off=PAGE),
        gpu(*[acc(Acc.ADD, i, 1000, lane=i % 32) for i in range(0, n, 3)]),
        Op(Compact.number), Op(Khugepaged.number),
        cpu(*[acc(Acc.READ, i) for i in range(0, n, 3)]), Op(Mthp.number),
    ])  # fmt: skip
    assert statuses(result) == [0] * 10
    assert values(result, 8) == [i + 2001 for i in range(0, n, 3)]
    enabled = f"/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled"
    assert "[never]" in watched.agent.read_file(enabled).decode()
