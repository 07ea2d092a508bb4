# SPDX-License-Identifier: GPL-2.0-or-later
"""SIMT against the reference interpreter, and what the reference has no notion of: errors,
budgets, divergence that needs fairness, several blocks."""

from __future__ import annotations

import os
import struct
from typing import Any

import hg_asm as asm
import numpy as np
import pytest
from hg_asm import BARRIER, EBREAK, ECALL, EXIT, FENCE, FENCE_I, Item, assemble, branch, csrr, li
from hg_lib import FULL, HW, PAGE, SYS, VRAM, Ctx, Device, Report, Tables, map_code
from hg_ref import warp
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = 0x1_0000
DATA = 0x40_0000
OUT = 0x80_0000
DATA_PAGES = 3
LANES = 32

REGS = st.integers(0, 7).map(lambda n: (0, 5, 6, 7, 11, 12, 13, 14)[n])
DEST = st.sampled_from([5, 6, 7, 11, 12, 13, 14, 0])
IMM12 = st.integers(-2048, 2047)


@st.composite
def insn(draw: st.DrawFn) -> list[Item]:
    """One computation, memory access or atomic; memory stays in the lane's or the shared part."""
    kind = draw(st.integers(0, 16))
    rd, a, b = draw(DEST), draw(REGS), draw(REGS)
    if 9 < kind < 14:
        return draw(fp_insn(kind))
    if kind == 14:  # among the lanes that are there
        if draw(st.booleans()):
            return [asm.vote(draw(st.sampled_from(sorted(asm.VOTE))), rd, a)]
        small = [asm.i("andi", 19, b, 31)] if draw(st.booleans()) else []
        by = 19 if small else b
        return [*small, asm.shuffle(draw(st.sampled_from(sorted(asm.SHUFFLE))), rd, a, by)]
    if kind > 14:
        return [draw(shared_insn(rd, a))]
    if kind <= 2:
        return [asm.r(draw(st.sampled_from(sorted(asm.OP | asm.OPW))), rd, a, b)]
    if kind == 3:
        names = [*sorted(asm.OPI), "addiw"]
        return [asm.i(draw(st.sampled_from(names)), rd, a, draw(IMM12))]
    if kind == 4:
        name = draw(st.sampled_from(sorted(asm.SHIFT | asm.SHIFTW)))
        return [asm.i(name, rd, a, draw(st.integers(0, 63)))]
    if kind == 5:
        word = draw(st.integers(0, 0xFFFFF))
        return [asm.lui(rd, word) if draw(st.booleans()) else asm.auipc(rd, word)]
    if kind == 6:
        return [asm.load(draw(st.sampled_from(sorted(asm.LOAD))), rd, 8, draw(st.integers(0, 120)))]
    if kind == 7:
        name = draw(st.sampled_from(sorted(asm.STORE)))
        return [asm.store(name, a, 8, draw(st.integers(0, 120)))]
    if kind == 8:
        w = draw(st.sampled_from("wd"))
        base = draw(st.sampled_from([9, 15]))  # own word, shared word
        return [asm.amo(draw(st.sampled_from(sorted(asm.AMO))), w, rd, a, base)]
    w = draw(st.sampled_from("wd"))
    return [asm.lr(w, rd, 9), asm.i("addi", rd or 5, rd or 5, 1), asm.sc(w, 14, rd or 5, 9)]


@st.composite
def shared_insn(draw: st.DrawFn, rd: int, a: int) -> Item:
    """An access to the block's shared memory, which other lanes use too."""
    off = draw(st.integers(0, 120))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return asm.load(draw(st.sampled_from(sorted(asm.LOAD))), rd, 20, off)
    if kind == 1:
        return asm.store(draw(st.sampled_from(sorted(asm.STORE))), a, 20, off)
    if kind == 2:
        return draw(st.sampled_from([asm.fload, asm.fstore]))("d", rd & 7, 20, off)
    return asm.amo(draw(st.sampled_from(sorted(asm.AMO))), draw(st.sampled_from("wd")), rd, a, 20)


FREGS = st.integers(0, 7)


@st.composite
def fp_insn(draw: st.DrawFn, kind: int) -> list[Item]:
    """An F or D operation, a load or store, or a write of fcsr (rounding modes that exist)."""
    fmt = draw(st.sampled_from("sd"))
    rd, a, b = draw(FREGS), draw(FREGS), draw(FREGS)
    rm = draw(st.sampled_from([0, 1, 2, 3, 4, 7, 7, 7]))
    if kind <= 11:
        name = draw(st.sampled_from(sorted([*asm.FP, *asm.FMA])))
        if name in asm.FMA:
            return [asm.fma(name, fmt, rd, a, b, draw(FREGS), rm)]
        if name.startswith(("fcvt_", "fmv_")) and name != "fcvt_f":
            a = draw(REGS)
        elif name in ("fle", "flt", "feq", "fmv.x", "fclass") or name.startswith("fcvt."):
            rd = draw(DEST)
        return [asm.fp(name, fmt, rd, a, b, rm)]
    if kind == 12:
        off = draw(st.integers(0, 120))
        return [draw(st.sampled_from([asm.fload, asm.fstore]))(fmt, rd, 8, off)]
    how = draw(st.sampled_from(["csrrw", "csrrs", "csrrc", "csrrwi", "csrrsi", "csrrci"]))
    if how.endswith("i"):
        return [asm.csr(how, draw(DEST), "fflags", draw(st.integers(0, 31)))]
    if draw(st.booleans()):
        return [asm.csr(how, draw(DEST), "fflags", draw(REGS))]
    # lanes round differently: 0 to 3
    return [asm.i("andi", 19, draw(REGS), 3), asm.csr("csrrw", draw(DEST), "frm", 19)]


@st.composite
def block_of(draw: st.DrawFn, depth: int, tag: list[int]) -> list[Item]:
    """Straight code, ifs and counted loops (r16, r17, r18 count)."""
    out: list[Item] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 5)) if depth else 0
        if kind <= 3:
            out += draw(insn())
        elif kind == 4:
            tag[0] += 1
            label = f"if{tag[0]}"
            name = draw(st.sampled_from(sorted(asm.BRANCH)))
            out.append(branch(name, draw(REGS), draw(REGS), label))
            out += draw(block_of(depth - 1, tag))
            if draw(st.booleans()):
                tag[0] += 1
                end = f"end{tag[0]}"
                out.append(asm.jal(0, end))
                out.append(label + ":")
                out += draw(block_of(depth - 1, tag))
                out.append(end + ":")
            else:
                out.append(label + ":")
        else:
            tag[0] += 1
            label = f"loop{tag[0]}"
            counter = 15 + depth
            counter = {16: 16, 17: 17}.get(counter, 18)
            out.append(asm.i("andi", counter, draw(REGS), 3))  # differs between lanes
            out.append(label + ":")
            out += draw(block_of(depth - 1, tag))
            out.append(asm.i("addi", counter, counter, -1))
            out.append(branch("bge", counter, 0, label))
    return out


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Prologue (lane's memory in r8, own word r9, shared word r15), random body, epilogue
    that stores the registers to OUT."""
    items: list[Item] = [
        csrr(5, "tid"),
        asm.i("slli", 8, 5, 7),
        asm.r("add", 8, 8, 10),  # 128 bytes a lane; lanes 31 ends at the page end
        asm.i("addi", 9, 8, 64),
        *li(15, DATA + 2 * PAGE),
        *li(6, draw(st.integers(0, 2**64 - 1))),
        *li(7, draw(st.integers(-5, 5))),
        asm.r("mul", 11, 5, 6),
        *li(20, HW.HG_SHARED_BASE),
        asm.i("slli", 19, 5, 3),
        asm.r("add", 20, 20, 19),  # overlaps with the next lanes'
    ]
    items += draw(block_of(2, [0]))
    if draw(st.booleans()):
        items += [asm.WARP_SYNC, asm.vote("ballot", 11, 12)]
    if draw(st.booleans()):
        items.append(BARRIER)
        items += draw(block_of(1, [100]))
    items += [csrr(21, "tid"), asm.i("slli", 21, 21, 8), *li(22, OUT), asm.r("add", 21, 21, 22)]
    regs = [0, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18]
    items += [asm.store("sd", reg, 21, 8 * k) for k, reg in enumerate(regs)]
    items += [asm.fstore("d", reg, 21, 112 + 8 * reg) for reg in range(8)]
    items += [csrr(24, "fcsr"), asm.store("sd", 24, 21, 176)]
    items += [asm.load("ld", 24, 20), asm.store("sd", 24, 21, 184)]
    items += [asm.load("ld", 24, 20, 248 - 128), asm.store("sd", 24, 21, 192)]
    items += [csrr(23, "instret"), asm.store("sd", 23, 21, 240), EXIT]
    return assemble(items)


@given(code=programs(), threads=st.integers(1, 32), seed=st.integers(0, 2**32 - 1),
       lazy=st.booleans(), direct=st.booleans(), vram=st.booleans(),
       vec=st.sampled_from(["best", "best", "off"]))  # fmt: skip
@settings(max_examples=int(os.environ.get("HG_RANDOM_PROGRAMS", "150")))
def test_random_programs(code: bytes, threads: int, seed: int, lazy: bool, direct: bool,
                         vram: bool, vec: str) -> None:  # fmt: skip
    """Registers, memory and instruction count of a random program equal the reference's, with
    pages mapped ahead or on fault, in RAM (direct and by callbacks) or VRAM.

    HG_RANDOM_PROGRAMS is how many programs (150)."""
    size = DATA_PAGES * PAGE
    start = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    ref = warp(code, CODE, threads, DATA, {0xCC1: 0, 0xCC2: threads, 0xCC3: 1, 0xCC5: 0,
                                           0xCC6: 0, 0xCC7: DATA})  # fmt: skip
    ref.memory = {DATA + k: int(v) for k, v in enumerate(start)}
    ref.run()
    with Device(direct=direct, utlb_entries=4, sms=1, vec=vec) as dev:
        dev.enable_faults()
        t = Tables(dev, 1, vram=vram)
        map_code(dev, t, CODE, code)
        frames = {}
        for k in range(DATA_PAGES):
            frames[DATA + k * PAGE] = dev.alloc_vram() if vram else dev.alloc()
        for k in range(2):
            frames[OUT + k * PAGE] = dev.alloc_vram() if vram else dev.alloc()
        mem = dev.vram if vram else dev.ram
        base = 0 if vram else RAM_OFF
        for k in range(DATA_PAGES):
            at = frames[DATA + k * PAGE] - base
            mem[at : at + PAGE] = start[k * PAGE : (k + 1) * PAGE]
        kind = FULL | (VRAM if vram else SYS)
        if not lazy:
            for va, frame in frames.items():
                t.map(va, frame, kind)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=threads, shared=376)
        seen = dev.service(lambda f: t.map(f.addr, frames[f.addr], kind),
                           lambda: dev.report(rep).complete)  # fmt: skip
        result = dev.report(rep)
        assert result.status == HW.HG_ERR_NONE, result
        assert bool(seen) == lazy
        assert result.instrs == sum(ln.instret for ln in ref.lanes)
        for k in range(DATA_PAGES):
            at = frames[DATA + k * PAGE] - base
            got = mem[at : at + PAGE].tobytes()
            want = bytes(ref.memory[DATA + k * PAGE + j] for j in range(PAGE))
            assert got == want
        for n in range(threads):
            va = OUT + n * 256
            at = frames[va & ~(PAGE - 1)] - base + (va & (PAGE - 1))
            want = bytes(ref.memory.get(va + j, 0) for j in range(256))
            assert mem[at : at + 256].tobytes() == want


RAM_OFF = 0x4000_0000

EDGES = [0, 1, 2, 31, 32, 63, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1,
         2**64 - 2, 0xFFFF_FFFF_8000_0000, 0x1234_5678_9ABC_DEF0]  # fmt: skip


@pytest.mark.parametrize("name", sorted(asm.OP | asm.OPW) + sorted(asm.AMO))
@pytest.mark.parametrize("width", ["d", "w"])
@pytest.mark.parametrize("vec", ["off", "best"])
def test_every_operation_on_edge_values(name: str, width: str, vec: str) -> None:
    """Each two-operand operation on all pairs of edge values (one pair a thread)."""
    is_amo = name in asm.AMO
    if not is_amo and width == "w":
        return  # the 32-bit forms have names of their own
    pairs = [(a, b) for a in EDGES for b in EDGES]
    op = [asm.amo(name, width, 7, 6, 8)] if is_amo else [asm.r(name, 7, 5, 6)]
    code = assemble([
        csrr(5, "tid"), asm.i("slli", 8, 5, 5), asm.r("add", 8, 8, 10),
        asm.load("ld", 5, 8), asm.load("ld", 6, 8, 8), *op, asm.store("sd", 7, 8, 16), EXIT,
    ])  # fmt: skip
    data = b"".join(struct.pack("<4Q", a, b, 0, 0) for a, b in pairs)
    ref = []
    for a, b in pairs:
        w = warp(code, CODE, 1, DATA, {})
        w.memory = dict(enumerate(struct.pack("<4Q", a, b, 0, 0), DATA))
        w.run()
        ref.append(bytes(w.memory[DATA + k] for k in range(32)))
    with Device(vec=vec) as dev:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, code)
        buf = dev.alloc(2)
        for k in range(2):
            t.map(DATA + k * PAGE, buf + k * PAGE, FULL | SYS)
        dev.write(buf, data)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=len(pairs))
        dev.run(lambda: bool(dev.report(rep).complete))
        assert dev.report(rep).status == 0
        got = dev.read(buf, len(data))
    for n, (pair, want) in enumerate(zip(pairs, ref, strict=True)):
        assert got[n * 32 : n * 32 + 32] == want, [hex(v) for v in pair]


def test_diverged_lanes_meet_again() -> None:
    """After both sides of a branch all lanes execute the same instruction at once: they read
    the same cycle."""
    items: list[Item] = [
        csrr(5, "tid"), asm.i("andi", 6, 5, 1), branch("beq", 6, 0, "even"),
        FENCE, FENCE, asm.jal(0, "join"), "even:", FENCE,
        "join:", csrr(7, "cycle"), asm.i("slli", 8, 5, 3), asm.r("add", 8, 8, 10),
        asm.store("sd", 7, 8), EXIT,
    ]  # fmt: skip
    result, words, _ = run_one(items, block=32)
    assert result.status == 0
    assert len(set(words[:32].tolist())) == 1


def run_one(items: list[Item], *, grid: int = 1, block: int = 1, budget: int = 0,
            pages: int = 1, **cfg: Any) -> tuple[Report, np.ndarray, Device]:  # fmt: skip
    """Launch on fresh mapped pages at DATA; (report, words of the data, device)."""
    dev = Device(**cfg)
    dev.enable_faults()
    t = Tables(dev, 1)
    map_code(dev, t, CODE, assemble(items))
    buf = dev.alloc(pages)
    for k in range(pages):
        t.map(DATA + k * PAGE, buf + k * PAGE, FULL | SYS)
    rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=grid, block=block, budget=budget)
    dev.run(lambda: dev.report(rep).complete)
    words = np.frombuffer(dev.read(buf, pages * PAGE), dtype="<u8").copy()
    result = dev.report(rep)
    dev.close()
    return result, words, dev


@pytest.mark.parametrize(
    ("items", "status", "addr", "pc"),
    [
        ([0xFFFFFFFF], "ILLEGAL", 0xFFFFFFFF, 0),
        ([0], "ILLEGAL", 0, 0),
        ([FENCE, EBREAK], "BREAK", 0, 4),
        ([0x00000057], "ILLEGAL", 0x57, 0),  # vector
        ([0xC0001073], "ILLEGAL", 0xC0001073, 0),  # csrrw cycle
        ([0x30002073], "ILLEGAL", 0x30002073, 0),  # csrr mstatus
        ([0x0000400B], "ILLEGAL", 0x0000400B, 0),  # custom-0, unknown function
        ([0x0001000B], "ILLEGAL", 0x0001000B, 0),  # custom-0 exit with a field set
        ([asm.jal_off(0, 6)], "MISALIGNED", CODE + 6, 0),
        ([asm.i("addi", 5, 0, 2), asm.jalr(0, 5)], "MISALIGNED", 2, 4),
        ([asm.i("addi", 5, 10, 4), asm.amo("amoadd", "d", 0, 0, 5)], "MISALIGNED", DATA + 4, 4),
        ([asm.i("addi", 5, 10, 2), asm.lr("w", 0, 5)], "MISALIGNED", DATA + 2, 4),
        (["l:", asm.jal(0, "l")], "BUDGET", 0, 0),
    ],
)
def test_errors(items: list[Item], status: str, addr: int, pc: int) -> None:
    result, _, _ = run_one([*items, EXIT], budget=1000)
    assert result.status == HW[f"HG_ERR_{status}"], result
    assert result.addr == addr
    assert result.pc == CODE + pc


def test_error_names_block_and_thread() -> None:
    items: list[Item] = [
        csrr(5, "tid"), csrr(6, "bid"), *li(7, 45), *li(8, 3),
        branch("bne", 5, 7, "ok"), branch("bne", 6, 8, "ok"), EBREAK, "ok:", EXIT,
    ]  # fmt: skip
    result, _, _ = run_one(items, grid=6, block=64)
    assert (result.status, result.block, result.thread) == (HW.HG_ERR_BREAK, 3, 45)


def test_ecall_ends_a_thread() -> None:
    result, words, _ = run_one([asm.store("sd", 10, 10), ECALL, EBREAK])
    assert result.status == 0
    assert words[0] == DATA


def test_budget_allows_exactly_that_many() -> None:
    for budget, status in ((3, HW.HG_ERR_NONE), (2, HW.HG_ERR_BUDGET)):
        result, _, _ = run_one([FENCE, FENCE, EXIT], budget=budget, block=32)
        assert result.status == status
        assert result.instrs == 32 * budget


def test_barrier_with_a_thread_that_left() -> None:
    items: list[Item] = [csrr(5, "tid"), branch("beq", 5, 0, "out"), BARRIER, "out:", EXIT]
    result, _, _ = run_one(items, block=96)
    assert result.status == HW.HG_ERR_BARRIER
    assert result.pc == CODE + 8
    assert result.thread == 1


def test_barrier_orders_warps() -> None:
    """Each thread reads, after the barrier, what another warp's thread wrote before it."""
    n = 256
    items: list[Item] = [
        csrr(5, "tid"), asm.i("slli", 6, 5, 3), asm.r("add", 6, 6, 10), asm.store("sd", 5, 6),
        BARRIER,
        asm.i("addi", 7, 5, 101), asm.i("andi", 7, 7, n - 1), asm.i("slli", 7, 7, 3),
        asm.r("add", 7, 7, 10), asm.load("ld", 8, 7), BARRIER, asm.store("sd", 8, 6), EXIT,
    ]  # fmt: skip
    result, words, _ = run_one(items, block=n)
    assert result.status == 0
    assert list(words[:n]) == [(k + 101) % n for k in range(n)]


def test_lock_inside_a_warp_makes_progress() -> None:
    """Lanes that spin at a low pc do not starve the lane that holds the lock."""
    items: list[Item] = [
        asm.i("addi", 11, 10, 8), *li(6, 1),
        "spin:", asm.amo("amoswap", "d", 7, 6, 10), branch("bne", 7, 0, "spin"),
        asm.load("ld", 8, 11), asm.i("addi", 8, 8, 1), asm.store("sd", 8, 11),
        FENCE, asm.amo("amoswap", "d", 0, 0, 10), EXIT,
    ]  # fmt: skip
    result, words, _ = run_one(items, block=12, budget=100_000)
    assert result.status == 0, result
    assert words[1] == 12


def test_ids_stack_and_registers() -> None:
    items: list[Item] = [
        csrr(5, "bid"), csrr(6, "ntid"), asm.r("mul", 5, 5, 6), csrr(6, "tid"),
        asm.r("add", 5, 5, 6), asm.i("slli", 5, 5, 4), asm.r("add", 5, 5, 10),
        csrr(7, "sm"), csrr(8, "warp"), csrr(9, "lane"),
        asm.i("slli", 7, 7, 16), asm.i("slli", 8, 8, 8), asm.r("or", 7, 7, 8),
        asm.r("or", 7, 7, 9), asm.store("sd", 7, 5), asm.store("sd", 2, 5, 8), EXIT,
    ]  # fmt: skip
    grid, block, warps = 7, 70, 6
    dev = Device(warps=warps)
    with dev:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        buf = dev.alloc(3)
        for k in range(3):
            t.map(DATA + k * PAGE, buf + k * PAGE, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=grid, block=block, local=0x9000_0000,
                                    local_bytes=4096)  # fmt: skip
        dev.run(lambda: dev.report(rep).complete)
        words = np.frombuffer(dev.read(buf, grid * block * 16), dtype="<u8").reshape(-1, 2)
    for n, (ids, sp) in enumerate(words.tolist()):
        sm, w, lane = ids >> 16, ids >> 8 & 0xFF, ids & 0xFF
        assert lane == n % block % 32
        assert sp == 0x9000_0000 + ((sm * warps + w) * 32 + lane + 1) * 4096


def test_grid_sums_with_atomics() -> None:
    result, words, _ = run_one(
        [*li(5, 1), asm.amo("amoadd", "w", 6, 5, 10), EXIT], grid=40, block=64, sms=4
    )
    assert result.status == 0
    assert words[0] == 40 * 64


def test_fence_i_reads_changed_code() -> None:
    patch = asm.i("addi", 7, 0, 99)
    dev = Device()
    with dev:
        t = Tables(dev, 1)
        items: list[Item] = [
            *li(5, patch), "again:", asm.i("addi", 7, 0, 1), asm.store("sd", 7, 10),
            branch("bne", 6, 0, "out"),
            asm.store("sw", 5, 11), FENCE_I, asm.i("addi", 6, 0, 1), asm.jal(0, "again"),
            "out:", EXIT,
        ]  # fmt: skip
        at = 4 * (len(li(5, patch)))
        code = dev.alloc()
        prologue = li(11, CODE + at + 4 * len(li(11, CODE + 64)))
        body = assemble([*prologue, *items])
        dev.write(code, body)
        t.map(CODE, code, FULL | SYS)
        page = dev.alloc()
        t.map(DATA, page, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == 0
        assert dev.u64(page) == 99
