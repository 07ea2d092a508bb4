# SPDX-License-Identifier: GPL-2.0-or-later
"""Page-table walk against a reference walker; TLBs that stay stale until invalidated."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import Any

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
    VRAM_SIZE,
    Ctx,
    Device,
    Tables,
    map_code,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

CODE = 0x1_0000
READ, WRITE, ATOMIC = HW.HG_ACCESS_READ, HW.HG_ACCESS_WRITE, HW.HG_ACCESS_ATOMIC


def walk(dev: Device, root: int, va: int, access: int) -> tuple[str, int, int]:
    """("ok", aperture, address) or ("fault", reason, level), from the manual."""
    if va >> 48:
        return "fault", HW.HG_REASON_RANGE, 3
    if not root & HW.HG_ROOT_ENABLE:
        return "fault", HW.HG_REASON_ASID, 3
    vram = bool(root & HW.HG_ROOT_VRAM)
    table = root & HW.HG_PTE_FRAME_MASK
    for level in (3, 2, 1, 0):
        at = table + (va >> 12 + 9 * level & 511) * 8
        mem, off, size = (dev.vram, at, VRAM_SIZE) if vram else (dev.ram, at - RAM_BASE, RAM_SIZE)
        if not 0 <= off <= size - 8:
            return "fault", HW.HG_REASON_POISON, level
        (pte,) = struct.unpack("<Q", mem[off : off + 8].tobytes())
        if not pte & HW.HG_PTE_VALID:
            return "fault", HW.HG_REASON_PTE, level
        aper = pte & HW.HG_PTE_APER_MASK
        if aper not in (VRAM, SYS):
            return "fault", HW.HG_REASON_APERTURE, level
        frame = pte & HW.HG_PTE_FRAME_MASK
        huge = level == 1 and bool(pte & HW.HG_PTE_HUGE)
        if level == 0 or huge:
            if access != READ and not pte & HW.HG_PTE_WRITE:
                return "fault", HW.HG_REASON_WRITE, level
            if access == ATOMIC and not pte & HW.HG_PTE_ATOMIC:
                return "fault", HW.HG_REASON_ATOMIC, level
            size = 2 << 20 if huge else PAGE
            addr = (frame & -size) + va % size
            limit = VRAM_SIZE if aper == VRAM else RAM_BASE + RAM_SIZE
            if addr + 8 > limit or (aper == SYS and addr < RAM_BASE):
                return "fault", HW.HG_REASON_POISON, level if aper == VRAM else -1
            return "ok", aper, addr
        vram, table = aper == VRAM, frame
    raise AssertionError


ACCESS = {
    READ: [asm.load("ld", 5, 10), asm.store("sd", 5, 11), EXIT],
    WRITE: [asm.store("sd", 6, 10), asm.store("sd", 6, 11), EXIT],
    ATOMIC: [asm.amo("amoadd", "d", 5, 6, 10), asm.store("sd", 5, 11), EXIT],
}


def program(access: int, va: int, out: int) -> bytes:
    """One access to va, its value to out; writes store/add 0x77."""
    return assemble([*asm.li(10, va), *asm.li(11, out), *asm.li(6, 0x77), *ACCESS[access]])


LEAF_FLAGS = st.integers(0, 0x3F).map(lambda v: v | HW.HG_PTE_VALID * (v & 1 or v % 3 > 0))


@given(data=st.data())
@settings(max_examples=200)
def test_walk(data: st.DataObject) -> None:
    """Tables in either memory, links across apertures, holes, frames outside, huge leaves."""
    draw = data.draw
    access = draw(st.sampled_from([READ, WRITE, ATOMIC]))
    va = draw(st.integers(0, 2**48 - 1)) & ~7
    assume(va >> 21 not in (CODE >> 21, 0x7000_0000 >> 21))  # the program's own tables
    # Half of the paths are whole: what a leaf does is seen only if one gets there.
    whole = draw(st.booleans())
    va |= 0 if whole else draw(st.sampled_from([0] * 9 + [1 << 48, 1 << 63]))
    with Device(direct=draw(st.booleans()), sms=1, misused=True) as dev:
        dev.enable_faults()
        plain = Tables(dev, 2)
        out, code_va = 0x7000_0000, CODE
        out_page = dev.alloc()
        plain.map(out, out_page, FULL | SYS)
        map_code(dev, plain, code_va, program(access, va, out))
        # a path of its own for va, on top of the plain tables where they meet
        table, in_vram = plain.root, False
        node = plain.nodes
        for level in (3, 2, 1, 0):
            index = va >> 12 + 9 * level & 511
            known = node.get((level - 1, (va & 2**48 - 1) >> 12 + 9 * level)) if level else None
            flags = draw(LEAF_FLAGS) | (HW.HG_PTE_VALID if whole else 0)
            leaf = level == 0 or (level == 1 and flags & HW.HG_PTE_HUGE)
            if known is not None and not in_vram:
                table = known
                continue
            odd = [] if whole else [0x20, 0x30]
            aper = draw(st.sampled_from([SYS, VRAM, SYS, VRAM, *odd]))
            if leaf:
                frame = draw(st.sampled_from([
                    RAM_BASE + (8 << 20) if aper == SYS else 4 << 20,
                    RAM_BASE + (10 << 20) if aper == SYS else 6 << 20,
                    *(() if whole else (VRAM_SIZE, RAM_BASE + RAM_SIZE, 0x000F_FFFF_FFFF_F000)),
                ]))  # fmt: skip
                frame += draw(st.integers(0, 3)) * PAGE  # no meaning in a 2 MiB leaf
                pte = frame & HW.HG_PTE_FRAME_MASK | flags & ~0x30 | aper
            else:
                nxt = dev.alloc_vram() if aper == VRAM else dev.alloc()
                if not whole and draw(st.integers(0, 15)) == 0:
                    nxt = 0x000F_FFFF_FFFF_0000
                valid = whole or draw(st.integers(0, 15)) > 0
                pte = nxt | aper | (HW.HG_PTE_VALID if valid else 0)
                if level > 1:
                    pte |= draw(st.sampled_from([0, HW.HG_PTE_HUGE]))  # no meaning there
            # software-defined bits change nothing
            pte |= draw(st.integers(0, 0xFFF)) << 52 | draw(st.integers(0, 63)) << 6
            mem, off = (dev.vram, table) if in_vram else (dev.ram, table - RAM_BASE)
            mem[off + index * 8 : off + index * 8 + 8].view("<u8")[0] = pte
            usable = not leaf and pte & 1 and aper in (VRAM, SYS)
            if not usable or pte & HW.HG_PTE_FRAME_MASK == 0x000F_FFFF_FFFF_0000:
                break
            table, in_vram = pte & HW.HG_PTE_FRAME_MASK, aper == VRAM
        root = dev.rd(HW.HG_REG_ASID + 2 * HW.HG_ASID_STRIDE, 8)
        kind, x, y = walk(dev, root, va, access)
        if kind == "ok":
            mem, off = (dev.vram, y) if x == VRAM else (dev.ram, y - RAM_BASE)
            mem[off : off + 8].view("<u8")[0] = 0x1111
        rep = Ctx(dev, 1, 2).launch(code_va, 0, block=1)
        dev.run()
        report = dev.report(rep)
        fatal = kind == "fault" and x in (HW.HG_REASON_RANGE, HW.HG_REASON_POISON)
        if kind == "ok":
            assert report.status == 0, report
            want_mem = {READ: 0x1111, WRITE: 0x77, ATOMIC: 0x1188}[access]
            assert mem[off : off + 8].view("<u8")[0] == want_mem
            assert dev.u64(out_page) == (0x77 if access == WRITE else 0x1111)
        elif fatal:
            (f,) = dev.take_faults(nr=True)
            assert report.status == HW.HG_ERR_FAULT
            assert (report.reason, report.addr) == (x, va)
            assert not f.replayable
            assert (f.addr, f.reason, f.access) == (va & ~0xFFF, x, access)
            assert y == -1 or f.level == y
        else:
            assert not report.complete
            (f,) = dev.take_faults()
            assert (f.addr, f.reason, f.access, f.level) == (va & ~0xFFF, x, access, y)
            assert (f.asid, f.ctx, f.source, f.replayable) == (2, 1, 0, True)


@dataclass
class Model:
    """What an access may see: the current table, and what is cached."""

    exact: bool
    now: dict[tuple[int, int], int | None] = field(default_factory=dict)
    cached: dict[tuple[int, int], set[int]] = field(default_factory=dict)

    def access(self, key: tuple[int, int]) -> set[int | None]:
        """Allowed outcomes; None is a fault.  A reached entry may be cached from then on."""
        stale = self.cached.get(key, set())
        cur = self.now.get(key)
        allowed: set[int | None]
        allowed = (set(stale) if stale else {cur}) if self.exact else {cur, *stale}
        return allowed

    def saw(self, key: tuple[int, int], frame: int | None) -> None:
        if frame is not None:
            self.cached.setdefault(key, set()).add(frame)

    def invalidate(self, match: object) -> None:
        assert callable(match)
        for key in [k for k in self.cached if match(k)]:
            del self.cached[key]


BASE = 0x5000_0000


@given(data=st.data(), exact=st.booleans())
@settings(max_examples=60)
def test_tlb_model(data: st.DataObject, exact: bool) -> None:
    """Random map, unmap, invalidate, access in two address spaces.  With large TLBs each access
    uses exactly the oldest translation since the last invalidation; with tiny ones it uses the
    current or a stale one, never one that an invalidation removed."""
    size: dict[str, Any] = {"utlb_entries": 64, "l2tlb_entries": 512} if exact else {
        "utlb_entries": 2, "l2tlb_entries": 4}  # fmt: skip
    with Device(sms=1, misused=True, **size) as dev:
        dev.enable_faults()
        tables = {1: Tables(dev, 1), 2: Tables(dev, 2)}
        ctxs = {1: Ctx(dev, 1, 1), 2: Ctx(dev, 2, 2)}
        out = dev.alloc()
        for t in tables.values():
            map_code(dev, t, CODE, assemble([
                asm.load("ld", 5, 10), *asm.li(11, 0x6000_0000), asm.store("sd", 5, 11), EXIT,
            ]))  # fmt: skip
            t.map(0x6000_0000, out, FULL | SYS)
        frames = [dev.alloc() for _ in range(6)]
        for n, frame in enumerate(frames):
            dev.write(frame, struct.pack("<Q", 100 + n))
        m = Model(exact)
        page = st.sampled_from([0, 0, 0, 0, 1, 2])  # few, so that the same is met again
        asid = st.sampled_from([1, 1, 1, 2])
        for _ in range(data.draw(st.integers(15, 50))):
            what = data.draw(st.sampled_from(["map", "map", "unmap", "access", "access", "access",
                                              "range", "asid", "all", "root"]))  # fmt: skip
            a, p = data.draw(asid), data.draw(page)
            va = BASE + p * PAGE
            if what == "map":
                n = data.draw(st.integers(0, 5))
                tables[a].map(va, frames[n], FULL | SYS)
                m.now[a, p] = n
            elif what == "unmap":
                tables[a].unmap(va)
                m.now[a, p] = None
            elif what == "root":  # no effect on TLBs
                reg = HW.HG_REG_ASID + a * HW.HG_ASID_STRIDE
                value = dev.rd(reg, 8)
                dev.wr(reg, 0, 8)
                dev.wr(reg, value, 8)
            elif what == "range":
                first = data.draw(page)
                length = data.draw(st.integers(1, 3 * PAGE))
                off = data.draw(st.integers(0, PAGE - 1))
                start = BASE + first * PAGE + off
                last = (start + length - 1 - BASE) // PAGE
                seq = dev.invalidate(HW.HG_INVAL_RANGE, a, start, length)
                assert dev.rd(HW.HG_REG_INVAL_DONE, 8) == seq
                m.invalidate(lambda k, a=a, f=first, e=last: k[0] == a and f <= k[1] <= e)
            elif what == "asid":
                dev.invalidate(HW.HG_INVAL_ASID, a)
                m.invalidate(lambda k, a=a: k[0] == a)
            elif what == "all":
                dev.invalidate(HW.HG_INVAL_ALL)
                m.invalidate(lambda k: True)
            else:
                allowed = m.access((a, p))
                rep = ctxs[a].launch(CODE, va, block=1)
                dev.run()
                got: int | None
                if dev.report(rep).complete:
                    assert dev.report(rep).status == 0
                    got = dev.u64(out) - 100
                else:
                    got = None
                    (f,) = dev.take_faults()
                    assert f.addr == va
                    dev.cancel(HW.HG_CANCEL_ADDR, a, va)
                    dev.run()
                    assert dev.report(rep).status == HW.HG_ERR_FAULT
                assert got in allowed, f"asid {a} page {p}: {got} not in {allowed}"
                m.saw((a, p), got)


def test_huge_leaf_goes_whole() -> None:
    """Invalidating any page of a 2 MiB leaf removes the leaf and every piece of it."""
    with Device(sms=1) as dev:
        t = Tables(dev, 1)
        va = 0x4000_0000
        out = dev.alloc()
        map_code(dev, t, CODE, assemble([asm.load("ld", 5, 10), *asm.li(11, 0x6000_0000),
                                         asm.store("sd", 5, 11), EXIT]))  # fmt: skip
        t.map(0x6000_0000, out, FULL | SYS)
        dev.vram[0x20_0000 + 5 * PAGE : 0x20_0000 + 5 * PAGE + 8].view("<u8")[0] = 1
        dev.vram[0x40_0000 + 5 * PAGE : 0x40_0000 + 5 * PAGE + 8].view("<u8")[0] = 2
        c = Ctx(dev, 1, 1)

        def value() -> int:
            rep = c.launch(CODE, va + 5 * PAGE, block=1)
            dev.run(lambda: dev.report(rep).complete)
            return dev.u64(out)

        t.map_huge(va, 0x20_0000, FULL | VRAM)
        assert value() == 1
        t.map_huge(va, 0x40_0000, FULL | VRAM)
        assert value() == 1
        dev.invalidate(HW.HG_INVAL_RANGE, 1, va + 77 * PAGE, 1)  # another page of the leaf
        assert value() == 2
        dev.invalidate(HW.HG_INVAL_RANGE, 1, va + (2 << 20), PAGE)  # the next leaf
        t.map_huge(va, 0x20_0000, FULL | VRAM)
        assert value() == 2
        dev.invalidate(HW.HG_INVAL_RANGE, 1, 0, 2**64 - 1)
        assert value() == 1


@pytest.mark.parametrize(
    ("start", "length", "pages"),
    [(1, 1, {1}), (1, 2, {1, 2}), (0, 4, {0, 1, 2, 3}), (1.5, 0.5, {1}), (1.5, 0.6, {1, 2}),
     (2, 0, set()), (3, 1 << 51, {3}), (-1, 1.1, {0})],
)  # fmt: skip
def test_range_bounds(start: float, length: float, pages: set[int]) -> None:
    """Exactly the pages that a range touches are walked anew."""
    with Device(sms=1) as dev:
        t = Tables(dev, 1)
        out = dev.alloc()
        map_code(dev, t, CODE, assemble([asm.load("ld", 5, 10), *asm.li(11, 0x6000_0000),
                                         asm.store("sd", 5, 11), EXIT]))  # fmt: skip
        t.map(0x6000_0000, out, FULL | SYS)
        frames = [dev.alloc() for _ in range(2)]
        for n, frame in enumerate(frames):
            dev.write(frame, bytes([n]))
        c = Ctx(dev, 1, 1)

        def value(page: int) -> int:
            rep = c.launch(CODE, BASE + page * PAGE, block=1)
            dev.run(lambda: bool(dev.report(rep).complete))
            return dev.u64(out)

        for old in (True, False):
            for page in range(4):
                t.map(BASE + page * PAGE, frames[0 if old else 1], FULL | SYS)
                assert value(page) == 0
        size = int(length * PAGE) if length < 1 << 50 else 2**63
        dev.invalidate(HW.HG_INVAL_RANGE, 1, BASE + int(start * PAGE), size)
        assert {page for page in range(4) if value(page)} == pages


def test_delayed_invalidation() -> None:
    """Slow hardware: until DONE the old translation lives, afterwards never."""
    with Device(sms=1, now_step=100) as dev:
        t = Tables(dev, 1)
        out = dev.alloc()
        map_code(dev, t, CODE, assemble([asm.load("ld", 5, 10), *asm.li(11, 0x6000_0000),
                                         asm.store("sd", 5, 11), EXIT]))  # fmt: skip
        t.map(0x6000_0000, out, FULL | SYS)
        a, b = dev.alloc(), dev.alloc()
        dev.write(a, b"\1")
        dev.write(b, b"\2")
        c = Ctx(dev, 1, 1)
        t.map(BASE, a, FULL | SYS)

        def value() -> int:
            rep = c.launch(CODE, BASE, block=1)
            while not dev.report(rep).complete:
                dev.step(1)
            return dev.u64(out)

        assert value() == 1
        dev.inject("tlb_invalidate nth=1 delay=200us")
        t.map(BASE, b, FULL | SYS)
        first = dev.invalidate(HW.HG_INVAL_RANGE, 1, BASE, PAGE)
        second = dev.invalidate(HW.HG_INVAL_ALL)  # not delayed itself, but waits its turn
        assert dev.rd(HW.HG_REG_INVAL_DONE, 8) < first
        assert value() == 1
        dev.run(lambda: dev.rd(HW.HG_REG_INVAL_DONE, 8) >= second)
        assert value() == 2


def test_an_invalidation_waits_for_a_walk() -> None:
    """A driver may give a table back once the invalidation is done: no walk is in it then."""
    with Device(deterministic=False) as dev:
        t = Tables(dev, 1)
        out = dev.alloc()
        map_code(dev, t, CODE, assemble([asm.load("ld", 5, 10), *asm.li(11, 0x6000_0000),
                                         asm.store("sd", 5, 11), EXIT]))  # fmt: skip
        t.map(0x6000_0000, out, FULL | SYS)
        before, after, freed = (dev.alloc() for _ in range(3))
        for n, frame in enumerate((before, after, freed), 1):
            dev.write(frame, bytes([n]))
        c = Ctx(dev, 1, 1)
        t.map(BASE, before, FULL | SYS)
        dev.inject(f"walk match={BASE:x} count=1 delay=100ms")
        rep = c.launch(CODE, BASE, block=1)
        while "fired=1" not in dev.injected():
            time.sleep(0.001)
        # The walk knows the old table and has not looked into it.
        table, key = t.nodes[0, BASE >> 21], (1, BASE >> 30)
        new = dev.alloc()
        t._write(new, BASE >> 12 & 511, after | FULL | SYS)
        t._write(t.nodes[key], BASE >> 21 & 511, new | HW.HG_PTE_VALID | SYS)
        seq = dev.invalidate(HW.HG_INVAL_RANGE, 1, BASE, PAGE)
        while dev.rd(HW.HG_REG_INVAL_DONE, 8) < seq:
            time.sleep(0.001)
        t._write(table, BASE >> 12 & 511, freed | FULL | SYS)
        while not dev.report(rep).complete:
            time.sleep(0.001)
        assert dev.u64(out) == 1


@pytest.mark.parametrize("level", [HW.HG_REASON_WRITE, HW.HG_REASON_ATOMIC])
def test_permission_upgrade_needs_an_invalidation(level: int) -> None:
    """An entry without the right keeps faulting after the PTE got it."""
    access = WRITE if level == HW.HG_REASON_WRITE else ATOMIC
    weak = HW.HG_PTE_VALID | SYS | (0 if access == WRITE else HW.HG_PTE_WRITE)
    with Device(sms=1) as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        page, out = dev.alloc(), dev.alloc()
        map_code(dev, t, CODE, program(access, BASE, 0x6000_0000))
        t.map(0x6000_0000, out, FULL | SYS)
        t.map(BASE, page, weak)
        rep = Ctx(dev, 1, 1).launch(CODE, 0, block=1)
        dev.run()
        (f,) = dev.take_faults()
        assert f.reason == level
        t.map(BASE, page, FULL | SYS)
        dev.replay()
        dev.run()
        (f,) = dev.take_faults()
        assert f.reason == level
        dev.invalidate(HW.HG_INVAL_RANGE, 1, BASE, PAGE)
        dev.replay()
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == 0
        assert dev.u64(page) == 0x77
