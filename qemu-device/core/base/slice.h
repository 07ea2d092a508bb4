/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Slices of engines (device.h), and what belongs to the engine in one.
 */
#ifndef HG_SLICE_H
#define HG_SLICE_H

#include "device.h"

void hg_slice_enter(HgEngine *e);                                       /* d->lock */
void hg_slice_leave(HgEngine *e);       /* d->lock; its requests are served (hg_serve()) */
bool hg_wanted_parked(HgDev *d);        /* for an engine that waits in its slice; takes d->lock */

/* d->lock: engines may be in slices.  Inline: it is asked for each context at each step. */
static inline bool hg_may_run(const HgDev *d)
{
    return d->started && !d->pause && !d->exiting && (d->ctrl & HG_CTRL_ENABLE);
}

static inline void hg_cnt(HgEngine *e, unsigned n, uint64_t v)
{
    atomic_store_explicit(&e->cnt[n],
        atomic_load_explicit(&e->cnt[n], memory_order_relaxed) + v, memory_order_relaxed);
}

static inline bool hg_attn(HgEngine *e)
{
    return atomic_load_explicit(&e->attn, memory_order_relaxed) != 0;
}

#endif /* HG_SLICE_H */
