/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Accesses that have no translation: miss tables, fault rings, what cancel hits.
 * All under d->lock.
 *
 * What an access comes to is said here; who runs the job ends it.  So the owner
 * of a warp or copy asks for the verdict, acts on it, and then has the entries
 * written, all in one hold of d->lock but for what hg_fault_write() does in between.
 */
#ifndef HG_FAULT_H
#define HG_FAULT_H

#include "device.h"

typedef enum {
    HG_FAULT_WAITS,             /* it is stalled until a replay */
    HG_FAULT_ENDS,              /* the job ends with this result, and there is an error interrupt */
    HG_FAULT_MOOT,              /* the job has ended otherwise */
} HgVerdict;

/* An entry to write once the lock is released. */
typedef struct HgFaultEntry {
    uint64_t addr;
    uint64_t delay;             /* of VALID, ns */
    uint32_t w[8];
    uint8_t ring;
} HgFaultEntry;

#define HG_FAULT_BATCH (2 * HG_STALL_MAX)

typedef struct HgFaultBatch {
    HgFaultEntry entry[HG_FAULT_BATCH];
    unsigned n;
    bool was_empty[2];          /* the rings, before */
} HgFaultBatch;

/*
 * The warp's instruction missed; w->fault[0..nfault) has one entry a page,
 * w->stall_mask the lanes.  e is in its slice.
 */
HgVerdict hg_fault_warp(HgEngine *e, HgCtx *c, unsigned warp, HgFaultBatch *b, HgResult *r);
/* The same of a piece of c->copy and its fault[]. */
HgVerdict hg_fault_copy(HgEngine *e, HgCtx *c, HgFaultBatch *b, HgResult *r);
void hg_fault_write(HgEngine *e, HgFaultBatch *b);      /* d->lock on entry and exit */
/* VALID of a delayed entry. */
void hg_ring_valid_write(HgEngine *e, unsigned ring, uint64_t addr, uint32_t word); /* the same */
/* Prefetches that miss; e is in its slice, without d->lock.  Their job does not wait. */
void hg_fault_prefetch(HgEngine *e, HgCtx *c, unsigned warp, HgFault *f, unsigned n);
/* A replay: they are over. */
void hg_fault_drop_hints(HgDev *d);
/*
 * An entry is due again (injected): a = slot of the miss table | engine << 12 | client << 17 |
 * context << 25, b = page | reason | level << 4, c = interval.  e is in a slice; d->lock on entry
 * and exit.
 */
void hg_fault_repeat(HgEngine *e, const HgTimer *t);
bool hg_fault_repeat_ok(const HgDev *d, const HgTimer *t);      /* one that was loaded */
void hg_pend_drop(HgEngine *e, HgFault *f, unsigned n);
/* How many stalled accesses of c a cancel matches, and the result of the first. */
unsigned hg_cancel_hits(HgDev *d, HgCtx *c, unsigned type, unsigned scope, HgResult *r);

#endif /* HG_FAULT_H */
