/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What every file of the core may need: sizes, memory that is shared, cache lines.
 */
#ifndef HG_COMMON_H
#define HG_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE             /* also under -std=c11; each .c includes device.h first */
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "hmm_gpu_core.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hmm-gpu core: little-endian hosts only"
#endif

#define HG_PAGE_SIZE        4096u
#define HG_PAGE_MASK        4095u
#define HG_UTLB_WAYS        4
#define HG_L2_WAYS          4
#define HG_IC_PAGES         16          /* decoded pages an SM */
#define HG_PAGE_INSNS       1024
#define HG_STALL_MAX        64          /* 32 lanes, each may straddle */
#define HG_INVAL_REQS       8
#define HG_INVAL_QUEUE      32
#define HG_REPLAY_QUEUE     16
#define HG_TIMERS           256
#define HG_TIMERS_TURN      64          /* most that the front end runs in one turn, */
#define HG_REPLAYS_TURN     8           /* and of these */
#define HG_SM_SLICE         1024        /* warp instructions */
#define HG_WARP_CHUNK       64          /* before the next warp has its turn */
#define HG_CE_SLICE         256         /* pieces */
#define HG_ROUND_SM         256         /* steps an engine in a round of hg_step() */
#define HG_ROUND_OTHER      32
#define HG_STARVE           4096        /* see rv.c */
#define HG_STARVE_QUANTUM   64
#define HG_DEFAULT_SLICE_US 1000
#define HG_NO_PEND          0xffffu

/* Guest memory is shared with CPUs: always through these, never plain. */
typedef uint8_t __attribute__((may_alias)) hg_u8a;
typedef uint16_t __attribute__((may_alias)) hg_u16a;
typedef uint32_t __attribute__((may_alias)) hg_u32a;
typedef uint64_t __attribute__((may_alias)) hg_u64a;

/* Bytes of a cache line of the host. */
#define HG_LINE 64

/* Zeroed, in cache lines of its own; NULL: no memory.  For free(). */
static inline void *hg_alloc_lines(size_t bytes)
{
    size_t whole = (bytes + HG_LINE - 1) / HG_LINE * HG_LINE;
    void *p = aligned_alloc(HG_LINE, whole);

    return p ? memset(p, 0, whole) : NULL;
}

typedef struct HgEngine HgEngine;
typedef struct HgCtx HgCtx;

/* splitmix64 */
static inline uint64_t hg_rand(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* A time that much after now: the end of time if there is none. */
static inline uint64_t hg_later(uint64_t now, uint64_t ns)
{
    return now + ns < now ? UINT64_MAX : now + ns;
}

#endif /* HG_COMMON_H */
