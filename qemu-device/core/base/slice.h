/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Slices of engines (device.h), and what belongs to the engine in one.
 */
#ifndef HG_SLICE_H
#define HG_SLICE_H

#include "types/engine.h"

bool hg_may_run(HgDev *d);      /* d->lock: engines may be in slices */
void hg_slice_enter(HgEngine *e);                                       /* d->lock */
void hg_slice_leave(HgEngine *e);       /* d->lock; its requests are served (hg_serve()) */
bool hg_wanted_parked(HgDev *d);        /* for an engine that waits in its slice; takes d->lock */

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
