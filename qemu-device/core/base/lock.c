/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * d->lock, and the calls to the host that wait for its end.
 */
#include "device.h"
#include "base/lock.h"
#include "base/trace.h"

void hg_lock(HgDev *d)
{
    pthread_mutex_lock(&d->lock);
}

/* Host calls that were put off while the lock was held are made here. */
void hg_unlock(HgDev *d)
{
    uint32_t irq[HG_NUM_VECTORS];
    bool any = d->irq_any, kick = d->kick_out;

    if (any) {
        memcpy(irq, d->irq_out, sizeof(irq));
        memset(d->irq_out, 0, sizeof(d->irq_out));
        d->irq_any = false;
    }
    d->kick_out = false;
    pthread_mutex_unlock(&d->lock);
    for (unsigned i = 0; any && i < HG_NUM_VECTORS; i++) {
        for (; irq[i]; irq[i]--) {
            hg_trace(d, HG_EV_IRQ, i, 0, 0, 0);
            if (d->ops.irq) {
                d->ops.irq(d->host, i);
            }
        }
    }
    if (kick && d->ops.kick) {
        d->ops.kick(d->host);
    }
}
