# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies whose faults are served one context at a time: neither replayed nor fatal."""

from __future__ import annotations

from typing import Any

import pytest
from hg_asm import EXIT, assemble, li, load
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Fault, Tables, map_code

SRC, DST, CODE = 0x20_0000, 0x30_0000, 0x1_0000
FAULTED = HW.HG_CTX_FAULTED
GO_ON, GIVE_UP = HW.HG_FAULTED_GO_ON, HW.HG_FAULTED_GIVE_UP


class Copies:
    """A context that stalls, with a page of data at `src`."""

    def __init__(self, stall: int = HW.HG_CTX_STALL, priv: int = 0, **cfg: Any) -> None:
        self.dev = Device(sms=1, misused=True, **{"ce_faults": True} | cfg)
        self.dev.enable_faults()
        self.t = Tables(self.dev, 3)
        self.ctx = Ctx(self.dev, 3, 3)
        self.dev.wr(self.ctx.base + HW.HG_CTX_CTRL, 0)
        self.dev.wr(self.ctx.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE | stall | priv)
        self.src, self.dst = self.dev.alloc(), self.dev.alloc()
        self.dev.write(self.src, b"abcdefgh" * 512)

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.dev.close()

    def map(self) -> None:
        self.t.map(SRC, self.src, FULL | SYS)
        self.t.map(DST, self.dst, FULL | SYS)

    def start(self) -> int:
        report = self.ctx.copy(SRC, DST, PAGE)
        self.dev.run()
        return report

    def faults(self) -> list[Fault]:
        assert self.dev.take_faults() == []
        return self.dev.take_faults(nr=True)

    def answer(self, how: int) -> None:
        self.dev.wr(self.ctx.base + FAULTED, how)
        self.dev.run()

    def done(self, report: int, status: int = HW.HG_ERR_NONE) -> bool:
        r = self.dev.report(report)
        return r.complete and r.status == status


@pytest.mark.parametrize("priv", [0, HW.HG_CTX_PRIV])
def test_served(priv: int) -> None:
    with Copies(priv=priv) as c:
        assert c.dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_CE_FAULTS
        assert c.ctx.reg(HW.HG_CTX_CTRL) == HW.HG_CTX_ENABLE | HW.HG_CTX_STALL | priv
        c.dev.wr(HW.HG_REG_INTR_ENABLE, 0xF)
        report = c.start()
        found = c.faults()
        assert [(f.addr, f.access, f.ctx, f.replayable) for f in found] == [
            (SRC, HW.HG_ACCESS_READ, 3, False), (DST, HW.HG_ACCESS_WRITE, 3, False),
        ]  # fmt: skip
        assert c.dev.host.irq[HW.HG_VEC_ERROR] >= 1
        assert c.dev.host.irq[HW.HG_VEC_FAULT] == 0
        assert c.ctx.reg(FAULTED) == 1
        assert c.dev.counter("pending_faults") == 0
        c.map()
        c.dev.replay()
        c.dev.replay(HW.HG_REPLAY_START_ACK_ALL)
        c.dev.run()
        assert c.dev.rd(HW.HG_REG_REPLAY_DONE, 8) == 2
        assert not c.dev.report(report).complete, "no replay reaches it"
        c.answer(GO_ON)
        assert c.done(report)
        assert c.ctx.reg(FAULTED) == 0
        assert c.dev.read(c.dst, PAGE) == b"abcdefgh" * 512


def test_flags_of_the_entry() -> None:
    with Copies() as c:
        c.start()
        for entry in range(2):
            at = c.dev.nr_ring + entry * HW.HG_FAULT_ENTRY_SIZE + HW.HG_FE_FLAGS * 4
            flags = int.from_bytes(c.dev.read(at, 4), "little")
            assert flags == HW.HG_FE_VALID | HW.HG_FE_WAITS


def test_it_faults_again_until_it_is_served() -> None:
    with Copies() as c:
        report = c.start()
        assert len(c.faults()) == 2
        c.answer(GO_ON)
        assert len(c.faults()) == 2
        c.t.map(SRC, c.src, FULL | SYS)
        c.answer(GO_ON)
        assert [f.addr for f in c.faults()] == [DST]
        c.map()
        c.answer(GO_ON)
        assert c.done(report)


def test_given_up() -> None:
    with Copies() as c:
        report = c.start()
        c.answer(GIVE_UP)
        assert c.done(report, HW.HG_ERR_FAULT)
        assert c.dev.report(report).addr == SRC
        c.map()
        assert c.done(c.start()), "the context goes on"


@pytest.mark.parametrize("how", ["cancel", "end"])
def test_other_ends(how: str) -> None:
    with Copies() as c:
        report = c.start()
        if how == "cancel":
            c.dev.cancel(HW.HG_CANCEL_ADDR, 3, DST)
            c.dev.run()
            assert c.done(report, HW.HG_ERR_FAULT)
        else:
            c.dev.wr(c.ctx.base + HW.HG_CTX_CTRL, 0)
            assert c.ctx.reg(HW.HG_CTX_STATUS) == 0
        assert c.ctx.reg(FAULTED) == 0
        c.answer(GO_ON)
        c.answer(GIVE_UP)
        assert c.dev.counter("guest_errors") == 0, "who is late does no harm"


def test_the_engine_serves_others() -> None:
    with Copies() as c:
        c.start()
        other = Ctx(c.dev, 4, 3)
        c.t.map(SRC + PAGE, c.src, FULL | SYS)
        c.t.map(DST + PAGE, c.dst, FULL | SYS)
        report = other.copy(SRC + PAGE, DST + PAGE, 64)
        c.dev.run(lambda: c.dev.report(report).complete)


def test_launches_are_replayed() -> None:
    with Copies() as c:
        map_code(c.dev, c.t, CODE, assemble([*li(5, SRC), load("ld", 6, 5), EXIT]))
        report = c.ctx.launch(CODE, block=1)
        c.dev.run()
        assert [(f.addr, f.replayable) for f in c.dev.take_faults()] == [(SRC, True)]
        c.answer(GO_ON)
        assert not c.dev.report(report).complete
        c.map()
        c.dev.replay()
        c.dev.run()
        assert c.done(report)


def test_without_room_for_an_entry() -> None:
    """OVERFLOW says that somebody may wait; who goes on reports again."""
    with Copies() as c:
        c.dev.inject("fault.entry count=2 drop")
        report = c.start()
        assert c.faults() == []
        assert c.ctx.reg(FAULTED) == 1
        c.answer(GO_ON)
        assert len(c.faults()) == 2
        c.map()
        c.answer(GO_ON)
        assert c.done(report)


def test_saved() -> None:
    with Copies() as c:
        report = c.start()
        state = c.dev.save()
        c.dev.load(state)
        assert c.dev.save() == state
        c.map()
        c.dev.replay()
        c.dev.run()
        assert not c.dev.report(report).complete
        c.answer(GO_ON)
        assert c.done(report)


def test_without_the_flag() -> None:
    with Copies(stall=0) as c:
        report = c.start()
        assert [f.addr for f in c.dev.take_faults()] == [SRC, DST]
        assert c.ctx.reg(FAULTED) == 0
        c.map()
        c.answer(GO_ON)
        assert not c.dev.report(report).complete
        c.dev.replay()
        c.dev.run()
        assert c.done(report)


def test_without_the_feature() -> None:
    with Copies(stall=0, ce_faults=False) as c:
        assert not c.dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_CE_FAULTS
        c.dev.wr(c.ctx.base + HW.HG_CTX_CTRL, 0)
        errors = c.dev.counter("guest_errors")
        c.dev.wr(c.ctx.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE | HW.HG_CTX_STALL)
        c.dev.wr(c.ctx.base + FAULTED, GO_ON)
        assert c.dev.counter("guest_errors") == errors + 2
        assert c.ctx.reg(HW.HG_CTX_CTRL) == 0


@pytest.mark.parametrize("value", [0, 3, 1 << 31])
def test_no_answer(value: int) -> None:
    with Copies() as c:
        c.start()
        c.answer(value)
        assert c.ctx.reg(FAULTED) == 1
        assert c.dev.counter("guest_errors") == 1
