# SPDX-License-Identifier: GPL-2.0-or-later
"""What a promise's answer has to be, and how one is drawn."""

from __future__ import annotations

import random
import struct
from dataclasses import astuple, replace

import pytest

from hmmbench.campaign.generate import newest, program, size_of
from hmmbench.guest.program import (
    PAGE,
    POLICY_EXCLUSIVE,
    POLICY_MIGRATE,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model.ops.promises import NOT_SEEN, Promise, Seen, Word, tried
from hmmbench.model.space import Space
from hmmbench.oracle.values import Checker

N = 8
NOTHING = Seen(0, 1, N, 0, 0, 0, 0, 0, 0, NOT_SEEN, 0, 0)
#: Looks at pages that are in VRAM or at home, and mapped there.
AWAY = replace(NOTHING, device=N, mapped=N, mapped_vram=N, mapped_huge=N, gone=N)
HOME = replace(NOTHING, step=1, system=N, mapped=N)

KEPT = {
    Word.MIGRATES: [AWAY, HOME], Word.COMES_HOME: [AWAY, HOME], Word.PREFETCHES: [AWAY, HOME],
    Word.EVICTS: [AWAY, HOME], Word.POLICY: [AWAY, HOME], Word.STAYS: [AWAY, AWAY],
    Word.ALONE: [replace(HOME, faults=N), HOME, HOME],
    Word.HUGE: [AWAY, replace(HOME, home=N)],
    Word.USAGE: [replace(NOTHING, used=5), replace(HOME, used=5 + N), replace(NOTHING, used=5)],
    Word.NODE: [AWAY, replace(HOME, home=N)],
}  # fmt: skip


def judge(word: Word, looks: list[Seen], coherent: bool = False) -> str:
    o = Op(Promise.number, arg=word, len=N * PAGE)
    data = b"".join(struct.pack("<14I", *astuple(look)) for look in looks)
    r = OpResult(aux1=int(coherent), data=data)
    assert tried(o, r)
    return Promise().judge(o, r, False).partition(":")[0]


@pytest.mark.parametrize("word", Word)
def test_a_promise_that_was_kept(word: Word) -> None:
    assert judge(word, KEPT[word]) == ""


@pytest.mark.parametrize(
    ("word", "at", "fields", "said"),
    [
        (Word.MIGRATES, 0, {"device": 7}, "not in VRAM"),
        (Word.MIGRATES, 0, {"gone": 0}, "not where it is said to be"),
        (Word.MIGRATES, 1, {"system": 7}, "not in system memory"),
        (Word.MIGRATES, 1, {"wrong": 1}, "wrong contents"),
        (Word.COMES_HOME, 1, {"system": 0}, "not in system memory"),
        (Word.PREFETCHES, 0, {"mapped_vram": 7}, "not mapped"),
        (Word.PREFETCHES, 1, {"mapped": 0}, "not mapped"),
        (Word.EVICTS, 1, {"system": 0}, "not in system memory"),
        (Word.POLICY, 0, {"device": 0}, "not in VRAM"),
        (Word.POLICY, 1, {"system": 0}, "not in system memory"),
        (Word.STAYS, 1, {"device": 0}, "not in VRAM"),
        (Word.STAYS, 1, {"mapped_vram": 0}, "not mapped"),
        (Word.ALONE, 0, {"faults": 16 * N + 65}, "fault storm"),
        (Word.ALONE, 1, {"mapped": 0}, "taken without need"),
        (Word.ALONE, 1, {"flushes": 17}, "flushes without need"),
        (Word.ALONE, 2, {"faults": 1}, "faults without need"),
        (Word.HUGE, 0, {"device": 7}, "not in VRAM"),
        (Word.HUGE, 0, {"mapped_huge": 0}, "not huge"),
        (Word.HUGE, 1, {"home": 0}, "not huge"),
        (Word.USAGE, 1, {"used": 6}, "counted wrongly"),
        (Word.USAGE, 2, {"used": 6}, "counted wrongly"),
        (Word.USAGE, 0, {"used": 4}, "counted wrongly"),
        (Word.NODE, 0, {"device": 7}, "not in VRAM"),
        (Word.NODE, 1, {"home": 7}, "on another node"),
        (Word.NODE, 1, {"wrong": 1}, "wrong contents"),
    ],
)
def test_one_that_was_not(word: Word, at: int, fields: dict[str, int], said: str) -> None:
    looks = list(KEPT[word])
    looks[at] = replace(looks[at], **fields)  # type: ignore[arg-type]
    assert judge(word, looks) == said


def test_what_the_cpu_has_in_vram_is_not_gone() -> None:
    looks = [replace(AWAY, gone=0), replace(HOME, system=0, device=N)]
    assert judge(Word.MIGRATES, looks, coherent=True) == ""


def test_without_room_nothing_is_judged() -> None:
    o = Op(Promise.number, arg=Word.MIGRATES, len=PAGE)
    assert not tried(o, OpResult(aux0=1))
    assert Promise().judge(o, OpResult(aux0=1), False) == ""


def test_it_reports_by_its_own_name() -> None:
    o = Op(Promise.number, arg=Word.MIGRATES, len=N * PAGE)
    looks = struct.pack("<14I", *astuple(NOTHING)) * 2
    found = Checker(Program([o]), Result([OpResult(data=looks)])).run()
    assert found is not None
    assert found.key == ("promise", "not in VRAM")


def test_each_is_drawn_and_sets_the_policy() -> None:
    rng = random.Random(1)
    drawn = [
        o for _ in range(60) for o in program(rng.randbytes(size_of(80)), grammar=newest()).ops
        if o.op == Promise.number
    ]  # fmt: skip
    assert {o.arg for o in drawn} == set(Word)
    space = Space((0, 0, 0, 0))
    proc = space.procs[0]
    last = Op(Promise.number, arg=Word.POLICY, len=PAGE, a=POLICY_MIGRATE | POLICY_EXCLUSIVE)
    Promise().apply(space, proc, last)
    assert proc.exclusive is True


def test_older_grammars_draw_none() -> None:
    rng = random.Random(1)
    ops = [o for _ in range(30) for o in program(rng.randbytes(size_of(80)), grammar=3).ops]
    assert all(o.op < Promise.number for o in ops)
