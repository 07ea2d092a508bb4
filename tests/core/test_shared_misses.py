# SPDX-License-Identifier: GPL-2.0-or-later
"""Groups of SMs with one miss table: a page that two of them miss is reported once."""

from __future__ import annotations

import pytest
from hg_asm import EXIT, assemble, csrr, i, li, load, r
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Tables, map_code

CODE, DATA = 0x1_0000, 0x20_0000


def made(sms: int, per: int, misses: int = 56) -> tuple[Device, Tables, Ctx]:
    dev = Device(sms=sms, warps=1, sms_per_utlb=per, utlb_misses=misses, misused=True)
    dev.enable_faults()
    t = Tables(dev, 3)
    return dev, t, Ctx(dev, 3, 3)


def same_page(dev: Device, t: Tables, ctx: Ctx, grid: int) -> int:
    """All SMs want the page at DATA."""
    map_code(dev, t, CODE, assemble([*li(5, DATA), load("ld", 7, 5), EXIT]))
    report = ctx.launch(CODE, grid=grid, block=32)
    dev.run()
    return report


@pytest.mark.parametrize(("sms", "per", "entries"), [(4, 1, 4), (4, 2, 2), (4, 4, 1), (3, 2, 2),
                                                     (2, 16, 1)])  # fmt: skip
def test_one_entry_a_group(sms: int, per: int, entries: int) -> None:
    dev, t, ctx = made(sms, per)
    with dev:
        assert bool(dev.rd(HW.HG_REG_FEATURES) & HW.HG_FEATURE_SHARED_MISSES) == (per > 1)
        report = same_page(dev, t, ctx, sms)
        found = dev.take_faults()
        assert [f.addr for f in found] == [DATA] * entries
        assert len({f.unit // per for f in found}) == entries
        assert dev.counter("pending_faults") == entries
        assert dev.counter("stalled_warps") == sms
        state = dev.save()
        dev.load(state)
        assert dev.save() == state
        t.map(DATA, dev.alloc(), FULL | SYS)
        dev.replay()
        dev.run(lambda: dev.report(report).complete)
        assert dev.counter("pending_faults") == 0


def test_its_slots_are_the_groups() -> None:
    """Each SM wants a page of its own, and there is one slot: the others wait without an entry."""
    dev, t, ctx = made(4, 2, misses=1)
    with dev:
        map_code(dev, t, CODE, assemble([
            csrr(6, "sm"), i("slli", 6, 6, 12), *li(5, DATA), r("add", 5, 5, 6), load("ld", 7, 5),
            EXIT,
        ]))  # fmt: skip
        report = ctx.launch(CODE, grid=4, block=32)
        dev.run()
        seen = []
        while not dev.report(report).complete:
            found = dev.take_faults()
            assert 1 <= len(found) <= 2
            seen += [f.addr for f in found]
            for f in found:
                t.map(f.addr, dev.alloc(), FULL | SYS)
            dev.replay()
            dev.run()
        assert sorted(seen) == [DATA + n * PAGE for n in range(4)]


def test_a_reset_empties_it() -> None:
    dev, t, ctx = made(2, 2)
    with dev:
        same_page(dev, t, ctx, 2)
        dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        assert dev.counter("pending_faults") == 0


@pytest.mark.parametrize("per", [0, 17])
def test_configurations(per: int) -> None:
    with pytest.raises(ValueError, match="sms_per_utlb"):
        Device(sms_per_utlb=per)
