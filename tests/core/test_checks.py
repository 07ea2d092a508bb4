# SPDX-License-Identifier: GPL-2.0-or-later
"""Protocol checks: each mistake is named, and what looks like it but is none is not.

That correct use stays silent is tested everywhere: leaving a ``Device`` that a test does not
declare misused asserts it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import hg_asm as asm
import pytest
from hg_asm import EXIT, assemble
from hg_lib import (
    FULL,
    HW,
    PAGE,
    RAM_BASE,
    RAM_SIZE,
    SYS,
    VRAM,
    Ctx,
    Device,
    Tables,
    map_code,
    records,
)
from test_faults import CODE, DATA, At, Bench, page_per_thread

STORE = assemble([*asm.li(5, 7), asm.store("sd", 5, 10), EXIT])
LOAD = assemble([asm.load("ld", 5, 10), EXIT])


def fence(c: Ctx, addr: int, value: int) -> None:
    c.push([HW.HG_OP_FENCE, addr, value])
    c.ring_doorbell()


def test_fence_backwards() -> None:
    with Device(misused=True) as dev:
        c = Ctx(dev, 1, 1)
        at = dev.alloc()
        for value in (1, 2, 2, 1 << 63):
            fence(c, at, value)
            dev.run()
        assert dev.violations() == {}
        fence(c, at, 3)
        dev.run()
        assert dev.violations() == {"fence-backwards": 1}
        assert dev.u64(at) == 3, "a check changes nothing"


def test_doorbell_overrun() -> None:
    with Device(misused=True) as dev:
        c = Ctx(dev, 1, 1, size=8)
        for _ in range(40):  # round and round
            c.push([HW.HG_OP_NOP])
            c.ring_doorbell()
            dev.run()
        dev.inject("doorbell delay=1000000")  # software is ahead of what the device knows
        for _ in range(7):
            c.push([HW.HG_OP_NOP])
            c.ring_doorbell()
        c.ring_doorbell()  # the same again is no harm
        assert dev.violations() == {}
        c.push([HW.HG_OP_NOP])
        c.ring_doorbell()
        assert dev.violations() == {"doorbell-overrun": 1}


def test_doorbell_backwards() -> None:
    with Device(misused=True) as dev:
        c = Ctx(dev, 1, 1, size=8)
        dev.wr(HW.HG_REG_CTRL, 0)  # nothing is taken
        for _ in range(3):
            c.push([HW.HG_OP_NOP])
        c.ring_doorbell()
        assert dev.violations() == {}
        c.put = 1
        c.ring_doorbell()
        assert dev.violations() == {"doorbell-overrun": 1}


def faulting(pages: int, **cfg: object) -> Bench:
    """A launch that has faulted on so many pages."""
    b = Bench(page_per_thread(), **cfg)
    b.ctx.launch(CODE, DATA, block=pages)
    b.dev.run()
    return b


def taken(dev: Device, *entries: int) -> None:
    """VALID is cleared, as who takes a fault does before GET moves."""
    for n in entries:
        dev.write(dev.ring + n * HW.HG_FAULT_ENTRY_SIZE + HW.HG_FE_FLAGS * 4, bytes(4))


def test_fault_get_range() -> None:
    with faulting(5, misused=True) as b:
        dev = b.dev
        taken(dev, *range(5))
        put = dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT)
        assert put == 5
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 3)
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 3)
        assert dev.violations() == {}
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 2)
        assert dev.violations() == {"fault-get-range": 1}
    with faulting(5, misused=True) as b:
        b.dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 6)
        assert b.dev.violations() == {"fault-get-range": 1}


def test_fault_unready() -> None:
    with Bench(page_per_thread(), misused=True) as b:
        dev = b.dev
        dev.inject("fault nth=2 delay_valid=1000000000")
        b.ctx.launch(CODE, DATA, block=3)
        dev.run(lambda: dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT) == 3)
        late = [n for n in range(3) if not dev.read(dev.ring + n * 32 + 31, 1)[0] & 0x80]
        assert len(late) == 1
        taken(dev, *range(3))
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, late[0])
        assert dev.violations() == {}
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, late[0] + 1)
        assert dev.violations() == {"fault-unready": 1}


def test_fault_valid_kept() -> None:
    with faulting(3, ring=4, misused=True) as b:
        dev = b.dev
        for f in dev.take_faults():
            b.fix(f)
        dev.replay()
        dev.run()
        assert dev.violations() == {}
        # round the ring again, and this time leave one entry as it is
        b.ctx.launch(CODE, DATA + 8 * PAGE, block=3)
        dev.run()
        taken(dev, 0)
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 0)
        # the one that it passes: not the two before PUT, which are still to be taken
        assert dev.violations() == {"fault-valid-kept": 1}
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT))
        assert dev.violations() == {"fault-valid-kept": 2}
        dev.replay()
        dev.run()
        # and where the device comes round
        assert dev.violations() == {"fault-valid-kept": 3}


def test_fault_valid_kept_many() -> None:
    """One report for each write of GET; and of so many entries it is not said of all."""
    with faulting(5, misused=True) as b:
        b.dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 4)
        assert b.dev.violations() == {"fault-valid-kept": 1}
        b.dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 5)
        assert b.dev.violations() == {"fault-valid-kept": 2}
    with faulting(32, misused=True, ring=2048) as b:
        dev = b.dev

        def fault_to(wanted: int) -> int:
            put = 0
            while put < wanted:
                dev.replay()
                dev.run()
                put = dev.rd(HW.HG_REG_FAULT + HW.HG_FAULT_PUT)
            taken(dev, *range(put))
            return put

        assert fault_to(512) == 512
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, 512)
        assert records(dev)["unlooked"] == {}
        dev.wr(HW.HG_REG_FAULT + HW.HG_FAULT_GET, fault_to(1025))
        assert (dev.violations(), records(dev)["unlooked"]) == ({}, {"fault-valid-kept": 1})


def test_fault_valid_kept_in_the_other_ring() -> None:
    with Bench(page_per_thread(), misused=True) as b:
        dev = b.dev
        rep = b.ctx.launch(CODE, 1 << 48, block=1)
        dev.run(lambda: dev.report(rep).complete)
        dev.wr(HW.HG_REG_NRFAULT + HW.HG_FAULT_GET, 1)
        assert dev.violations() == {"fault-valid-kept": 1}


def crawl(dev: Device, until: Callable[[], bool]) -> None:
    """Run in small steps, so that a long copy is still under way when it holds."""
    for _ in range(20000):
        if until():
            return
        dev.step(16)
    raise AssertionError("it never holds")


class Moving:
    """A program that uses the page at DATA, and a slow privileged copy of its frame."""

    def __init__(self, dev: Device, code: bytes, vram: bool) -> None:
        self.dev = dev
        self.t = Tables(dev, 7)
        map_code(dev, self.t, CODE, code)
        self.vram = vram
        self.frame = dev.alloc_vram() if vram else dev.alloc()
        self.t.map(DATA, self.frame, FULL | (VRAM if vram else SYS))
        self.flag = dev.alloc()
        self.t.map(DATA + PAGE, self.flag, HW.HG_PTE_VALID | SYS)
        self.user = Ctx(dev, 3, 7)
        self.mover = Ctx(dev, 4, 7, priv=True)

    def copy(self, *, target: bool, other: int | None = None) -> int:
        """Start it; it lasts, because it copies one page many times."""
        mine = HW.HG_SPACE_VRAM if self.vram else HW.HG_SPACE_SYS
        other = self.dev.alloc() if other is None else other
        ends = [(self.frame, mine), (other, HW.HG_SPACE_SYS)]
        (src, s), (dst, d) = reversed(ends) if target else ends
        flags = s << HW.HG_COPY_SRC_SHIFT | d << HW.HG_COPY_DST_SHIFT
        n = 4000
        at = self.dev.alloc(n * 32 // PAGE + 1)
        self.dev.write(at, struct.pack("<4Q", src, dst, PAGE, flags) * n)
        report = self.dev.alloc()
        self.mover.push([HW.HG_OP_COPY_LIST, at, n, 0, 0, 0, 0, report])
        self.mover.ring_doorbell()
        return report


@pytest.mark.parametrize("vram", [False, True])
@pytest.mark.parametrize(
    ("code", "target", "name"),
    [(STORE, False, "copy-source-written"), (LOAD, False, None),
     (STORE, True, "copy-target-used"), (LOAD, True, "copy-target-used")],
    ids=["store-to-source", "load-from-source", "store-to-target", "load-from-target"],
)  # fmt: skip
def test_use_of_a_page_that_moves(vram: bool, code: bytes, target: bool, name: str | None) -> None:
    with Device(misused=True) as dev:
        m = Moving(dev, code, vram)
        used = m.user.launch(CODE, DATA)
        dev.run(lambda: dev.report(used).complete)
        moved = m.copy(target=target)
        crawl(dev, lambda: dev.counter("copies") > 0)
        assert not dev.report(moved).complete
        assert dev.violations() == {}
        used = m.user.launch(CODE, DATA)
        crawl(dev, lambda: dev.report(used).complete)
        assert not dev.report(moved).complete, "the copy was too fast for the test"
        assert set(dev.violations()) == ({name} if name else set())
        before = dev.violations()
        dev.run(lambda: dev.report(moved).complete)
        used = m.user.launch(CODE, DATA)
        dev.run(lambda: dev.report(used).complete)
        assert dev.violations() == before, "the copy is over"


def test_use_of_other_pages_while_some_move() -> None:
    with Device() as dev:
        m = Moving(dev, STORE, False)
        moved = m.copy(target=True)
        for n in range(64):
            m.t.map(DATA + (n + 2) * PAGE, dev.alloc(), FULL | SYS)
            used = m.user.launch(CODE, DATA + (n + 2) * PAGE)
            dev.run(lambda used=used: dev.report(used).complete)
        dev.run(lambda: dev.report(moved).complete)


@pytest.mark.parametrize("both_target", [False, True])
def test_copy_overlap(both_target: bool) -> None:
    with Device(misused=True, ces=2) as dev:
        m = Moving(dev, STORE, False)
        moved = m.copy(target=False)
        crawl(dev, lambda: dev.counter("copies") > 0)
        assert dev.violations() == {}
        other = Ctx(dev, 5, 7, priv=True)
        flags = HW.HG_SPACE_SYS
        other.copy(m.frame, dev.alloc(), PAGE, flags, flags)  # read by both: no harm
        crawl(dev, lambda: other.reg(HW.HG_CTX_GET) == other.put)
        assert not dev.report(moved).complete
        assert dev.violations() == {}
        src, dst = (dev.alloc(), m.frame) if both_target else (m.frame, m.frame)
        other.copy(src, dst, PAGE, flags, flags)
        dev.run()
        assert set(dev.violations()) == {"copy-overlap"}


def copy_list(dev: Device, number: int, segments: list[tuple[int, int]], times: int = 1) -> None:
    """Start a privileged context's copy of these pages of RAM, as often."""
    c = Ctx(dev, number, 7, priv=True)
    flags = HW.HG_SPACE_SYS << HW.HG_COPY_SRC_SHIFT | HW.HG_SPACE_SYS << HW.HG_COPY_DST_SHIFT
    words = b"".join(struct.pack("<4Q", src, dst, PAGE, flags) for src, dst in segments) * times
    at = dev.alloc(-(-len(words) // PAGE))
    dev.write(at, words)
    c.push([HW.HG_OP_COPY_LIST, at, len(segments) * times])
    before = dev.counter("copies")
    c.ring_doorbell()
    crawl(dev, lambda: dev.counter("copies") > before)


@pytest.mark.parametrize("target", [False, True])
def test_copy_overlap_names_the_frame(target: bool) -> None:
    """The lowest of those that are wrong, whatever else the two copies have in common."""
    with Device(misused=True, ces=2) as dev:
        mine = dev.alloc(16)
        frame = [mine + n * PAGE for n in range(16)]
        a, b = dev.alloc(), dev.alloc()
        # reads 3, writes and reads 9, writes 12; behind one another, and not in order
        copy_list(dev, 4, [(frame[3], a), (a, frame[12]), (frame[9], b), (b, frame[9])], 1000)
        c = Ctx(dev, 5, 7, priv=True)
        src, dst = (dev.alloc(16), mine) if target else (mine, dev.alloc(16))
        c.copy(src, dst, 16 * PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_SYS)
        dev.run(lambda: c.reg(HW.HG_CTX_GET) == c.put)
        (record,) = records(dev)["violations"]
        assert record["check"] == "copy-overlap"
        wrong = (frame[3], 1) if target else (frame[9], 2)
        assert (record["address"], record["b"]) == wrong


def test_copies_that_were_not_all_looked_at_are_told_of() -> None:
    """Two lists that cannot be compared whole: nothing was found, and that says nothing."""
    with Device(ces=2) as dev:
        a, b, c, d = (dev.alloc() for _ in range(4))
        copy_list(dev, 4, [(a, b)], 4000)
        copy_list(dev, 5, [(a, c)], 2)
        assert records(dev)["unlooked"] == {}
        copy_list(dev, 6, [(a, d)], 5)  # each of its ends with each of the others: more than 16384
        seen = records(dev)
        assert (seen["unlooked"], seen["total"]) == ({"copy-overlap": 1}, 0)
        dev.lib.hg_violations_clear(dev.dev)
        assert records(dev)["unlooked"] == {}


def test_copy_after_copy_in_one_ring_is_no_overlap() -> None:
    with Device() as dev:
        c = Ctx(dev, 4, 7, priv=True)
        a, b = dev.alloc(), dev.alloc()
        for _ in range(10):
            c.copy(a, b, PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_SYS)
            c.copy(b, a, PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_SYS)
        dev.run()


def vram_map(dev: Device, pages: list[int]) -> int:
    """Only these pages of VRAM (offsets) are in use."""
    at = dev.alloc()
    for page in pages:
        n = page // PAGE
        dev.ram[at - RAM_BASE + n // 8] |= 1 << n % 8
    dev.wr(HW.HG_REG_VRAM_MAP, at | HW.HG_VRAM_MAP_ENABLE, 8)
    assert dev.rd(HW.HG_REG_VRAM_MAP, 8) == at | HW.HG_VRAM_MAP_ENABLE
    return at


@pytest.mark.parametrize("huge", [False, True])
def test_vram_free_used(huge: bool) -> None:
    with Device(misused=True) as dev:
        m = Moving(dev, STORE, True)
        at = vram_map(dev, [m.frame])
        if huge:
            m.t.map_huge(DATA + (2 << 20), 0, FULL | VRAM)
        va = DATA + (2 << 20) + m.frame if huge else DATA
        for _ in range(2):
            used = m.user.launch(CODE, va)
            dev.run(lambda used=used: dev.report(used).complete)
        assert dev.violations() == {}
        dev.ram[at - RAM_BASE : at - RAM_BASE + 8] = 0
        state = dev.save()
        dev.load(state)
        dev.invalidate(HW.HG_INVAL_ALL)
        used = m.user.launch(CODE, va)
        dev.run(lambda: dev.report(used).complete)
        assert dev.violations() == {"vram-free-used": 1}


@pytest.mark.parametrize("target", [False, True])
def test_vram_free_copied(target: bool) -> None:
    with Device(misused=True) as dev:
        m = Moving(dev, STORE, True)
        vram_map(dev, [m.frame + PAGE])
        m.copy(target=target)
        dev.run()
        assert set(dev.violations()) == {"vram-free-used"}


def test_asid_reuse() -> None:
    with Device(misused=True) as dev:
        m = Moving(dev, LOAD, False)
        reg = HW.HG_REG_ASID + 7 * HW.HG_ASID_STRIDE
        root = dev.rd(reg, 8)
        for kind, length in ((HW.HG_INVAL_ASID, 0), (HW.HG_INVAL_ALL, 0),
                             (HW.HG_INVAL_RANGE, 1 << 48)):  # fmt: skip
            used = m.user.launch(CODE, DATA)
            dev.run(lambda used=used: dev.report(used).complete)
            dev.wr(reg, 0, 8)
            dev.invalidate(kind, 7, 0, length)
            dev.wr(reg, root, 8)
        dev.wr(reg, root, 8)
        assert dev.violations() == {}
        used = m.user.launch(CODE, DATA)
        dev.run(lambda: dev.report(used).complete)
        dev.wr(reg, 0, 8)
        dev.invalidate(HW.HG_INVAL_RANGE, 7, DATA, PAGE)  # code may still be cached
        assert dev.violations() == {}
        dev.wr(reg, root, 8)
        assert dev.violations() == {"asid-reuse": 1}


@pytest.mark.parametrize("walk_entries", [0, 32])
def test_asid_reuse_by_what_has_only_faulted(walk_entries: int) -> None:
    """No leaf was found; the walk cache knows the tables all the same, and they are walked on."""
    with Device(sms=1, misused=True, walk_entries=walk_entries) as dev:
        dev.enable_faults()
        Tables(dev, 3).map(CODE, 0, 0)
        ctx = Ctx(dev, 3, 3)
        lost = ctx.launch(CODE, 0, block=1)
        dev.run()
        assert dev.take_faults()
        dev.cancel(HW.HG_CANCEL_GLOBAL, 3)
        dev.run(lambda: dev.report(lost).complete)
        map_code(dev, Tables(dev, 3), CODE, assemble([EXIT]))
        assert dev.violations() == ({"asid-reuse": 1} if walk_entries else {})
        job = ctx.launch(CODE, 0, block=1)
        dev.run()
        assert dev.report(job).complete != bool(walk_entries)


@pytest.mark.parametrize("evicted", [False, True])
def test_replay_stale(evicted: bool) -> None:
    """Replay without the invalidation of a read-only entry that now may be written."""
    with Bench(STORE, misused=True, sms=1, utlb_entries=4) as b:
        dev = b.dev
        b.fix(At(DATA), HW.HG_PTE_VALID)
        b.t.map(DATA + PAGE, dev.alloc(), HW.HG_PTE_VALID | SYS)
        map_code(dev, b.t, CODE + PAGE, LOAD)
        done = b.ctx.launch(CODE + PAGE, DATA, block=1)
        dev.run(lambda: dev.report(done).complete)
        if evicted:  # from the micro-TLB: the L2 has it
            for n in range(8):
                b.t.map(DATA + (n + 4) * PAGE, dev.alloc(), HW.HG_PTE_VALID | SYS)
                done = b.ctx.launch(CODE + PAGE, DATA + (n + 4) * PAGE, block=1)
                dev.run(lambda done=done: dev.report(done).complete)
        done = b.ctx.launch(CODE, DATA, block=1)
        for round_ in range(40):
            dev.run()
            (f,) = dev.take_faults()
            assert f.addr == DATA
            b.fix(f)
            dev.replay()
            if round_ == 10:
                assert dev.violations() == {}
        assert dev.violations() == {"replay-stale": 1}
        dev.invalidate(HW.HG_INVAL_RANGE, 7, DATA, PAGE)
        dev.run()
        dev.take_faults()
        dev.replay()
        dev.run(lambda: dev.report(done).complete)


def test_replays_before_the_invalidation_of_a_correct_driver() -> None:
    """Others' replays meet the entry again and again; each time it is invalidated in the end."""
    with Bench(STORE, sms=1) as b:
        dev = b.dev
        map_code(dev, b.t, CODE + PAGE, LOAD)
        for page in range(30):
            va = DATA + page * PAGE
            b.fix(At(va), HW.HG_PTE_VALID)
            done = b.ctx.launch(CODE + PAGE, va, block=1)
            dev.run(lambda done=done: dev.report(done).complete)
            done = b.ctx.launch(CODE, va, block=1)
            for _ in range(3):
                dev.run()
                for f in dev.take_faults():
                    b.fix(f)
                dev.replay()
            dev.run()
            dev.invalidate(HW.HG_INVAL_RANGE, 7, va, PAGE)
            dev.take_faults()
            dev.replay()
            dev.run(lambda done=done: dev.report(done).complete)


@pytest.mark.parametrize("direct", [False, True])
def test_dma_refused(direct: bool) -> None:
    with Device(misused=True, direct=direct) as dev:
        t = Tables(dev, 7)
        map_code(dev, t, CODE, STORE)
        t.map(DATA, RAM_BASE + RAM_SIZE, FULL | SYS)
        c = Ctx(dev, 3, 7)
        assert dev.violations() == {}
        report = c.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(report).complete)
        assert dev.report(report).status == HW.HG_ERR_FAULT
        assert dev.violations() == {"dma-refused": 1}


def test_an_injected_bus_error_is_no_mistake_of_the_driver() -> None:
    with Device() as dev:
        c = Ctx(dev, 4, 7, priv=True)
        dev.inject("dma_write nth=2 error")
        report = c.copy(dev.alloc(), dev.alloc(), PAGE, HW.HG_SPACE_SYS, HW.HG_SPACE_SYS)
        dev.run(lambda: dev.report(report).complete or bool(c.reg(HW.HG_CTX_STATUS) & 2))


def test_a_reset_hides_nothing_and_a_load_is_another_life() -> None:
    with Device(misused=True) as dev:
        c = Ctx(dev, 1, 1)
        at = dev.alloc()
        fence(c, at, 5)
        fence(c, at, 4)
        dev.run()
        state = dev.save()
        dev.lib.hg_reset(dev.dev)
        assert dev.violations() == {"fence-backwards": 1}
        dev.load(state)
        assert dev.violations() == {}
        fence(c, at, 3)
        dev.run()
        assert dev.violations() == {"fence-backwards": 1}
        dev.lib.hg_violations_clear(dev.dev)
        assert dev.violations() == {}
