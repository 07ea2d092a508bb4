/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All engines parked, for as long as somebody wants it.
 */
#include "device.h"
#include "base/pause.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/step.h"

/* Calls nest: hg_stop() and, say, hg_ram_remove(). */
void hg_pause(HgDev *d)
{
    hg_lock(d);
    d->pause++;
    for (;;) {
        bool busy = false;
        for (unsigned i = 0; i < d->neng; i++) {
            if (d->eng[i].in_slice) {
                atomic_store_explicit(&d->eng[i].attn, 1, memory_order_relaxed);
                busy = true;
            }
        }
        if (!busy) {
            return;
        }
        if (d->cfg.deterministic) {
            hg_steps_to_rest(d);
        } else {
            pthread_cond_wait(&d->quiet, &d->lock);
        }
    }
}

void hg_resume(HgDev *d)
{
    d->pause--;
    for (unsigned i = 0; i < d->neng; i++) {
        hg_kick(&d->eng[i]);
    }
    hg_unlock(d);
}
