# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole warps in vectors are what the lanes are one by one: results, flags, memory, counters,
faults, state, for each instruction set that this host has."""

from __future__ import annotations

import hg_asm as asm
import hg_fpref as fpref
import numpy as np
import pytest
import test_audit
import test_fp
import test_simt
from hg_asm import EXIT, FENCE, FENCE_I, Item, assemble, branch, csrr, li
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Tables, ffi, map_code
from hypothesis import example, given, settings
from hypothesis import strategies as st

CODE = 0x1_0000
DATA = 0x40_0000
TABLE = 0x80_0000
OUT = 0xC0_0000
LANES = 32
NX = 1


def sets() -> list[str]:
    """What this host has beside the lane by lane form."""
    with Device() as dev:
        return [v for v in ("plain", "avx2", "avx512")
                if dev.lib.hg_vec_set(dev.dev, v.encode()) == 0]  # fmt: skip


SETS = sets()
FAST = [v for v in SETS if v != "plain"]
FP_NAMES = ["fadd", "fsub", "fmul", "fdiv", "fsqrt", *sorted(asm.FMA)]


def test_names() -> None:
    with Device() as dev:
        assert ffi.string(dev.lib.hg_vec_name(dev.dev)).decode() == SETS[-1]  # the best
        for name in ("off", *SETS, "best"):
            assert dev.lib.hg_vec_set(dev.dev, name.encode()) == 0
        for name in ("", "avx", "avx5120"):
            assert dev.lib.hg_vec_set(dev.dev, name.encode()) == -1
        assert ffi.string(dev.lib.hg_vec_name(dev.dev)).decode() == SETS[-1]


# -- floating point --


def compare(insn: int, a: np.ndarray, b: np.ndarray, c: np.ndarray, fcsr: np.ndarray,
            mask: np.ndarray, vec: str, mxcsr: int = 0) -> float:  # fmt: skip
    """Vectors against lanes; the share of active lanes that was done in vectors."""
    n = len(mask)
    cast = ffi.from_buffer
    fast = ffi.new("uint64_t *")
    a, b, c = (np.ascontiguousarray(v, dtype="<u8") for v in (a, b, c))
    fcsr = np.ascontiguousarray(fcsr, dtype="u1")
    mask = np.ascontiguousarray(mask, dtype="<u4")
    assert len(a) == len(b) == len(c) == len(fcsr) == n * LANES
    with Device() as dev:
        at = dev.lib.th_vec_fp(
            dev.dev, vec.encode(), insn, n, cast("uint64_t[]", a), cast("uint64_t[]", b),
            cast("uint64_t[]", c), cast("uint8_t[]", fcsr), cast("uint32_t[]", mask), mxcsr, fast,
        )  # fmt: skip
    assert at == -1, (
        f"{insn:#010x} {vec}: differs on {[hex(v[at]) for v in (a, b, c)]} fcsr {fcsr[at]:#x}, "
        f"lane {at % LANES} of mask {mask[at // LANES]:#x}"
    )
    return int(fast[0]) / max(1, int(np.unpackbits(mask.view("u1")).sum()))


def patterns(rng: np.random.Generator, f: fpref.Fmt, n: int) -> np.ndarray:
    """Unboxed bit patterns: anything, near one, whole numbers, the smallest exponents, the
    largest, those where vec_body.h draws its lines, few bits set, and edges."""
    fb = f.p - 1
    top = 2 * f.emax
    anything = rng.integers(0, 2**f.width, n, dtype=np.uint64)
    sign = anything & np.uint64(f.sign)
    frac = anything & np.uint64(2**fb - 1)
    few = frac & ~np.uint64(2 ** (fb - 3) - 1)
    lines = np.array([1, 2, 3, f.p, 0x20, 0x3F, 0x40, 0x41, top // 2, top - 14, top - 13, top - 1,
                      top])  # fmt: skip
    exps = [
        rng.integers(f.emax - 4, f.emax + 5, n), rng.integers(f.emax, f.emax + fb, n),
        rng.integers(0, 4, n), rng.integers(top - 4, top + 2, n), rng.choice(lines, n),
        rng.integers(0, top, n),
    ]  # fmt: skip
    kinds = [anything]
    for e in exps:
        high = sign | e.astype(np.uint64) << np.uint64(fb)
        kinds += [high | frac, high | few]
    kinds.append(rng.choice(np.array(test_fp.edges(f), dtype=np.uint64), n))
    kinds.append(sign)
    pick = rng.integers(0, len(kinds), n)
    return np.choose(pick, kinds) if len(kinds) < 32 else kinds[0]


def boxed(rng: np.random.Generator, f: fpref.Fmt, v: np.ndarray, bad: bool) -> np.ndarray:
    """As registers hold them; now and then not boxed."""
    if f.width == 64:
        return v
    box = np.full(len(v), test_fp.BOX, dtype=np.uint64)
    if bad:
        box[rng.random(len(v)) < 0.01] = np.uint64(0xFFFF_FFFE) << np.uint64(32)
    return v | box


@pytest.mark.parametrize("vec", FAST)
@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", FP_NAMES)
def test_floating_point_of_many(name: str, fmt: str, vec: str) -> None:
    """Hundreds of thousands of lanes, in nearest and other modes, with and without NX, with all
    lanes and some; and most are in vectors where they can be."""
    f = test_fp.FMTS[fmt]
    rng = np.random.default_rng(FP_NAMES.index(name) * 2 + (fmt == "d"))
    warps = 4000
    n = warps * LANES
    a, b, c = (patterns(rng, f, n) for _ in range(3))
    if name in asm.FMA:  # the third cancels most of the product
        kind = "<f4" if fmt == "s" else "<f8"
        x, y = (v.astype(kind.replace("f", "u")).view(kind) for v in (a, b))
        with np.errstate(all="ignore"):
            p = (x * y).view(kind.replace("f", "u")).astype(np.uint64)
        near = (p + rng.integers(0, 3, n, dtype=np.uint64)) ^ np.uint64(f.sign)
        c = np.where(rng.random(n) < 0.5, near & np.uint64(2**f.width - 1), c)
    fcsr = rng.choice(np.array([0, 0, 0, NX, NX, NX | 8, 31, 0x20, 0x81], dtype=np.uint8), n)
    calm = rng.random(warps) < 0.6  # warps in nearest
    fcsr[np.repeat(calm, LANES)] &= np.uint8(0x1F)
    mask = rng.integers(1, 2**32, warps, dtype=np.uint32)
    mask[rng.random(warps) < 0.5] = 0xFFFF_FFFF
    a, b, c = (boxed(rng, f, v, bad=True) for v in (a, b, c))
    for rm in (0, 7, 1):
        share = compare(test_fp.word(name, fmt, rm), a, b, c, fcsr, mask, vec)
        assert rm == 1 or share > 0.1
    # numbers as programs have them: all in vectors
    with np.errstate(all="ignore"):
        plain = [np.abs(rng.normal(0, 100, n)) + 0.001 for _ in range(3)]
    if fmt == "s":
        plain = [v.astype("<f4").view("<u4").astype(np.uint64) for v in plain]
    else:
        plain = [v.view("<u8") for v in plain]
    a, b, c = (boxed(rng, f, v, bad=False) for v in plain)
    share = compare(test_fp.word(name, fmt, 7), a, b, c, fcsr & 1, mask, vec)
    assert share > 0.99


@pytest.mark.parametrize("vec", FAST)
@given(case=test_fp.operations(), mask=st.integers(1, 2**32 - 1), nx=st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_floating_point(vec: str, case: tuple[int, list[test_fp.Case]], mask: int,
                        nx: int) -> None:  # fmt: skip
    """The same with what Hypothesis finds interesting."""
    insn, cases = case
    if insn & 0x7F == 0x53 and insn >> 27 not in (0, 1, 2, 3, 0x0B):
        return  # has no vector form
    lanes = [cases[k % len(cases)] for k in range(LANES)]
    a, b, c = (np.array([getattr(k, v) for k in lanes], dtype=np.uint64) for v in "abc")
    fcsr = np.array([k.frm << 5 | nx >> j & 1 for j, k in enumerate(lanes)], dtype=np.uint8)
    compare(insn, a, b, c, fcsr, np.array([mask], dtype=np.uint32), vec)


@pytest.mark.parametrize("vec", FAST)
@pytest.mark.parametrize("mxcsr", [0x9F80, 0x1FC0, 0x7F80, 0x5F80])
def test_a_host_thread_that_rounds_otherwise(vec: str, mxcsr: int) -> None:
    """Flush to zero, subnormals as zero, towards zero, up: then no vectors, and no difference."""
    n = 50 * LANES
    rng = np.random.default_rng(1)
    a, b, c = (patterns(rng, fpref.D, n) for _ in range(3))
    full = np.full(50, 0xFFFF_FFFF, dtype=np.uint32)
    for name in FP_NAMES:
        share = compare(
            test_fp.word(name, "d", 0), a, b, c, np.zeros(n, np.uint8), full, vec, mxcsr
        )
        assert share == 0


# -- everything else: two devices, one of them lane by lane --

ROWS = 96


def outcome(dev: Device, rep: int) -> tuple[object, ...]:
    """All that can be seen of a device that has come to rest."""
    names = [k for k in dir(HW) if k.startswith("HG_CNT_")]
    counters = {k: dev.counter(k.removeprefix("HG_CNT_")) for k in names}
    counters["bytes the host was told of"] = dev.host.ram_written
    return dev.report(rep).status, counters, dev.save(), dev.ram.tobytes()


def both(vec: str, run: object) -> None:
    """``run(dev)`` gives the report of a launch; the two devices end alike."""
    assert callable(run)
    seen = []
    for which in ("off", vec):
        with Device(vec=which, sms=1, utlb_entries=4, seed=3) as dev:
            dev.enable_faults()
            seen.append(outcome(dev, run(dev)))
    off, on = seen
    assert off[0] == on[0]
    assert off[1] == on[1]
    assert off[3] == on[3]
    assert off[2] == on[2]


def launch(dev: Device, code: bytes, threads: int,
           lazy: bool) -> tuple[int, Tables, dict[int, int]]:  # fmt: skip
    """A program of test_simt.py with its memory: where its report is, the tables and the frame of
    each page, which are mapped unless they are to be on fault (lazy)."""
    t = Tables(dev, 1)
    map_code(dev, t, CODE, code)
    frames = {
        base + k * PAGE: dev.alloc()
        for base, n in ((test_simt.DATA, 4), (test_simt.OUT, 5))
        for k in range(n)
    }
    if not lazy:
        for va, frame in frames.items():
            t.map(va, frame, FULL | SYS)
    rep = Ctx(dev, 1, 1).launch(CODE, test_simt.DATA, block=threads, shared=64 * 8 + 256,
                                budget=20_000)  # fmt: skip
    return rep, t, frames


# Instructions are fetched for the first time, the load's and, while it misses, the next: one step
# for both, but two once with vectors, which had done nothing and called that a safe point.
FETCHED_LATE = assemble([
    *li(20, test_simt.OUT), csrr(5, "tid"), asm.i("slli", 9, 5, 3), asm.r("add", 9, 9, 20),
    asm.load("ld", 8, 9), asm.i("addi", 8, 8, 1), EXIT,
])  # fmt: skip


@pytest.mark.parametrize("vec", SETS)
@given(code=test_simt.programs(), threads=st.integers(1, 64), lazy=st.booleans(),
       audit=st.sampled_from(["off", "sampled=3", "access"]))  # fmt: skip
@settings(max_examples=40)
def test_programs(vec: str, code: bytes, threads: int, lazy: bool, audit: str) -> None:
    """Random programs of one or two warps."""

    def run(dev: Device) -> int:
        assert dev.lib.hg_audit_set(dev.dev, audit.encode()) == 0
        rep, t, frames = launch(dev, code, threads, lazy)
        dev.service(lambda f: t.map(f.addr, frames[f.addr], FULL | SYS),
                    lambda: dev.report(rep).complete)  # fmt: skip
        return rep

    both(vec, run)


@pytest.mark.parametrize("vec", SETS)
@given(code=test_simt.programs(), threads=st.integers(1, 64), lazy=st.booleans(),
       audit=st.sampled_from(["off", "access"]),
       at_once=st.sampled_from([1, 1, 2, 7, 64]))  # fmt: skip
@example(code=FETCHED_LATE, threads=64, lazy=True, audit="off", at_once=1)
@example(code=FETCHED_LATE, threads=20, lazy=True, audit="off", at_once=1)
@settings(max_examples=40)
def test_steps(vec: str, code: bytes, threads: int, lazy: bool, audit: str, at_once: int) -> None:
    """Where the engine stands after each step does not depend on the host's vectors: a recipe
    says after how many steps somebody else runs, and is replayed on other hosts."""

    def steps(which: str) -> list[tuple[int, str]]:
        stood = []
        with Device(vec=which, sms=1, utlb_entries=4, seed=3) as dev:
            dev.enable_faults()
            assert dev.lib.hg_audit_set(dev.dev, audit.encode()) == 0
            rep, t, frames = launch(dev, code, threads, lazy)
            others = range(1, dev.lib.hg_engines(dev.dev))
            while not dev.report(rep).complete:
                did = dev.step_engine(0, at_once)
                stood.append((did, dev.at(0)))
                if did + sum(dev.step_engine(k, 64) for k in others):
                    continue
                faults = dev.take_faults()
                for f in faults:
                    t.map(f.addr, frames[f.addr], FULL | SYS)
                assert faults or dev.lib.hg_deadline(dev.dev) != 2**64 - 1
                dev.replay()
        return stood

    assert steps("off") == steps(vec)


PAGES = 6
ADDRESS = st.integers(0, PAGES * PAGE - 8)


@st.composite
def addresses(draw: st.DrawFn) -> list[int]:
    """Offsets of 32 lanes: side by side, all the same, a stride, anything; aligned or not."""
    kind = draw(st.integers(0, 4))
    size = draw(st.sampled_from([1, 2, 4, 8]))
    base = draw(st.integers(0, PAGES * PAGE // 2)) & -draw(st.sampled_from([1, size, 16, 16]))
    if kind == 0:
        out = [base + size * k for k in range(LANES)]
    elif kind == 1:
        out = [base] * LANES
    elif kind == 2:
        stride = draw(st.sampled_from([8, 16, 128, 256, 384, -8, 24]))
        out = [(base + stride * k) % (PAGES * PAGE - 8) for k in range(LANES)]
    else:
        few = draw(st.lists(ADDRESS, min_size=1, max_size=5))
        out = [few[draw(st.integers(0, len(few) - 1))] & -size for _ in range(LANES)]
    if kind == 3:
        out = [v & (PAGE - 8) for v in out]  # one page
    return out


@st.composite
def accesses(draw: st.DrawFn) -> list[Item]:
    """A few loads and stores at r8 + something small."""
    out: list[Item] = []
    for _ in range(draw(st.integers(1, 6))):
        imm = draw(st.sampled_from([0, 0, 0, 4, 8, 1, -8]))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            out.append(asm.load(draw(st.sampled_from(sorted(asm.LOAD))), 11, 8, imm))
        elif kind == 1:
            out.append(asm.store(draw(st.sampled_from(sorted(asm.STORE))), 11, 8, imm))
        elif kind == 2:
            out.append(asm.fload(draw(st.sampled_from("sd")), 1, 8, imm))
        elif kind == 3:
            out.append(asm.fstore(draw(st.sampled_from("sd")), 1, 8, imm))
        else:
            out.append(asm.load("ld", 8, 9))  # the address again: rd is rs1 now and then
            out.append(asm.load("lbu", 8, 8, imm))
            out.append(asm.load("ld", 8, 9))
        out.append(asm.r("add", 12, 12, 11))
    return out


@pytest.mark.parametrize("vec", SETS)
@given(offsets=addresses(), body=accesses(), mask=st.integers(1, 2**32 - 1), whole=st.booleans(),
       missing=st.sets(st.integers(0, PAGES - 1)), readonly=st.booleans(), shared=st.booleans(),
       audit=st.sampled_from(["off", "sampled=3", "access"]))  # fmt: skip
@settings(max_examples=160)
def test_accesses(vec: str, offsets: list[int], body: list[Item], mask: int, whole: bool,
                  missing: set[int], readonly: bool, shared: bool, audit: str) -> None:  # fmt: skip
    """Loads and stores of all kinds of address patterns, in a micro-TLB of four entries, with
    pages that are mapped on fault, or read-only until they fault, lanes that take part or not;
    or in the block's shared memory."""
    base = HW.HG_SHARED_BASE + PAGE if shared else DATA
    fill: list[Item] = [
        csrr(5, "tid"), asm.i("slli", 9, 5, 3), *li(6, HW.HG_SHARED_BASE), asm.r("add", 6, 6, 9),
        *li(7, (PAGES + 2) * PAGE // 256), *li(11, 0x0123_4567_89AB_CDEF), "fill:",
        asm.r("mul", 12, 6, 11), asm.store("sd", 12, 6), asm.i("addi", 6, 6, 256),
        asm.i("addi", 7, 7, -1), branch("bne", 7, 0, "fill"), *li(12, 0),
    ]  # fmt: skip
    items: list[Item] = [
        *(fill if shared else []),
        csrr(5, "tid"), asm.i("slli", 9, 5, 3), *li(6, TABLE), asm.r("add", 9, 9, 6),
        asm.load("ld", 8, 9), asm.r("mul", 11, 5, 8), asm.fp("fcvt_l", "d", 1, 11, rm=0),
    ]  # fmt: skip
    if not whole:
        items += [*li(7, mask), asm.r("srl", 7, 7, 5), asm.i("andi", 7, 7, 1),
                  branch("beq", 7, 0, "out")]  # fmt: skip
    items += [*body, "out:", *li(7, OUT), asm.i("slli", 9, 5, 5), asm.r("add", 7, 7, 9),
              asm.store("sd", 11, 7), asm.store("sd", 12, 7, 8), asm.fstore("d", 1, 7, 16),
              EXIT]  # fmt: skip

    def run(dev: Device) -> int:
        assert dev.lib.hg_audit_set(dev.dev, audit.encode()) == 0
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        first = DATA - PAGE  # an offset may be -8
        frames = {first + k * PAGE: dev.alloc() for k in range(PAGES + 2)}
        for va, frame in frames.items():
            dev.write(frame, bytes((va >> 12) * 7 + k * 13 & 255 for k in range(PAGE)))
            if (va - DATA) // PAGE not in missing:
                t.map(va, frame, (FULL if not readonly else HW.HG_PTE_VALID) | SYS)
        table, out = dev.alloc(), dev.alloc()
        dev.write(table, b"".join((base + v).to_bytes(8, "little") for v in offsets))
        t.map(TABLE, table, FULL | SYS)
        t.map(OUT, out, FULL | SYS)

        def grant(f: object) -> None:
            va = f.addr & ~(PAGE - 1)  # type: ignore[attr-defined]
            t.map(va, frames[va], FULL | SYS)
            dev.invalidate(HW.HG_INVAL_RANGE, 1, va, PAGE)

        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=LANES, shared=(PAGES + 2) * PAGE)
        dev.service(grant, lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_NONE
        return rep

    both(vec, run)


def rows(rng: np.random.Generator, f: fpref.Fmt) -> list[np.ndarray]:
    """Three operands and fcsr of ROWS warps.  Most lanes have NX and ordinary numbers, as in the
    middle of a program; in some warps one lane has not, or all have anything, or results
    are near the smallest or the largest numbers."""
    n = ROWS * LANES
    kind = np.repeat(np.arange(ROWS) % 8, LANES)
    lane = np.arange(n) % LANES
    one = lane == np.repeat(rng.integers(0, LANES, ROWS), LANES)
    out = []
    for which in range(3):
        v = np.abs(rng.normal(0, 100, n)) + 0.001
        if f.width == 64:
            bits = v.view("<u8").copy()
        else:
            bits = v.astype("<f4").view("<u4").astype(np.uint64)
        odd = patterns(rng, f, n)
        bits = np.where((kind == 0) | ((kind == 1) & one), odd, bits)
        # the product is about 2^emin, 2^emax, c is 0
        exponent = np.uint64(f.p - 1)
        half, top = f.emax // 2, 2 * f.emax
        for k, e in ((2, half - 1), (3, top - half - 1)):
            frac = odd & np.uint64(2 ** (f.p - 1) - 1)
            near = (np.uint64(e) + (odd >> np.uint64(f.width - 2))) << exponent | frac
            bits = np.where((kind == k) & one, near if which < 2 else np.uint64(0), bits)
        if f.width == 32:
            bits = bits | np.uint64(test_fp.BOX)
            bare = (kind == 4) & one & (lane % 3 == which)
            bits = np.where(bare, bits ^ np.uint64(1 << 40), bits)
        out.append(bits)
    fcsr = np.full(n, NX, dtype=np.uint64)
    fcsr = np.where((kind == 5) & one, np.uint64(0), fcsr)
    fcsr = np.where((kind == 6) & one, np.uint64(NX | 1 << 5), fcsr)
    fcsr = np.where((kind == 7), np.uint64(NX | 8), fcsr)
    return [*out, fcsr]


@pytest.mark.parametrize("vec", FAST)
@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", FP_NAMES)
def test_floating_point_in_a_loop(name: str, fmt: str, vec: str) -> None:
    """Results and flags of warps that run on from one operation to the next."""
    data = rows(np.random.default_rng(FP_NAMES.index(name)), test_fp.FMTS[fmt])
    size = ROWS * LANES * 8
    for rm in (0, 7):
        items: list[Item] = [
            csrr(5, "tid"), asm.i("slli", 5, 5, 3), asm.r("add", 5, 5, 10), *li(6, size),
            *li(12, ROWS), asm.r("add", 7, 5, 6), asm.r("add", 8, 7, 6), asm.r("add", 9, 8, 6),
            "loop:", asm.load("ld", 11, 9), asm.csr("csrrw", 0, "fcsr", 11),
            asm.fload("d", 1, 5), asm.fload("d", 2, 7), asm.fload("d", 3, 8),
            asm.fp("fmv_x", "d", 4, 11), test_fp.word(name, fmt, rm),
            asm.fstore("d", 4, 5), csrr(11, "fcsr"), asm.store("sd", 11, 9),
            *(asm.i("addi", r, r, LANES * 8) for r in (5, 7, 8, 9)),
            asm.i("addi", 12, 12, -1), branch("bne", 12, 0, "loop"), EXIT,
        ]  # fmt: skip

        def run(dev: Device, items: list[Item] = items) -> int:
            t = Tables(dev, 1)
            map_code(dev, t, CODE, assemble(items))
            memory = dev.alloc(4 * size // PAGE)
            dev.write(memory, b"".join(v.astype("<u8").tobytes() for v in data))
            for k in range(4 * size // PAGE):
                t.map(DATA + k * PAGE, memory + k * PAGE, FULL | SYS)
            rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=LANES)
            dev.run(lambda: dev.report(rep).complete)
            return rep

        both(vec, run)


@pytest.mark.parametrize("vec", SETS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("before", [256, 248, 240, 136, 128, 120, 64, 16])
def test_rows_at_the_end_of_a_page(before: int, last: bool, vec: str) -> None:
    """Elements side by side of which the first are `before` bytes from the end of a page, and
    perhaps of all that is mapped."""
    items: list[Item] = [
        csrr(5, "tid"), *li(6, PAGE - before), asm.r("add", 6, 6, 10), *li(7, OUT),
        asm.i("slli", 8, 5, 3), asm.r("add", 9, 6, 8), asm.r("add", 7, 7, 8),
        asm.i("slli", 8, 5, 2), asm.r("add", 8, 6, 8), *li(11, 1),
    ]  # fmt: skip
    for k, (kind, addr) in enumerate((("lw", 8), ("lwu", 8), ("ld", 9), ("lbu", 8))):
        items += [asm.load(kind, 12, addr), asm.store("sd", 12, 7, 256 * k),
                  asm.r("add", 11, 11, 12)]  # fmt: skip
    for k, (fmt, addr) in enumerate((("s", 8), ("d", 9))):
        items += [asm.fload(fmt, 1, addr), asm.fstore("d", 1, 7, 1024 + 256 * k)]
    items += [
        asm.store("sd", 11, 9), asm.store("sw", 5, 8), asm.fload("d", 2, 9),
        asm.fstore("d", 1, 9), asm.fstore("s", 2, 8), EXIT,
    ]  # fmt: skip

    def run(dev: Device) -> int:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        frames = [dev.alloc(), dev.alloc(), dev.alloc()]
        for va, frame in zip((DATA, OUT, DATA + PAGE), frames, strict=True):
            dev.write(frame, bytes((va >> 12) * 7 + k * 13 + (k >> 3) & 255 for k in range(PAGE)))
            if va <= DATA or va == OUT or not last:
                t.map(va, frame, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=LANES)
        dev.service(lambda f: t.map(f.addr & -PAGE, frames[2], FULL | SYS),
                    lambda: dev.report(rep).complete)  # fmt: skip
        assert dev.report(rep).status == HW.HG_ERR_NONE
        return rep

    both(vec, run)


@pytest.mark.parametrize("vec", SETS)
@pytest.mark.parametrize("name", sorted(asm.BRANCH))
def test_jumps_in_and_out_of_the_page(name: str, vec: str) -> None:
    """A loop over two pages of code, taken by all lanes until some part: each kind of branch."""
    flip = name in ("beq", "bge", "bgeu")
    items: list[Item] = [
        csrr(5, "tid"), *li(6, 40), asm.i("andi", 7, 5, 8), asm.i("addi", 7, 7, 20), *li(8, 0),
        "outer:", *li(9, 3), "inner:", asm.r("add", 8, 8, 5), asm.i("addi", 9, 9, -1),
        branch("blt", 0, 9, "inner"), *li(9, -3), "signed:", asm.i("addi", 9, 9, 1),
        asm.i("slli", 8, 8, 1), branch("blt", 9, 0, "signed"), *li(9, -3), "unsigned:",
        asm.i("addi", 9, 9, 1), asm.i("xori", 8, 8, 9), branch("bltu", 9, 0, "unsigned"),
        asm.jal(13, "near"), asm.i("xori", 8, 8, 77), "near:", asm.jal(1, "far"),
        *([asm.i("xori", 8, 8, 5)] * 700), "back:", asm.i("addi", 6, 6, -1),
        asm.i("xori", 8, 8, 0x55), asm.r("slt", 11, 6, 7),
        branch(name, *((11, 0) if flip else (0, 11)), "odd"), asm.i("addi", 8, 8, 3), "odd:",
        branch("beq", 6, 0, "out"), asm.jal(0, "outer"), "out:", asm.i("slli", 5, 5, 3),
        asm.r("add", 5, 5, 10), asm.store("sd", 8, 5), asm.store("sd", 1, 5, 256),
        asm.store("sd", 13, 5, 512), EXIT,
        *([asm.i("xori", 8, 8, 5)] * 400), "far:", asm.auipc(12, 1), asm.r("add", 8, 8, 12),
        asm.jal(0, "back"),
    ]  # fmt: skip

    def run(dev: Device) -> int:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        t.map(DATA, dev.alloc(), FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=LANES)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_NONE
        return rep

    both(vec, run)


@pytest.mark.parametrize("vec", ["off", *SETS])
@pytest.mark.parametrize(
    ("mode", "count"),
    [("fill", [0] * 7), ("sampled=100", [0, 0, 1, 1, 1, 1, 2]), ("access", [0, 1, 2, 3, 4, 5, 6])],
)
def test_the_audit_sees_a_warp(vec: str, mode: str, count: list[int]) -> None:
    """A page turns stale after its fill, in the first of seven launches.  All lanes' accesses of
    an instruction are compared once; a sample is one of so many lanes (32 a launch; first 5
    fetches)."""
    code = assemble([csrr(5, "tid"), asm.i("slli", 5, 5, 3), asm.r("add", 5, 5, 10),
                     asm.load("ld", 6, 5), EXIT])  # fmt: skip
    with Device(vec=vec, sms=1, misused=True) as dev:
        t = Tables(dev, test_audit.ASID)
        cpu = test_audit.CpuTable(dev)
        ctx = Ctx(dev, 1, test_audit.ASID)
        for va, data in ((CODE, code), (DATA, b"")):
            page = dev.alloc()
            dev.write(page, data)
            t.map(va, page, FULL | SYS)
            cpu.put(va, 0, page | test_audit.PRESENT | test_audit.RW)
        test_audit.program(dev, cpu.root)
        assert dev.lib.hg_audit_set(dev.dev, mode.encode()) == 0
        seen = []
        for _ in count:
            rep = ctx.launch(CODE, DATA, block=LANES)
            dev.run()
            assert dev.report(rep).status == HW.HG_ERR_NONE
            cpu.put(DATA, 0, 0)
            seen.append(len(test_audit.names(dev)))
        assert seen == count


@pytest.mark.parametrize("vec", ["off", *SETS])
def test_fence_i_in_a_loop(vec: str) -> None:
    """An instruction replaced twenty times, in the page that runs: each fence.i shows the new
    one, wherever slices of the engine end."""
    head = [*li(5, asm.i("addi", 7, 0, 1)), *li(12, 1 << 20), *li(13, 20), *li(11, 0x7FF0_0000)]
    at = CODE + 4 * (len(head) + 2)
    head = head[: len(head) - len(li(11, 0x7FF0_0000))] + li(11, at)
    pad: list[Item] = [FENCE] * (len(li(11, 0x7FF0_0000)) - len(li(11, at)))
    items: list[Item] = [
        *head, *pad, "again:", asm.store("sw", 5, 11), FENCE_I, asm.i("addi", 7, 0, 0),
        asm.r("add", 8, 8, 7), asm.r("add", 5, 5, 12), asm.i("addi", 13, 13, -1),
        branch("bne", 13, 0, "again"), asm.store("sd", 8, 10), EXIT,
    ]  # fmt: skip
    with Device(vec=vec, sms=1) as dev:
        t = Tables(dev, 1)
        code, page = dev.alloc(), dev.alloc()
        dev.write(code, assemble(items))
        t.map(CODE, code, FULL | SYS)
        t.map(DATA, page, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=1)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_NONE
        assert dev.u64(page) == 20 * 21 // 2
