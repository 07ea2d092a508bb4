/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What bench.c and bench_user.h have in common: the work, its input, and a sum
 * of its result, so that two machines are known to have done the same.
 *
 * A round is BENCH_HASHES hashes, a pass over SIDE * SIDE floats, or a matrix
 * product; `n` of struct args is what one of `threads` threads needs for it.
 */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <stdint.h>

#define SIDE         256
#define CELLS        (SIDE * SIDE)
#define BENCH_HASHES 262144

enum { WORK_HASH, WORK_SAXPY, WORK_STRIDED, WORK_MATMUL, WORKS };

typedef uint64_t __attribute__((may_alias)) work_u64;

static inline uint64_t work_n(int work, uint64_t rounds, uint64_t threads)
{
    return work == WORK_HASH ? rounds * BENCH_HASHES / threads : CELLS;
}

/* Elements, or multiply-adds. */
static inline uint64_t work_elements(int work, uint64_t rounds)
{
    return work == WORK_HASH ? rounds * BENCH_HASHES
         : rounds * CELLS * (work == WORK_MATMUL ? SIDE : 1);
}

/* x and y have room for CELLS doubles. */
static inline void work_fill(int work, void *x, void *y)
{
    for (uint32_t i = 0; i < CELLS; i++) {
        double v = (i * 2654435761u % 1000003u) / 1000.0;

        if (work == WORK_MATMUL) {
            ((double *)x)[i] = ((double *)y)[i] = v;
        } else {
            ((float *)x)[i] = ((float *)y)[i] = (float)v;
        }
    }
}

/* x is the result of hash, y of saxpy and strided, z of matmul. */
static inline uint64_t work_sum(int work, const void *x, const void *y, const void *z,
                                uint64_t threads)
{
    const work_u64 *p = work == WORK_HASH ? x : work == WORK_MATMUL ? z : y;
    uint64_t n = work == WORK_HASH ? threads : work == WORK_MATMUL ? CELLS : CELLS / 2, sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        sum += work == WORK_HASH ? p[i] : p[i] * (2 * i + 1);
    }
    return sum;
}

#endif /* BENCH_WORK_H */
