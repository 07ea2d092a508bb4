# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault rings, miss limit, replay, cancel."""

from __future__ import annotations

import itertools
from typing import Any

import hg_asm as asm
import pytest
from hg_asm import BARRIER, EXIT, Item, assemble, csrr
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Fault, Report, Tables, map_code
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = 0x1_0000
DATA = 0x1000_0000
RO = HW.HG_PTE_VALID | SYS


def page_per_thread(op: list[Item] | None = None) -> bytes:
    """Each thread accesses its own page."""
    return assemble([
        csrr(5, "tid"), csrr(6, "bid"), csrr(7, "ntid"), asm.r("mul", 6, 6, 7),
        asm.r("add", 5, 5, 6), asm.i("slli", 6, 5, 12), asm.r("add", 6, 6, 10),
        *(op if op is not None else [asm.store("sd", 5, 6)]), EXIT,
    ])  # fmt: skip


class At:
    """Just an address."""

    def __init__(self, addr: int) -> None:
        self.addr = addr


class Bench:
    """A device with one context, code, and frames on demand."""

    def __init__(self, code: bytes, ring: int = 256, pages: int = 0, **cfg: Any) -> None:
        self.dev = Device(**cfg)
        self.dev.enable_faults(ring)
        self.t = Tables(self.dev, 7)
        map_code(self.dev, self.t, CODE, code)
        self.ctx = Ctx(self.dev, 3, 7)
        self.frames: dict[int, int] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.dev.close()

    def fix(self, f: Fault | At, flags: int = FULL) -> None:
        if f.addr not in self.frames:
            self.frames[f.addr] = self.dev.alloc()
        self.t.map(f.addr, self.frames[f.addr], flags | SYS)

    def value(self, page: int) -> int:
        return self.dev.u64(self.frames[DATA + page * PAGE])


@given(size=st.sampled_from([2, 4, 16, 64]), batch=st.integers(1, 8), seed=st.integers(0, 99),
       sms=st.integers(1, 3), misses=st.integers(1, 40), kind=st.sampled_from([1, 2]),
       rules=st.sampled_from(["", "fault prob=0.3 duplicate", "fault prob=0.3 count=20 drop",
                              "fault prob=0.4 delay_valid=3us",
                              "fault prob=0.1 count=3 repeat=100us",
                              "replay prob=0.4 delay=5us"]))  # fmt: skip
@settings(max_examples=50)
def test_ring_protocol(size: int, batch: int, seed: int, sms: int, misses: int, kind: int,
                       rules: str) -> None:  # fmt: skip
    """Any ring size, batch size, miss limit and injected misbehaviour: every access is told of
    until it is served, PUT never passes GET, and the work ends with every page written."""
    pages = 15
    with Bench(page_per_thread(), ring=size, seed=seed, sms=sms, utlb_misses=misses,
               utlb_entries=8) as b:  # fmt: skip
        dev = b.dev
        dev.inject(rules)
        rep = b.ctx.launch(CODE, DATA, grid=3, block=5)
        seen: set[int] = set()
        total = 0
        for _ in range(2500):  # a full ring of stale entries may lie before the one that counts
            for _ in range(10):
                if not dev.step(64):
                    break
            if dev.report(rep).complete:
                break
            get = dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_GET)
            put = dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT)
            assert bool(get & HW.HG_FAULT_OVERFLOW) == bool(put & HW.HG_FAULT_OVERFLOW)
            assert (put & HW.HG_FAULT_INDEX_MASK) < size
            assert dev.counter("pending_faults") <= misses * sms
            faults = dev.take_faults(limit=batch)
            total += len(faults)
            for f in faults:
                assert (f.asid, f.ctx, f.engine) == (7, 3, HW.HG_ENGINE_SM)
                assert f.access == HW.HG_ACCESS_WRITE
                assert DATA <= f.addr < DATA + pages * PAGE
                seen.add(f.addr)
                b.fix(f)
            dev.replay(kind)
        assert dev.report(rep).complete, "no progress"
        assert dev.report(rep).status == 0
        assert seen == {DATA + n * PAGE for n in range(pages)}
        for n in range(pages):
            assert b.value(n) == n
        assert dev.counter("stalled_warps") == 0
        assert dev.counter("pending_faults") == 0
        # a delayed replay may still be under way
        dev.run(lambda: dev.rd(HW.HG_REG_REPLAY_DONE, 8) == dev.rd(HW.HG_REG_REPLAY_SEQ, 8))
        while rest := dev.take_faults():  # stale ones, told of before their page was there
            total += len(rest)
        assert total == dev.counter("faults")


def test_one_entry_a_page_and_engine() -> None:
    """Lanes and warps of one SM that miss the same page share an entry; another SM has its own;
    a stronger access is told of again."""
    code = assemble([asm.load("ld", 5, 10), asm.store("sd", 5, 10), EXIT])
    with Bench(code, sms=2, warps=4) as b:
        rep = b.ctx.launch(CODE, DATA, grid=4, block=64)
        b.dev.run()
        faults = b.dev.take_faults()
        assert sorted((f.addr, f.unit, f.access) for f in faults) == [
            (DATA, 0, HW.HG_ACCESS_READ), (DATA, 1, HW.HG_ACCESS_READ)]  # fmt: skip
        assert b.dev.counter("stalled_warps") == 8
        assert b.dev.counter("pending_faults") == 2
        seen = b.dev.service(lambda f: b.fix(f), lambda: b.dev.report(rep).complete)
        assert {f.addr for f in seen} <= {DATA}
        assert b.dev.report(rep).status == 0


def test_stronger_access_gets_its_own_entry() -> None:
    code = assemble([csrr(5, "tid"), asm.i("srli", 5, 5, 5), asm.branch("bne", 5, 0, "w"),
                     asm.load("ld", 6, 10), EXIT, "w:", asm.store("sd", 5, 10), EXIT])  # fmt: skip
    with Bench(code, sms=1) as b:
        b.ctx.launch(CODE, DATA, block=64)
        b.dev.run()
        assert [f.access for f in b.dev.take_faults()] == [HW.HG_ACCESS_READ, HW.HG_ACCESS_WRITE]
        assert b.dev.counter("pending_faults") == 1


def test_miss_limit_and_batches() -> None:
    """32 lanes, 32 pages, 20 outstanding misses: 20 entries, then 12 after the replay."""
    with Bench(page_per_thread(), sms=1, utlb_misses=20) as b:
        rep = b.ctx.launch(CODE, DATA, block=32)
        for want in (20, 12):
            b.dev.run()
            faults = b.dev.take_faults()
            assert len(faults) == want
            assert b.dev.counter("pending_faults") == want
            for f in faults:
                b.fix(f)
            b.dev.replay()
        b.dev.run(lambda: b.dev.report(rep).complete)


def test_lanes_that_succeeded_do_not_run_again() -> None:
    code = page_per_thread([*asm.li(7, 1), asm.amo("amoadd", "d", 0, 7, 6)])
    with Bench(code, sms=1) as b:
        for n in range(0, 32, 2):
            b.fix(At(DATA + n * PAGE))
        rep = b.ctx.launch(CODE, DATA, block=32)
        seen = b.dev.service(b.fix, lambda: b.dev.report(rep).complete)
        assert len(seen) == 16
        assert [b.value(n) for n in range(32)] == [1] * 32


@pytest.mark.parametrize("order", [0, 1])
def test_straddling_store_is_all_or_nothing(order: int) -> None:
    """Both pages are told of; nothing is written before both are there."""
    code = assemble([*asm.li(5, -1), asm.store("sd", 5, 10, -4), EXIT])
    with Bench(code, sms=1) as b:
        rep = b.ctx.launch(CODE, DATA + PAGE, block=1)
        b.dev.run()
        faults = sorted(b.dev.take_faults(), key=lambda f: f.addr, reverse=bool(order))
        assert {f.addr for f in faults} == {DATA, DATA + PAGE}
        b.fix(faults[0])
        b.dev.replay()
        b.dev.run()
        (again,) = b.dev.take_faults()
        assert again.addr == faults[1].addr
        first = b.frames[faults[0].addr]
        assert b.dev.read(first, PAGE) == bytes(PAGE)
        b.fix(again)
        b.dev.replay()
        b.dev.run(lambda: b.dev.report(rep).complete)
        both = b.dev.read(b.frames[DATA] + PAGE - 8, 8) + b.dev.read(b.frames[DATA + PAGE], 8)
        assert both == bytes(4) + b"\xff" * 8 + bytes(4)


def test_other_warps_run_on() -> None:
    """Warp 0 stalls; warps 1..3 finish their work before any replay."""
    code = assemble([
        csrr(5, "tid"), asm.i("srli", 6, 5, 5), asm.branch("bne", 6, 0, "go"),
        asm.store("sd", 5, 10), EXIT,
        "go:", asm.i("slli", 6, 5, 3), asm.r("add", 6, 6, 10),
        *asm.li(7, PAGE), asm.r("add", 6, 6, 7), asm.store("sd", 5, 6), EXIT,
    ])  # fmt: skip
    with Bench(code, sms=1) as b:
        b.fix(At(DATA + PAGE))
        b.ctx.launch(CODE, DATA, block=128)
        b.dev.run()
        assert b.dev.counter("stalled_warps") == 1
        page = b.dev.read(b.frames[DATA + PAGE], 1024)
        assert page[33 * 8] == 33
        assert page[127 * 8] == 127


def test_overflow_stops_delivery_until_cleared() -> None:
    with Bench(page_per_thread(), ring=4, sms=1) as b:
        dev = b.dev
        b.ctx.launch(CODE, DATA, block=32)
        dev.run()
        base = HW.HG_REG_FAULT
        put = dev.rd(base + HW.HG_FAULT_PUT)
        assert put == 3 | HW.HG_FAULT_OVERFLOW
        assert dev.counter("faults") == 3
        assert dev.counter("faults_dropped") == 29
        dev.wr(base + HW.HG_FAULT_GET, 3)  # consumed, but OVERFLOW not cleared
        dev.replay()
        dev.run()
        assert dev.counter("faults") == 3
        dev.wr(base + HW.HG_FAULT_GET, 3 | HW.HG_FAULT_OVERFLOW)
        assert not dev.rd(base + HW.HG_FAULT_GET) & HW.HG_FAULT_OVERFLOW
        dev.replay()
        dev.run()
        assert dev.counter("faults") == 6


def test_interrupts_of_the_ring() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        dev.wr(HW.HG_REG_INTR_ENABLE, 1 << HW.HG_VEC_FAULT)
        b.ctx.launch(CODE, DATA, block=4)
        dev.run()
        assert dev.host.irq[HW.HG_VEC_FAULT] == 1
        assert dev.rd(HW.HG_REG_INTR_STATUS) == 1 << HW.HG_VEC_FAULT
        dev.wr(HW.HG_REG_INTR_STATUS, 1 << HW.HG_VEC_FAULT)
        assert dev.rd(HW.HG_REG_INTR_STATUS) == 0
        dev.take_faults(limit=2)  # GET != PUT afterwards: raised again
        assert dev.host.irq[HW.HG_VEC_FAULT] == 2
        dev.take_faults()
        assert dev.host.irq[HW.HG_VEC_FAULT] == 2


def test_an_entry_dropped_from_an_empty_ring_is_told_of() -> None:
    """No entry comes any more: without an interrupt nobody would look there."""
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        dev.wr(HW.HG_REG_INTR_ENABLE, 1 << HW.HG_VEC_FAULT)
        dev.inject("fault.entry nth=1 drop")
        b.ctx.launch(CODE, DATA, block=3)
        dev.run()
        assert dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT) == HW.HG_FAULT_OVERFLOW
        assert dev.host.irq[HW.HG_VEC_FAULT] == 1, "once, however many were dropped"


def test_overflow_after_put_was_read_is_told_of() -> None:
    """Software takes the ring empty and writes GET without OVERFLOW, which it has not seen."""
    with Bench(page_per_thread(), ring=4, sms=1) as b:
        dev = b.dev
        dev.wr(HW.HG_REG_INTR_ENABLE, 1 << HW.HG_VEC_FAULT)
        b.ctx.launch(CODE, DATA, block=3)
        dev.run()
        assert dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT) == 3
        before = dev.host.irq[HW.HG_VEC_FAULT]
        other = Ctx(dev, b.ctx.n + 1, 7)
        other.launch(CODE, DATA + 16 * PAGE, block=1)
        dev.run()
        assert dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT) == 3 | HW.HG_FAULT_OVERFLOW
        assert dev.host.irq[HW.HG_VEC_FAULT] == before + 1
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 3)
        assert dev.host.irq[HW.HG_VEC_FAULT] == before + 2
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 3 | HW.HG_FAULT_OVERFLOW)
        assert dev.host.irq[HW.HG_VEC_FAULT] == before + 2


def test_valid_comes_out_of_order() -> None:
    """With another seed the VALID words of one batch are written in another order."""
    orders = set()
    for seed in range(6):
        with Bench(page_per_thread(), sms=1, seed=seed, direct=False) as b:
            b.ctx.launch(CODE, DATA, block=8)
            b.dev.inject("dma_write nth=12 count=100 error")  # 8 bodies, then 3 VALIDs get through
            b.dev.run()
            orders.add(tuple(Fault(b.dev.read(b.dev.ring + n * 32, 32)).valid for n in range(8)))
    assert all(sum(o) == 3 for o in orders)
    assert len(orders) > 2


def _wait_for_entries(b: Bench, n: int) -> list[Fault]:
    found: list[Fault] = []
    for _ in range(100_000):
        b.dev.step(1)
        found += b.dev.take_faults()
        if len(found) >= n:
            return found
    raise AssertionError(f"{len(found)} entries")


def test_an_entry_is_written_again_until_a_replay() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        b.dev.inject("fault.entry match=10001000 repeat=20us")
        rep = b.ctx.launch(CODE, DATA, block=2)
        seen = _wait_for_entries(b, 7)
        (first,) = [f for f in seen if f.addr == DATA]
        again = [f for f in seen if f.addr == DATA + PAGE]
        assert len(again) >= 6
        gaps = [y.time - x.time for x, y in itertools.pairwise(again)]
        assert all(20_000 <= gap < 200_000 for gap in gaps), gaps
        said = {(f.asid, f.ctx, f.source, f.access, f.reason, f.level, f.replayable) for f in again}
        assert said == {(7, 3, first.source, HW.HG_ACCESS_WRITE, 0, first.level, True)}
        state = b.dev.save()
        b.dev.load(state)
        assert b.dev.save() == state
        _wait_for_entries(b, 3)
        now = 50_000_000
        b.dev.set_clock(now)
        for _ in range(5):  # what is sent again has its own entry, and that is repeated
            b.dev.wr(HW.HG_REG_REPLAY, HW.HG_REPLAY_START)
            for _ in range(10):
                b.dev.step(4096)
            assert [f.addr for f in b.dev.take_faults()] == [DATA, DATA + PAGE]
        for n in range(1, 4):
            b.dev.set_clock(now + n * 20_000)
            for _ in range(10):
                b.dev.step(4096)
            assert [f.addr for f in b.dev.take_faults()] == [DATA + PAGE]
        b.dev.host.manual = False
        b.fix(At(DATA))
        b.fix(At(DATA + PAGE))
        _wait_for_entries(b, 3)
        assert not b.dev.report(rep).complete, "that it is there is no answer; a replay is"
        b.dev.inject("")
        b.dev.wr(HW.HG_REG_REPLAY, HW.HG_REPLAY_START)
        b.dev.run(lambda: b.dev.report(rep).complete)
        b.dev.take_faults()
        b.dev.run()
        assert not b.dev.take_faults()


@pytest.mark.parametrize("how", ["cancel", "abort", "disable"])
def test_what_ends_the_repeating(how: str) -> None:
    with Bench(page_per_thread(), sms=1) as b:
        b.dev.inject("fault.entry repeat=20us")
        b.ctx.launch(CODE, DATA, block=1)
        _wait_for_entries(b, 3)
        if how == "cancel":
            b.dev.wr(HW.HG_REG_CANCEL_ASID, 7)
            b.dev.wr(HW.HG_REG_CANCEL_CMD, HW.HG_CANCEL_GLOBAL)
        elif how == "abort":
            b.dev.wr(b.ctx.base + HW.HG_CTX_CTRL, 0)
        else:
            b.dev.wr(HW.HG_REG_CTRL, 0)
        for _ in range(20):
            b.dev.step(1)
        b.dev.take_faults()
        for _ in range(2000):
            b.dev.step(1)
        assert not b.dev.take_faults()
        if how == "disable":
            b.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_ENABLE)
            _wait_for_entries(b, 2)


@pytest.mark.parametrize("who", ["another context", "a prefetch"])
def test_nothing_is_repeated_of_an_inactive_context(who: str) -> None:
    """Whoever else has its slot: its memory may be gone."""
    prefetch = assemble([asm.i("ori", 0, 10, 1), EXIT])
    with Bench(prefetch if who == "a prefetch" else page_per_thread(), sms=1) as b:
        b.dev.inject("fault.entry nth=1 repeat=20us")
        other = Ctx(b.dev, 4, 7)
        rep = b.ctx.launch(CODE, DATA, block=1)
        if who == "a prefetch":
            b.dev.run(lambda: b.dev.report(rep).complete)
        else:
            _wait_for_entries(b, 2)
            other.launch(CODE, DATA, block=1)
            for _ in range(2000):
                b.dev.step(1)
        b.dev.wr(b.ctx.base + HW.HG_CTX_CTRL, 0)
        b.dev.run(lambda: not b.ctx.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE)
        b.dev.take_faults()
        for _ in range(2000):
            b.dev.step(1)
        assert [f.ctx for f in b.dev.take_faults()] == []


def test_delayed_valid() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        b.dev.inject("fault nth=1 delay_valid=100us")
        rep = b.ctx.launch(CODE, DATA, block=4)
        while b.dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT) != 4:
            b.dev.step(1)
        flags = [Fault(b.dev.read(b.dev.ring + n * 32, 32)).valid for n in range(4)]
        assert flags == [False, True, True, True]
        b.dev.service(b.fix, lambda: b.dev.report(rep).complete)


def test_ack_all_waits_for_each_answer() -> None:
    """START is done at once; START_ACK_ALL when each access was translated or faulted again."""
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        b.ctx.launch(CODE, DATA, block=8)
        dev.run()
        seq = dev.replay(HW.HG_REPLAY_START)
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == seq
        dev.run()  # nothing was mapped: all fault again
        seq = dev.replay(HW.HG_REPLAY_START_ACK_ALL)
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == seq - 1
        later = dev.replay(HW.HG_REPLAY_START)
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == seq - 1  # in order
        dev.run()
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == later
        # an abort answers, too
        dev.replay(HW.HG_REPLAY_START_ACK_ALL)
        dev.wr(b.ctx.base + HW.HG_CTX_CTRL, 0)
        assert dev.rd(HW.HG_REG_REPLAY_DONE, 8) == later + 1


@pytest.mark.parametrize("kind", ["addr", "client", "global"])
def test_cancel(kind: str) -> None:
    """The job of the matching access ends with a report; the next job of the context and other
    contexts go on."""
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        other = Ctx(dev, 4, 7)
        rep = b.ctx.launch(CODE, DATA, block=40)
        after = b.ctx.launch(CODE, DATA + 0x100_0000, block=1)
        dev.run()
        faults = dev.take_faults()
        client = next(f.source for f in faults if f.addr == DATA + 35 * PAGE)
        kinds = {"addr": HW.HG_CANCEL_ADDR, "client": HW.HG_CANCEL_CLIENT,
                 "global": HW.HG_CANCEL_GLOBAL}  # fmt: skip
        dev.cancel(kinds[kind], 6, DATA + 35 * PAGE + 5, client)  # another address space
        dev.run()
        assert not dev.report(rep).complete
        scope = HW.HG_CANCEL_SCOPE_ATOMIC
        dev.cancel(kinds[kind], 7, DATA + 35 * PAGE + 5, client, scope)  # they are writes
        dev.run()
        assert not dev.report(rep).complete
        dev.cancel(kinds[kind], 7, DATA + 35 * PAGE + 5, client, HW.HG_CANCEL_SCOPE_WRITE)
        dev.run(lambda: dev.report(rep).complete)
        r = dev.report(rep)
        assert (r.status, r.reason) == (HW.HG_ERR_FAULT, HW.HG_REASON_PTE)
        if kind == "addr":
            assert (r.addr, r.thread, r.block) == (DATA + 35 * PAGE, 35, 0)
        if kind == "client":
            assert r.thread == 32
        assert CODE < r.pc < CODE + 64
        assert b.ctx.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_FAULT
        assert b.ctx.reg(HW.HG_CTX_ERROR_ADDR, 8) == r.addr
        assert dev.counter("stalled_warps") <= 1  # the next job's
        b.dev.service(b.fix, lambda: dev.report(after).complete)
        assert dev.report(after).status == 0
        rep = other.launch(CODE, DATA, block=2)
        b.dev.service(b.fix, lambda: dev.report(rep).complete)
        assert dev.report(rep).status == 0


def test_cancel_leaves_other_contexts_alone() -> None:
    with Bench(page_per_thread(), sms=2) as b:
        dev = b.dev
        other = Ctx(dev, 4, 7)
        one = b.ctx.launch(CODE, DATA, block=2)
        two = other.launch(CODE, DATA + 0x100_0000, block=2)
        dev.run()
        dev.cancel(HW.HG_CANCEL_ADDR, 7, DATA)
        dev.run(lambda: dev.report(one).complete)
        assert not dev.report(two).complete
        b.dev.service(b.fix, lambda: dev.report(two).complete)
        assert dev.report(two).status == 0


def finished(b: Bench, rep: int) -> Report:
    b.dev.run(lambda: b.dev.report(rep).complete)
    return b.dev.report(rep)


def test_fatal_mode() -> None:
    """Non-replayable entry, report, then the context halts; ERROR interrupt."""
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        dev.wr(HW.HG_REG_INTR_ENABLE, 0xF)
        dev.wr(HW.HG_REG_ASID + 7 * HW.HG_ASID_STRIDE + HW.HG_ASID_CTRL, HW.HG_ASID_MODE_FATAL)
        rep = b.ctx.launch(CODE, DATA, block=2)
        r = finished(b, rep)
        assert (r.status, r.reason, r.addr) == (HW.HG_ERR_FAULT, HW.HG_REASON_PTE, DATA)
        (f,) = dev.take_faults(nr=True)
        assert not f.replayable
        assert not dev.take_faults()
        dev.run()
        assert b.ctx.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_HALTED
        assert dev.host.irq[HW.HG_VEC_ERROR] >= 1
        assert dev.host.irq[HW.HG_VEC_FAULT] == 0
        assert dev.counter("faults_nonreplay") == 1


def test_range_and_poison_end_the_job_only() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        r = finished(b, b.ctx.launch(CODE, 1 << 48, block=1))
        assert (r.status, r.reason, r.addr) == (HW.HG_ERR_FAULT, HW.HG_REASON_RANGE, 1 << 48)
        b.t.map(DATA, 0x7FFF_0000_0000, FULL | SYS)
        r = finished(b, b.ctx.launch(CODE, DATA, block=1))
        assert (r.status, r.reason, r.addr) == (HW.HG_ERR_FAULT, HW.HG_REASON_POISON, DATA)
        rep = b.ctx.launch(CODE, DATA + PAGE, block=1)
        dev.service(b.fix, lambda: dev.report(rep).complete)
        assert dev.report(rep).status == 0
        assert len(dev.take_faults(nr=True)) == 2


def test_bus_mastering_off() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        b.fix(At(DATA))
        assert finished(b, b.ctx.launch(CODE, DATA, block=1)).status == 0  # TLB is warm
        b.dev.lib.hg_set_bus_master(b.dev.dev, False)
        b.ctx.launch(CODE, DATA, block=1)
        b.dev.run()
        assert b.ctx.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_HALTED
        assert b.ctx.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_BUS


def test_fetch_fault_and_replay() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        rep = b.ctx.launch(0x5000_0000, 0, block=32)
        b.dev.run()
        (f,) = b.dev.take_faults()
        assert (f.addr, f.access) == (0x5000_0000, HW.HG_ACCESS_READ)
        map_code(b.dev, b.t, 0x5000_0000, assemble([BARRIER, EXIT]))
        b.dev.replay()
        assert finished(b, rep).status == 0


def test_ring_disable_drains_and_drops() -> None:
    with Bench(page_per_thread(), sms=1) as b:
        dev = b.dev
        dev.inject("fault nth=1 delay_valid=1s")
        b.ctx.launch(CODE, DATA, block=1)
        dev.step(100)
        base = HW.HG_REG_FAULT
        assert dev.rd(base + HW.HG_FAULT_PUT) == 1
        dev.wr(base + HW.HG_FAULT_CTRL, 0)
        assert dev.rd(base + HW.HG_FAULT_CTRL) == 0  # the late VALID will never be written
        before = dev.read(dev.ring, 64)
        dev.replay()
        dev.run()
        assert dev.read(dev.ring, 64) == before
        assert dev.counter("faults_dropped") >= 1
        dev.wr(base + HW.HG_FAULT_CTRL, 1)
        assert dev.rd(base + HW.HG_FAULT_PUT) == 0
        dev.replay()
        dev.run()
        assert len(dev.take_faults()) == 1
