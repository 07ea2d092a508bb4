/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An engine: SM, copy engine or front end.  device.h says who may touch what.
 */
#ifndef HG_ENGINE_H
#define HG_ENGINE_H

#include "types/context.h"

typedef struct HgCoro HgCoro;  /* base/coro.h */

enum { HG_ENG_SM = HG_ENGINE_SM, HG_ENG_CE = HG_ENGINE_CE, HG_ENG_FE = 2 };

struct HgEngine {
    _Alignas(HG_LINE) HgDev *d; /* so that no two engines write the same line */
    uint8_t kind, num;
    void *thread;               /* the host's, or NULL */
    pthread_cond_t cv;
    bool in_slice;              /* d->lock */
    _Atomic uint32_t attn;      /* set and cleared under d->lock, read anywhere */
    /* deterministic mode, else NULL; these belong to the thread that steps */
    HgCoro *co;
    uint32_t steps;             /* left until it yields */
    uint64_t held;              /* 1 + page of the translation in hand, of this instruction */
    uint8_t at;                 /* HgAt, while it stands in a slice */
    uint64_t wake;              /* waits for this time, or 0 */
    HgInval req[HG_INVAL_REQS]; /* d->lock: invalidations posted, not served */
    unsigned nreq;
    bool req_all, req_membar;
    uint64_t inval_ack;         /* d->lock: all up to this one are flushed here */
    HgTlb utlb;                 /* slice owner */
    HgEngine *misses;           /* who has its miss table: itself, or the first SM of its group */
    HgPend *pend;               /* d->lock; cfg.utlb_misses slots; NULL: in another's */
    unsigned npend;
    _Atomic uint64_t cnt[HG_NUM_COUNTERS];  /* written by the engine only */
    /* d->lock */
    HgCtx *cur;                 /* SM: context scheduled last */
    HgCtx *run;                 /* SM: context whose warps it may touch now, or NULL */
    uint64_t slice_end;
    unsigned rr;                /* last context served */
    /* SM, slice owner: */
    uint64_t cycles;            /* warp instructions issued */
    HgIcPage *ic;
    HgPosted *posted;           /* NULL: the device has no data cache */
    uint8_t *shared;            /* of the block whose warp runs */
    uint32_t shared_bytes;
    bool fp_ok;                 /* hg_vec_fp_ok() of this thread */
    bool look;                  /* slice owner: an observer waits for hg_look() */
    /* slice owner: coalesced ram_written/vram_written of one instruction */
    struct {
        uint8_t *ptr;
        void *opaque;
        uint64_t addr;
        uint32_t lo, hi;        /* in the page; hi == 0: nothing */
        bool vram;
    } dirty;
    uint8_t bounce[HG_PAGE_SIZE];
};

#endif /* HG_ENGINE_H */
