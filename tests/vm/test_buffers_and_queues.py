# SPDX-License-Identifier: GPL-2.0-or-later
"""Buffers in VRAM and queues of jobs, as operations of programs, in a machine."""

from __future__ import annotations

import errno

import pytest
from work import run_ops

from hmmbench.guest.program import PAGE, Op
from hmmbench.model.ops import buffers, queues, refusals
from hmmbench.model.ops.buffers import Buffer
from hmmbench.model.ops.queues import Queue
from hmmbench.model.ops.refusals import Refusal
from hmmbench.vm.machine import Machine


def buffer(word: buffers.Word, pages: int = 0) -> Op:
    return Op(Buffer.number, arg=word, len=pages * PAGE)


def test_buffers_keep_what_is_in_them(watched: Machine) -> None:
    word = buffers.Word
    ops = [
        buffer(word.LOOK), buffer(word.MAKE, 16), buffer(word.MAKE, 513), buffer(word.LOOK),
        buffer(word.MAKE, 1), buffer(word.LOOK), buffer(word.FREE), buffer(word.LOOK),
        buffer(word.FREE), buffer(word.FREE),
    ]  # fmt: skip
    result = run_ops(watched, ops)
    step = buffers.Step
    steps = [[look.step for look in Buffer().seen(r)] for r in result.ops]
    assert [r.status for r in result.ops] == [0] * len(ops)
    assert steps == [
        [], [step.ZERO, step.FILLED, step.PAST],
        [step.ZERO, step.FILLED, step.PAST, step.PAST], [step.KEPT, step.KEPT],
        [step.ZERO, step.FILLED, step.PAST, step.PAST], [step.KEPT, step.KEPT],
        [step.UNDER, step.UNDER, step.FREED], [step.KEPT],
        [step.UNDER, step.UNDER, step.FREED], [],
    ]  # fmt: skip
    for o, r in zip(ops, result.ops, strict=True):
        assert Buffer().judge(o, r, False) == "", Buffer().seen(r)


@pytest.mark.parametrize("word", refusals.Word)
def test_what_nobody_may_is_refused(watched: Machine, word: refusals.Word) -> None:
    (r,) = run_ops(watched, [Op(Refusal.number, arg=word)]).ops
    assert (r.status, r.aux0) == (0, 0)
    assert [look.status for look in Refusal().seen(r)] == [0, -errno.EFAULT]
    assert Refusal().judge(Op(Refusal.number, arg=word), r, False) == ""


@pytest.mark.parametrize("size", [1, queues.MAX_PAGES])
def test_queues_keep_their_order(watched: Machine, size: int) -> None:
    ops = [Op(Queue.number, arg=word, len=size * PAGE) for word in queues.Word]
    result = run_ops(watched, ops)
    assert [(r.status, r.aux0) for r in result.ops] == [(0, 0)] * len(ops)
    for o, r in zip(ops, result.ops, strict=True):
        assert len(Queue().seen(r)) >= (1 if o.arg == queues.Word.FULL else 6)
        assert Queue().judge(o, r, False) == "", Queue().seen(r)
