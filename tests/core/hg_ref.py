# SPDX-License-Identifier: GPL-2.0-or-later
"""A plain RV64IMAFD interpreter for one warp, written from the ISA manual and independent of
the device (arithmetic of F and D: hg_fpref): lanes with the lowest pc issue together, in
ascending order.  Memory is a dict of bytes; nothing faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import hg_fpref as fpref

M64 = 2**64 - 1


def s64(v: int) -> int:
    """Signed value of 64 bits."""
    v &= M64
    return v - 2**64 if v >> 63 else v


def s32(v: int) -> int:
    """Signed value of the low 32 bits."""
    v &= 0xFFFFFFFF
    return v - 2**32 if v >> 31 else v


def sext(v: int, bits: int) -> int:
    """Sign extension of ``bits`` bits."""
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def _div(a: int, b: int) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _rem(a: int, b: int) -> int:
    return a if b == 0 else a - b * _div(a, b)


ALU: dict[tuple[int, int], Callable[[int, int], int]] = {
    (0, 0): lambda a, b: a + b,
    (0x20, 0): lambda a, b: a - b,
    (0, 1): lambda a, b: a << (b & 63),
    (0, 2): lambda a, b: int(s64(a) < s64(b)),
    (0, 3): lambda a, b: int(a < b),
    (0, 4): lambda a, b: a ^ b,
    (0, 5): lambda a, b: a >> (b & 63),
    (0x20, 5): lambda a, b: s64(a) >> (b & 63),
    (0, 6): lambda a, b: a | b,
    (0, 7): lambda a, b: a & b,
    (1, 0): lambda a, b: a * b,
    (1, 1): lambda a, b: s64(a) * s64(b) >> 64,
    (1, 2): lambda a, b: s64(a) * b >> 64,
    (1, 3): lambda a, b: a * b >> 64,
    (1, 4): lambda a, b: _div(s64(a), s64(b)),
    (1, 5): lambda a, b: M64 if b == 0 else a // b,
    (1, 6): lambda a, b: _rem(s64(a), s64(b)),
    (1, 7): lambda a, b: a if b == 0 else a % b,
}

ALUW: dict[tuple[int, int], Callable[[int, int], int]] = {
    (0, 0): lambda a, b: a + b,
    (0x20, 0): lambda a, b: a - b,
    (0, 1): lambda a, b: a << (b & 31),
    (0, 5): lambda a, b: (a & 0xFFFFFFFF) >> (b & 31),
    (0x20, 5): lambda a, b: s32(a) >> (b & 31),
    (1, 0): lambda a, b: a * b,
    (1, 4): lambda a, b: _div(s32(a), s32(b)),
    (1, 5): lambda a, b: -1 if b & 0xFFFFFFFF == 0 else (a & 0xFFFFFFFF) // (b & 0xFFFFFFFF),
    (1, 6): lambda a, b: _rem(s32(a), s32(b)),
    (1, 7): lambda a, b: a if b & 0xFFFFFFFF == 0 else (a & 0xFFFFFFFF) % (b & 0xFFFFFFFF),
}

AMO: dict[int, Callable[[int, int, int], int]] = {  # (old, operand, bits)
    0x00: lambda o, v, n: o + v,
    0x01: lambda o, v, n: v,
    0x04: lambda o, v, n: o ^ v,
    0x08: lambda o, v, n: o | v,
    0x0C: lambda o, v, n: o & v,
    0x10: lambda o, v, n: min(sext(o, n), sext(v, n)),
    0x14: lambda o, v, n: max(sext(o, n), sext(v, n)),
    0x18: lambda o, v, n: min(o, v),
    0x1C: lambda o, v, n: max(o, v),
}


@dataclass
class Lane:
    """One hart."""

    pc: int
    x: list[int]
    ids: dict[int, int]
    f: list[int] = field(default_factory=lambda: [0] * 32)
    fcsr: int = 0
    instret: int = 0
    live: bool = True
    waiting: bool = False
    synced: bool = False  # waits for the rest of the warp
    reservation: tuple[int, int, int] | None = None  # address, size, value


@dataclass
class Warp:
    """Lanes over one memory; ``code`` is the words at ``base``."""

    code: list[int]
    base: int
    lanes: list[Lane]
    memory: dict[int, int] = field(default_factory=dict)

    def load(self, addr: int, n: int) -> int:
        """n bytes, little endian."""
        return sum(self.memory.get(addr + k, 0) << 8 * k for k in range(n))

    def store(self, addr: int, n: int, value: int) -> None:
        """n bytes, little endian."""
        for k in range(n):
            self.memory[addr + k] = value >> 8 * k & 0xFF

    def run(self, limit: int = 100_000) -> None:
        """Until all lanes ended; AssertionError after ``limit`` issues."""
        for _ in range(limit):
            ready = [ln for ln in self.lanes if ln.live and not ln.waiting and not ln.synced]
            if not ready:
                if any(ln.synced for ln in self.lanes):
                    assert all(ln.synced for ln in self.lanes if ln.live), "warp never together"
                    for ln in self.lanes:
                        ln.synced = False
                    continue
                waiting = [ln for ln in self.lanes if ln.waiting]
                if not waiting:
                    return
                assert len(waiting) == len(self.lanes), "barrier that cannot complete"
                for ln in waiting:
                    ln.waiting = False
                continue
            low = min(ln.pc for ln in ready)
            group = [n for n, ln in enumerate(self.lanes)
                     if ln.pc == low and ln.live and not ln.waiting and not ln.synced]  # fmt: skip
            w = self.code[(low - self.base) // 4]
            if w & 0x7F == 0x0B and w >> 12 & 7 >= 2:
                self._together(group, w)
                continue
            for n in group:
                self._one(self.lanes[n])
        raise AssertionError("reference does not end")

    def _together(self, group: list[int], w: int) -> None:
        """A shuffle or vote of these lanes."""
        rd, rs1, rs2, f7 = w >> 7 & 31, w >> 15 & 31, w >> 20 & 31, w >> 25
        values = {n: self.lanes[n].x[rs1] for n in group}
        ballot = sum(1 << n for n in group if values[n])
        out = {}
        for n in group:
            by = self.lanes[n].x[rs2]
            if w >> 12 & 7 == 2:
                source = [by % 32, n - by, n + by, n ^ by][f7]
                out[n] = values.get(source, values[n])
            else:
                out[n] = [ballot, int(ballot != 0), int(all(values.values()))][f7]
        for n in group:
            ln = self.lanes[n]
            if rd:
                ln.x[rd] = out[n]
            ln.pc += 4
            ln.instret += 1

    def _one(self, ln: Lane) -> None:
        w = self.code[(ln.pc - self.base) // 4]
        op, rd, f3 = w & 0x7F, w >> 7 & 31, w >> 12 & 7
        rs1, rs2, f7 = w >> 15 & 31, w >> 20 & 31, w >> 25
        a, b = ln.x[rs1], ln.x[rs2]
        imm = sext(w >> 20, 12)
        nxt = ln.pc + 4
        out: int | None = None
        if op == 0x33:
            out = ALU[f7, f3](a, b)
        elif op == 0x3B:
            out = s32(ALUW[f7, f3](a, b))
        elif op == 0x13:
            out = ALU[f7 & 126, f3](a, imm & 63) if f3 in (1, 5) else ALU[0, f3](a, imm & M64)
        elif op == 0x1B:
            out = s32(ALUW[0 if f3 == 0 else f7, f3](a, imm if f3 == 0 else imm & 31))
        elif op == 0x37:
            out = sext(w & 0xFFFFF000, 32)
        elif op == 0x17:
            out = ln.pc + sext(w & 0xFFFFF000, 32)
        elif op == 0x6F:
            off = sext(
                (w >> 31) << 20 | (w >> 12 & 0xFF) << 12 | (w >> 20 & 1) << 11
                | (w >> 21 & 0x3FF) << 1, 21,
            )  # fmt: skip
            out, nxt = nxt, ln.pc + off
        elif op == 0x67:
            out, nxt = nxt, (a + imm) & ~1 & M64
        elif op == 0x63:
            off = sext(
                (w >> 31) << 12 | (w >> 7 & 1) << 11 | (w >> 25 & 0x3F) << 5
                | (w >> 8 & 0xF) << 1, 13,
            )  # fmt: skip
            taken = {
                0: a == b, 1: a != b, 4: s64(a) < s64(b), 5: s64(a) >= s64(b), 6: a < b, 7: a >= b,
            }[f3]  # fmt: skip
            nxt = ln.pc + off if taken else nxt
        elif op == 0x03:
            n = 1 << (f3 & 3)
            v = self.load((a + imm) & M64, n)
            out = v if f3 & 4 else sext(v, 8 * n)
        elif op == 0x23:
            off = sext(f7 << 5 | rd, 12)
            self.store((a + off) & M64, 1 << f3, b)
        elif op == 0x2F:
            out = self._atomic(ln, w, a, b)
        elif op == 0x07:
            n = 1 << (f3 & 3)
            ln.f[rd] = self.load((a + imm) & M64, n) | (0 if n == 8 else 0xFFFFFFFF << 32)
        elif op == 0x27:
            n = 1 << (f3 & 3)
            self.store((a + sext(f7 << 5 | rd, 12)) & M64, n, ln.f[rs2] & (1 << 8 * n) - 1)
        elif op in (0x43, 0x47, 0x4B, 0x4F, 0x53):
            out = fp_insn(ln, w)
        elif op == 0x73 and f3 and w >> 20 in (1, 2, 3):
            out = _fp_csr(ln, w >> 20, f3 & 3, rs1 if f3 & 4 else a)
        elif op == 0x73 and f3:
            out = ln.instret if w >> 20 == 0xC02 else ln.ids[w >> 20]
        elif op == 0x0F:
            pass
        elif w == 0x0B or w == 0x73:
            ln.live = False
        elif w == 0x100B:
            ln.waiting = True
        elif w == 0x0200100B:
            ln.synced = True
        else:
            raise AssertionError(f"reference: unknown word {w:#x}")
        if out is not None and rd:
            ln.x[rd] = out & M64
        ln.pc = nxt
        ln.instret += 1

    def _atomic(self, ln: Lane, w: int, addr: int, value: int) -> int:
        n = 4 if w >> 12 & 7 == 2 else 8
        f5 = w >> 27
        bits = 8 * n
        old = self.load(addr, n)
        if f5 == 2:
            ln.reservation = (addr, n, old)
            return sext(old, bits)
        if f5 == 3:
            held, ln.reservation = ln.reservation, None
            if held == (addr, n, old):
                self.store(addr, n, value)
                return 0
            return 1
        mask = (1 << bits) - 1
        self.store(addr, n, AMO[f5](old, value & mask, bits) & mask)
        return sext(old, bits)


def _fp_csr(ln: Lane, number: int, how: int, arg: int) -> int:
    shift, mask = {1: (0, 0x1F), 2: (5, 7), 3: (0, 0xFF)}[number]
    old = ln.fcsr >> shift & mask
    new = {1: arg, 2: old | arg, 3: old & ~arg}[how] & mask
    ln.fcsr = ln.fcsr & ~(mask << shift) | new << shift
    return old


def fp_insn(ln: Lane, w: int) -> int | None:
    """An F or D operation; what goes to the integer register, if anything."""
    rd, f3, rs1, rs2, f5 = w >> 7 & 31, w >> 12 & 7, w >> 15 & 31, w >> 20 & 31, w >> 27
    fmt = (fpref.S, fpref.D)[w >> 25 & 1]
    other = (fpref.D, fpref.S)[w >> 25 & 1]
    rm = ln.fcsr >> 5 if f3 == 7 else f3
    a, b, c = (fpref.unbox(fmt, ln.f[n]) for n in (rs1, rs2, f5))
    bits = ln.f[rs1]
    to_x = False
    flags = 0
    if w & 0x7F != 0x53:
        minus_product, minus_c = {
            0x43: (False, False), 0x47: (False, True), 0x4B: (True, False), 0x4F: (True, True),
        }[w & 0x7F]  # fmt: skip
        v, flags = fpref.fma(
            fmt, a ^ (fmt.sign if minus_product else 0), b, c ^ (fmt.sign if minus_c else 0), rm
        )
    elif f5 == 0x00:
        v, flags = fpref.add(fmt, a, b, rm)
    elif f5 == 0x01:
        v, flags = fpref.add(fmt, a, b ^ fmt.sign, rm)
    elif f5 == 0x02:
        v, flags = fpref.mul(fmt, a, b, rm)
    elif f5 == 0x03:
        v, flags = fpref.div(fmt, a, b, rm)
    elif f5 == 0x0B:
        v, flags = fpref.sqrt(fmt, a, rm)
    elif f5 == 0x04:
        v, flags = fpref.sgnj(fmt, a, b, f3)
    elif f5 == 0x05:
        v, flags = fpref.minmax(fmt, a, b, f3 == 1)
    elif f5 == 0x08:
        v, flags = fpref.convert(fmt, other, fpref.unbox(other, bits), rm)
    elif f5 == 0x14:
        (v, flags), to_x = fpref.compare(fmt, a, b, f3), True
    elif f5 == 0x18:
        (v, flags), to_x = fpref.to_int(fmt, a, rs2, rm), True
    elif f5 == 0x1A:
        v, flags = fpref.from_int(fmt, ln.x[rs1], rs2, rm)
    elif f5 == 0x1C and f3 == 1:
        v, to_x = fpref.classify(fmt, a), True
    elif f5 == 0x1C:
        v, to_x = bits if fmt is fpref.D else s32(bits), True
    elif f5 == 0x1E:
        v = ln.x[rs1] & (2**fmt.width - 1)
    else:
        raise AssertionError(f"reference: unknown word {w:#x}")
    ln.fcsr |= flags
    if to_x:
        return v
    ln.f[rd] = fpref.box(fmt, v)
    return None


def warp(code: bytes, base: int, threads: int, args: int, ids: dict[int, int]) -> Warp:
    """A warp at the entry of a program; ids are CSR values without lane and tid."""
    words = [int.from_bytes(code[k : k + 4], "little") for k in range(0, len(code), 4)]
    lanes = []
    for n in range(threads):
        x = [0] * 32
        x[10] = args
        lanes.append(Lane(base, x, {**ids, 0xCC0: n, 0xCC4: n}))
    return Warp(words, base, lanes)
