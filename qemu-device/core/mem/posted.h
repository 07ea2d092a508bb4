/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Posted writes: stores of SMs to system memory that are on their way.
 */
#ifndef HG_POSTED_H
#define HG_POSTED_H

#include "device.h"

/* In the slice, e->posted is there: the value goes to the bus, later.  Naturally aligned. */
void hg_post(HgEngine *e, uint64_t addr, uint64_t value, unsigned size);
/* All are there.  By the SM while it runs warps, else under d->lock; e->posted is there. */
void hg_posted_drain(HgEngine *e);
/* d->lock; those of that context, or all; of SMs that run no warps. */
void hg_posted_drain_idle(HgDev *d, const HgCtx *c);
void hg_posted_drain_due(HgDev *d, uint64_t now);       /* d->lock; likewise */
uint64_t hg_posted_deadline(HgDev *d);                  /* d->lock; likewise */

static inline bool hg_any_posted(const HgEngine *e)
{
    return e->posted && e->posted->n;
}

/* Before the SM reads system memory, or does what is ordered after its stores. */
static inline void hg_posted_order(HgEngine *e)
{
    if (hg_any_posted(e)) {
        hg_posted_drain(e);
    }
}

#endif /* HG_POSTED_H */
