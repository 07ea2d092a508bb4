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

#include "hg_internal.h"
#include "fp.h"
#include "vec.h"

#if defined(__x86_64__)
#include <immintrin.h>
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

#define NAME(x) plain_##x
#define TARGET
#define BITS64 plain_bits
#define VEC_FP 0
#define VEC_NAME "plain"
#include "vec_body.h"

#if defined(__x86_64__)

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

#define NAME(x) avx2_##x
#define TARGET AVX2
#define BITS64 avx2_bits64
#define BITS32 avx2_bits32
#define VEC_FP 1
#define VEC_NAME "avx2"
#include "vec_body.h"

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

#define NAME(x) avx512_##x
#define TARGET AVX512
#define BITS64 avx512_bits64
#define BITS32 avx512_bits32
#define VEC_FP 1
#define VEC_NAME "avx512"
#include "vec_body.h"

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
