# SPDX-License-Identifier: GPL-2.0-or-later
"""Misses under a miss: the fault batches that hardware is known for, and that they are hints only.

The shape 56, 8, 32 is what a Titan V gave for 32 threads, one page each, c = a + b
(uvm-eval's archive, abc/short_log_32_ts, four runs of four).
"""

from __future__ import annotations

import hg_asm as asm
import pytest
from hg_asm import EXIT, FENCE, Item, assemble, csrr
from hg_lib import HW, PAGE
from test_faults import CODE, DATA, At, Bench

A, B, C = DATA, DATA + 0x100_0000, DATA + 0x200_0000
READ, WRITE = HW.HG_ACCESS_READ, HW.HG_ACCESS_WRITE


def pages(base: int, first: int, last: int) -> list[int]:
    return [base + n * PAGE for n in range(first, last)]


def sum_code(between: list[Item] | None = None, second: int = 8) -> bytes:
    """x6 = A + page of the thread, x8 = B's, x9 = C's; c = a + b.  `second` is the register of
    b's address."""
    return assemble([
        csrr(5, "tid"), asm.i("slli", 5, 5, 12), asm.r("add", 6, 5, 10),
        *asm.li(7, B - A), asm.r("add", 8, 6, 7), asm.r("add", 9, 8, 7),
        asm.load("ld", 11, 6), *(between or []), asm.load("ld", 12, second),
        asm.r("add", 11, 11, 12), asm.store("sd", 11, 9), EXIT,
    ])  # fmt: skip


def batches(b: Bench, threads: int = 32, limit: int = 0) -> list[list[tuple[int, int]]]:
    """What the ring holds each time that the device can do no more, served and replayed."""
    rep = b.ctx.launch(CODE, DATA, block=threads)
    out: list[list[tuple[int, int]]] = []
    for _ in range(50):
        b.dev.run()
        if b.dev.report(rep).complete:
            assert b.dev.report(rep).status == 0
            return out
        faults = b.dev.take_faults(limit=limit) if limit else b.dev.take_faults()
        out.append([(f.addr, f.access) for f in faults])
        for f in faults:
            b.fix(f)
        b.dev.replay()
    raise AssertionError(f"no end: {out}")


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("vec", [None, "off"])
@pytest.mark.parametrize("seed", range(5))
def test_golden_shape(direct: bool, vec: str | None, seed: int) -> None:
    """Exactly 56, 8, 32, and of exactly these pages, whatever the host's vectors and the seed."""
    with Bench(sum_code(), sms=2, direct=direct, vec=vec, seed=seed) as b:
        seen = batches(b)
        assert [len(x) for x in seen] == [56, 8, 32]
        assert seen[0] == [(p, READ) for p in pages(A, 0, 32) + pages(B, 0, 24)]
        assert seen[1] == [(p, READ) for p in pages(B, 24, 32)]
        assert seen[2] == [(p, WRITE) for p in pages(C, 0, 32)]


@pytest.mark.parametrize(("misses", "shape"), [
    (64, [64, 32]), (40, [40, 24, 32]), (32, [32, 32, 32]), (20, [20, 20, 20, 4, 20, 12]),
])  # fmt: skip
def test_shape_follows_from_the_miss_limit(misses: int, shape: list[int]) -> None:
    with Bench(sum_code(), sms=1, utlb_misses=misses) as b:
        assert [len(x) for x in batches(b)] == shape


@pytest.mark.parametrize(("name", "between", "second"), [
    ("the address is what was loaded", [asm.i("andi", 11, 11, 0), asm.r("add", 8, 8, 11)], 8),
    ("a fence", [FENCE], 8),
    ("a branch", [asm.branch_off("beq", 0, 0, 4)], 8),
    ("a store", [asm.store("sd", 0, 6)], 8),
])  # fmt: skip
def test_stops_where_hardware_waits(name: str, between: list[Item], second: int) -> None:
    """Nothing is asked for beyond what needs the load or orders it."""
    with Bench(sum_code(between, second), sms=1) as b:
        first = batches(b)[0]
        assert first == [(p, READ) for p in pages(A, 0, 32)], name


def test_arithmetic_in_between_is_followed() -> None:
    """x8 goes three pages on while the first load is out; registers are not changed by that."""
    code = sum_code([asm.lui(13, 3), asm.r("add", 8, 8, 13), asm.i("addi", 11, 0, 5)])
    with Bench(code, sms=1) as b:
        seen = batches(b, threads=4)
        assert [a for a, _ in seen[0]] == pages(A, 0, 4) + pages(B, 3, 7)
        assert [len(x) for x in seen] == [8, 4]
        assert b.dev.u64(b.frames[C]) == 5


def test_both_pages_of_a_straddling_load() -> None:
    code = assemble([asm.load("ld", 5, 10), asm.load("ld", 6, 10, 2 * 1024 - 4),
                     asm.i("addi", 7, 10, 2040), asm.i("addi", 7, 7, 2040),
                     asm.load("ld", 8, 7, 12), EXIT])  # fmt: skip
    with Bench(code, sms=1) as b:
        assert batches(b, threads=1)[0] == [(DATA, READ), (DATA + PAGE, READ)]


def test_present_pages_and_impossible_addresses_give_no_hint() -> None:
    """A page that is mapped, an address beyond 48 bits: no entry, and nothing fatal before its
    time."""
    code = assemble([asm.load("ld", 5, 10), *asm.li(6, 4096), asm.r("add", 6, 6, 10),
                     asm.load("ld", 7, 6), asm.i("addi", 8, 0, -8), asm.load("ld", 9, 8),
                     EXIT])  # fmt: skip
    with Bench(code, sms=1) as b:
        b.fix(At(DATA + PAGE))
        rep = b.ctx.launch(CODE, DATA, block=1)
        b.dev.run()
        (only,) = b.dev.take_faults()
        assert only.addr == DATA
        assert not b.dev.report(rep).complete
        b.fix(only)
        b.dev.replay()
        b.dev.run(lambda: b.dev.report(rep).complete)
        assert b.dev.report(rep).reason == HW.HG_REASON_RANGE


def test_cancel_does_not_match_what_lies_ahead() -> None:
    """The first load's page is served, the second's refused: the job ends at the second load,
    after the first happened."""
    code = assemble([asm.load("ld", 5, 10), asm.load("ld", 6, 11), EXIT])
    lead = assemble([*asm.li(11, 2 * PAGE), asm.r("add", 11, 11, 10)])
    with Bench(lead + code, sms=1) as b:
        rep = b.ctx.launch(CODE, DATA, block=1)
        b.dev.run()
        one, two = b.dev.take_faults()
        assert (one.addr, two.addr) == (DATA, DATA + 2 * PAGE)
        b.fix(one)
        b.dev.cancel(HW.HG_CANCEL_ADDR, 7, two.addr)
        b.dev.run()
        assert not b.dev.report(rep).complete
        b.dev.replay()
        b.dev.run()
        (again,) = b.dev.take_faults()
        assert again.addr == two.addr
        b.dev.cancel(HW.HG_CANCEL_ADDR, 7, two.addr)
        b.dev.run(lambda: b.dev.report(rep).complete)
        report = b.dev.report(rep)
        assert (report.status, report.addr) == (HW.HG_ERR_FAULT, two.addr)
        assert report.pc == CODE + len(lead) + 4


def test_saved_and_loaded_in_between() -> None:
    """A device loaded in the middle goes on with the same batches; the hint is still one."""
    with Bench(sum_code(), sms=1) as b:
        rep = b.ctx.launch(CODE, DATA, block=32)
        b.dev.run()
        first = b.dev.take_faults()
        assert len(first) == 56
        state = b.dev.save()
        b.dev.load(state)
        assert b.dev.save() == state
        b.dev.cancel(HW.HG_CANCEL_ADDR, 7, B)
        for f in first:
            b.fix(f)
        for want in (8, 32):
            b.dev.replay()
            b.dev.run()
            assert not b.dev.report(rep).complete
            faults = b.dev.take_faults()
            assert len(faults) == want
            for f in faults:
                b.fix(f)
        b.dev.replay()
        b.dev.run(lambda: b.dev.report(rep).complete)
        assert b.dev.report(rep).status == 0


def test_duplicates_grow_with_the_batch_limit() -> None:
    """Four SMs read the same 56 pages; a driver takes up to `limit` entries, drops what is twice
    in them, serves, replays.  Up to what one SM can miss there are none; with more of the ring in
    one batch, more of it is the same pages."""
    code = assemble([csrr(5, "lane"), asm.i("slli", 5, 5, 12), asm.r("add", 6, 5, 10),
                     *asm.li(7, 32 * PAGE), asm.r("add", 8, 6, 7), asm.load("ld", 11, 6),
                     asm.load("ld", 12, 8), EXIT])  # fmt: skip
    shares = []
    for limit in (1, 28, 56, 84, 112, 168, 224, 256):
        with Bench(code, ring=1024, sms=4, warps=1) as b:
            rep = b.ctx.launch(CODE, DATA, grid=4, block=32)
            first = True
            for _ in range(200):
                b.dev.run()
                if b.dev.report(rep).complete:
                    break
                faults = b.dev.take_faults(limit=limit)
                if first:
                    shares.append(1 - len({f.addr for f in faults}) / len(faults))
                    first = False
                for f in faults:
                    b.fix(f)
                while b.dev.take_faults():  # what is left comes back with the replay
                    pass
                b.dev.replay()
            assert b.dev.report(rep).complete
            assert b.dev.report(rep).status == 0
    assert shares == [0, 0, 0, 1 - 56 / 84, 0.5, 1 - 56 / 168, 0.75, 0.75]
