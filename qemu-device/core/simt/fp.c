/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each operation unpacks its operands, makes the exact result or one that
 * lies on the same side of every number it could be rounded to ("jammed": the
 * lowest bit also stands for all bits below it), and rounds it once, in
 * round_pack(), the only place that knows of rounding modes and formats'
 * limits.
 *
 * Why jamming is right: a jammed value is odd exactly if bits were lost, and
 * the true value lies strictly between the same two even integers.  What can
 * be a result or the middle between two is an even integer as long as at
 * least two more bits than those kept are there.
 */
#include "simt/fp.h"

typedef unsigned __int128 u128;

enum Kind { ZERO, FINITE, INFINITE, QUIET, SIGNALING };

/* FINITE: sig has bit 63 set and weighs sig * 2^(exp - 63). */
typedef struct Num {
    enum Kind kind;
    bool neg;
    int exp;
    uint64_t sig;
} Num;

static inline unsigned frac_bits(HgFpFmt f)
{
    return f == HG_FP_D ? 52 : 23;
}

/* The largest exponent, which is also the bias; the smallest is 1 - it. */
static inline int max_exp(HgFpFmt f)
{
    return f == HG_FP_D ? 1023 : 127;
}

static inline uint64_t sign_bit(HgFpFmt f)
{
    return (uint64_t)1 << (f == HG_FP_D ? 63 : 31);
}

static inline uint64_t infinity(HgFpFmt f, bool neg)
{
    return (uint64_t)(2 * max_exp(f) + 1) << frac_bits(f) | (neg ? sign_bit(f) : 0);
}

static inline uint64_t zero(HgFpFmt f, bool neg)
{
    return neg ? sign_bit(f) : 0;
}

uint64_t hg_fp_nan(HgFpFmt f)
{
    return infinity(f, false) | (uint64_t)1 << (frac_bits(f) - 1);
}

static uint64_t invalid(HgFpFmt f, uint8_t *flags)
{
    *flags |= HG_FF_NV;
    return hg_fp_nan(f);
}

static Num unpack(HgFpFmt f, uint64_t v)
{
    unsigned fb = frac_bits(f);
    uint64_t frac = v & (((uint64_t)1 << fb) - 1);
    int e = (v >> fb) & (2 * max_exp(f) + 1);
    Num n = { .neg = (v & sign_bit(f)) != 0 };

    if (e == 2 * max_exp(f) + 1) {
        n.kind = !frac ? INFINITE : frac >> (fb - 1) ? QUIET : SIGNALING;
    } else if (e) {
        n.kind = FINITE;
        n.exp = e - max_exp(f);
        n.sig = ((uint64_t)1 << fb | frac) << (63 - fb);
    } else if (frac) {
        unsigned up = __builtin_clzll(frac);
        n.kind = FINITE;
        n.exp = 1 - max_exp(f) - (int)fb + 63 - (int)up;
        n.sig = frac << up;
    } else {
        n.kind = ZERO;
    }
    return n;
}

static inline bool is_nan(const Num *n)
{
    return n->kind >= QUIET;
}

/* sig without its lowest `drop` (>= 1) bits, rounded; the carry may make it one bit longer. */
static uint64_t round_off(uint64_t sig, unsigned drop, bool neg, HgFpRound rm, bool *inexact)
{
    uint64_t q, rest, half;

    if (drop > 64) {            /* less than half of the last place */
        q = 0;
        rest = sig != 0;
        half = 2;
    } else if (drop == 64) {
        q = 0;
        rest = sig;
        half = (uint64_t)1 << 63;
    } else {
        q = sig >> drop;
        rest = sig & (((uint64_t)1 << drop) - 1);
        half = (uint64_t)1 << (drop - 1);
    }
    *inexact = rest != 0;
    switch (rm) {
    case HG_RNE: return q + (rest > half || (rest == half && (q & 1)));
    case HG_RDN: return q + (neg && rest);
    case HG_RUP: return q + (!neg && rest);
    case HG_RMM: return q + (rest >= half);
    default:     return q;      /* HG_RTZ */
    }
}

static uint64_t overflow(HgFpFmt f, bool neg, HgFpRound rm, uint8_t *flags)
{
    bool away = rm == HG_RNE || rm == HG_RMM || rm == (neg ? HG_RDN : HG_RUP);

    *flags |= HG_FF_OF | HG_FF_NX;
    return infinity(f, neg) - !away;    /* its predecessor is the largest finite number */
}

/* sig (bit 63 set; jammed) * 2^(exp - 63) as a number of format f. */
static uint64_t round_pack(HgFpFmt f, bool neg, int exp, uint64_t sig, HgFpRound rm,
                           uint8_t *flags)
{
    unsigned fb = frac_bits(f), drop = 63 - fb;
    int emin = 1 - max_exp(f);
    bool inexact;
    uint64_t q;

    if (exp < emin) {
        /* tiny unless rounding as if there were no smallest exponent reaches 2^emin */
        bool tiny = exp < emin - 1 ||
                    round_off(sig, drop, neg, rm, &inexact) >> (fb + 1) == 0;
        unsigned more = emin - exp > 64 ? 64 : emin - exp;
        q = round_off(sig, drop + more, neg, rm, &inexact);
        *flags |= !inexact ? 0 : tiny ? HG_FF_NX | HG_FF_UF : HG_FF_NX;
        return q | zero(f, neg);        /* a carry makes it the smallest normal number */
    }
    q = round_off(sig, drop, neg, rm, &inexact);
    if (q >> (fb + 1)) {
        q >>= 1;
        exp++;
    }
    if (exp > max_exp(f)) {
        return overflow(f, neg, rm, flags);
    }
    *flags |= inexact ? HG_FF_NX : 0;
    return zero(f, neg) | (uint64_t)(exp + max_exp(f)) << fb | (q & (((uint64_t)1 << fb) - 1));
}

/* The same for a longer number, not 0: bit 125 weighs 2^exp. */
static uint64_t round_wide(HgFpFmt f, bool neg, int exp, u128 v, HgFpRound rm, uint8_t *flags)
{
    uint64_t high = v >> 64, low = (uint64_t)v;
    unsigned top = high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll(low);

    if (top > 63) {
        unsigned off = top - 63;
        low = (uint64_t)(v >> off) | ((v & (((u128)1 << off) - 1)) != 0);
    } else {
        low <<= 63 - top;
    }
    return round_pack(f, neg, exp + (int)top - 125, low, rm, flags);
}

/*
 * x * y + z.  The product is exact in 128 bits (bit 125 or 126 is its highest,
 * the lowest 20 are 0), z is put beside it, and the one of the smaller exponent
 * is moved down and jammed.  Bits are lost only if that is by more than 20
 * places; the difference then keeps more than 100 bits, so nothing is near the
 * jammed bit.
 */
static uint64_t fused(HgFpFmt f, Num x, Num y, bool neg_product, Num z, HgFpRound rm,
                      uint8_t *flags)
{
    bool neg = x.neg ^ y.neg ^ neg_product, negb = z.neg;
    bool bad = (x.kind == INFINITE && y.kind == ZERO) || (x.kind == ZERO && y.kind == INFINITE);
    u128 a, b;
    int exp, d;

    if (bad || x.kind == SIGNALING || y.kind == SIGNALING || z.kind == SIGNALING) {
        return invalid(f, flags);
    }
    if (is_nan(&x) || is_nan(&y) || is_nan(&z)) {
        return hg_fp_nan(f);
    }
    if (x.kind == INFINITE || y.kind == INFINITE) {
        return z.kind == INFINITE && z.neg != neg ? invalid(f, flags) : infinity(f, neg);
    }
    if (z.kind == INFINITE) {
        return infinity(f, z.neg);
    }
    if (x.kind == ZERO || y.kind == ZERO) {
        if (z.kind == ZERO) {
            return zero(f, neg == z.neg ? neg : rm == HG_RDN);
        }
        return round_pack(f, z.neg, z.exp, z.sig, rm, flags);
    }
    a = (u128)x.sig * y.sig >> 1;       /* both have 11 zeros at the end: nothing is lost */
    exp = x.exp + y.exp;
    if (z.kind == ZERO) {
        return round_wide(f, neg, exp, a, rm, flags);
    }
    b = (u128)z.sig << 62;
    d = exp - z.exp;
    if (d < 0) {
        u128 t = a;
        bool n = neg;
        a = b;
        b = t;
        neg = negb;
        negb = n;
        exp = z.exp;
        d = -d;
    }
    b = d > 127 ? 1 : b >> d | ((b & (((u128)1 << d) - 1)) != 0);
    if (neg == negb) {
        return round_wide(f, neg, exp, a + b, rm, flags);
    }
    if (a == b) {               /* then nothing was lost: what was jammed is odd, the other even */
        return zero(f, rm == HG_RDN);
    }
    return a > b ? round_wide(f, neg, exp, a - b, rm, flags)
                 : round_wide(f, negb, exp, b - a, rm, flags);
}

static const Num one = { .kind = FINITE, .sig = (uint64_t)1 << 63 };

uint64_t hg_fp_add(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags)
{
    return fused(f, unpack(f, a), one, false, unpack(f, b), rm, flags);
}

uint64_t hg_fp_sub(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags)
{
    return hg_fp_add(f, a, b ^ sign_bit(f), rm, flags);
}

uint64_t hg_fp_mul(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags)
{
    Num x = unpack(f, a), y = unpack(f, b);
    Num nothing = { .kind = ZERO, .neg = x.neg ^ y.neg };       /* of the sign that changes none */

    return fused(f, x, y, false, nothing, rm, flags);
}

uint64_t hg_fp_fma(HgFpFmt f, uint64_t a, uint64_t b, uint64_t c, bool neg_product, bool neg_c,
                   HgFpRound rm, uint8_t *flags)
{
    return fused(f, unpack(f, a), unpack(f, b), neg_product,
                 unpack(f, neg_c ? c ^ sign_bit(f) : c), rm, flags);
}

uint64_t hg_fp_div(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags)
{
    Num x = unpack(f, a), y = unpack(f, b);
    bool neg = x.neg ^ y.neg;
    int exp = x.exp - y.exp;
    u128 n;
    uint64_t q;

    if (x.kind == SIGNALING || y.kind == SIGNALING) {
        return invalid(f, flags);
    }
    if (is_nan(&x) || is_nan(&y)) {
        return hg_fp_nan(f);
    }
    if (x.kind == y.kind && x.kind != FINITE) {         /* 0/0, inf/inf */
        return invalid(f, flags);
    }
    if (x.kind == INFINITE || y.kind == ZERO) {
        *flags |= x.kind == FINITE ? HG_FF_DZ : 0;
        return infinity(f, neg);
    }
    if (x.kind == ZERO || y.kind == INFINITE) {
        return zero(f, neg);
    }
    /* a quotient of 64 bits, the highest set */
    if (x.sig < y.sig) {
        n = (u128)x.sig << 64;
        exp--;
    } else {
        n = (u128)x.sig << 63;
    }
    q = (uint64_t)(n / y.sig);
    return round_pack(f, neg, exp, q | (n % y.sig != 0), rm, flags);
}

uint64_t hg_fp_sqrt(HgFpFmt f, uint64_t a, HgFpRound rm, uint8_t *flags)
{
    Num x = unpack(f, a);
    u128 rest, root = 0, bit = (u128)1 << 126;
    bool odd = x.exp & 1;

    if (x.kind == SIGNALING || (x.neg && (x.kind == FINITE || x.kind == INFINITE))) {
        return invalid(f, flags);
    }
    if (x.kind == QUIET) {
        return hg_fp_nan(f);
    }
    if (x.kind != FINITE) {
        return a;               /* 0, -0, infinity */
    }
    /* digit by digit; the root of a number of 127 or 128 bits has 64 */
    rest = (u128)x.sig << (odd ? 64 : 63);
    while (bit) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
        bit >>= 2;
    }
    return round_pack(f, false, (x.exp - odd) / 2, (uint64_t)root | (rest != 0), rm, flags);
}

uint64_t hg_fp_sgnj(HgFpFmt f, uint64_t a, uint64_t b, HgFpSgnj how)
{
    uint64_t s = sign_bit(f);

    switch (how) {
    case HG_FP_SGNJ:  return (a & ~s) | (b & s);
    case HG_FP_SGNJN: return (a & ~s) | (~b & s);
    default:          return a ^ (b & s);
    }
}

/* Orders numbers as integers; -0 and 0 are equal. */
static int64_t key(HgFpFmt f, uint64_t a)
{
    int64_t mag = (int64_t)(a & (sign_bit(f) - 1));

    return a & sign_bit(f) ? -mag : mag;
}

uint64_t hg_fp_minmax(HgFpFmt f, uint64_t a, uint64_t b, bool max, uint8_t *flags)
{
    Num x = unpack(f, a), y = unpack(f, b);
    bool first;

    if (x.kind == SIGNALING || y.kind == SIGNALING) {
        *flags |= HG_FF_NV;
    }
    if (is_nan(&x)) {
        return is_nan(&y) ? hg_fp_nan(f) : b;
    }
    if (is_nan(&y)) {
        return a;
    }
    first = key(f, a) == key(f, b) ? x.neg : key(f, a) < key(f, b);     /* -0 is less than 0 */
    return first != max ? a : b;
}

bool hg_fp_cmp(HgFpFmt f, uint64_t a, uint64_t b, HgFpCmp what, uint8_t *flags)
{
    Num x = unpack(f, a), y = unpack(f, b);

    if (is_nan(&x) || is_nan(&y)) {
        bool loud = what != HG_FP_EQ || x.kind == SIGNALING || y.kind == SIGNALING;
        *flags |= loud ? HG_FF_NV : 0;
        return false;
    }
    return what == HG_FP_EQ ? key(f, a) == key(f, b)
         : what == HG_FP_LT ? key(f, a) < key(f, b) : key(f, a) <= key(f, b);
}

uint32_t hg_fp_class(HgFpFmt f, uint64_t a)
{
    Num x = unpack(f, a);

    switch (x.kind) {
    case INFINITE:  return x.neg ? 1u << 0 : 1u << 7;
    case ZERO:      return x.neg ? 1u << 3 : 1u << 4;
    case SIGNALING: return 1u << 8;
    case QUIET:     return 1u << 9;
    default:
        if (x.exp < 1 - max_exp(f)) {
            return x.neg ? 1u << 2 : 1u << 5;
        }
        return x.neg ? 1u << 1 : 1u << 6;
    }
}

uint64_t hg_fp_cvt(HgFpFmt f, uint64_t a, HgFpRound rm, uint8_t *flags)
{
    Num x = unpack(f == HG_FP_D ? HG_FP_S : HG_FP_D, a);

    switch (x.kind) {
    case ZERO:      return zero(f, x.neg);
    case INFINITE:  return infinity(f, x.neg);
    case QUIET:     return hg_fp_nan(f);
    case SIGNALING: return invalid(f, flags);
    default:        return round_pack(f, x.neg, x.exp, x.sig, rm, flags);
    }
}

uint64_t hg_fp_to_int(HgFpFmt f, uint64_t a, unsigned bits, bool is_signed, HgFpRound rm,
                      uint8_t *flags)
{
    Num x = unpack(f, a);
    uint64_t top = UINT64_MAX >> (64 - bits + is_signed);       /* largest positive */
    uint64_t least = is_signed ? top + 1 : 0;                   /* magnitude of the least */
    uint64_t v = 0;
    bool inexact = false, fits = true;

    if (x.kind == FINITE) {
        if (x.exp > 63) {
            fits = false;
        } else {
            v = x.exp == 63 ? x.sig
                            : round_off(x.sig, x.exp < -1 ? 65 : 63 - x.exp, x.neg, rm, &inexact);
            fits = v <= (x.neg ? least : top);
        }
    } else if (x.kind != ZERO) {
        fits = false;
    }
    if (!fits) {
        bool low = x.neg && !is_nan(&x);
        inexact = false;
        *flags |= HG_FF_NV;
        v = low ? 0 - least : top;
    } else if (x.neg) {
        v = 0 - v;
    }
    *flags |= inexact ? HG_FF_NX : 0;
    return bits == 32 ? (uint64_t)(int64_t)(int32_t)(uint32_t)v : v;
}

uint64_t hg_fp_from_int(HgFpFmt f, uint64_t v, unsigned bits, bool is_signed, HgFpRound rm,
                        uint8_t *flags)
{
    bool neg;

    if (bits == 32) {
        v = is_signed ? (uint64_t)(int64_t)(int32_t)(uint32_t)v : (uint32_t)v;
    }
    neg = is_signed && v >> 63;
    v = neg ? 0 - v : v;
    if (!v) {
        return 0;
    }
    return round_pack(f, neg, 63 - __builtin_clzll(v), v << __builtin_clzll(v), rm, flags);
}
