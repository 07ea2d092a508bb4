# SPDX-License-Identifier: GPL-2.0-or-later
"""F and D against exact rational arithmetic (hg_fpref), in every rounding mode and with the
flags, and against numpy where the host rounds to nearest; registers, NaN boxing, CSRs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import product
from math import isqrt

import hg_asm as asm
import hg_fpref as fpref
import numpy as np
import pytest
from hg_asm import EXIT, FENCE, Item, assemble, branch, csrr, li
from hg_lib import FULL, HW, PAGE, SYS, Ctx, Device, Tables, map_code
from hg_ref import Lane, fp_insn
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = 0x1_0000
DATA = 0x40_0000
BOX = 0xFFFFFFFF << 32

FMTS = {"s": fpref.S, "d": fpref.D}
TWO = ["fadd", "fsub", "fmul", "fdiv", "fsgnj", "fsgnjn", "fsgnjx", "fmin", "fmax", "fle", "flt",
       "feq"]  # fmt: skip
ONE = ["fsqrt", "fcvt.w", "fcvt.wu", "fcvt.l", "fcvt.lu", "fcvt_f", "fmv.x", "fclass"]
FROM_INT = ["fcvt_w", "fcvt_wu", "fcvt_l", "fcvt_lu", "fmv_x"]


@dataclass
class Case:
    """Registers f1, f2, f3, x5 and frm before one instruction."""

    a: int = 0
    b: int = 0
    c: int = 0
    x: int = 0
    frm: int = 0


def word(name: str, fmt: str, rm: int = asm.DYN) -> int:
    """The instruction on those registers, results in f4 and x7."""
    if name in asm.FMA:
        return asm.fma(name, fmt, 4, 1, 2, 3, rm)
    to_x = name in ("fle", "flt", "feq", "fmv.x", "fclass") or name.startswith("fcvt.")
    return asm.fp(name, fmt, 7 if to_x else 4, 5 if name in FROM_INT else 1, 2, rm)


def on_device(insn: int, cases: list[Case]) -> list[tuple[int, int, int]]:
    """(f4, x7, fflags) of each case, one a thread."""
    code = assemble([
        csrr(5, "bid"), asm.i("slli", 5, 5, 5), csrr(6, "tid"), asm.r("add", 5, 5, 6),
        asm.i("slli", 5, 5, 6), asm.r("add", 8, 5, 10),
        asm.fload("d", 1, 8, 0), asm.fload("d", 2, 8, 8), asm.fload("d", 3, 8, 16),
        asm.load("ld", 5, 8, 24), asm.load("ld", 6, 8, 32), asm.csr("csrrw", 0, "frm", 6),
        insn,
        asm.fstore("d", 4, 8, 40), asm.store("sd", 7, 8, 48), csrr(9, "fflags"),
        asm.store("sd", 9, 8, 56), EXIT,
    ])  # fmt: skip
    grid = (len(cases) + 31) // 32
    pages = (grid * 32 * 64 + PAGE - 1) // PAGE
    with Device() as dev:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, code)
        buf = dev.alloc(pages)
        for k in range(pages):
            t.map(DATA + k * PAGE, buf + k * PAGE, FULL | SYS)
        dev.write(buf, b"".join(struct.pack("<8Q", c.a, c.b, c.c, c.x, c.frm, 0, 0, 0)
                                for c in cases))  # fmt: skip
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, grid=grid, block=32)
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_NONE, dev.report(rep)
        got = np.frombuffer(dev.read(buf, len(cases) * 64), dtype="<u8").reshape(-1, 8)
    return [(f, x, flags) for f, x, flags in got[:, 5:].tolist()]


def in_reference(insn: int, case: Case) -> tuple[int, int, int]:
    """The same by hg_fpref."""
    ln = Lane(0, [0] * 32, {})
    ln.f[1:4] = case.a, case.b, case.c
    ln.x[5] = case.x
    ln.fcsr = case.frm << 5
    out = fp_insn(ln, insn)
    return ln.f[4], 0 if out is None else out & 2**64 - 1, ln.fcsr & 31


def compare(insn: int, cases: list[Case]) -> None:
    """Device and reference agree on all."""
    for case, got in zip(cases, on_device(insn, cases), strict=True):
        want = in_reference(insn, case)
        assert got == want, (
            f"{insn:#010x} on {[hex(v) for v in (case.a, case.b, case.c, case.x, case.frm)]}: "
            f"{[hex(v) for v in got]}, reference {[hex(v) for v in want]}"
        )


def edges(f: fpref.Fmt) -> list[int]:
    """Bit patterns where something changes, of both signs."""
    one = f.emax << f.p - 1
    ulp = 1 << f.p - 1
    plus = [
        0, 1, 2, 3, ulp - 1, ulp, ulp + 1,  # subnormals, the smallest normal
        one - 2, one - 1, one, one + 1, one + 2, one + ulp // 2, one + ulp, one - ulp,
        one + ulp + ulp // 2, one - ulp * 2, one + ulp * (f.p - 1),
        one + ulp * (f.p - 1) + 1, one - ulp * f.p, one - ulp * f.p + 1,
        one + ulp * 30, one + ulp * 31, one + ulp * 62, one + ulp * 63, one + ulp * 64,
        one + ulp * 31 - 1, one + ulp * 63 - 1, f.inf - 1, f.inf, f.nan, f.inf | 1, f.nan | 5,
    ]  # fmt: skip
    return [v | s for v in plus for s in (0, f.sign)]


INTS = [0, 1, 2, 3, 2**23, 2**24 - 1, 2**24, 2**24 + 1, 2**24 + 2, 2**24 + 3, 2**25 + 2, 2**31 - 1,
        2**31, 2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 3, 2**54 + 2, 2**62,
        2**63 - 1, 2**63 - 512, 2**63, 2**63 + 1, 2**63 + 1024, 2**64 - 1, 2**64 - 1024,
        2**64 - 2, 2**64 - 2**24 - 1, 2**64 - 2**53 - 1]  # fmt: skip


@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", TWO)
def test_two_operands_on_edges(name: str, fmt: str) -> None:
    f = FMTS[fmt]
    modes = range(5) if name in TWO[:4] else [0]
    values = [fpref.box(f, v) for v in edges(f)]
    compare(word(name, fmt, asm.DYN), [
        Case(a, b, frm=frm) for a, b, frm in product(values, values, modes)
    ])  # fmt: skip


@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", ONE)
def test_one_operand_on_edges(name: str, fmt: str) -> None:
    source = FMTS["ds"["sd".index(fmt)]] if name == "fcvt_f" else FMTS[fmt]
    values = [fpref.box(source, v) for v in edges(source)]
    near = [v + k for v in values for k in range(-3, 4)]
    halves = [n + k / 4 for n in (0, 1, 2, 3, 2**31, 2**32, 2**31 - 1) for k in range(8)]
    for x in halves:
        for y in (x, -x):
            if fmt == "s" and name != "fcvt_f":
                near.append(struct.unpack("<I", struct.pack("<f", y))[0] | BOX)
            elif fmt == "d" and name != "fcvt_f":
                near.append(struct.unpack("<Q", struct.pack("<d", y))[0])
    compare(word(name, fmt), [
        Case(a & 2**64 - 1, frm=frm) for a, frm in product(near, range(5))
    ])  # fmt: skip


@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", FROM_INT)
def test_integers_on_edges(name: str, fmt: str) -> None:
    compare(word(name, fmt), [
        Case(x=x, frm=frm) for x, frm in product(INTS, range(5))
    ])  # fmt: skip


@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", sorted(asm.FMA))
def test_fused_on_edges(name: str, fmt: str) -> None:
    f = FMTS[fmt]
    one, ulp = f.emax << f.p - 1, 1 << f.p - 1
    some = [v | s for v in (0, 1, ulp, one, one + 1, one - ulp * f.p, f.inf - 1, f.inf, f.nan,
                            f.inf | 1) for s in (0, f.sign)]  # fmt: skip
    cases = [Case(fpref.box(f, a), fpref.box(f, b), fpref.box(f, c), frm=n % 5)
             for n, (a, b, c) in enumerate(product(some, some, some))]  # fmt: skip
    compare(word(name, fmt), cases)


def bits_of(f: fpref.Fmt) -> st.SearchStrategy[int]:
    """Bit patterns, interesting ones first: edges and their neighbours, short fractions (so
    that ties occur), any exponent, anything; now and then not boxed."""
    short = st.builds(
        lambda sign, e, top, n: sign << f.width - 1 | e << f.p - 1 | (top << f.p - 1 - n),
        st.integers(0, 1), st.integers(0, 2 * f.emax), st.integers(0, 15), st.just(4),
    )  # fmt: skip
    near = st.builds(lambda v, k: (v + k) % 2**f.width, st.sampled_from(edges(f)),
                     st.integers(-4, 4))  # fmt: skip
    around_one = st.builds(
        lambda sign, e, frac: sign << f.width - 1 | (f.emax + e) << f.p - 1 | frac,
        st.integers(0, 1), st.integers(-4, 4), st.integers(0, 2 ** (f.p - 1) - 1),
    )  # fmt: skip
    low = st.builds(
        lambda sign, e, frac: sign << f.width - 1 | e << f.p - 1 | frac,
        st.integers(0, 1), st.integers(0, f.p), st.integers(0, 2 ** (f.p - 1) - 1),
    )  # fmt: skip
    value = st.one_of(near, short, around_one, low, st.integers(0, 2**f.width - 1))
    boxed = value.map(lambda v: fpref.box(f, v))
    return st.one_of(boxed, boxed, boxed, boxed, st.integers(0, 2**64 - 1))


@st.composite
def operations(draw: st.DrawFn) -> tuple[int, list[Case]]:
    """An instruction and cases for it."""
    fmt = draw(st.sampled_from(["s", "d"]))
    name = draw(st.sampled_from([*TWO, *ONE, *FROM_INT, *sorted(asm.FMA) * 3, *TWO[:4] * 2]))
    source = FMTS["sd"["ds".index(fmt)]] if name == "fcvt_f" else FMTS[fmt]
    v = bits_of(source)
    n = draw(st.integers(1, 40))
    cases = []
    for _ in range(n):
        c = Case(draw(v), draw(v), draw(v), frm=draw(st.integers(0, 4)))
        if name in FROM_INT:
            c.x = draw(st.one_of(st.sampled_from(INTS), st.integers(0, 2**64 - 1)))
        cases.append(c)
    if name in asm.FMA and draw(st.booleans()):
        # the third cancels most of the product
        f = FMTS[fmt]
        for c in cases:
            p, _ = fpref.mul(f, fpref.unbox(f, c.a), fpref.unbox(f, c.b), c.frm)
            c.c = fpref.box(f, (p + draw(st.integers(-2, 2))) % 2**f.width ^ f.sign)
    return word(name, fmt, draw(st.sampled_from([0, 1, 2, 3, 4, 7, 7, 7]))), cases


@given(case=operations())
@settings(max_examples=300)
def test_operations(case: tuple[int, list[Case]]) -> None:
    compare(*case)


@pytest.mark.parametrize("fmt", ["s", "d"])
def test_tininess_is_detected_after_rounding(fmt: str) -> None:
    """A product that is below the smallest normal number and rounds to it: no underflow if
    it does so with full precision, too; else (one place lower) underflow."""
    f = FMTS[fmt]
    one, least = f.emax << f.p - 1, 1 << f.p - 1
    # 1 - 2^(2 - 2p) and 1 - 2^-p (a tie) of the smallest normal number
    pairs = [(least + 1, one - 2), (least, one - 1)]
    cases = [Case(fpref.box(f, a), fpref.box(f, b)) for a, b in pairs]
    got = on_device(word("fmul", fmt, fpref.RNE), cases)
    assert [g[0] for g in got] == [fpref.box(f, least)] * 2
    assert [g[2] for g in got] == [fpref.NX, fpref.NX | fpref.UF]
    compare(word("fmul", fmt, fpref.RNE), cases)


def test_roots_that_are_almost_exact() -> None:
    """Irrational roots whose first 64 bits end in 11 zeros: only the remainder says that they
    lie above a binary64 (or above the middle of two: 10 zeros after a one)."""
    rng = np.random.default_rng(3)
    found = []
    for v in rng.integers(0, 2**53, 60_000, dtype=np.uint64).tolist():
        scale = 74 + (v >> 52)  # both parities of the exponent
        x = (v & 2**52 - 1 | 2**52) << scale
        root = isqrt(x)
        if root & 0x3FF == 0 and root * root != x:
            found.append((1023 + 52 + scale) << 52 | v & 2**52 - 1)
    assert len(found) > 20
    compare(word("fsqrt", "d"), [Case(v, frm=frm) for v in found for frm in range(5)])


NUMPY = {
    "fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide,
    "fsqrt": np.sqrt,
}  # fmt: skip


@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("name", sorted(NUMPY))
def test_against_the_host(name: str, fmt: str) -> None:
    """Round to nearest, as numpy has it from the host: many random patterns."""
    f = FMTS[fmt]
    n = 30_000
    rng = np.random.default_rng(len(name) * 7 + f.p)
    kind = "<u4" if fmt == "s" else "<u8"
    a = rng.integers(0, 2**f.width, n, dtype=np.uint64)
    b = rng.integers(0, 2**f.width, n, dtype=np.uint64)
    # half of them with exponents near each other
    near = (a & np.uint64(f.inf)) | (b & np.uint64(2 ** (f.p - 1) - 1))
    off = rng.integers(0, 4, n // 2, dtype=np.uint64) << np.uint64(f.p - 1)
    b[: n // 2] = near[: n // 2] ^ off
    x, y = (v.astype(kind).view("<f4" if fmt == "s" else "<f8") for v in (a, b))
    with np.errstate(all="ignore"):
        r = NUMPY[name](x) if name == "fsqrt" else NUMPY[name](x, y)
    want = r.view(kind).astype(np.uint64)
    want[np.isnan(r)] = f.nan
    boxed = [fpref.box(f, int(v)) for v in want]
    cases = [Case(fpref.box(f, int(v)), fpref.box(f, int(u))) for v, u in zip(a, b, strict=True)]
    got = [v for v, _, _ in on_device(word(name, fmt, fpref.RNE), cases)]
    assert got == boxed


def run(items: list[Item], *, block: int = 1, data: bytes = b"", pages: int = 1) -> tuple[
    int, int, int, list[int]
]:  # fmt: skip
    """(status, addr, pc offset, words of the data page) of a launch."""
    with Device() as dev:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble([*items, EXIT]))
        buf = dev.alloc(pages)
        for k in range(pages):
            t.map(DATA + k * PAGE, buf + k * PAGE, FULL | SYS)
        dev.write(buf, data)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=block)
        dev.run(lambda: dev.report(rep).complete)
        r = dev.report(rep)
        words = np.frombuffer(dev.read(buf, pages * PAGE), dtype="<u8").tolist()
    return r.status, r.addr, r.pc - CODE if r.pc else 0, words


def test_a_binary32_is_boxed() -> None:
    """Loads, moves and results box; stores and moves to x take the low half of anything."""
    one = 0x3F800000
    status, _, _, words = run([
        asm.fload("s", 1, 10, 0), asm.fstore("d", 1, 10, 64),
        asm.load("ld", 5, 10, 0), asm.fp("fmv_x", "s", 2, 5), asm.fstore("d", 2, 10, 72),
        asm.fp("fadd", "s", 3, 1, 1), asm.fstore("d", 3, 10, 80),
        asm.fload("d", 4, 10, 8), asm.fstore("s", 4, 10, 88), asm.fp("fmv.x", "s", 6, 4),
        asm.store("sd", 6, 10, 96),
        asm.fp("fadd", "s", 5, 4, 1), asm.fstore("d", 5, 10, 104),
        asm.fp("fsgnj", "s", 6, 4, 4), asm.fstore("d", 6, 10, 112),
        asm.fp("fclass", "s", 7, 4), asm.store("sd", 7, 10, 120),
        asm.fp("fmv.x", "d", 7, 4), asm.store("sd", 7, 10, 128), csrr(7, "fflags"),
        asm.store("sd", 7, 10, 136),
    ], data=struct.pack("<QQ", 0x1234_0000_0000 | one, 0xFFFF_FFFE_8000_0001))  # fmt: skip
    assert status == 0
    assert words[8:18] == [
        BOX | one, BOX | one, BOX | 0x40000000, 0x80000001, 0xFFFF_FFFF_8000_0001,
        BOX | 0x7FC00000, BOX | 0x7FC00000, 1 << 9, 0xFFFF_FFFE_8000_0001, 0,
    ]  # fmt: skip


def test_f0_is_a_register_and_x0_is_not() -> None:
    status, _, _, words = run([
        *li(5, 7), asm.fp("fcvt_l", "d", 0, 5), asm.fp("fcvt.l", "d", 6, 0),
        asm.fp("fcvt.l", "d", 0, 0), asm.fp("feq", "d", 0, 0, 0), asm.fp("fclass", "d", 0, 0),
        asm.fp("fmv.x", "d", 0, 0), asm.store("sd", 6, 10), asm.store("sd", 0, 10, 8),
    ], data=b"\xff" * 16)  # fmt: skip
    assert (status, words[0], words[1]) == (0, 7, 0)


def test_each_lane_has_its_rounding_mode_and_flags() -> None:
    """1/3 and 2/2 in one instruction: other modes, other flags; and the CSRs' fields."""
    items: list[Item] = [
        csrr(5, "tid"), asm.i("slli", 6, 5, 5), asm.r("add", 6, 6, 10),
        asm.csr("csrrw", 0, "frm", 5),
        asm.fp("fcvt_l", "d", 1, 0), *li(7, 1), asm.fp("fcvt_l", "d", 1, 7), *li(7, 3),
        asm.fp("fcvt_l", "d", 2, 7), asm.i("andi", 8, 5, 1), branch("beq", 8, 0, "third"),
        asm.fp("fdiv", "d", 3, 2, 2), asm.jal(0, "out"), "third:", asm.fp("fdiv", "d", 3, 1, 2),
        "out:", asm.fstore("d", 3, 6), csrr(9, "fcsr"), asm.store("sd", 9, 6, 8),
        asm.csr("csrrci", 9, "fcsr", 1), csrr(9, "fcsr"), asm.store("sd", 9, 6, 16),
        asm.csr("csrrwi", 9, "fflags", 31), csrr(9, "fcsr"), asm.store("sd", 9, 6, 24),
    ]  # fmt: skip
    status, _, _, words = run(items, block=5)
    assert status == 0
    third, one = 0x3FD5555555555555, 0x3FF0000000000000
    want = []
    for frm in range(5):
        first = [one, third + (frm == fpref.RUP)][frm % 2 == 0]
        nx = 1 if frm % 2 == 0 else 0
        want += [first, frm << 5 | nx, frm << 5, frm << 5 | 31]
    assert words[:20] == want


def frm(value: int) -> list[Item]:
    return [*li(5, value), asm.csr("csrrw", 0, "frm", 5)]


@pytest.mark.parametrize("bad", [5, 6, 7])
def test_a_reserved_rounding_mode_traps_when_used(bad: int) -> None:
    """Static in any such instruction (7 is dynamic); dynamic once something rounds by it, also
    where nothing can be rounded.  What has no rounding mode does not mind."""
    rounding = [asm.fp(n, "d", 1, 1, 0) for n in (*TWO[:4], "fsqrt", "fcvt_w", "fcvt.l", "fcvt_f")]
    rounding.append(asm.fma("fmadd", "s", 1, 1, 1, 1))
    for insn in rounding:
        status, addr, pc, _ = run([*frm(bad), FENCE, insn])
        assert (status, addr) == (HW.HG_ERR_ILLEGAL, insn)
        assert pc == 4 * (len(frm(bad)) + 1)
        if bad != 7:
            static = insn & ~(7 << 12) | bad << 12
            status, addr, _, _ = run([static])
            assert (status, addr) == (HW.HG_ERR_ILLEGAL, static)
        assert run([*frm(bad), insn & ~(7 << 12) | 1 << 12])[0] == HW.HG_ERR_NONE
    for name in ("fsgnj", "fmin", "feq", "fclass", "fmv.x", "fmv_x"):
        assert run([*frm(bad), asm.fp(name, "d", 1, 1, 0)])[0] == HW.HG_ERR_NONE


@pytest.mark.parametrize(
    "insn",
    [
        asm.fp("fadd", "d", 1, 1, 1) | 2 << 25,  # half precision
        asm.fp("fadd", "d", 1, 1, 1) | 3 << 25,  # quad
        asm.fma("fmadd", "d", 1, 1, 1, 1) | 2 << 25,
        asm.fp("fsqrt", "d", 1, 1) | 1 << 20,
        asm.fp("fcvt_f", "d", 1, 1) | 1 << 20,  # to itself
        asm.fp("fcvt.w", "d", 1, 1) | 4 << 20,
        asm.fp("fcvt_w", "s", 1, 1) | 4 << 20,
        asm.fp("fsgnj", "s", 1, 1, 1) | 3 << 12,
        asm.fp("fmin", "s", 1, 1, 1) | 2 << 12,
        asm.fp("feq", "s", 1, 1, 1) | 3 << 12,
        asm.fp("fclass", "s", 1, 1) | 2 << 12,
        asm.fp("fclass", "s", 1, 1) | 1 << 20,
        asm.fp("fmv_x", "d", 1, 1) | 1 << 12,
        asm.fload("s", 1, 10) & ~(7 << 12) | 1 << 12,  # flh
        asm.fload("d", 1, 10) & ~(7 << 12) | 4 << 12,  # flq
        asm.fstore("d", 1, 10) & ~(7 << 12),
        0x10000053 | 0x3E << 25,
    ],
)
def test_reserved_encodings(insn: int) -> None:
    status, addr, _, _ = run([insn])
    assert (status, addr) == (HW.HG_ERR_ILLEGAL, insn)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("fmt", ["s", "d"])
@pytest.mark.parametrize("order", [0, 1])
def test_memory_faults_and_runs_again(fmt: str, write: bool, order: int) -> None:
    """A warp's FP loads or stores, some over a page boundary: each page is reported, nothing of
    a lane's access is done before both are there, and the rest of the warp is not redone."""
    size = 4 if fmt == "s" else 8
    at = PAGE - 3 * size - size // 2  # lane 3's is over the boundary
    items: list[Item] = [
        csrr(5, "tid"), *li(6, size), asm.r("mul", 6, 5, 6), *li(7, at), asm.r("add", 6, 6, 7),
        asm.r("add", 6, 6, 10), asm.i("addi", 5, 5, 1), asm.fp("fcvt_l", fmt, 1, 5, rm=0),
        asm.fstore(fmt, 1, 6) if write else asm.fload(fmt, 2, 6),
        csrr(5, "tid"), asm.i("slli", 5, 5, 3), *li(7, DATA + 2 * PAGE), asm.r("add", 5, 5, 7),
        asm.fstore("d", 2, 5), EXIT,
    ]  # fmt: skip
    n = 8
    pattern = bytes(k * 37 % 251 for k in range(n * size))
    with Device() as dev:
        dev.enable_faults()
        t = Tables(dev, 1)
        map_code(dev, t, CODE, assemble(items))
        buf = dev.alloc(2)
        out = dev.alloc()
        t.map(DATA + 2 * PAGE, out, FULL | SYS)
        if not write:
            dev.write(buf + at, pattern)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=n)
        dev.run()
        faults = dev.take_faults()
        assert sorted(f.addr for f in faults) == [DATA, DATA + PAGE]
        assert {f.access for f in faults} == {HW.HG_ACCESS_WRITE if write else HW.HG_ACCESS_READ}
        t.map(DATA + order * PAGE, buf + order * PAGE, FULL | SYS)
        dev.replay()
        dev.run()
        assert [f.addr for f in dev.take_faults()] == [DATA + (1 - order) * PAGE]
        if write:
            half = dev.read(buf + at + 3 * size, size)
            assert half == bytes(size)  # lane 3 waits for both
        stores = dev.counter("stores")
        assert stores == (3 if order == 0 else 4) * write
        t.map(DATA + (1 - order) * PAGE, buf + (1 - order) * PAGE, FULL | SYS)
        dev.replay()
        dev.run(lambda: dev.report(rep).complete)
        assert dev.report(rep).status == HW.HG_ERR_NONE
        assert dev.counter("stores") == n * (2 if write else 1)
        kind = "f" if fmt == "s" else "d"
        if write:
            assert dev.read(buf + at, n * size) == struct.pack(f"<{n}{kind}", *range(1, n + 1))
        else:
            got = np.frombuffer(dev.read(out, n * 8), dtype="<u8").tolist()
            ints = np.frombuffer(pattern, dtype=f"<u{size}").tolist()
            assert got == [v | (BOX if fmt == "s" else 0) for v in ints]


def test_state_of_a_lane_survives() -> None:
    """Saved and loaded elsewhere between the computation and its use: f registers, rounding
    mode and flags are there."""
    code = assemble([
        csrr(5, "tid"), asm.i("slli", 6, 5, 6), asm.r("add", 6, 6, 10),
        asm.i("addi", 7, 5, 1), asm.fp("fcvt_l", "d", 31, 7), asm.fp("fcvt_l", "s", 1, 7),
        *li(7, 3), asm.fp("fcvt_l", "d", 2, 7),
        asm.csr("csrrwi", 0, "frm", fpref.RUP), asm.csr("csrrwi", 0, "fflags", fpref.DZ),
        asm.amo("amoadd", "d", 7, 5, 6),
        *li(7, 50), "l:", asm.i("addi", 7, 7, -1), branch("bne", 7, 0, "l"),
        asm.fp("fdiv", "d", 3, 31, 2), asm.fstore("d", 3, 6, 8), asm.fstore("d", 1, 6, 16),
        csrr(7, "fcsr"), asm.store("sd", 7, 6, 24), EXIT,
    ])  # fmt: skip
    n = 32
    with Device() as dev, Device() as other:
        t = Tables(dev, 1)
        map_code(dev, t, CODE, code)
        page = dev.alloc()
        t.map(DATA, page, FULL | SYS)
        rep = Ctx(dev, 1, 1).launch(CODE, DATA, block=n)
        while dev.counter("atomics") == 0:
            dev.step(1)
        other.ram[:] = dev.ram
        other.load(dev.save())
        other.run(lambda: bool(other.report(rep).complete))
        assert other.report(rep).status == HW.HG_ERR_NONE
        got = np.frombuffer(other.read(page, n * 64), dtype="<u8").reshape(-1, 8).tolist()
    for k, row in enumerate(got):
        a, _ = fpref.from_int(fpref.D, k + 1, 2, fpref.RNE)
        b, _ = fpref.from_int(fpref.D, 3, 2, fpref.RNE)
        q, flags = fpref.div(fpref.D, a, b, fpref.RUP)
        single, _ = fpref.from_int(fpref.S, k + 1, 2, fpref.RNE)
        assert row[1:4] == [q, single | BOX, fpref.RUP << 5 | fpref.DZ | flags]
