# SPDX-License-Identifier: GPL-2.0-or-later
"""The data cache: VRAM that is stale on one side of it or the other until software flushes; and
posted writes to system memory, which are on their way until a membar."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hg_asm as asm
import pytest
from hg_asm import EXIT, FENCE, FENCE_I, Item, assemble, li
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
    said_by,
)
from hypothesis import given, settings
from hypothesis import strategies as st

CODE, OUT, DATA, OTHER = 0x1_0000, 0x6000_0000, 0x20_0000, 0x7000_0000
CACHED = VRAM | HW.HG_PTE_CACHED
LINE = 64
MEMBAR = HW.HG_FENCE_MEMBAR
VIRT, PHYS, BUS = HW.HG_SPACE_VIRT, HW.HG_SPACE_VRAM, HW.HG_SPACE_SYS


def least(sms: int = 1, utlb: int = 8, ces: int = 2) -> int:
    return (sms + ces) * (utlb + 3)


class Gpu:
    """A device with a data cache, an address space, a context of it and one of the kernel's."""

    def __init__(self, sms: int = 1, utlb: int = 8, pages: int | None = None, **cfg: Any) -> None:
        pages = least(sms, utlb) if pages is None else pages
        self.dev = Device(sms=sms, utlb_entries=utlb, data_pages=pages, misused=True, **cfg)
        self.dev.set_clock(1000)
        self.t = Tables(self.dev, 3)
        self.ctx = Ctx(self.dev, 3, 3)
        self.priv = Ctx(self.dev, 1, 0, priv=True)
        self.word = self.dev.alloc()
        self.out = self.dev.alloc()
        self.t.map(OUT, self.out, FULL | SYS)
        self.codes = 0
        self.fences = 0

    def __enter__(self) -> Gpu:
        self.dev.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.dev.__exit__(*exc)

    def sys(self, va: int = DATA) -> int:
        at = self.dev.alloc()
        self.t.map(va, at, FULL | SYS)
        return at

    def page(self, va: int = DATA, flags: int = CACHED) -> int:
        at = self.dev.alloc_vram()
        self.t.map(va, at, FULL | flags)
        return at

    def vram(self, at: int) -> int:
        return int(self.dev.vram[at : at + 8].view("<u8")[0])

    def set_vram(self, at: int, value: int) -> None:
        self.dev.vram[at : at + 8].view("<u8")[0] = value

    def program(self, body: Sequence[Item]) -> int:
        va = CODE + self.codes * PAGE
        self.codes += 1
        map_code(self.dev, self.t, va, assemble([*body, EXIT]))
        return va

    def run(self, body: Sequence[Item], ctx: Ctx | None = None, **launch: Any) -> None:
        """A job, to its report; time stands still."""
        report = (ctx or self.ctx).launch(self.program(body), **({"block": 1} | launch))
        self.dev.run(lambda: self.dev.report(report).complete)
        assert self.dev.report(report).status == 0

    def store(self, va: int, value: int, **launch: Any) -> None:
        self.run([*li(5, va), *li(6, value), asm.store("sd", 6, 5)], **launch)

    def load(self, va: int) -> int:
        """What the GPU reads there; by a job of its own, whose answer is not posted."""
        self.run([*li(5, va), asm.load("ld", 6, 5), *li(5, OUT), asm.store("sd", 6, 5), FENCE])
        return self.dev.u64(self.out)

    def fence(self, flags: int = 0, ctx: Ctx | None = None) -> None:
        """A fence of the context, until it is there."""
        self.fences += 1
        c = ctx or self.ctx
        c.push([HW.HG_OP_FENCE | flags, self.word, self.fences])
        c.ring_doorbell()
        self.dev.run(lambda: self.dev.u64(self.word) == self.fences)

    def flush(self, at: int = 0, n: int = 8 << 20) -> None:
        self.priv.push([HW.HG_OP_FLUSH, at, n])
        self.priv.ring_doorbell()
        self.fence(ctx=self.priv)

    def copy(self, src: int, dst: int, n: int, a: int, b: int) -> None:
        """By the kernel's context."""
        report = self.priv.copy(src, dst, n, a, b)
        self.dev.run(lambda: self.dev.report(report).complete)
        assert self.dev.report(report).status == 0

    def seen(self, at: int) -> int:
        """What a physical copy reads in VRAM."""
        self.copy(at, self.out + 64, 8, PHYS, BUS)
        return self.dev.u64(self.out + 64)

    def invalidate(self, kind: int = HW.HG_INVAL_ASID, start: int = 0, n: int = 0) -> None:
        seq = self.dev.invalidate(kind, 3, start, n)
        self.dev.run(lambda: self.dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq)

    def later(self, ns: int) -> None:
        self.dev.set_clock(int(self.dev.host.now) + ns)
        for _ in range(50):
            self.dev.step(4096)


# -- what it says of itself --


def test_features() -> None:
    with Gpu() as g:
        assert g.dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_DATA_CACHE
    for bad in ({"data_pages": 1}, {"data_pages": 65537}, {"data_pages": 400, "coherent": True}):
        with pytest.raises(ValueError, match=r"data_pages|bar-size"):
            Device(**bad)


def test_without_one() -> None:
    """Bits and commands are what they were: without a meaning, or refused."""
    dev = Device(sms=1, misused=True)
    with dev:
        assert not dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_DATA_CACHE
        t = Tables(dev, 3)
        at = dev.alloc_vram()
        t.map(DATA, at, FULL | CACHED)
        map_code(dev, t, CODE, assemble([*li(5, DATA), asm.store("sd", 5, 5), EXIT]))
        Ctx(dev, 3, 3).launch(CODE, block=1)
        dev.run()
        assert int(dev.vram[at : at + 8].view("<u8")[0]) == DATA
        seq = dev.rd(HW.HG_REG_INVAL_SEQ)
        dev.wr(HW.HG_REG_INVAL_CMD, HW.HG_INVAL_ALL | HW.HG_INVAL_MEMBAR)
        assert dev.rd(HW.HG_REG_INVAL_SEQ) == seq
        refused = (
            [HW.HG_OP_FENCE | MEMBAR, dev.alloc(), 1],
            [HW.HG_OP_FLUSH, 0, 8],
            [HW.HG_OP_INVALIDATE, HW.HG_INVAL_ALL | HW.HG_INVAL_MEMBAR],
        )
        for n, desc in enumerate(refused):
            c = Ctx(dev, 5 + n, 0, priv=True)
            c.push(desc)
            c.ring_doorbell()
            dev.run()
            assert c.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_DESC


@pytest.mark.parametrize("desc", [
    [HW.HG_OP_FLUSH | 0x100, 0, 8], [HW.HG_OP_FLUSH, 8 << 20, 1], [HW.HG_OP_FLUSH, 8, 8 << 20],
    [HW.HG_OP_FLUSH, 1 << 63, 1 << 63],
])  # fmt: skip
def test_a_flush_that_is_none(desc: list[int]) -> None:
    with Gpu() as g:
        g.priv.push(desc)
        g.priv.ring_doorbell()
        g.dev.run()
        assert g.priv.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_DESC


def test_a_flush_is_the_kernels() -> None:
    with Gpu() as g:
        g.ctx.push([HW.HG_OP_FLUSH, 0, 8])
        g.ctx.ring_doorbell()
        g.dev.run()
        assert g.ctx.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_DESC


# -- posted writes --


def test_a_store_is_on_its_way_until_a_membar() -> None:
    with Gpu() as g:
        at = g.sys()
        g.store(DATA, 77)
        assert g.dev.u64(at) == 0
        g.fence()
        assert g.dev.u64(at) == 0, "a fence alone"
        g.fence(MEMBAR)
        assert g.dev.u64(at) == 77


def test_a_store_does_not_wait_for_ever() -> None:
    with Gpu() as g:
        at = g.sys()
        g.store(DATA, 77)
        g.later(900_000)
        assert g.dev.u64(at) == 0
        g.later(200_000)
        assert g.dev.u64(at) == 77


def test_a_store_is_a_deadline() -> None:
    """A host that steps by time comes again."""
    with Gpu() as g:
        g.sys()
        assert g.dev.lib.hg_deadline(g.dev.dev) == 2**64 - 1
        g.store(DATA, 77)
        assert g.dev.lib.hg_deadline(g.dev.dev) == int(g.dev.host.now) + 1_000_000
        g.fence(MEMBAR)
        assert g.dev.lib.hg_deadline(g.dev.dev) == 2**64 - 1


ORDERS: dict[str, list[Item]] = {
    "fence": [FENCE],
    "fence.i": [FENCE_I],
    "load": [*li(7, OUT), asm.load("ld", 8, 7)],
    "byte": [*li(7, OUT), asm.load("lb", 8, 7)],
    "misaligned": [*li(7, OUT + 1), asm.load("ld", 8, 7)],
    "misaligned-store": [*li(7, OUT + 1), asm.store("sd", 8, 7)],
    "amo": [*li(7, OUT), asm.amo("amoadd", "d", 8, 9, 7)],
    "lr": [*li(7, OUT), asm.lr("d", 8, 7)],
}
PASSES: dict[str, list[Item]] = {
    "store": [*li(7, OUT), asm.store("sd", 8, 7)],
    "alu": [asm.i("addi", 7, 7, 1)],
    "vram-load": [*li(7, OTHER), asm.load("ld", 8, 7)],
}


@pytest.mark.parametrize("vec", ["off", "best"])
@pytest.mark.parametrize("what", [*ORDERS, *PASSES])
def test_what_a_store_comes_before(what: str, vec: str) -> None:
    with Gpu(vec=vec) as g:
        at = g.sys()
        g.page(OTHER)
        after = ORDERS.get(what) or PASSES[what]
        known = [*li(7, OUT), asm.load("ld", 8, 7)]  # or the page would be found on the slow way
        g.run([*known, *li(5, DATA), *li(6, 77), asm.store("sd", 6, 5), *after], block=32)
        assert (g.dev.u64(at) == 77) == (what in ORDERS)


@pytest.mark.parametrize("vec", ["off", "plain", "best"])
@pytest.mark.parametrize("size", ["sb", "sh", "sw", "sd"])
@pytest.mark.parametrize("shape", ["row", "far", "same"])
def test_all_of_a_warp(shape: str, size: str, vec: str) -> None:
    """Side by side, apart, and to one place: bytes, and their order."""
    n = {"sb": 0, "sh": 1, "sw": 2, "sd": 3}[size]
    shift = {"row": n, "far": 6, "same": 12}[shape]
    with Gpu(vec=vec) as g:
        at = g.sys()
        g.dev.write(at, b"\xee" * PAGE)
        g.run([
            *li(5, DATA), asm.csrr(6, "tid"), asm.i("addi", 8, 6, 1), asm.i("slli", 7, 6, shift),
            *([asm.i("addi", 7, 0, 0)] if shape == "same" else []),
            asm.r("add", 5, 5, 7), asm.store(size, 8, 5),
        ], block=32)  # fmt: skip
        want = bytearray(b"\xee" * PAGE)
        for lane in range(32):
            to = 0 if shape == "same" else lane << shift
            want[to : to + (1 << n)] = (lane + 1).to_bytes(1 << n, "little")
        assert g.dev.read(at, PAGE) == b"\xee" * PAGE
        g.fence(MEMBAR)
        assert g.dev.read(at, PAGE) == bytes(want)


def test_a_full_queue_is_drained() -> None:
    """Nine stores of 32 lanes to places apart are more than there is room for."""
    with Gpu() as g:
        at = g.sys()
        body: list[Item] = [*li(5, DATA), asm.csrr(6, "tid"), asm.i("slli", 7, 6, 7),
                            asm.r("add", 5, 5, 7)]  # fmt: skip
        for n in range(9):
            body += [asm.i("addi", 8, 0, n + 1), asm.store("sw", 8, 5, 8 * n)]
        g.run(body, block=32)
        there = [g.dev.u64(at + 128 * lane + 8 * n) for n in range(9) for lane in range(32)]
        assert there == [n + 1 for n in range(8) for _ in range(32)] + [0] * 32
        g.fence(MEMBAR)
        assert g.dev.u64(at + 31 * 128 + 64) == 9


def spinning(g: Gpu, body: Sequence[Item] = ()) -> None:
    """A job that has stored, and runs on."""
    va = g.program([*li(5, DATA), *li(6, 77), asm.store("sd", 6, 5), *body, "on:",
                    (lambda off: asm.jal_off(0, off), "on")])  # fmt: skip
    g.ctx.launch(va, block=1)
    for _ in range(8):
        g.dev.step(1)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("membar", [0, HW.HG_INVAL_MEMBAR])
@pytest.mark.parametrize("by", ["register", "descriptor"])
def test_an_invalidation_with_membar_waits_for_stores(running: bool, membar: int, by: str) -> None:
    with Gpu() as g:
        at = g.sys()
        if running:
            spinning(g)
        else:
            g.store(DATA, 77)
        assert g.dev.u64(at) == 0
        if by == "register":
            seq = g.dev.invalidate(HW.HG_INVAL_RANGE | membar, 3, DATA, PAGE)
        else:
            seq = g.dev.rd(HW.HG_REG_INVAL_SEQ) + 1
            g.priv.push([HW.HG_OP_INVALIDATE, HW.HG_INVAL_RANGE | membar | 3 << 16, DATA, PAGE])
            g.priv.ring_doorbell()
        for _ in range(100):
            if g.dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq:
                break
            g.dev.step(1)
        assert g.dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq
        assert (g.dev.u64(at) == 77) == bool(membar)


def test_late_invalidations_keep_their_membar() -> None:
    """Also where more are late than the queue has room for."""
    with Gpu() as g:
        at = g.sys()
        g.store(DATA, 77)
        g.dev.inject("mmu.invalidate count=99 delay=100us")
        for _ in range(40):
            g.dev.invalidate(HW.HG_INVAL_RANGE, 4, 0, PAGE)
        seq = g.dev.invalidate(HW.HG_INVAL_RANGE | HW.HG_INVAL_MEMBAR, 4, 0, PAGE)
        g.dev.load(g.dev.save())
        assert g.dev.u64(at) == 0
        g.later(150_000)
        assert g.dev.rd(HW.HG_REG_INVAL_DONE, 8) == seq
        assert g.dev.u64(at) == 77


def test_another_context_runs() -> None:
    with Gpu() as g:
        at = g.sys()
        other = Ctx(g.dev, 4, 3)
        g.store(DATA, 77)
        g.fence(MEMBAR, other)
        assert g.dev.u64(at) == 0, "another's fence"
        g.run([asm.i("addi", 7, 7, 1)], other)
        assert g.dev.u64(at) == 77


ENDS: dict[str, Callable[[Gpu], object]] = {
    "inactive": lambda g: g.dev.wr(g.ctx.base + HW.HG_CTX_CTRL, 0),
    "parked": lambda g: g.dev.wr(HW.HG_REG_CTRL, 0),
    "reset": lambda g: g.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET),
    "function-reset": lambda g: g.dev.lib.hg_reset(g.dev.dev),
    "no-more-ram": lambda g: g.dev.lib.hg_ram_remove(g.dev.dev, RAM_BASE, RAM_SIZE),
}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("running", [False, True])
def test_what_ends_it(what: str, running: bool) -> None:
    with Gpu() as g:
        at = g.sys()
        if running:
            spinning(g)
        else:
            g.store(DATA, 77)
        assert g.dev.u64(at) == 0
        ENDS[what](g)
        if what == "parked":
            g.dev.run(lambda: bool(g.dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_PARKED))
        elif what == "inactive":
            g.dev.run(lambda: not g.ctx.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE)
        assert g.dev.u64(at) == 77


def test_a_store_that_the_bus_does_not_take_any_more() -> None:
    with Gpu() as g:
        at = g.sys()
        g.store(DATA, 77)
        errors = g.dev.counter("guest_errors")
        g.dev.lib.hg_set_bus_master(g.dev.dev, False)
        g.later(2_000_000)
        assert g.dev.u64(at) == 0
        assert g.dev.counter("guest_errors") == errors + 1


def test_a_reset_leaves_nothing() -> None:
    with Gpu() as g:
        g.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        clean = g.dev.save()
        g.dev.wr(HW.HG_REG_CTRL, 1)
    with Gpu() as g:
        g.sys()
        g.page(OTHER)
        g.store(OTHER, 78)
        g.store(DATA, 77)
        g.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        assert g.dev.save() == clean


@pytest.mark.parametrize("other", [False, True])
def test_posted_writes_are_saved(other: bool) -> None:
    with Gpu() as g, Gpu() as h:
        at = g.sys()
        g.store(DATA, 77)
        g.store(DATA + 2048, 78)
        state = g.dev.save()
        assert g.dev.u64(at) == 0
        dev = h.dev if other else g.dev
        dev.load(state)
        assert dev.save() == state
        assert dev.u64(at) == 0
        (h if other else g).later(2_000_000)
        assert (dev.u64(at), dev.u64(at + 2048)) == (77, 78)


@pytest.mark.parametrize("then", ["load", "store"])
def test_rules_for_the_bus_come_after_what_is_on_its_way(then: str) -> None:
    """From then on accesses look at no queue."""
    with Gpu() as g:
        at = g.sys()
        g.store(DATA, 77)
        g.dev.inject("mmu.walk nth=1000000 delay=1us")
        assert g.dev.u64(at) == 0
        g.dev.inject("bus.write nth=1000000 error")
        if then == "load":
            assert g.load(DATA) == 77
            return
        g.store(DATA, 78)
        g.fence(MEMBAR)
        g.later(2_000_000)
        assert g.dev.u64(at) == 78


def test_where_ram_is_behind_the_host_nothing_is_posted() -> None:
    with Gpu(direct=False) as g:
        at = g.sys()
        g.store(DATA, 77)
        assert g.dev.u64(at) == 77


# -- the cache --


def test_a_store_is_in_the_cache_until_a_flush() -> None:
    with Gpu(sms=2) as g:
        at = g.page()
        g.store(DATA, 77)
        assert g.vram(at) == 0
        assert g.seen(at) == 0, "a physical copy goes past it"
        g.fence(MEMBAR)
        g.invalidate(HW.HG_INVAL_ALL | HW.HG_INVAL_MEMBAR)
        assert g.vram(at) == 0, "no membar is a flush"
        assert g.load(DATA) == 77
        g.flush(at + PAGE, PAGE)
        g.flush(at, 0)
        assert g.vram(at) == 0
        g.flush(at, 1)
        assert g.vram(at) == 77
        assert g.seen(at) == 77


def test_a_copy_of_virtual_addresses_goes_through_it() -> None:
    with Gpu() as g:
        at, b = g.page(), g.page(DATA + PAGE)
        to = g.sys(DATA + 2 * PAGE)
        g.store(DATA + 8, 77)
        for src, dst in ((DATA, DATA + PAGE), (DATA + PAGE, DATA + 2 * PAGE)):
            report = g.ctx.copy(src, dst, 64)
            g.dev.run(lambda r=report: g.dev.report(r).complete)
        assert g.dev.u64(to + 8) == 77
        assert (g.vram(at + 8), g.vram(b + 8)) == (0, 0)
        g.flush()
        assert (g.vram(at + 8), g.vram(b + 8)) == (77, 77)
        report = g.ctx.copy(5, DATA, 64, flags=HW.HG_COPY_FILL)
        g.dev.run(lambda: g.dev.report(report).complete)
        assert g.load(DATA + 16) == 5
        assert g.vram(at + 16) == 0


def test_what_is_written_behind_it_is_not_seen() -> None:
    """A page that comes to VRAM by a physical copy: the frame's old content is still here."""
    with Gpu() as g:
        at = g.page()
        g.set_vram(at, 1)
        assert g.load(DATA) == 1
        g.invalidate()
        g.dev.write(g.out + 128, struct.pack("<Q", 2))
        g.copy(g.out + 128, at, 8, BUS, PHYS)
        assert g.load(DATA) == 1, "stale"
        g.flush()
        assert g.load(DATA) == 1, "a translation leads to it"
        g.invalidate()
        assert g.load(DATA) == 1, "an invalidation alone"
        g.invalidate()
        g.flush()
        assert g.load(DATA) == 2


def test_what_is_in_use_stays() -> None:
    """A flush writes it back, and the next one what was stored since."""
    with Gpu(sms=2) as g:
        at = g.page()
        for value in (1, 2, 3):
            g.store(DATA, value)
            g.flush()
            assert g.vram(at) == value
            g.store(DATA, value + 10, grid=4)
            assert g.load(DATA) == value + 10


def test_another_owner_of_the_frame_sees_the_old_one() -> None:
    with Gpu() as g:
        at = g.page()
        g.store(DATA, 77)
        g.invalidate()
        g.t.unmap(DATA)
        g.t.map(OTHER, at, FULL | CACHED)
        g.set_vram(at, 5)
        assert g.load(OTHER) == 77


def test_what_stays_behind_is_written_over_the_new_content() -> None:
    with Gpu() as g:
        at = g.page()
        g.store(DATA, 77)
        g.invalidate()
        g.set_vram(at, 5)
        g.set_vram(at + LINE, 6)
        g.flush()
        assert (g.vram(at), g.vram(at + LINE)) == (77, 6), "the dirty line alone"


def test_a_store_beside_a_flush_is_in_it_or_in_the_next(tmp_path: Path) -> None:
    """Two threads, and what a processor makes of them: it needs two."""
    said_by("flush", tmp_path, "", "600000")


def test_lines() -> None:
    """What is written back is what was written, by 64 bytes."""
    with Gpu() as g:
        at = g.page()
        g.load(DATA)
        for n in (0, 1, 30, 62, 63):
            g.store(DATA + n * LINE + 8, 100 + n)
        g.dev.vram[at : at + PAGE] = 0xEE
        g.flush()
        got = g.dev.vram[at : at + PAGE].reshape(64, LINE)
        assert [n for n in range(64) if (got[n] != 0xEE).any()] == [0, 1, 30, 62, 63]
        assert [int(got[n][8]) for n in (0, 1, 30, 62, 63)] == [100, 101, 130, 162, 163]


def test_a_store_of_all_lines() -> None:
    """32 lanes side by side: four lines."""
    with Gpu() as g:
        at = g.page()
        g.run([*li(5, DATA), asm.csrr(6, "tid"), asm.i("slli", 7, 6, 3), asm.r("add", 5, 5, 7),
               asm.i("addi", 6, 6, 1), asm.store("sd", 6, 5)], block=32)  # fmt: skip
        g.flush()
        assert [g.vram(at + 8 * n) for n in range(32)] == list(range(1, 33))


def test_an_evicted_translation_is_none() -> None:
    """Of one entry: the next page's takes its place, and so the flush forgets the page."""
    with Gpu(utlb=1) as g:
        at = g.page()
        assert g.load(DATA) == 0
        g.flush()
        g.set_vram(at, 5)
        assert g.load(DATA) == 5


@pytest.mark.parametrize("load", [False, True])
def test_an_access_over_two_pages(load: bool) -> None:
    """One micro-TLB entry: the second page's takes the place of the first one's."""
    with Gpu(utlb=1) as g:
        a, b = g.page(), g.page(DATA + PAGE)
        va = DATA + PAGE - 4
        if load:
            g.dev.vram[a + PAGE - 4 : a + PAGE] = 0x11
            g.dev.vram[b : b + 4] = 0x22
            assert g.load(va) == 0x2222222211111111
            return
        g.store(va, 0x2222222211111111)
        assert (g.vram(a + PAGE - 8), g.vram(b)) == (0, 0)
        g.invalidate()
        g.flush()
        assert (g.vram(a + PAGE - 8), g.vram(b)) == (0x11111111 << 32, 0x22222222)


def test_a_page_in_use_is_not_evicted() -> None:
    """The next victim is the page of the access's first half, whose translation is gone already."""
    with Gpu(utlb=1) as g:
        first, second = g.page(), g.page(DATA + PAGE)
        for k in range(least(1, 1)):
            if k:
                g.page(OTHER + k * PAGE)
            assert g.load(OTHER + k * PAGE if k else DATA) == 0
        g.store(DATA + PAGE - 4, 0x2222222211111111)
        g.invalidate()
        g.flush()
        assert (g.vram(first + PAGE - 8), g.vram(second)) == (0x11111111 << 32, 0x22222222)


def test_atomics_are_done_in_it() -> None:
    with Gpu(sms=2) as g:
        at = g.page()
        g.run([*li(5, DATA), asm.i("addi", 6, 0, 1), asm.amo("amoadd", "d", 0, 6, 5)], grid=6,
              block=64)  # fmt: skip
        assert g.load(DATA) == 384
        assert g.vram(at) == 0
        g.flush()
        assert g.vram(at) == 384


def test_without_the_bit_it_is_passed_by() -> None:
    with Gpu() as g:
        at = g.page(flags=VRAM)
        g.store(DATA, 77)
        assert g.vram(at) == 77


def test_a_huge_leaf() -> None:
    with Gpu() as g:
        g.t.map_huge(0x4000_0000, 2 << 20, FULL | CACHED)
        g.store(0x4000_0000 + 5 * PAGE, 77)
        assert g.vram((2 << 20) + 5 * PAGE) == 0
        assert g.load(0x4000_0000 + 5 * PAGE) == 77
        g.flush()
        assert g.vram((2 << 20) + 5 * PAGE) == 77


def test_eviction_writes_back() -> None:
    """More pages than it has, each with a value of its own."""
    with Gpu(utlb=2) as g:
        n = 2 * least(1, 2)
        at = [g.page(DATA + k * PAGE) for k in range(n)]
        for k in range(n):
            g.store(DATA + k * PAGE, 1000 + k)
        there = [g.vram(a) for a in at]
        assert there.count(0) <= least(1, 2)
        assert any(there)
        assert [g.load(DATA + k * PAGE) for k in range(n)] == [1000 + k for k in range(n)]
        g.flush()
        assert [g.vram(a) for a in at] == [1000 + k for k in range(n)]


def test_instructions_come_through_it() -> None:
    with Gpu() as g:
        at = g.dev.alloc_vram()
        code = assemble([*li(5, OUT), asm.i("addi", 6, 0, 42), asm.store("sd", 6, 5), FENCE, EXIT])
        g.dev.vram[at : at + len(code)] = list(code)
        g.t.map(OTHER, at, FULL | CACHED)
        for word in (0, EXIT):  # the second time it is stale in VRAM
            report = g.ctx.launch(OTHER, block=1)
            g.dev.run(lambda r=report: g.dev.report(r).complete)
            assert g.dev.u64(g.out) == 42
            g.dev.write(g.out, bytes(8))
            g.dev.vram[at : at + 4].view("<u4")[0] = word
            g.invalidate()
    assert EXIT


@pytest.mark.parametrize("how", ["reset", "function-reset"])
def test_a_reset_writes_back(how: str) -> None:
    with Gpu() as g:
        at = g.page()
        g.store(DATA, 77)
        ENDS[how](g)
        assert g.vram(at) == 77


@pytest.mark.parametrize("live", [False, True])
def test_saved(live: bool) -> None:
    """With and without a translation that leads to it."""
    with Gpu() as g:
        at = g.page()
        g.store(DATA, 77)
        if not live:
            g.invalidate()
        state = g.dev.save()
        g.set_vram(at, 5)
        g.dev.load(state)
        assert g.dev.save() == state
        assert g.load(DATA) == 77
        g.dev.load(state)
        g.flush()
        assert g.vram(at) == 77
        assert len(state) < g.dev.lib.hg_save_max(g.dev.dev)


def test_a_load_forgets_what_was_here() -> None:
    """The memory is that of the state's time: nothing of the device's is written to it."""
    with Gpu() as g:
        at, ram = g.page(), g.sys(OTHER)
        state = g.dev.save()
        g.store(DATA, 77)
        g.store(OTHER, 78)
        g.dev.load(state)
        g.flush()
        g.later(2_000_000)
        assert (g.vram(at), g.dev.u64(ram)) == (0, 0)


@pytest.mark.parametrize(("at", "value"), [
    (0, 1 << 20), (4, 2), (5, 1), (5, 8 << 20), (5, 1 << 63),
], ids=["victim", "flag", "unaligned", "outside", "far"])  # fmt: skip
def test_hostile_states(at: int, value: int) -> None:
    with Gpu() as g:
        g.page()
        g.store(DATA, 77)
        state = bytearray(g.dev.save())
        section = state.index(b"DATA") + 8
        assert state[section + 4] == 1
        size = 4 if at == 0 else 1 if at == 4 else 8
        state[section + at : section + at + size] = value.to_bytes(size, "little")
        with pytest.raises(ValueError, match="device state"):
            g.dev.load(bytes(state))
        assert g.dev.rd(HW.HG_REG_CTRL) == 0


@settings(max_examples=60)
@given(st.lists(st.tuples(
    st.sampled_from(["store", "load", "written", "read", "flush", "invalidate", "copy"]),
    st.integers(0, 2), st.integers(0, 3)), max_size=40))  # fmt: skip
def test_model(ops: list[tuple[str, int, int]]) -> None:
    """Three frames, four lines of each: what each side sees, operation by operation."""
    with Gpu() as g:
        at = [g.page(DATA + k * PAGE) for k in range(3)]
        vram: dict[tuple[int, int], int] = {}
        cache: dict[int, dict[int, int]] = {}
        dirty: set[tuple[int, int]] = set()
        live: set[int] = set()

        def enter(k: int) -> dict[int, int]:
            live.add(k)
            return cache.setdefault(k, {n: vram.get((k, n), 0) for n in range(4)})

        for value, (op, k, n) in enumerate(ops, 1):
            off = n * LINE
            if op == "store":
                g.store(DATA + k * PAGE + off, value)
                enter(k)[n] = value
                dirty.add((k, n))
            elif op == "load":
                assert g.load(DATA + k * PAGE + off) == enter(k)[n]
            elif op == "written":
                g.dev.write(g.out + 128, struct.pack("<Q", value))
                g.copy(g.out + 128, at[k] + off, 8, BUS, PHYS)
                vram[k, n] = value
            elif op == "read":
                assert g.seen(at[k] + off) == vram.get((k, n), 0)
            elif op == "flush":
                g.flush(at[k], PAGE)
                for line in [d for d in dirty if d[0] == k]:
                    vram[line] = cache[k][line[1]]
                    dirty.discard(line)
                if k not in live:
                    cache.pop(k, None)
            elif op == "copy":
                report = g.ctx.copy(DATA + k * PAGE + off, OUT + 192, 8)
                g.dev.run(lambda r=report: g.dev.report(r).complete)
                assert g.dev.u64(g.out + 192) == enter(k)[n]
            else:
                g.invalidate(HW.HG_INVAL_RANGE, DATA + k * PAGE, PAGE)
                live.discard(k)
