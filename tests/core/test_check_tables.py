# SPDX-License-Identifier: GPL-2.0-or-later
"""The protocol check table-freed-used: a page table is given back while walks may use it.

What a driver does between taking a table out and giving it back is tried in all its forms: those
that end every walk are silent, those that do not are named, always and not by luck."""

from __future__ import annotations

import time
from collections.abc import Callable

import hg_asm as asm
import pytest
from hg_asm import EXIT, assemble
from hg_lib import FULL, HW, PAGE, SYS, VRAM, Ctx, Device, Tables, map_code, records

CODE = 0x1_0000
#: Below the root it shares no table with CODE, and it is no table's first page.
DATA = 0x7654_3210_5000
LOAD = assemble([asm.load("ld", 5, 10), EXIT])
NAME = "table-freed-used"
LEVELS = range(HW.HG_PT_LEVELS - 1)


def span(level: int) -> int:
    """Bytes that a table of this level covers."""
    return 1 << (12 + 9 * (level + 1))


def base(level: int) -> int:
    """First address that the table of DATA of this level covers."""
    return DATA & ~(span(level) - 1)


class Tree:
    """An address space in which DATA can be read, and a driver that shows its tables."""

    ASID = 7

    def __init__(self, *, vram: bool = False, show: bool = True, **cfg: object) -> None:
        self.dev = dev = Device(misused=True, **cfg)  # type: ignore[arg-type]
        if show:
            dev.wr(HW.HG_REG_TABLE_CTRL, HW.HG_TABLE_CTRL_SHOWN)
        self.t = Tables(dev, self.ASID, vram)
        self.aperture = VRAM if vram else SYS
        self.flag = HW.HG_ROOT_VRAM if vram else 0
        map_code(dev, self.t, CODE, LOAD)
        self.frame = dev.alloc()
        self.t.map(DATA, self.frame, FULL | SYS)
        self.ctx = Ctx(dev, 3, self.ASID)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *exc: object) -> None:
        self.dev.close()

    def use(self, va: int = DATA) -> None:
        """Read it, by a walk."""
        used = self.ctx.launch(CODE, va, block=1)
        self.dev.run(lambda: self.dev.report(used).complete)

    def table(self, level: int) -> int:
        """That of DATA."""
        return self.t.nodes[level, DATA >> (12 + 9 * (level + 1))]

    def unlink(self, level: int) -> int:
        """Take the table of DATA out; its address."""
        above = self.t.root if level == 2 else self.table(level + 1)
        self.t._write(above, DATA >> (12 + 9 * (level + 1)) & 511, 0)
        return self.table(level)

    def free(self, table: int) -> None:
        """Give it back."""
        self.dev.wr(HW.HG_REG_TABLE_FREE, table | self.flag, 8)

    def invalidate(self, start: int, length: int, asid: int = ASID) -> int:
        return self.dev.invalidate(HW.HG_INVAL_RANGE, asid, start, length)

    def found(self) -> bool:
        """Whether the check has spoken, and no other."""
        seen = self.dev.violations()
        assert set(seen) <= {NAME}
        return bool(seen)


@pytest.mark.parametrize("vram", [False, True], ids=["ram", "vram"])
@pytest.mark.parametrize("level", LEVELS)
def test_freed_without_an_invalidation(level: int, vram: bool) -> None:
    with Tree(vram=vram) as x:
        x.use()
        table = x.unlink(level)
        x.free(table)
        assert x.dev.violations() == {NAME: 1}
        x.free(table)
        assert x.dev.violations() == {NAME: 1}, "once a table"


NOT_ENOUGH: dict[str, Callable[[Tree, int], object]] = {
    "nothing": lambda x, level: None,
    "only-the-page": lambda x, level: x.invalidate(DATA, PAGE),
    "all-but-the-first-page": lambda x, level: x.invalidate(base(level) + PAGE, span(level) - PAGE),
    "all-but-the-last-page": lambda x, level: x.invalidate(base(level), span(level) - PAGE),
    "nothing-of-it": lambda x, level: x.invalidate(base(level), 0),
    "another-address-space": lambda x, level: x.invalidate(base(level), span(level), 8),
    "all-of-another": lambda x, level: x.dev.invalidate(HW.HG_INVAL_ASID, 8),
    "no-root-any-more": lambda x, level: x.dev.wr(
        HW.HG_REG_ASID + x.ASID * HW.HG_ASID_STRIDE, 0, 8
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", NOT_ENOUGH)
def test_what_does_not_end_walks(what: str, level: int) -> None:
    with Tree() as x:
        x.use()
        table = x.unlink(level)
        NOT_ENOUGH[what](x, level)
        x.free(table)
        assert x.found()


def stop_contexts(x: Tree) -> None:
    x.dev.wr(x.ctx.base + HW.HG_CTX_CTRL, 0)
    x.dev.run(lambda: not x.ctx.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE)


def start_context(x: Tree) -> None:
    x.dev.wr(x.ctx.base + HW.HG_CTX_CTRL, HW.HG_CTX_ENABLE)
    x.ctx.put = 0


def park(x: Tree) -> None:
    x.dev.wr(HW.HG_REG_CTRL, 0)
    x.dev.run(lambda: bool(x.dev.rd(HW.HG_REG_STATUS) & HW.HG_STATUS_PARKED))


def by_descriptor(x: Tree, level: int) -> None:
    fence = x.dev.alloc()
    x.ctx.push([HW.HG_OP_INVALIDATE, HW.HG_INVAL_RANGE | x.ASID << 16, base(level), span(level)])
    x.ctx.push([HW.HG_OP_FENCE, fence, 1])
    x.ctx.ring_doorbell()
    x.dev.run(lambda: x.dev.u64(fence) == 1)


def delayed(x: Tree, level: int) -> None:
    x.dev.inject("tlb_invalidate nth=1 delay=100us")
    seq = x.invalidate(base(level), span(level))
    x.dev.run(lambda: x.dev.rd(HW.HG_REG_INVAL_DONE, 8) >= seq)


def reset(x: Tree, level: int) -> None:
    x.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
    x.dev.wr(HW.HG_REG_TABLE_CTRL, HW.HG_TABLE_CTRL_SHOWN)
    x.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_ENABLE)


ENOUGH: dict[str, Callable[[Tree, int], object]] = {
    "its-addresses": lambda x, level: x.invalidate(base(level), span(level)),
    "one-byte-less": lambda x, level: x.invalidate(base(level), span(level) - 1),
    "more": lambda x, level: x.invalidate(base(level) - PAGE, span(level) + 2 * PAGE),
    "all-by-range": lambda x, level: x.invalidate(0, 1 << 48),
    "address-space": lambda x, level: x.dev.invalidate(HW.HG_INVAL_ASID, x.ASID),
    "all": lambda x, level: x.dev.invalidate(HW.HG_INVAL_ALL),
    "descriptor": by_descriptor,
    "slow": delayed,
    "parked": lambda x, level: park(x),
    "parked-for-a-time": lambda x, level: (park(x), x.dev.wr(HW.HG_REG_CTRL, 1)),
    "contexts-off": lambda x, level: stop_contexts(x),
    "contexts-off-for-a-time": lambda x, level: (stop_contexts(x), start_context(x)),
    "reset": reset,
    "load": lambda x, level: x.dev.load(x.dev.save()),
}


#: These end walks, and leave the table in the walk cache.
NO_MORE = {"parked", "parked-for-a-time", "contexts-off", "contexts-off-for-a-time"}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ENOUGH)
def test_what_ends_walks(what: str, level: int) -> None:
    with Tree(walk_entries=0) as x:
        x.use()
        table = x.unlink(level)
        ENOUGH[what](x, level)
        x.free(table)
        assert not x.found()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ENOUGH)
def test_what_removes_the_table_from_the_walk_cache(what: str, level: int) -> None:
    with Tree() as x:
        x.use()
        table = x.unlink(level)
        ENOUGH[what](x, level)
        x.free(table)
        assert x.found() == (what in NO_MORE)


def test_the_invalidation_must_be_issued() -> None:
    with Tree() as x:
        x.use()
        table = x.unlink(0)
        x.dev.inject("tlb_invalidate nth=1 delay=1s")
        x.invalidate(base(0), span(0))
        x.free(table)
        assert x.found()


def test_the_invalidation_must_be_complete() -> None:
    """An engine is in another walk, which it waits for (until the device is freed)."""
    with Tree(deterministic=False) as x:
        dev, other = x.dev, DATA + span(2)
        x.t.map(other, x.frame, FULL | SYS)
        done = x.ctx.launch(CODE, DATA, block=1)
        while not dev.report(done).complete:
            time.sleep(0.001)
        table = x.unlink(0)
        dev.inject(f"walk match={other:x} count=1 delay=1000s")
        x.ctx.launch(CODE, other, block=1)
        while "fired=1" not in dev.injected():
            time.sleep(0.001)
        seq = x.invalidate(base(0), span(0))
        x.free(table)
        assert dev.rd(HW.HG_REG_INVAL_DONE, 8) < seq
        assert x.found()


def test_an_invalidation_before_the_walk_does_not_count() -> None:
    with Tree() as x:
        x.use()
        x.invalidate(base(0), span(0))
        x.use()
        x.free(x.unlink(0))
        assert x.found()


@pytest.mark.parametrize("other", [False, True])
def test_one_context_of_several_is_off(other: bool) -> None:
    """The walk may be that of the other one."""
    with Tree(walk_entries=0) as x:
        second = Ctx(x.dev, 4, x.ASID if other else 8)
        x.use()
        table = x.unlink(0)
        stop_contexts(x)
        if other:
            start_context(x)  # ends no walk of the other one
        x.free(table)
        assert x.found() == other
        assert second.reg(HW.HG_CTX_STATUS) & HW.HG_CTX_ACTIVE


def test_a_walk_that_finds_nothing_counts() -> None:
    """An empty table that a fault has come from."""
    with Tree() as x:
        x.dev.enable_faults()
        x.t.unmap(DATA)
        x.ctx.launch(CODE, DATA, block=1)
        x.dev.run()
        assert [f.addr for f in x.dev.take_faults()] == [DATA]
        table = x.unlink(0)
        x.free(table)
        assert x.found()


def test_a_walk_of_a_copy_engine_counts() -> None:
    with Tree() as x:
        done = x.ctx.copy(DATA, DATA + 8, 8)
        x.dev.run(lambda: x.dev.report(done).complete)
        x.free(x.unlink(0))
        assert x.found()


def test_tables_that_nobody_walked() -> None:
    with Tree() as x:
        x.t.map(DATA + span(0), x.frame, FULL | SYS)
        x.use()
        x.free(x.t.nodes[0, (DATA + span(0)) >> 21])
        x.free(x.dev.alloc())
        assert not x.found()


def test_nothing_is_said_of_tables_that_are_not_shown() -> None:
    with Tree(show=False) as x:
        assert x.dev.rd(HW.HG_REG_TABLE_CTRL) == 0
        x.use()
        table = x.unlink(0)
        x.free(table)
        x.dev.wr(HW.HG_REG_TABLE_CTRL, HW.HG_TABLE_CTRL_SHOWN)
        x.free(table)
        assert not x.found()
        assert x.dev.counter("guest_errors") == 0


def test_that_tables_are_shown_survives_and_ends_with_a_reset() -> None:
    with Tree() as x:
        x.dev.load(x.dev.save())
        assert x.dev.rd(HW.HG_REG_TABLE_CTRL) == HW.HG_TABLE_CTRL_SHOWN
        x.use(CODE)  # the TLBs are saved: what is walked for is another page
        x.dev.invalidate(HW.HG_INVAL_ALL)
        x.use()
        x.free(x.unlink(0))
        assert x.found()
        x.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        assert x.dev.rd(HW.HG_REG_TABLE_CTRL) == 0


@pytest.mark.parametrize("new_place", [False, True])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_a_page_that_is_a_table_again(level: int, shown: bool, new_place: bool) -> None:
    """Given back as it should be, perhaps unseen, then used elsewhere: that place counts."""
    with Tree() as x:
        x.use()
        table = x.unlink(level)
        x.invalidate(base(level), span(level))
        if shown:
            x.free(table)
        above = x.t.root if level == 2 else x.table(level + 1)
        index = (DATA + span(level)) >> (12 + 9 * (level + 1)) & 511
        x.t._write(above, index, table | HW.HG_PTE_VALID | SYS)
        x.use(DATA + span(level))
        x.t._write(above, index, 0)
        x.invalidate(base(level) + new_place * span(level), span(level))
        assert not x.found()
        x.free(table)
        assert x.found() != new_place


def test_more_tables_than_records() -> None:
    """What is not known any more is not reported; what is, is."""
    with Tree() as x:
        vas = [0x1000_0000_0000 + n * span(0) for n in range(600)]
        for va in vas:
            x.t.map(va, x.frame, FULL | SYS)
            x.use(va)
        x.invalidate(vas[0], vas[-1] - vas[0])  # all but most of the last one
        for va in vas[:-1]:
            x.free(x.t.nodes[0, va >> 21])
        assert not x.found()
        x.free(x.t.nodes[0, vas[-1] >> 21])
        assert x.found()


@pytest.mark.parametrize("value", [1, HW.HG_PTE_VALID | SYS, 0x800])
def test_what_is_no_table(value: int) -> None:
    with Tree() as x:
        x.dev.wr(HW.HG_REG_TABLE_FREE, value, 8)
        assert x.dev.counter("guest_errors") == 1
        x.dev.wr(HW.HG_REG_TABLE_CTRL, 2)
        assert x.dev.counter("guest_errors") == 2
        assert x.dev.rd(HW.HG_REG_TABLE_FREE, 8) == 0


def test_a_walk_that_the_invalidation_waited_for() -> None:
    """It knows the table when the driver takes it out, and ends after the command."""
    with Tree(deterministic=False) as x:
        dev = x.dev
        dev.inject(f"walk match={DATA:x} count=1 delay=200ms")
        done = x.ctx.launch(CODE, DATA, block=1)
        while "fired=1" not in dev.injected():
            time.sleep(0.001)
        table = x.unlink(0)
        seq = x.invalidate(base(0), span(0))
        while dev.rd(HW.HG_REG_INVAL_DONE, 8) < seq:
            time.sleep(0.001)
        x.free(table)
        assert not x.found()
        while not dev.report(done).complete:
            time.sleep(0.001)


def test_a_record_that_was_replaced_is_told_of() -> None:
    """More tables than are remembered: of some nothing will be said."""
    with Tree(vram=True) as x:
        x.use()
        assert records(x.dev)["unlooked"] == {}
        for n in range(1, 300):
            x.t.map(DATA + n * span(0), x.frame, FULL | SYS)
            x.use(DATA + n * span(0))
        assert set(records(x.dev)["unlooked"]) == {NAME}
