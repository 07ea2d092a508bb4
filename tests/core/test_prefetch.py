# SPDX-License-Identifier: GPL-2.0-or-later
"""Prefetch instructions: pages that are missing are reported, and nobody waits for them."""

from __future__ import annotations

from typing import Any

import hg_asm as asm
import pytest
from hg_asm import EXIT, assemble, csrr
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Fault, Tables, map_code

CODE, OUT, DATA = 0x1_0000, 0x6000_0000, 0x1000_0000
READ, WRITE = 1, 3
PREFETCH = HW.HG_ACCESS_PREFETCH


def prefetch(rs1: int, off: int = 0, kind: int = READ) -> int:
    """prefetch.r or prefetch.w."""
    return asm.i("ori", 0, rs1, off | kind)


class Bench:
    """Each thread has its own page in register 6, DATA + tid pages."""

    def __init__(self, *body: Any, **cfg: Any) -> None:
        self.dev = Device(**{"sms": 1} | cfg)
        self.dev.enable_faults()
        self.t = Tables(self.dev, 7)
        self.out = self.dev.alloc()
        self.t.map(OUT, self.out, FULL | SYS)
        map_code(self.dev, self.t, CODE, assemble([
            csrr(5, "tid"), asm.i("slli", 6, 5, 12), asm.r("add", 6, 6, 10), *body, EXIT,
        ]))  # fmt: skip
        self.ctx = Ctx(self.dev, 3, 7)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.dev.close()

    def run(self, block: int = 1, at: int = DATA) -> tuple[int, list[Fault]]:
        """A launch that waits for nothing: its status, and the entries."""
        job = self.ctx.launch(CODE, at, block=block)
        self.dev.run(lambda: self.dev.report(job).complete)
        return self.dev.report(job).status, self.dev.take_faults()

    def replay(self) -> None:
        self.dev.wr(HW.HG_REG_REPLAY, HW.HG_REPLAY_START)

    def pending(self) -> int:
        return self.dev.counter("pending_faults")


@pytest.mark.parametrize("kind", [READ, WRITE])
def test_a_missing_page_is_reported_once_and_nobody_waits(kind: int) -> None:
    with Bench(prefetch(6, 64, kind), prefetch(6, 0, kind)) as b:
        for _ in range(2):
            status, seen = b.run(5)
            assert status == 0
            assert sorted(f.addr for f in seen) == [DATA + n * PAGE for n in range(5)]
            assert {(f.access, f.reason, f.asid, f.ctx, f.replayable) for f in seen} == {
                (PREFETCH, HW.HG_REASON_PTE, 7, 3, True)
            }
            assert b.pending() == 5
            assert b.run(5) == (0, []), "until a replay"
            b.dev.wr(HW.HG_REG_CANCEL_ASID, 7)
            b.dev.wr(HW.HG_REG_CANCEL_CMD, HW.HG_CANCEL_GLOBAL)
            assert b.pending() == 5
            b.replay()
            assert b.pending() == 0


@pytest.mark.parametrize("store", [False, True])
def test_an_access_to_the_page_has_its_own_entry(store: bool) -> None:
    op = asm.store("sd", 5, 6) if store else asm.load("ld", 7, 6)
    with Bench(prefetch(6), op, prefetch(6)) as b:
        job = b.ctx.launch(CODE, DATA, block=1)
        b.dev.run()
        want = HW.HG_ACCESS_WRITE if store else HW.HG_ACCESS_READ
        assert sorted(f.access for f in b.dev.take_faults()) == sorted([PREFETCH, want])
        assert b.pending() == 1
        b.dev.wr(HW.HG_REG_CANCEL_ASID, 7)
        b.dev.wr(HW.HG_REG_CANCEL_CMD, HW.HG_CANCEL_GLOBAL)
        b.dev.run(lambda: b.dev.report(job).complete)
        assert b.dev.report(job).status == HW.HG_ERR_FAULT
        assert b.pending() == 1, "the prefetch's"
        b.replay()
        assert b.pending() == 0


def test_what_is_not_reported() -> None:
    with Bench(prefetch(6)) as b:
        b.t.map(DATA, b.dev.alloc(), HW.HG_PTE_VALID | SYS)
        assert b.run() == (0, []), "it is there"
        assert b.run(at=1 << 48) == (0, []), "no such address"
        b.dev.wr(HW.HG_REG_ASID + 7 * HW.HG_ASID_STRIDE + HW.HG_ASID_CTRL, HW.HG_ASID_MODE_FATAL)
        assert b.run(at=DATA + PAGE) == (0, [])
        assert not b.dev.take_faults(nr=True)
    with Bench(prefetch(6), utlb_misses=3) as b:
        assert len(b.run(5)[1]) == 3, "no slot"
    with Bench(prefetch(6), prefetch_faults=False) as b:
        assert b.run(5) == (0, [])
    with Bench(asm.i("ori", 0, 6, 0), asm.i("ori", 0, 6, 2), asm.i("ori", 7, 6, 1)) as b:
        assert b.run(5) == (0, []), "other hints, and no hint"


def test_saved_and_reset() -> None:
    with Bench(prefetch(6)) as b:
        assert len(b.run(4)[1]) == 4
        state = b.dev.save()
        b.dev.load(state)
        assert b.dev.save() == state
        assert b.pending() == 4
        assert b.run(4) == (0, [])
        b.replay()
        assert b.pending() == 0
        assert len(b.run(4)[1]) == 4
        b.dev.wr(HW.HG_REG_CTRL, HW.HG_CTRL_RESET)
        assert b.pending() == 0


def test_whole_warps_and_lanes_see_the_same() -> None:
    seen = []
    for vec in ("off", "best"):
        with Bench(prefetch(6), vec=vec) as b:
            seen.append(sorted((f.addr, f.client) for f in b.run(32)[1]))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 32
