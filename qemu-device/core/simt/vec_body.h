/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The vector loops of vec.h, once for each instruction set.  vec.c includes
 * this with NAME(x), TARGET (function attribute), BITS64 and BITS32 (which
 * signs are set, as bits) and VEC_FP (has fused multiply-add) defined.
 *
 * Floating point.  The host computes in round-to-nearest (hg_vec_fp_ok()), as
 * IEEE 754 says, so every result but a NaN is the right one.  What remains are
 * the flags.  A lane is done here only if
 *   - the result is no NaN and no infinity: not NV, not DZ, not OF;
 *   - its exponent is above the smallest by one, or it is exact whatever its
 *     exponent (a sum; a product, quotient or root with a zero operand): not UF;
 *   - so NX alone is left.  Flags only accumulate: a lane that has NX needs no
 *     more.  For the others the error of the result is computed, which is again
 *     a number of the format if nothing under- or overflows on the way (the
 *     exponent limits below: no operand or product near the ends), and NX is
 *     set if it is not zero:
 *       sum       Knuth's TwoSum
 *       product   a * b - r, fused (D); in binary64, where it is exact (S)
 *       quotient  r * b - a, fused (D); in binary64, exact (S)
 *       root      r * r - a, fused (D); in binary64, exact (S)
 *       fused     Boldo and Muller's ErrFma (IEEE Trans. Computers 60(2), 2011):
 *                 gamma is exact, so the error is gamma + alpha2 (D); TwoSum of
 *                 the exact product and c in binary64 (S)
 * All other lanes are left to fp.c.  Lanes outside the mask are computed, too,
 * whatever they hold (no exception of the host is enabled), and dropped.
 */

#define EACH_LANE HG_IVDEP for (unsigned l = 0; l < HG_LANES; l++)

/* -- integers -- */

#define X(op, expr)                                                             \
static TARGET inline __attribute__((always_inline)) void                        \
NAME(op##_)(uint64_t *d, const uint64_t *a_, const uint64_t *b_, uint64_t imm)  \
{                                                                               \
    EACH_LANE {                                                                 \
        uint64_t a = a_[l], b = b_[l];                                          \
        (void)a;                                                                \
        (void)b;                                                                \
        (void)imm;                                                              \
        d[l] = expr;                                                            \
    }                                                                           \
}                                                                               \
static TARGET void NAME(op)(uint64_t *d, const uint64_t *a, const uint64_t *b, uint64_t imm) \
{                                                                               \
    NAME(op##_)(d, a, b, imm);                                                  \
}
HG_LANE_OPS(X)
#undef X

#define X(op, expr)                                                             \
static TARGET uint32_t NAME(op)(const uint64_t *a_, const uint64_t *b_)         \
{                                                                               \
    uint64_t t[HG_LANES];                                                       \
    EACH_LANE {                                                                 \
        uint64_t a = a_[l], b = b_[l];                                          \
        t[l] = expr ? UINT64_MAX : 0;                                           \
    }                                                                           \
    return BITS64(t);                                                           \
}
HG_LANE_TESTS(X)
#undef X

static TARGET void NAME(blend)(uint64_t *d, const uint64_t *s, uint32_t mask)
{
    EACH_LANE {
        uint64_t keep = (uint64_t)(mask >> l & 1) - 1;
        d[l] = (d[l] & keep) | (s[l] & ~keep);
    }
}

static TARGET HgVecSpan NAME(address)(uint64_t *va, const uint64_t *a, uint64_t imm,
                                      unsigned shift)
{
    HgVecSpan s = { 0, 0 };
    uint64_t first = a[0] + imm;

    EACH_LANE {
        uint64_t v = a[l] + imm, off = v - first;
        va[l] = v;
        s.differ |= v ^ first;
        s.off_row |= off ^ ((uint64_t)l << shift);
    }
    return s;
}

static TARGET uint64_t NAME(differ)(const uint64_t *v, uint64_t first, uint32_t mask)
{
    uint64_t d = 0;

    EACH_LANE {
        d |= (v[l] ^ first) & (0 - (uint64_t)(mask >> l & 1));
    }
    return d;
}

#if VEC_FP

/* -- floating point -- */

static TARGET inline uint64_t NAME(bits_d)(double v)
{
    union { double f; uint64_t u; } x = { .f = v };
    return x.u;
}

static TARGET inline double NAME(num_d)(uint64_t v)
{
    union { uint64_t u; double f; } x = { .u = v };
    return x.f;
}

static TARGET inline uint32_t NAME(bits_s)(float v)
{
    union { float f; uint32_t u; } x = { .f = v };
    return x.u;
}

static TARGET inline float NAME(num_s)(uint32_t v)
{
    union { uint32_t u; float f; } x = { .u = v };
    return x.f;
}

/* Biased exponents. */
#define EXP_D(v) (NAME(bits_d)(v) >> 52 & 0x7ff)
#define EXP_S(v) (NAME(bits_s)(v) >> 23 & 0xff)

/*
 * Each operation: the result v of a, b, c; whether it is exact although small;
 * limits of what the error needs; whether the error is not zero.  Without && and
 * ||: a branch would keep the loop from becoming vectors.
 */
#define TWO_SUM(type, s, err, x, y)             \
    type s = (x) + (y), s##_ = s - (x);         \
    type err = ((x) - (s - s##_)) + ((y) - s##_)

#define NIL_D(v) (NAME(bits_d)(v) << 1 == 0)
#define NIL_S(v) (NAME(bits_s)(v) << 1 == 0)
#define D_FINE(lo, v) (EXP_D(v) - (lo) <= 0x7f0 - (lo))
#define S_FINE(lo, v) (EXP_S(v) - (lo) <= 0xf0 - (lo))

/* Lanes that round to nearest, and that have NX. */
static TARGET inline uint32_t NAME(fcsr_is)(const uint8_t *fcsr, uint32_t *nx)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)fcsr);

    *nx = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(v, 7));
    return (uint32_t)_mm256_movemask_epi8(
        _mm256_cmpeq_epi8(_mm256_and_si256(v, _mm256_set1_epi8((char)0xe0)),
                          _mm256_setzero_si256()));
}

static inline void NAME(raise_nx)(uint8_t *fcsr, uint32_t lanes)
{
    for (; lanes; lanes &= lanes - 1) {
        fcsr[__builtin_ctz(lanes)] |= HG_FF_NX;
    }
}

#define FP_D(name, result, tiny_ok, limits, inexact)                            \
static TARGET uint32_t NAME(name##_d)(uint64_t *d, const uint64_t *a_, const uint64_t *b_, \
                                      const uint64_t *c_, uint32_t mask, uint8_t *fcsr, \
                                      bool rne)                         \
{                                                                               \
    uint64_t r[HG_LANES], bad[HG_LANES], lost[HG_LANES], any = 0;               \
    uint32_t nx, todo = mask & (NAME(fcsr_is)(fcsr, &nx) | (0 - (uint32_t)rne));                        \
                                                                                \
    EACH_LANE {                                                                 \
        double a = NAME(num_d)(a_[l]), b = NAME(num_d)(b_[l]), c = NAME(num_d)(c_[l]); \
        double v = result;                                                      \
        uint64_t e = EXP_D(v);                                                  \
        (void)a;                                                                \
        (void)b;                                                                \
        (void)c;                                                                \
        r[l] = NAME(bits_d)(v);                                                 \
        bad[l] = (uint64_t)((e <= 0x7fd) & ((e >= 2) | (tiny_ok))) - 1;         \
        any |= bad[l];                                                          \
    }                                                                           \
    if (any) {                                                                  \
        todo &= ~BITS64(bad);                                                   \
    }                                                                           \
    if (todo & ~nx) {                                                           \
        EACH_LANE {                                                             \
            double a = NAME(num_d)(a_[l]), b = NAME(num_d)(b_[l]), c = NAME(num_d)(c_[l]); \
            double v = NAME(num_d)(r[l]);                                       \
            (void)a;                                                            \
            (void)b;                                                            \
            (void)c;                                                            \
            bad[l] = (uint64_t)(limits) - 1;                                    \
            inexact;                                                            \
        }                                                                       \
        todo &= nx | ~BITS64(bad);                                              \
        NAME(raise_nx)(fcsr, todo & ~nx & BITS64(lost));                        \
    }                                                                           \
    if (todo == UINT32_MAX) {                                                   \
        memcpy(d, r, sizeof(r));                                                \
    } else if (todo) {                                                          \
        NAME(blend)(d, r, todo);                                                \
    }                                                                           \
    return todo;                                                                \
}

#define LOST(cond) lost[l] = 0 - (uint64_t)(cond)

#define FMA_D(name, x, z)                                                       \
FP_D(name, __builtin_fma(x, b, z), NIL_D(a) | NIL_D(b),                         \
     (NIL_D(a) | NIL_D(b) | D_FINE(0x40, a * b)) & D_FINE(0, c) & D_FINE(0, v), \
     double u1 = (x) * b;                                                       \
     double u2 = __builtin_fma(x, b, -u1);                                      \
     TWO_SUM(double, alpha1, alpha2, z, u2);                                    \
     TWO_SUM(double, beta1, beta2, u1, alpha1);                                 \
     double gamma = (beta1 - v) + beta2;                                        \
     LOST(gamma != -alpha2))

FMA_D(madd, a, c)
FMA_D(msub, a, -c)
FMA_D(nmsub, -a, c)
FMA_D(nmadd, -a, -c)
FP_D(add, a + b, 1, D_FINE(0, a) & D_FINE(0, b),
     TWO_SUM(double, s, err, a, b);
     (void)v;
     LOST(err != 0))
FP_D(sub, a - b, 1, D_FINE(0, a) & D_FINE(0, b),
     TWO_SUM(double, s, err, a, -b);
     (void)v;
     LOST(err != 0))
FP_D(mul, a * b, NIL_D(a) | NIL_D(b), NIL_D(a) | NIL_D(b) | D_FINE(0x40, v),
     LOST(__builtin_fma(a, b, -v) != 0))
FP_D(div, a / b, NIL_D(a), NIL_D(a) | D_FINE(0x40, a),
     LOST(!NIL_D(a) & (__builtin_fma(v, b, -a) != 0)))
FP_D(sqrt, __builtin_sqrt(a), NIL_D(a), NIL_D(a) | D_FINE(0x40, a),
     LOST(__builtin_fma(v, v, -a) != 0))

/* The low halves; lanes that are not boxed are bad (they hold a NaN, whatever is below). */
static TARGET inline uint64_t NAME(unbox)(uint32_t *s, const uint64_t *r)
{
    uint64_t none = 0;

    EACH_LANE {
        s[l] = (uint32_t)r[l];
        none |= ~r[l] >> 32;
    }
    return none;
}

static TARGET uint32_t NAME(unboxed)(const uint64_t *r)
{
    uint64_t t[HG_LANES];

    EACH_LANE {
        t[l] = ~r[l] >> 32 ? UINT64_MAX : 0;
    }
    return BITS64(t);
}

#define FP_S(name, uses_b, uses_c, result, tiny_ok, limits, inexact)            \
static TARGET uint32_t NAME(name##_s)(uint64_t *d, const uint64_t *a_, const uint64_t *b_, \
                                      const uint64_t *c_, uint32_t mask, uint8_t *fcsr, \
                                      bool rne)                         \
{                                                                               \
    uint32_t a32[HG_LANES], b32[HG_LANES], c32[HG_LANES];                       \
    uint32_t r[HG_LANES], bad[HG_LANES], lost[HG_LANES], any = 0;               \
    uint32_t nx, todo = mask & (NAME(fcsr_is)(fcsr, &nx) | (0 - (uint32_t)rne));                        \
                                                                                \
    if (NAME(unbox)(a32, a_)) {                                                 \
        todo &= ~NAME(unboxed)(a_);                                             \
    }                                                                           \
    if (NAME(unbox)(b32, b_) && uses_b) {                                       \
        todo &= ~NAME(unboxed)(b_);                                             \
    }                                                                           \
    if (NAME(unbox)(c32, c_) && uses_c) {                                       \
        todo &= ~NAME(unboxed)(c_);                                             \
    }                                                                           \
    EACH_LANE {                                                                 \
        float a = NAME(num_s)(a32[l]), b = NAME(num_s)(b32[l]), c = NAME(num_s)(c32[l]); \
        float v = result;                                                       \
        uint32_t e = EXP_S(v);                                                  \
        (void)a;                                                                \
        (void)b;                                                                \
        (void)c;                                                                \
        r[l] = NAME(bits_s)(v);                                                 \
        bad[l] = (uint32_t)((e <= 0xfd) & ((e >= 2) | (tiny_ok))) - 1;          \
        any |= bad[l];                                                          \
    }                                                                           \
    if (any) {                                                                  \
        todo &= ~BITS32(bad);                                                   \
    }                                                                           \
    if (todo & ~nx) {                                                           \
        EACH_LANE {                                                             \
            float a = NAME(num_s)(a32[l]), b = NAME(num_s)(b32[l]), c = NAME(num_s)(c32[l]); \
            float v = NAME(num_s)(r[l]);                                        \
            (void)a;                                                            \
            (void)b;                                                            \
            (void)c;                                                            \
            bad[l] = (uint32_t)(limits) - 1;                                    \
            inexact;                                                            \
        }                                                                       \
        todo &= nx | ~BITS32(bad);                                              \
        NAME(raise_nx)(fcsr, todo & ~nx & BITS32(lost));                        \
    }                                                                           \
    if (todo == UINT32_MAX) {                                                   \
        EACH_LANE {                                                             \
            d[l] = r[l] | HG_FP_BOX;                                            \
        }                                                                       \
    } else if (todo) {                                                          \
        uint64_t wide[HG_LANES];                                                \
        EACH_LANE {                                                             \
            wide[l] = r[l] | HG_FP_BOX;                                         \
        }                                                                       \
        NAME(blend)(d, wide, todo);                                             \
    }                                                                           \
    return todo;                                                                \
}

#define LOST_S(cond) lost[l] = 0 - (uint32_t)(cond)

#define FMA_S(name, x, z)                                                       \
FP_S(name, true, true, __builtin_fmaf(x, b, z), NIL_S(a) | NIL_S(b), 1,         \
     double p = (double)(x) * (double)b;                                        \
     TWO_SUM(double, s, err, p, (double)(z));                                   \
     LOST_S((err != 0) | (s != (double)v)))

FMA_S(madd, a, c)
FMA_S(msub, a, -c)
FMA_S(nmsub, -a, c)
FMA_S(nmadd, -a, -c)
FP_S(add, true, false, a + b, 1, S_FINE(0, a) & S_FINE(0, b),
     TWO_SUM(float, s, err, a, b);
     (void)v;
     LOST_S(err != 0))
FP_S(sub, true, false, a - b, 1, S_FINE(0, a) & S_FINE(0, b),
     TWO_SUM(float, s, err, a, -b);
     (void)v;
     LOST_S(err != 0))
FP_S(mul, true, false, a * b, NIL_S(a) | NIL_S(b), 1,
     LOST_S((double)a * (double)b != (double)v))
FP_S(div, true, false, a / b, NIL_S(a), 1,
     LOST_S(!NIL_S(a) & ((double)v * (double)b != (double)a)))
FP_S(sqrt, false, false, __builtin_sqrtf(a), NIL_S(a), 1,
     LOST_S((double)v * (double)v != (double)a))

#undef EXP_D
#undef EXP_S
#undef TWO_SUM
#undef NIL_D
#undef NIL_S
#undef D_FINE
#undef S_FINE
#undef FP_D
#undef FP_S
#undef FMA_D
#undef FMA_S
#undef LOST
#undef LOST_S
#endif /* VEC_FP */

#include "simt/vec_run.h"

static const HgVec NAME(table) = {
    .name = VEC_NAME,
    .usable = NAME(usable),
    .alu = {
#define X(op, expr) [OP_##op] = NAME(op),
        HG_LANE_OPS(X)
#undef X
    },
    .test = {
#define X(op, expr) [OP_##op - OP_BEQ] = NAME(op),
        HG_LANE_TESTS(X)
#undef X
    },
#if VEC_FP
    .fp = {
        { NAME(madd_s), NAME(madd_d) }, { NAME(msub_s), NAME(msub_d) },
        { NAME(nmsub_s), NAME(nmsub_d) }, { NAME(nmadd_s), NAME(nmadd_d) },
        { NAME(add_s), NAME(add_d) }, { NAME(sub_s), NAME(sub_d) },
        { NAME(mul_s), NAME(mul_d) }, { NAME(div_s), NAME(div_d) },
        { NAME(sqrt_s), NAME(sqrt_d) },
    },
#endif
    .blend = NAME(blend),
    .address = NAME(address),
    .differ = NAME(differ),
    .run = NAME(run),
    .run_stepped = NAME(run_stepped),
};

#undef EACH_LANE
#undef NAME
#undef TARGET
#undef BITS64
#undef BITS32
#undef VEC_FP
#undef VEC_NAME
#undef VB
#undef ANY
#undef SIGNS
#undef HALF
#undef NUM_D
#undef NUM_S
#undef PIECES
#undef HALF_PIECES
#undef SPILL
#undef HALF_SPILL
#undef NARROW
#undef WIDEN
#undef WIDEN_S
#undef ANY_HALF
#undef FMA_VD
#undef FMA_VS
