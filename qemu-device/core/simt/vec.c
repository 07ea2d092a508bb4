/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The instruction sets that vec_body.h is compiled for, and the choice among them. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif
/*
 * The errors in vec_body.h are differences of rounded numbers: a product must
 * be rounded before it is added.  And a root needs no call that sets errno (clang:
 * -fno-math-errno).
 */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-math-errno")
#endif
#ifdef __FAST_MATH__
#error "floating point as IEEE 754 has it"
#endif

#include "device.h"
#include "simt/vec.h"
#include "access/access.h"
#include "base/pause.h"
#include "simt/fp.h"
#include "simt/rv.h"
#include "simt/rvf.h"

#if defined(__x86_64__)
/* gcc 12 warns of its own header's way to say "any value" (gcc's bug 105593). */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

/* d may be a or b, but never a part of one: lanes do not depend on each other. */
#if defined(__GNUC__) && !defined(__clang__)
#define HG_IVDEP _Pragma("GCC ivdep")
#define HG_WIDE ",prefer-vector-width=512"
#else
#define HG_IVDEP
#define HG_WIDE ""
#endif

#define HG_NO_TSAN __attribute__((no_sanitize("thread")))

/* hg_vec_steps[n][l] = l << n: how far lane l's element is from the first. */
#define STEP4(n, l) (l + 0ull) << n, (l + 1ull) << n, (l + 2ull) << n, (l + 3ull) << n
#define STEPS(n) { STEP4(n, 0), STEP4(n, 4), STEP4(n, 8), STEP4(n, 12), \
                   STEP4(n, 16), STEP4(n, 20), STEP4(n, 24), STEP4(n, 28) }
static _Alignas(64) const uint64_t hg_vec_steps[4][HG_LANES] = {
    STEPS(0), STEPS(1), STEPS(2), STEPS(3)
};

/* -- no special instructions -- */

static uint32_t plain_bits(const uint64_t *v)
{
    uint32_t m = 0;

    for (unsigned l = 0; l < HG_LANES; l++) {
        m |= (uint32_t)(v[l] >> 63) << l;
    }
    return m;
}

static bool plain_usable(void)
{
    return true;
}

#define VB 16
#define ANY(v) (((v)[0] | (v)[1]) != 0)
#define SIGNS(v) ((uint32_t)((v)[0] >> 63 | (v)[1] >> 63 << 1))
#define NAME(x) plain_##x
#define TARGET
#define BITS64 plain_bits
#define VEC_FP 0
#define VEC_NAME "plain"
#include "simt/vec_body.h"

#if defined(__x86_64__)

/*
 * Elements side by side in memory that others use meanwhile are moved in pieces
 * of 16 aligned bytes: processors with AVX do that at once (Intel SDM vol. 3,
 * "Guaranteed Atomic Operations"; AMD says the same), so no element tears.
 * volatile: that piece, once.  TSan takes it for a plain access; it is not.
 */

/* -- AVX2 and FMA -- */

#define AVX2 __attribute__((target("avx2,fma,bmi,bmi2")))

static AVX2 inline uint32_t avx2_bits64(const uint64_t *v)
{
    uint32_t m = 0;

    for (unsigned i = 0; i < HG_LANES / 4; i++) {
        __m256d x = _mm256_loadu_pd((const double *)(v + 4 * i));
        m |= (uint32_t)_mm256_movemask_pd(x) << 4 * i;
    }
    return m;
}

static AVX2 inline uint32_t avx2_bits32(const uint32_t *v)
{
    uint32_t m = 0;

    for (unsigned i = 0; i < HG_LANES / 8; i++) {
        __m256 x = _mm256_loadu_ps((const float *)(v + 8 * i));
        m |= (uint32_t)_mm256_movemask_ps(x) << 8 * i;
    }
    return m;
}

static bool avx2_usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

typedef uint32_t Avx2Half __attribute__((vector_size(16), may_alias));
typedef double Avx2D __attribute__((vector_size(32), may_alias));
typedef float Avx2S __attribute__((vector_size(16), may_alias));

static AVX2 HG_NO_TSAN inline __m256i avx2_pieces(const uint8_t *p)
{
    const volatile __m128i *q = (const volatile __m128i *)p;

    return _mm256_inserti128_si256(_mm256_castsi128_si256(q[0]), q[1], 1);
}

static AVX2 HG_NO_TSAN inline Avx2Half avx2_half_pieces(const uint8_t *p)
{
    return (Avx2Half)*(const volatile __m128i *)p;
}

static AVX2 HG_NO_TSAN inline void avx2_spill(uint8_t *p, __m256i v)
{
    volatile __m128i *q = (volatile __m128i *)p;

    q[0] = _mm256_castsi256_si128(v);
    q[1] = _mm256_extracti128_si256(v, 1);
}

static AVX2 HG_NO_TSAN inline void avx2_half_spill(uint8_t *p, Avx2Half h)
{
    *(volatile __m128i *)p = (__m128i)h;
}

static AVX2 inline Avx2Half avx2_narrow(__m256i v)
{
    v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    return (Avx2Half)_mm256_castsi256_si128(v);
}

#define VB 32
#define HALF Avx2Half
#define NUM_D Avx2D
#define NUM_S Avx2S
#define ANY(v) (!_mm256_testz_si256((__m256i)(v), (__m256i)(v)))
#define ANY_HALF(v) (!_mm_testz_si128((__m128i)(v), (__m128i)(v)))
#define SIGNS(v) ((uint32_t)_mm256_movemask_pd((__m256d)(v)))
#define PIECES(p) ((V)avx2_pieces(p))
#define HALF_PIECES(p) avx2_half_pieces(p)
#define SPILL(p, v) avx2_spill(p, (__m256i)(v))
#define HALF_SPILL(p, v) avx2_half_spill(p, v)
#define NARROW(v) avx2_narrow((__m256i)(v))
#define WIDEN(h) ((V)_mm256_cvtepu32_epi64((__m128i)(h)))
#define WIDEN_S(h) ((V)_mm256_cvtepi32_epi64((__m128i)(h)))
#define FMA_VD(a, b, c) ((NUM_D)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define FMA_VS(a, b, c) ((NUM_S)_mm_fmadd_ps((__m128)(a), (__m128)(b), (__m128)(c)))
#define NAME(x) avx2_##x
#define TARGET AVX2
#define BITS64 avx2_bits64
#define BITS32 avx2_bits32
#define VEC_FP 1
#define VEC_NAME "avx2"
#include "simt/vec_body.h"

/* -- AVX-512 -- */

#define AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi,bmi2" HG_WIDE)))

static AVX512 inline uint32_t avx512_bits64(const uint64_t *v)
{
    uint32_t m = 0;

    for (unsigned i = 0; i < HG_LANES / 8; i++) {
        m |= (uint32_t)_mm512_movepi64_mask(_mm512_loadu_si512(v + 8 * i)) << 8 * i;
    }
    return m;
}

static AVX512 inline uint32_t avx512_bits32(const uint32_t *v)
{
    uint32_t m = 0;

    for (unsigned i = 0; i < HG_LANES / 16; i++) {
        m |= (uint32_t)_mm512_movepi32_mask(_mm512_loadu_si512(v + 16 * i)) << 16 * i;
    }
    return m;
}

static bool avx512_usable(void)
{
    return avx2_usable() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw");
}

typedef uint32_t Avx512Half __attribute__((vector_size(32), may_alias));
typedef double Avx512D __attribute__((vector_size(64), may_alias));
typedef float Avx512S __attribute__((vector_size(32), may_alias));

static AVX512 HG_NO_TSAN inline __m256i avx512_half_pieces(const uint8_t *p)
{
    const volatile __m128i *q = (const volatile __m128i *)p;

    return _mm256_inserti128_si256(_mm256_castsi128_si256(q[0]), q[1], 1);
}

static AVX512 HG_NO_TSAN inline __m512i avx512_pieces(const uint8_t *p)
{
    __m256i low = avx512_half_pieces(p), high = avx512_half_pieces(p + 32);

    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static AVX512 HG_NO_TSAN inline void avx512_half_spill(uint8_t *p, __m256i v)
{
    volatile __m128i *q = (volatile __m128i *)p;

    q[0] = _mm256_castsi256_si128(v);
    q[1] = _mm256_extracti128_si256(v, 1);
}

static AVX512 HG_NO_TSAN inline void avx512_spill(uint8_t *p, __m512i v)
{
    avx512_half_spill(p, _mm512_castsi512_si256(v));
    avx512_half_spill(p + 32, _mm512_extracti64x4_epi64(v, 1));
}

#define VB 64
#define HALF Avx512Half
#define NUM_D Avx512D
#define NUM_S Avx512S
#define ANY(v) (_mm512_test_epi64_mask((__m512i)(v), (__m512i)(v)) != 0)
#define ANY_HALF(v) (!_mm256_testz_si256((__m256i)(v), (__m256i)(v)))
#define SIGNS(v) ((uint32_t)_mm512_movepi64_mask((__m512i)(v)))
#define PIECES(p) ((V)avx512_pieces(p))
#define HALF_PIECES(p) ((HALF)avx512_half_pieces(p))
#define SPILL(p, v) avx512_spill(p, (__m512i)(v))
#define HALF_SPILL(p, v) avx512_half_spill(p, (__m256i)(v))
#define NARROW(v) ((HALF)_mm512_cvtepi64_epi32((__m512i)(v)))
#define WIDEN(h) ((V)_mm512_cvtepu32_epi64((__m256i)(h)))
#define WIDEN_S(h) ((V)_mm512_cvtepi32_epi64((__m256i)(h)))
#define FMA_VD(a, b, c) ((NUM_D)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define FMA_VS(a, b, c) ((NUM_S)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define NAME(x) avx512_##x
#define TARGET AVX512
#define BITS64 avx512_bits64
#define BITS32 avx512_bits32
#define VEC_FP 1
#define VEC_NAME "avx512"
#include "simt/vec_body.h"

/*
 * MXCSR: all exceptions masked, nearest, subnormals neither flushed nor taken
 * as zero.  The thread is the host's in deterministic mode, and a library may
 * have set it otherwise.
 */
bool hg_vec_fp_ok(void)
{
    return (_mm_getcsr() & 0xffc0) == 0x1f80;
}

static const HgVec *const tables[] = { &avx512_table, &avx2_table, &plain_table };

#else

bool hg_vec_fp_ok(void)
{
    return false;
}

static const HgVec *const tables[] = { &plain_table };

#endif

#define NTABLES (sizeof(tables) / sizeof(tables[0]))

const HgVec *hg_vec_best(void)
{
    unsigned i = 0;

    while (!tables[i]->usable()) {
        i++;
    }
    return tables[i];
}

int hg_vec_set(HgDev *d, const char *name)
{
    const HgVec *v = NULL;

    if (!strcmp(name, "best")) {
        v = hg_vec_best();
    } else if (strcmp(name, "off")) {
        for (unsigned i = 0; i < NTABLES && !v; i++) {
            if (!strcmp(name, tables[i]->name) && tables[i]->usable()) {
                v = tables[i];
            }
        }
        if (!v) {
            return -1;
        }
    }
    hg_pause(d);
    d->vec = v;
    hg_resume(d);
    return 0;
}

const char *hg_vec_name(HgDev *d)
{
    return d->vec ? d->vec->name : "off";
}
