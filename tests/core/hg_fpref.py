# SPDX-License-Identifier: GPL-2.0-or-later
"""IEEE 754 binary32 and binary64 as the RISC-V F and D extensions want them, on exact rational
numbers: each result is a Fraction that is rounded once.  Written from the RISC-V unprivileged
specification and IEEE 754-2008, independent of the device's integer code.

Values are bit patterns; results come with their flags."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

NX, UF, OF, DZ, NV = 1, 2, 4, 8, 16
RNE, RTZ, RDN, RUP, RMM = range(5)


@dataclass(frozen=True)
class Fmt:
    """A binary interchange format of p bits of precision."""

    width: int
    p: int
    emax: int

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << self.width - 1

    @property
    def inf(self) -> int:
        """Positive infinity."""
        return (2 * self.emax + 1) << self.p - 1

    @property
    def nan(self) -> int:
        """The canonical NaN."""
        return self.inf | 1 << self.p - 2

    def is_nan(self, v: int) -> bool:
        """Any NaN."""
        return v & ~self.sign > self.inf

    def is_snan(self, v: int) -> bool:
        """A signaling NaN."""
        return self.is_nan(v) and not v >> self.p - 2 & 1

    def is_inf(self, v: int) -> bool:
        """Either infinity."""
        return v & ~self.sign == self.inf

    def neg(self, v: int) -> bool:
        """Sign bit set?"""
        return bool(v & self.sign)

    def value(self, v: int) -> Fraction:
        """The number; not for infinities and NaNs."""
        e = v >> self.p - 1 & 2 * self.emax + 1
        frac = v & (1 << self.p - 1) - 1
        if e:
            frac |= 1 << self.p - 1
        x = Fraction(frac) * Fraction(2) ** (max(e, 1) - self.emax - self.p + 1)
        return -x if self.neg(v) else x


S = Fmt(32, 24, 127)
D = Fmt(64, 53, 1023)


def _integer(x: Fraction, neg: bool, rm: int) -> tuple[int, bool]:
    """x >= 0 to an integer, as the magnitude of a number of this sign; was it inexact?"""
    q, rest = divmod(x.numerator, x.denominator)
    twice = 2 * rest - x.denominator
    up = {
        RNE: twice > 0 or (twice == 0 and q & 1 == 1),
        RTZ: False,
        RDN: neg and rest > 0,
        RUP: not neg and rest > 0,
        RMM: twice >= 0,
    }[rm]
    return q + up, rest > 0


def _floor_log2(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def round_to(f: Fmt, x: Fraction, rm: int, zero_neg: bool = False) -> tuple[int, int]:
    """x in format f, with flags; ``zero_neg``: the sign if x is 0."""
    if x == 0:
        return (f.sign if zero_neg else 0), 0
    neg, x = x < 0, abs(x)
    sign = f.sign if neg else 0
    emin = 1 - f.emax
    e = _floor_log2(x)
    # as if the exponent had no limits: is it tiny?
    unbounded, _ = _integer(x / Fraction(2) ** (e - f.p + 1), neg, rm)
    tiny = unbounded * Fraction(2) ** (e - f.p + 1) < Fraction(2) ** emin
    ulp = Fraction(2) ** (max(e, emin) - f.p + 1)
    n, inexact = _integer(x / ulp, neg, rm)
    y = n * ulp
    if y >= Fraction(2) ** (f.emax + 1):
        to_inf = rm in (RNE, RMM) or (rm == RDN and neg) or (rm == RUP and not neg)
        return sign | (f.inf if to_inf else f.inf - 1), OF | NX
    flags = NX | (UF if tiny else 0) if inexact else 0
    if y < Fraction(2) ** emin:
        return sign | n, flags
    e = _floor_log2(y)
    frac = y / Fraction(2) ** (e - f.p + 1)
    assert frac.denominator == 1
    return sign | (e + f.emax) << f.p - 1 | (frac.numerator & (1 << f.p - 1) - 1), flags


def _nan(f: Fmt, *v: int) -> tuple[int, int]:
    return f.nan, NV if any(f.is_snan(x) for x in v) else 0


def fma(f: Fmt, a: int, b: int, c: int, rm: int) -> tuple[int, int]:
    """a * b + c."""
    neg = f.neg(a) != f.neg(b)
    zero_times_inf = (f.is_inf(a) and b & ~f.sign == 0) or (f.is_inf(b) and a & ~f.sign == 0)
    if zero_times_inf:
        return f.nan, NV
    if any(map(f.is_nan, (a, b, c))):
        return _nan(f, a, b, c)
    if f.is_inf(a) or f.is_inf(b):
        if f.is_inf(c) and f.neg(c) != neg:
            return f.nan, NV
        return f.inf | (f.sign if neg else 0), 0
    if f.is_inf(c):
        return c, 0
    x = f.value(a) * f.value(b)
    total = x + f.value(c)
    both = neg == f.neg(c)  # zeros (or a sum of zero) of one sign keep it
    return round_to(f, total, rm, neg if x == 0 == f.value(c) and both else rm == RDN)


def add(f: Fmt, a: int, b: int, rm: int) -> tuple[int, int]:
    """a + b."""
    if f.is_nan(a) or f.is_nan(b):
        return _nan(f, a, b)
    if f.is_inf(a) or f.is_inf(b):
        if f.is_inf(a) and f.is_inf(b) and a != b:
            return f.nan, NV
        return (a if f.is_inf(a) else b), 0
    x, y = f.value(a), f.value(b)
    neg = f.neg(a) if x == y == 0 and f.neg(a) == f.neg(b) else rm == RDN
    return round_to(f, x + y, rm, neg)


def mul(f: Fmt, a: int, b: int, rm: int) -> tuple[int, int]:
    """a * b."""
    if f.is_nan(a) or f.is_nan(b):
        return _nan(f, a, b)
    neg = f.neg(a) != f.neg(b)
    if f.is_inf(a) or f.is_inf(b):
        if a & ~f.sign == 0 or b & ~f.sign == 0:
            return f.nan, NV
        return f.inf | (f.sign if neg else 0), 0
    return round_to(f, f.value(a) * f.value(b), rm, neg)


def div(f: Fmt, a: int, b: int, rm: int) -> tuple[int, int]:
    """a / b."""
    if f.is_nan(a) or f.is_nan(b):
        return _nan(f, a, b)
    sign = (a ^ b) & f.sign
    if f.is_inf(a):
        return (f.nan, NV) if f.is_inf(b) else (sign | f.inf, 0)
    if f.is_inf(b):
        return sign, 0
    if f.value(b) == 0:
        return (f.nan, NV) if f.value(a) == 0 else (sign | f.inf, DZ)
    return round_to(f, f.value(a) / f.value(b), rm, bool(sign))


def sqrt(f: Fmt, a: int, rm: int) -> tuple[int, int]:
    """Square root.  An irrational one is replaced by a number between the same two of far
    more bits than any format has: both round alike."""
    if f.is_nan(a):
        return _nan(f, a)
    if a & ~f.sign == 0 or a == f.inf:
        return a, 0
    if f.neg(a):
        return f.nan, NV
    x = f.value(a)
    k = 700
    scaled = x * Fraction(4) ** k
    assert scaled.denominator == 1
    root = isqrt(scaled.numerator)
    y = Fraction(root) if root * root == scaled.numerator else root + Fraction(1, 2)
    return round_to(f, y / Fraction(2) ** k, rm)


def sgnj(f: Fmt, a: int, b: int, how: int) -> tuple[int, int]:
    """FSGNJ, FSGNJN, FSGNJX by funct3."""
    bit = [b, ~b, a ^ b][how] & f.sign
    return a & ~f.sign | bit, 0


def _order(f: Fmt, v: int) -> tuple[Fraction | float, int]:
    """Sorts numbers; -0 before 0."""
    x = (float("-inf") if f.neg(v) else float("inf")) if f.is_inf(v) else f.value(v)
    return x, 0 if f.neg(v) else 1


def minmax(f: Fmt, a: int, b: int, maximum: bool) -> tuple[int, int]:
    """minimumNumber or maximumNumber."""
    flags = NV if f.is_snan(a) or f.is_snan(b) else 0
    numbers = [v for v in (a, b) if not f.is_nan(v)]
    if not numbers:
        return f.nan, flags
    pick = max if maximum else min
    return pick(numbers, key=lambda v: _order(f, v)), flags


def compare(f: Fmt, a: int, b: int, how: int) -> tuple[int, int]:
    """FLE (0), FLT (1), FEQ (2)."""
    if f.is_nan(a) or f.is_nan(b):
        loud = how != 2 or f.is_snan(a) or f.is_snan(b)
        return 0, NV if loud else 0
    x, y = _order(f, a)[0], _order(f, b)[0]
    return int([x <= y, x < y, x == y][how]), 0


def classify(f: Fmt, a: int) -> int:
    """FCLASS."""
    if f.is_nan(a):
        return 1 << (8 if f.is_snan(a) else 9)
    mag = a & ~f.sign
    if mag == f.inf:
        n = 7
    elif mag == 0:
        n = 4
    else:
        n = 6 if mag >= 1 << f.p - 1 else 5
    return 1 << (7 - n if f.neg(a) else n)


def convert(to: Fmt, of: Fmt, a: int, rm: int) -> tuple[int, int]:
    """Between formats."""
    if of.is_nan(a):
        return to.nan, NV if of.is_snan(a) else 0
    if of.is_inf(a):
        return to.inf | (to.sign if of.neg(a) else 0), 0
    return round_to(to, of.value(a), rm, of.neg(a))


def to_int(f: Fmt, a: int, kind: int, rm: int) -> tuple[int, int]:
    """FCVT.W, WU, L, LU (kind 0..3); the register's 64 bits."""
    bits, signed = (32, 32, 64, 64)[kind], kind in (0, 2)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    flags = NV
    if f.is_nan(a):
        v = high
    elif f.is_inf(a):
        v = low if f.neg(a) else high
    else:
        x = f.value(a)
        n, inexact = _integer(abs(x), x < 0, rm)
        n = -n if x < 0 else n
        v = min(max(n, low), high)
        if v == n:
            flags = NX if inexact else 0
    if bits == 32:  # also the unsigned one is sign-extended
        v &= 0xFFFFFFFF
        v -= (v >> 31) << 32
    return v & 2**64 - 1, flags


def from_int(f: Fmt, v: int, kind: int, rm: int) -> tuple[int, int]:
    """FCVT from W, WU, L, LU (kind 0..3) in a register."""
    bits, signed = (32, 32, 64, 64)[kind], kind in (0, 2)
    v &= 2**bits - 1
    if signed and v >> bits - 1:
        v -= 2**bits
    return round_to(f, Fraction(v), rm)


def unbox(f: Fmt, v: int) -> int:
    """Operand in a register: a binary32 that is not boxed is the canonical NaN."""
    if f is S:
        return v & 0xFFFFFFFF if v >> 32 == 0xFFFFFFFF else f.nan
    return v


def box(f: Fmt, v: int) -> int:
    """Into a register."""
    return v | 0xFFFFFFFF << 32 if f is S else v
