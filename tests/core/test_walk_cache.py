# SPDX-License-Identifier: GPL-2.0-or-later
"""The walk cache: tables of lower levels stay known until all that they cover is invalidated."""

from __future__ import annotations

import struct
from typing import Any

import hg_asm as asm
import pytest
from hg_asm import EXIT, assemble
from hg_lib import FULL, HW, PAGE, SYS, VRAM, Ctx, Device, Tables, map_code
from hypothesis import given, settings
from hypothesis import strategies as st

CODE, OUT = 0x1_0000, 0x6000_0000
#: Shares no table below the root with CODE and OUT.
DATA = 0x7654_3200_0000
LEVELS = range(HW.HG_PT_LEVELS - 1)


def span(level: int) -> int:
    """Bytes that a table of this level covers."""
    return 1 << (12 + 9 * (level + 1))


class Space:
    """An address space; `read` says what the GPU sees in a page, or None for a fault."""

    def __init__(self, dev: Device, asid: int, vram: bool = False) -> None:
        self.dev, self.asid, self.vram = dev, asid, vram
        self.t = Tables(dev, asid, vram)
        self.out = dev.alloc()
        map_code(dev, self.t, CODE, assemble([
            asm.load("ld", 5, 10), *asm.li(11, OUT), asm.store("sd", 5, 11), EXIT,
        ]))  # fmt: skip
        self.t.map(OUT, self.out, FULL | SYS)
        self.ctx = Ctx(dev, asid, asid)

    def frame(self, value: int) -> int:
        at = self.dev.alloc()
        self.dev.write(at, struct.pack("<Q", value))
        return at

    def read(self, va: int) -> int | None:
        self.dev.write(self.out, bytes(8))
        job = self.ctx.launch(CODE, va, block=1)
        self.dev.run()
        if self.dev.report(job).complete:
            return self.dev.u64(self.out)
        assert {f.addr for f in self.dev.take_faults()} == {va & -PAGE}
        self.dev.wr(HW.HG_REG_CANCEL_ASID, self.asid)
        self.dev.wr(HW.HG_REG_CANCEL_CMD, HW.HG_CANCEL_GLOBAL)
        self.dev.run(lambda: self.dev.report(job).complete)
        return None

    def table(self, level: int, va: int = DATA) -> int:
        return self.t.nodes[level, va >> (12 + 9 * (level + 1))]

    def above(self, level: int, va: int = DATA) -> int:
        return self.t.root if level == 2 else self.table(level + 1, va)

    def link(self, level: int, table: int, va: int = DATA) -> None:
        """Let the entry above lead to another table."""
        flags = HW.HG_PTE_VALID | (VRAM if self.vram else SYS)
        self.t._write(self.above(level, va), va >> (12 + 9 * (level + 1)) & 511,
                      table | flags if table else 0)  # fmt: skip

    def copy_of(self, level: int, value: int) -> int:
        """A table of its own that leads to `value` in the second page of DATA."""
        new = self.frame(value) | FULL | SYS
        for at in range(level + 1):
            table = self.t._table()
            self.t._write(table, 1 if at == 0 else DATA >> (12 + 9 * at) & 511, new)
            new = table | HW.HG_PTE_VALID | (VRAM if self.vram else SYS)
        return table

    def invalidate(self, start: int, length: int) -> None:
        self.dev.invalidate(HW.HG_INVAL_RANGE, self.asid, start, length)


def made(**cfg: Any) -> tuple[Device, Space]:
    vram = cfg.pop("vram", False)
    dev = Device(sms=1, misused=True, **cfg)
    dev.enable_faults()
    s = Space(dev, 3, vram)
    for n in (0, 1, 2):
        s.t.map(DATA + n * PAGE, s.frame(10 + n), FULL | SYS)
    return dev, s


@pytest.mark.parametrize("vram", [False, True], ids=["ram", "vram"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_table_that_was_replaced_is_walked_until_all_of_it_is_invalidated(
    level: int, vram: bool
) -> None:
    dev, s = made(vram=vram)
    with dev:
        base = DATA & -span(level)
        assert s.read(DATA) == 10
        s.link(level, s.copy_of(level, 77))
        assert s.read(DATA + PAGE) == 11, "by the old table"
        for start, length in ((DATA + PAGE, PAGE), (base + PAGE, span(level) - PAGE),
                              (base, span(level) - PAGE), (base, 0)):  # fmt: skip
            s.invalidate(start, length)
            assert s.read(DATA + PAGE) == 11, "a part is not enough"
        s.invalidate(base, span(level))
        assert s.read(DATA + PAGE) == 77


ENOUGH = {
    "more": lambda s, level: s.invalidate(
        (DATA & -span(level)) - PAGE, span(level) + 2 * PAGE
    ),
    "address-space": lambda s, level: s.dev.invalidate(HW.HG_INVAL_ASID, s.asid),
    "all": lambda s, level: s.dev.invalidate(HW.HG_INVAL_ALL),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ENOUGH)
def test_what_removes_a_table(what: str, level: int) -> None:
    dev, s = made()
    with dev:
        s.read(DATA)
        s.link(level, s.copy_of(level, 77))
        ENOUGH[what](s, level)
        assert s.read(DATA + PAGE) == 77


def test_what_does_not() -> None:
    """Another address space, engines that were parked, a context that was off, another ROOT."""
    dev, s = made()
    with dev:
        s.read(DATA)
        s.link(0, s.copy_of(0, 77))
        dev.invalidate(HW.HG_INVAL_ASID, 4)
        assert s.read(DATA + PAGE) == 11
        dev.invalidate(HW.HG_INVAL_RANGE, s.asid, DATA + PAGE, PAGE)
        dev.wr(HW.HG_REG_CTRL, 0)
        dev.run(lambda: bool(dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_PARKED))
        dev.wr(HW.HG_REG_CTRL, 1)
        assert s.read(DATA + PAGE) == 11
        s.invalidate(DATA + PAGE, PAGE)
        dev.wr(s.ctx.base + HW.HG_CTX_CTRL, 0)
        dev.run(lambda: not s.ctx.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE)
        dev.wr(s.ctx.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE)
        s.ctx.put = 0
        assert s.read(DATA + PAGE) == 11
        s.invalidate(DATA + PAGE, PAGE)
        dev.wr(HW.HG_REG_ASID + s.asid * HW.HG_ASID_STRIDE, dev.alloc() | HW.HG_ROOT_ENABLE, 8)
        assert s.read(DATA + PAGE) == 11
        s.invalidate(DATA + PAGE, PAGE)
        dev.wr(HW.HG_REG_ASID + s.asid * HW.HG_ASID_STRIDE, 0, 8)
        assert s.read(DATA + PAGE) is None, "no root, no walk"


def test_a_freed_table_that_is_used_for_something_else_is_walked() -> None:
    """What the issue asks for: the leaves were invalidated, the table was not."""
    dev, s = made()
    with dev:
        s.read(DATA)
        old = s.table(0)
        s.link(0, 0)
        s.invalidate(DATA, PAGE)
        dev.write(old, struct.pack("<2Q", 0, s.frame(666) | FULL | SYS))  # somebody's data
        assert s.read(DATA) is None
        assert s.read(DATA + PAGE) == 666


def test_a_walk_that_finds_no_leaf_is_remembered_too() -> None:
    """A 2 MiB leaf in place of an empty table is not seen before the table is invalidated."""
    dev, s = made()
    with dev:
        va = DATA + (4 << 20)
        s.t.map(va, 0, 0)
        assert s.read(va) is None
        s.t._write(s.table(1, va), va >> 21 & 511,
                   (8 << 20) + 0x4000_0000 | FULL | SYS | HW.HG_PTE_HUGE)  # fmt: skip
        dev.write((8 << 20) + 0x4000_0000, struct.pack("<Q", 99))
        assert s.read(va) is None
        s.invalidate(va, PAGE)
        assert s.read(va) is None
        s.invalidate(va, 2 << 20)
        assert s.read(va) == 99


def test_levels_are_told_apart() -> None:
    """The second 2 MiB and the second GiB have the same number, each on its level."""
    dev, s = made(walk_entries=4)
    with dev:
        for va, value in ((1 << 30, 1), (2 << 20, 2), (1 << 39, 3)):
            s.t.map(va, s.frame(value), FULL | SYS)
        for _ in range(2):
            for va, value in ((1 << 30, 1), (2 << 20, 2), (1 << 39, 3), (2 << 20, 2)):
                s.invalidate(va, PAGE)
                assert s.read(va) == value


def test_without_one() -> None:
    with Device(sms=1, misused=True) as dev:
        assert dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_WALK_CACHE
    dev, s = made(walk_entries=0)
    with dev:
        assert not dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_WALK_CACHE
        s.read(DATA)
        s.link(0, s.copy_of(0, 77))
        assert s.read(DATA + PAGE) == 77


def test_saved_and_reset() -> None:
    dev, s = made()
    with dev:
        s.read(DATA)
        s.link(0, s.copy_of(0, 77))
        state = dev.save()
        dev.load(state)
        assert dev.save() == state
        assert s.read(DATA + PAGE) == 11
        root = dev.rd(HW.HG_REG_ASID + s.asid * HW.HG_ASID_STRIDE, 8)
        dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_ENABLE)
        dev.wr(HW.HG_REG_ASID + s.asid * HW.HG_ASID_STRIDE, root, 8)
        dev.enable_faults()
        s.ctx = Ctx(dev, s.asid, s.asid)
        assert s.read(DATA + PAGE) == 77


def test_a_walk_under_way_leaves_nothing_behind() -> None:
    """It read the entry above before an invalidation of the table, and ends after it."""
    dev, s = made()
    with dev:
        at = {dev.lib.hg_at_name(n): n for n in range(12) if dev.lib.hg_at_name(n)}
        levels = [n for name, n in at.items() if b"level" in _text(name)]
        job = s.ctx.launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(job).complete)  # code and the way to it are known
        dev.invalidate(HW.HG_INVAL_RANGE, s.asid, DATA & -span(2), span(2))
        job = s.ctx.launch(CODE, DATA, block=1)
        for _ in range(10_000):
            for engine in range(dev.lib.hg_engines(dev.dev)):
                dev.lib.hg_step_engine(dev.dev, engine, 1)
            if dev.lib.hg_engine_at(dev.dev, 0) in levels:
                break
        else:
            raise AssertionError("no walk was met")
        s.link(2, s.copy_of(2, 77))
        dev.invalidate(HW.HG_INVAL_RANGE, s.asid, DATA & -span(2), span(2))
        dev.run(lambda: dev.report(job).complete)
        assert s.read(DATA + PAGE) == 77


def _text(name: Any) -> bytes:
    from hg_lib import ffi

    return bytes(ffi.string(name)).lower()


class Model:
    """Tables as they are, and what is cached of them: exact, if nothing is evicted."""

    def __init__(self) -> None:
        self.links: dict[tuple[int, int, int], int] = {}  # asid, table number, index: what
        self.walks: dict[tuple[int, int, int], int] = {}  # asid, level, span
        self.leaves: dict[tuple[int, int], int | None] = {}

    def read(self, asid: int, vpn: int, root: int) -> int | None:
        """Frame number, or None for a fault."""
        if (asid, vpn) in self.leaves:
            return self.leaves[asid, vpn]
        table, level = root, 3
        for at in LEVELS:
            if (asid, at, vpn >> 9 * (at + 1)) in self.walks:
                table, level = self.walks[asid, at, vpn >> 9 * (at + 1)], at
                break
        while level:
            below = self.links.get((asid, table, vpn >> 9 * level & 511))
            if below is None:
                return None
            level -= 1
            table = self.walks[asid, level, vpn >> 9 * (level + 1)] = below
        frame = self.links.get((asid, table, vpn & 511))
        if frame is not None:
            self.leaves[asid, vpn] = frame
        return frame

    def invalidate(self, asid: int | None, first: int, last: int) -> None:
        for a, vpn in list(self.leaves):
            if asid in (None, a) and first <= vpn <= last:
                del self.leaves[a, vpn]
        for a, level, at in list(self.walks):
            low = at << 9 * (level + 1)
            if asid in (None, a) and first <= low and low | (512 << 9 * level) - 1 <= last:
                del self.walks[a, level, at]


@given(data=st.data())
@settings(max_examples=60)
def test_model(data: st.DataObject) -> None:
    """Links of all levels moved at random, in two address spaces that share their tables' pages."""
    draw = data.draw
    with Device(sms=1, misused=True, walk_entries=1024, utlb_entries=256) as dev:
        dev.enable_faults()
        spaces = {a: Space(dev, a) for a in (1, 2)}
        m = Model()
        page = DATA >> 12
        pages = [page, page + 1, page + 512, page + 1025, page + 2**18]
        tables = [dev.alloc() for _ in range(9)]  # three of each level
        frames = [spaces[1].frame(100 + n) for n in range(4)]
        some = st.sampled_from(pages)
        asid = st.sampled_from([1, 1, 2])
        for a in spaces:  # each level leads to its first table
            for vpn in pages:
                for level in (3, 2, 1):
                    _link(spaces[a], m, a, tables, level, 0, vpn, 0)
        for vpn in pages:
            _leaf(spaces[1], m, tables, 0, vpn, 0, frames)
        for _ in range(draw(st.integers(10, 50))):
            what = draw(st.sampled_from(["read", "read", "read", "link", "link", "leaf", "range",
                                         "asid", "all"]))  # fmt: skip
            a, vpn = draw(asid), draw(some)
            if what == "read":
                want = m.read(a, vpn, -1)
                assert spaces[a].read(vpn << 12) == (None if want is None else 100 + want)
            elif what == "link":
                level = draw(st.integers(1, 3))
                which = draw(st.integers(0, 2)) if level < 3 else 0
                _link(spaces[a], m, a, tables, level, which, vpn,
                      draw(st.sampled_from([0, 1, 2, None])))  # fmt: skip
            elif what == "leaf":
                _leaf(spaces[1], m, tables, draw(st.integers(0, 2)), vpn,
                      draw(st.sampled_from([0, 1, 2, 3, None])), frames)  # fmt: skip
            elif what == "range":
                level = draw(st.integers(0, 3))
                first = vpn & -(1 << 9 * level)
                n = (1 << 9 * level) + draw(st.sampled_from([-1, 0, 0, 0, 1]))
                if n:
                    spaces[a].invalidate(first << 12, n << 12)
                    m.invalidate(a, first, first + n - 1)
            elif what == "asid":
                dev.invalidate(HW.HG_INVAL_ASID, a)
                m.invalidate(a, 0, 2**36)
            else:
                dev.invalidate(HW.HG_INVAL_ALL)
                m.invalidate(None, 0, 2**36)


def _link(s: Space, m: Model, asid: int, tables: list[int], level: int, which: int, vpn: int,
          to: int | None) -> None:  # fmt: skip
    """The entry of a table of this level (3: the root) leads to that one below."""
    at = s.t.root if level == 3 else tables[level * 3 + which]
    below = None if to is None else (level - 1) * 3 + to
    index = vpn >> 9 * level & 511
    s.t._write(at, index, 0 if below is None else tables[below] | HW.HG_PTE_VALID | SYS)
    for a in (asid,) if level == 3 else (1, 2):  # tables are shared
        key = a, -1 if level == 3 else level * 3 + which, index
        m.links.pop(key, None)
        if below is not None:
            m.links[key] = below


def _leaf(s: Space, m: Model, tables: list[int], which: int, vpn: int, frame: int | None,
          frames: list[int]) -> None:  # fmt: skip
    s.t._write(tables[which], vpn & 511, 0 if frame is None else frames[frame] | FULL | SYS)
    for a in (1, 2):
        m.links.pop((a, which, vpn & 511), None)
        if frame is not None:
            m.links[a, which, vpn & 511] = frame
