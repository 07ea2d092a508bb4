/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A context: its ring, its launch, its copy.
 */
#ifndef HG_CONTEXT_H
#define HG_CONTEXT_H

#include "types/warps.h"

typedef struct HgSeg {
    uint64_t src, dst, bytes, flags;
} HgSeg;

enum { HG_CP_NONE, HG_CP_RUN, HG_CP_STALL };

typedef struct HgCopy {
    HgSeg *seg;                 /* HG_COPY_LIST_MAX once allocated */
    uint32_t nseg, idx;
    uint64_t off;
    uint64_t done;              /* bytes, all segments */
    uint64_t fail_at;           /* injection: error once done >= fail_at; ~0 = never */
    uint8_t state;
    bool busy;                  /* d->lock: an engine has it in its slice */
    uint8_t eng;                /* engine that stalled */
    unsigned nfault;
    HgFault fault[2];
    uint64_t owed;
    bool replayed;
    bool waits;                 /* stalled until HG_CTX_FAULTED, not until a replay */
} HgCopy;

/* What the context's ring does. */
enum {
    HG_RS_FETCH, HG_RS_DELAY, HG_RS_LAUNCH, HG_RS_COPY, HG_RS_WAIT,
    HG_RS_INVAL, HG_RS_REPORT, HG_RS_COUNT
};

/*
 * A context.  d->lock, except what the busy flags give away: fe_busy (an engine
 * executes ring descriptors), copy.busy, and the warps as said above.
 */
struct HgCtx {
    unsigned id;
    uint64_t ring_base;
    uint32_t ring_base_lo;      /* latch of a half-written base */
    uint32_t ring_size, asid, timeslice;
    uint64_t sync;              /* HG_CTX_SYNC */
    uint32_t sync_lo;           /* its latch */
    bool enabled, priv, stall, aborting, halted;
    uint32_t get, put, error;
    uint64_t error_addr;
    uint8_t rs;
    bool fe_busy;
    uint64_t desc[8];
    uint64_t not_before, wait_seq, poll_at, job_start;
    uint32_t poll_gap;
    HgResult res;
    /* launch */
    uint32_t next_block, blocks_done;
    bool dying;
    HgCtxSm *sm;                /* cfg.sms, allocated at first enable */
    HgCopy copy;
};

static inline uint32_t hg_shared_bytes(const HgCtx *c)
{
    return c->desc[5] >> 32;
}

static inline uint32_t hg_shared_step(const HgCtx *c)
{
    return (hg_shared_bytes(c) + 15) & ~15u;
}

static inline bool hg_sync_ok(uint64_t sync)
{
    unsigned order = sync & HG_SYNC_ORDER_MASK;

    return !sync || (order >= HG_PAGE_SHIFT && order <= HG_SYNC_ORDER_MAX &&
                     !(sync & (((uint64_t)1 << order) - 1) & ~(uint64_t)HG_SYNC_ORDER_MASK));
}

/* May the context's fences, waits and reports be there?  `bytes` at most a page. */
static inline bool hg_sync_may(const HgCtx *c, uint64_t addr, uint64_t bytes)
{
    unsigned order = c->sync & HG_SYNC_ORDER_MASK;

    return !c->sync || (addr >> order == c->sync >> order &&
                        (addr + bytes - 1) >> order == c->sync >> order);
}

#endif /* HG_CONTEXT_H */
