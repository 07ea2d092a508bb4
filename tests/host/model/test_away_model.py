# SPDX-License-Identifier: GPL-2.0-or-later
"""The device is taken away: where that stands, and what has to stand behind it."""

from __future__ import annotations

import random
from collections import Counter

from fake import Fake

from hmmbench.campaign.generate import program, size_of
from hmmbench.example.recipe import op_from_json, op_to_json
from hmmbench.guest.program import (
    F_NOWAIT,
    MIGRATE_DEVICE,
    PAGE,
    PROT_RW,
    Acc,
    Op,
    OpResult,
    Program,
    Result,
)
from hmmbench.model import ops
from hmmbench.model.admit import normalise
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.device import Away, ReopenGpu, TakeGpu, reloaded, takes_gpu
from hmmbench.model.ops.jobs import CloseGpu, CpuAccess, GpuAccess, GpuSpin
from hmmbench.model.ops.lives import SendGpu
from hmmbench.model.ops.mapping import Mmap
from hmmbench.model.ops.moving import Migrate
from hmmbench.model.ops.pins import Pin
from hmmbench.model.ops.processes import Fork
from hmmbench.oracle.values import Checker

MAP = Op(Mmap.number, len=4 * PAGE, a=PROT_RW)


def take(phase: int, how: Away = Away.UNBIND, **k: int) -> Op:
    return Op(TakeGpu.number, phase=phase, arg=int(how), **k)


def job(phase: int, **k: int) -> Op:
    return Op(GpuAccess.number, phase=phase, acc=[(int(Acc.ADD), 0, 0, 0, 1, 0)], **k)


def kinds(listed: list[Op]) -> list[int]:
    return [o.op for o in normalise(listed, FILE_PAGES)]


def test_who_does_not_open_it_anew_does_nothing_with_it() -> None:
    migrate = Op(Migrate.number, phase=2, len=PAGE, arg=MIGRATE_DEVICE)
    assert kinds([MAP, take(1), migrate, job(3)]) == [Mmap.number, TakeGpu.number]
    for anew in (ReopenGpu.number, CloseGpu.number):
        listed = [MAP, take(1), Op(anew, phase=2), job(3)]
        assert kinds(listed) == [o.op for o in listed]
    # A child of fork has no file of its own.
    listed = [MAP, take(1), Op(Fork.number, phase=2, arg=1), job(3, proc=1)]
    assert kinds(listed) == [o.op for o in listed]


def test_beside_others_once() -> None:
    beside = [MAP, job(1), take(1, actor=1), take(1, Away.RESET, actor=2), job(1, actor=3)]
    assert kinds(beside) == [Mmap.number, GpuAccess.number, TakeGpu.number, GpuAccess.number]
    assert kinds([MAP, take(1), take(2)]) == [Mmap.number, TakeGpu.number]


def test_it_ends_a_program_that_does_not_end() -> None:
    def spins(*more: Op) -> int:
        spin = Op(GpuSpin.number, phase=1, flags=F_NOWAIT, a=1 << 40)
        return normalise([MAP, spin, *more], FILE_PAGES)[1].a

    assert spins(take(2)) == spins(take(2, Away.RESET)) == 1 << 40
    assert spins(take(2, Away.RELOAD)) < 1 << 30
    assert spins(take(2), Op(CpuAccess.number, phase=2, actor=1, acc=job(2).acc)) < 1 << 30


def test_what_is_pinned_or_passed_on_keeps_it() -> None:
    pin = Op(Pin.number, phase=1, len=PAGE)
    assert kinds([MAP, pin, take(2)]) == [Mmap.number, Pin.number]
    assert kinds([MAP, Op(SendGpu.number, phase=1), take(2)]) == [Mmap.number, SendGpu.number]


def test_opening_it_anew_asks_for_what_was() -> None:
    """Whatever stands there, so that another way of taking it away may be tried."""
    for how in Away:
        sent = normalise([MAP, take(1, how), Op(ReopenGpu.number, phase=2)], FILE_PAGES)
        assert sent[-1].arg == how
    alone = normalise([MAP, Op(ReopenGpu.number, phase=1, arg=0)], FILE_PAGES)
    assert alone[-1].arg == Away.RELOAD


def test_a_module_that_went() -> None:
    listed = [take(0, Away.RELOAD), take(1, Away.UNBIND)]
    assert takes_gpu(Program(listed))
    assert not takes_gpu(Program([MAP]))
    for aux0 in (0, 1):
        assert reloaded(Program(listed), Result([OpResult(aux0=aux0), OpResult()])) == aux0
    assert not reloaded(Program(listed), None)


def test_programs_have_it_now_and_then_and_a_sound_machine_is_not_blamed() -> None:
    met: Counter[str] = Counter()
    programs = 0
    for seed in range(450):
        p = program(random.Random(f"away {seed}").randbytes(size_of(80)), seed)
        away = [o for o in p.ops if o.op == TakeGpu.number]
        programs += bool(away)
        for o in away:
            beside = [n for n in p.ops if n.phase == o.phase and n is not o]
            met[Away(o.arg).name] += 1
            met["beside"] += any(ops.of(n).uses_gpu for n in beside)
            assert op_from_json(0, op_to_json(o)) == o
            assert ops.of(o).sentence(o, "it")
        if away:
            violation = Checker(p, Result.decode(Fake(seed=seed).run(p.encode()), p)).run()
            assert violation is None, violation.message
    # Each takes as long as several others.
    assert 450 * 0.03 < programs < 450 * 0.18
    assert met["beside"] > 3
    assert set(met) >= {"UNBIND", "RESET", "REMOVE"}
