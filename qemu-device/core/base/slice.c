/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Slices of engines: entering and leaving.
 */
#include "device.h"
#include "base/slice.h"

void hg_slice_enter(HgEngine *e)
{
    e->in_slice = true;
    atomic_store_explicit(&e->attn, 0, memory_order_relaxed);
}

void hg_slice_leave(HgEngine *e)
{
    HgDev *d = e->d;

    e->in_slice = false;
    if (d->pause || d->exiting) {
        pthread_cond_broadcast(&d->quiet);
    }
}

bool hg_wanted_parked(HgDev *d)
{
    pthread_mutex_lock(&d->lock);
    bool p = d->pause || d->exiting || !d->started;
    pthread_mutex_unlock(&d->lock);
    return p;
}
