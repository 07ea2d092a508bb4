# SPDX-License-Identifier: GPL-2.0-or-later
"""Shuffle, vote, gathering a warp; shared memory of a block.  (Random programs of these with
all the rest: test_simt.py.)"""

from __future__ import annotations

import hg_asm as asm
import numpy as np
import pytest
from hg_asm import BARRIER, EXIT, FENCE, WARP_SYNC, Item, assemble, branch, csrr, li
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Report, Tables, map_code

CODE = 0x1_0000
DATA = 0x40_0000
SHARED = HW.HG_SHARED_BASE


def launch(items: list[Item], *, grid: int = 1, block: int = 32, shared: int = 0, budget: int = 0,
           pages: int = 1, **cfg: int) -> tuple[Report, list[int]]:  # fmt: skip
    """(report, words at DATA)."""
    with Device(**cfg) as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble([*items, EXIT]))
        buf = dev.alloc(pages)
        for k in range(pages):
            t.map(DATA + k * PAGE, buf + k * PAGE, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=grid, block=block, shared=shared,
                                    budget=budget)  # fmt: skip
        dev.run(lambda: dev.report(rep).complete)
        words = np.frombuffer(dev.read(buf, pages * PAGE), dtype="<u8").tolist()
        return dev.report(rep), words


def out(reg: int) -> list[Item]:
    """Store the register in the thread's word."""
    return [
        csrr(28, "bid"), csrr(29, "ntid"), asm.r("mul", 28, 28, 29), csrr(29, "tid"),
        asm.r("add", 28, 28, 29), asm.i("slli", 28, 28, 3), asm.r("add", 28, 28, 10),
        asm.store("sd", reg, 28),
    ]  # fmt: skip


@pytest.mark.parametrize("block", [32, 20])
@pytest.mark.parametrize("by", [0, 1, 5, 16, 31, 32, 33, 2**40])
@pytest.mark.parametrize("how", sorted(asm.SHUFFLE))
def test_shuffle(how: str, by: int, block: int) -> None:
    """Also into the register it reads, and with lanes that are not there."""
    items = [csrr(5, "lane"), asm.i("addi", 6, 5, 100), *li(7, by), asm.shuffle(how, 6, 6, 7)]
    report, words = launch([*items, *out(6)], block=block)
    assert report.status == HW.HG_ERR_NONE
    for n in range(block):
        source = {"idx": by % 32, "up": n - by, "down": n + by, "xor": n ^ by}[how]
        assert words[n] == 100 + (source if 0 <= source < block else n)


def test_shuffle_among_some() -> None:
    """Every third lane: the others neither give nor take."""
    items: list[Item] = [
        csrr(5, "lane"), asm.i("addi", 6, 5, 100), *li(7, 3), asm.r("rem", 8, 5, 7),
        branch("bne", 8, 0, "skip"), *li(9, 1), asm.shuffle("down", 11, 6, 9),
        asm.shuffle("down", 12, 6, 7), asm.r("add", 6, 11, 12), "skip:",
    ]  # fmt: skip
    _, words = launch([*items, *out(6)])
    for n in range(32):
        three = n + 3 if n + 3 < 32 else n
        assert words[n] == (200 + n + three if n % 3 == 0 else 100 + n)


@pytest.mark.parametrize("modulus", [1, 2, 7, 64])
@pytest.mark.parametrize("what", sorted(asm.VOTE))
def test_vote(what: str, modulus: int) -> None:
    """Lanes from 3 on vote: those with (lane mod modulus) not 0."""
    items: list[Item] = [
        csrr(5, "lane"), *li(7, modulus), asm.r("rem", 6, 5, 7), *li(8, 3), *li(9, 99),
        branch("blt", 5, 8, "skip"), asm.vote(what, 9, 6), "skip:",
    ]  # fmt: skip
    _, words = launch([*items, *out(9)])
    voters = [n for n in range(3, 32) if n % modulus]
    want = {"ballot": sum(1 << n for n in voters), "any": int(bool(voters)),
            "all": int(len(voters) == 29)}[what]  # fmt: skip
    assert words[:32] == [99] * 3 + [want] * 29


def flag_then_ballot(gather: list[Item]) -> list[Item]:
    """Even lanes spin until lane 1 has set a flag, which it can only by running ahead of them,
    and work so long then that the others could run ahead again; then all vote."""
    return [
        csrr(5, "lane"), *li(6, 1), asm.i("addi", 11, 10, 1024), asm.r("and", 7, 5, 6),
        branch("bne", 7, 0, "odd"),
        "spin:", asm.load("ld", 8, 11), branch("beq", 8, 0, "spin"),
        *li(12, 5000), "work:", asm.i("addi", 12, 12, -1), branch("bne", 12, 0, "work"),
        asm.jal(0, "join"),
        "odd:", branch("bne", 5, 6, "join"), asm.store("sd", 6, 11),
        "join:", *gather, asm.vote("ballot", 9, 6),
    ]  # fmt: skip


def test_a_gathered_warp_votes_together() -> None:
    report, words = launch([*flag_then_ballot([WARP_SYNC]), *out(9)], budget=100_000)
    assert report.status == HW.HG_ERR_NONE
    assert words[:32] == [2**32 - 1] * 32
    _, words = launch([*flag_then_ballot([]), *out(9)], budget=100_000)
    assert len(set(words[:32])) > 1  # else the test would show nothing


def test_lanes_that_ended_are_not_waited_for() -> None:
    items: list[Item] = [
        csrr(5, "lane"), *li(6, 20), branch("blt", 5, 6, "stay"), asm.i("addi", 7, 7, 1), EXIT,
        "stay:", asm.i("andi", 7, 5, 1), branch("beq", 7, 0, "wait"), asm.i("addi", 8, 8, 1),
        "wait:", WARP_SYNC, asm.vote("ballot", 9, 6),
    ]  # fmt: skip
    report, words = launch([*items, *out(9)])
    assert report.status == HW.HG_ERR_NONE
    assert words[:32] == [2**20 - 1] * 20 + [0] * 12


def test_gathering_a_warp_whose_rest_waits_for_the_block() -> None:
    items: list[Item] = [
        csrr(5, "tid"), *li(6, 40), branch("bne", 5, 6, "block"), WARP_SYNC, "block:", BARRIER,
    ]  # fmt: skip
    report, _ = launch(items, block=96)
    assert report.status == HW.HG_ERR_BARRIER
    assert report.thread == 40
    assert report.pc == CODE + 4 * (len(items) - 3)


@pytest.mark.parametrize(("shared", "sms", "block"), [(2048, 1, 256), (2048, 3, 256),
                                                      (40_000, 2, 64), (65_536, 1, 96),
                                                      (1000, 2, 33)])  # fmt: skip
def test_blocks_have_their_own(shared: int, sms: int, block: int) -> None:
    """Each thread adds to a word that must be 0 first, waits, and reads another warp's: blocks
    that run at once do not see each other, and each begins with zeros."""
    grid = 9
    items: list[Item] = [
        csrr(5, "tid"), csrr(6, "bid"), csrr(11, "shared"), asm.i("slli", 12, 5, 3),
        *li(7, SHARED), asm.r("add", 12, 12, 7), *li(13, 1000), asm.r("mul", 13, 13, 6),
        asm.r("add", 13, 13, 5), asm.amo("amoadd", "d", 14, 13, 12), BARRIER,
        # of thread (tid + 45) mod ntid
        csrr(15, "ntid"), asm.i("addi", 16, 5, 45), asm.r("rem", 16, 16, 15),
        asm.i("slli", 16, 16, 3), asm.r("add", 16, 16, 7), asm.load("ld", 17, 16),
        *li(18, 1_000_000), asm.r("mul", 14, 14, 18), asm.r("add", 17, 17, 14),
        # the last word (of aligned ones) is there, too
        asm.i("andi", 11, 11, -8), asm.r("add", 11, 11, 7), asm.load("ld", 19, 11, -8),
    ]  # fmt: skip
    report, words = launch([*items, *out(17)], grid=grid, block=block, shared=shared, sms=sms,
                           pages=5)  # fmt: skip
    assert report.status == HW.HG_ERR_NONE, report
    want = [b * 1000 + (t + 45) % block for b in range(grid) for t in range(block)]
    assert words[: grid * block] == want


@pytest.mark.parametrize("shared", [0, 8, 100, 65_536])
@pytest.mark.parametrize("insn", ["load", "store", "amo", "lr", "fetch"])
def test_beyond_the_end(insn: str, shared: int) -> None:
    """The first address that is not wholly inside ends the launch, with that address."""
    at = shared & ~7
    then = {"load": asm.load("ld", 7, 6), "store": asm.store("sd", 7, 6),
            "amo": asm.amo("amoadd", "d", 7, 5, 6), "lr": asm.lr("d", 7, 6),
            "fetch": asm.jalr(1, 6)}[insn]  # fmt: skip
    before = [*li(6, SHARED + at - 8), asm.load("ld", 7, 6)] if at else []
    items = [*before, *li(6, SHARED + at), then]
    report, _ = launch(items, block=1, shared=shared)
    assert (report.status, report.reason) == (HW.HG_ERR_FAULT, HW.HG_REASON_RANGE)
    assert report.addr == SHARED + at
    assert report.pc == CODE + 4 * (len(items) - 1)


def test_more_than_there_is() -> None:
    with Device() as dev:
        c = Ctx(dev, 1, 1)
        c.launch(CODE, DATA, shared=HW.HG_SHARED_MAX + 1)
        dev.run()
        assert c.reg(HW.HG_CTX_ERROR) == HW.HG_ERR_DESC


def test_locks_and_misaligned_words_in_shared_memory() -> None:
    """LR/SC loops of all threads on one word; words that are not aligned."""
    items: list[Item] = [
        csrr(5, "tid"), *li(6, SHARED), "again:", asm.lr("w", 7, 6), asm.i("addi", 7, 7, 3),
        asm.sc("w", 8, 7, 6), branch("bne", 8, 0, "again"), BARRIER, asm.load("lw", 9, 6),
        asm.i("slli", 11, 5, 2), asm.r("add", 11, 11, 6), asm.store("sw", 5, 11, 65),
        asm.load("lwu", 12, 11, 65), asm.i("slli", 12, 12, 32), asm.r("add", 9, 9, 12),
    ]  # fmt: skip
    report, words = launch([*items, *out(9)], block=64, shared=400)
    assert report.status == HW.HG_ERR_NONE
    assert words[:64] == [3 * 64 + (n << 32) for n in range(64)]


@pytest.mark.parametrize("shift", range(0, 64, 5))
def test_survives_at_any_step(shift: int) -> None:
    """Saved after each step (64 instructions of a warp, hence the shift) and loaded elsewhere:
    lanes that wait for their warp and what blocks have in shared memory are there."""
    items: list[Item] = [
        *[FENCE] * shift,
        csrr(5, "tid"), *li(6, SHARED), asm.i("slli", 7, 5, 3), asm.r("add", 7, 7, 6),
        asm.i("andi", 8, 5, 7), "loop:", asm.i("addi", 8, 8, -1), branch("bge", 8, 0, "loop"),
        asm.store("sd", 5, 7), asm.i("andi", 8, 5, 1), branch("bne", 8, 0, "far"),
        "gather:", WARP_SYNC, *li(11, 1), asm.shuffle("xor", 9, 5, 11),
        asm.i("andi", 8, 5, 3), "more:", asm.i("addi", 8, 8, -1),
        asm.amo("amoadd", "d", 0, 9, 7), branch("bge", 8, 0, "more"), WARP_SYNC,
        asm.vote("ballot", 12, 5), BARRIER, asm.i("xori", 13, 7, 512), asm.load("ld", 14, 13),
        asm.r("add", 14, 14, 12), *out(14), EXIT,
        # the others wait at a lower pc meanwhile
        "far:", *li(8, 100), "turn:", asm.i("addi", 8, 8, -1), branch("bne", 8, 0, "turn"),
        asm.jal(0, "gather"),
    ]  # fmt: skip
    block, grid = 128, 4

    def device() -> tuple[Device, int]:
        dev = Device(warps=6)
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        buf = dev.alloc(1)
        t.map(DATA, buf, FULL | SYS)
        return dev, buf

    want = []
    for _ in range(grid):
        for n in range(block):
            o = n ^ 64
            ballot = 2**32 - 1 - (n < 32)
            want.append(o + (o ^ 1) * ((o & 3) + 1) + ballot)
    dev, buf = device()
    with dev:
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=grid, block=block, shared=1024)
        n = 0
        while not dev.report(rep).complete:
            state = dev.save()
            other, _ = device()
            with other:
                other.ram[:] = dev.ram
                other.load(state)
                other.run(lambda o=other: o.report(rep).complete)
                assert other.report(rep).status == HW.HG_ERR_NONE
                got = np.frombuffer(other.read(buf, grid * block * 8), dtype="<u8").tolist()
                assert got == want, n
            dev.step(1)
            n += 1
        assert n > 5
