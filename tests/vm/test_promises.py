# SPDX-License-Identifier: GPL-2.0-or-later
"""Promises of the driver, and memory read again, in a machine."""

from __future__ import annotations

import pytest
from work import acc, cpu, gpu, migrate, mmap, run_ops

from hmmbench.guest import program as p
from hmmbench.guest.program import PAGE, Acc, Op, Program
from hmmbench.model.ops.promises import MAX_PAGES, Promise, ReadBack, Word, seen, tried
from hmmbench.oracle.values import Checker
from hmmbench.vm.machine import Machine


def promise(word: Word, size: int = MAX_PAGES) -> Op:
    return Op(Promise.number, arg=word, len=size * PAGE)


@pytest.mark.parametrize("size", [1, 7, MAX_PAGES])
def test_a_sound_driver_keeps_them(watched: Machine, size: int) -> None:
    ops = [promise(word, size) for word in Word]
    result = run_ops(watched, ops)
    assert [r.status for r in result.ops] == [0] * len(ops)
    for o, r in zip(ops, result.ops, strict=True):
        # Which kernels move 2 MiB pages whole is not said here; there is one node.
        assert tried(o, r) or o.arg in (Word.HUGE, Word.NODE)
        assert Promise().judge(o, r, False) == "", (Word(o.arg).name, seen(r))


def test_words_that_nobody_asked_for(watched: Machine) -> None:
    """Of pages in VRAM, of pages at home, and of those that were never there."""
    n = 8
    ops = [
        mmap(n), cpu(*[acc(Acc.WRITE, i, i + 1) for i in range(0, n, 2)]),
        migrate(n, p.MIGRATE_DEVICE), gpu(acc(Acc.ADD, 0, 100)),
        Op(ReadBack.number, len=n * PAGE, arg=1),
    ]  # fmt: skip
    result = run_ops(watched, ops)
    assert result.ops[-1].aux0 == n
    assert len(result.ops[-1].data) == 16 * (n // 2)
    assert result.strays == 0
    for number, o in enumerate(ops):
        o.phase = number
    assert Checker(Program(ops), result).run() is None
