/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * d->lock, and the calls to the host that wait for its end.
 */
#include "device.h"
#include "base/lock.h"
#include "base/trace.h"

#ifdef HG_COUNT_WORK
#include <stdio.h>

/* Of the lock that this thread holds. */
static _Thread_local struct {
    HgDev *d;
    uint64_t entries, bytes;
    uint64_t max_entries, max_bytes;
} hold;

/* What the host's configuration asks for: a queue of invalidations, of replays, of faults. */
static uint64_t entries_configured(const HgDev *d)
{
    const HgConfig *c = &d->cfg;
    uint64_t warps = (uint64_t)HG_NUM_CTXS * c->sms * c->warps;
    uint64_t tlbs = c->l2tlb_entries + c->walk_entries +
                    (c->sms + c->ces) * (c->utlb_entries + HG_IC_PAGES);

    /* a page of the data cache for each micro-TLB entry of a state that is loaded */
    tlbs += c->data_pages;
    uint64_t found = (uint64_t)c->data_pages * (c->sms + c->ces) * c->utlb_entries;
    return HG_INVAL_QUEUE * tlbs + found + HG_REPLAYS_TURN * warps * (1 + HG_STALL_MAX) +
           (HG_STALL_MAX + HG_REPLAYS_TURN * (uint64_t)c->sms) * c->utlb_misses;
}

/* A context's warps, made when it is enabled first. */
static uint64_t bytes_configured(const HgDev *d)
{
    uint64_t sm = d->cfg.warps * (uint64_t)sizeof(HgWarp) + HG_SHARED_MAX + HG_POSTED_BYTES;

    return d->cfg.sms * sm +
           (uint64_t)d->cfg.data_pages * HG_PAGE_SIZE;
}

void hg_visit(HgDev *d, uint64_t entries, uint64_t bytes)
{
    if (hold.d != d) {
        return;                 /* without the lock everybody may take his time */
    }
    hold.entries += entries;
    hold.bytes += bytes;
    if (hold.entries > hold.max_entries + entries_configured(d) ||
        hold.bytes > hold.max_bytes + bytes_configured(d)) {
        fprintf(stderr, "one hold of the device's lock: %llu entries, %llu bytes\n",
                (unsigned long long)hold.entries, (unsigned long long)hold.bytes);
        abort();
    }
}

void hg_visit_state(HgDev *d, uint64_t bytes, uint64_t max_bytes)
{
    hold.max_entries = HG_STATE_ENTRIES;
    hold.max_bytes = max_bytes;
    hg_visit(d, 0, bytes);
}

#define HOLD(dev) (hold.d = (dev), hold.entries = hold.bytes = 0, \
                   hold.max_entries = HG_HOLD_ENTRIES, hold.max_bytes = HG_HOLD_BYTES)
#else
#define HOLD(dev) ((void)0)
#endif

void hg_lock(HgDev *d)
{
    pthread_mutex_lock(&d->lock);
    HOLD(d);
}

/* Host calls that were put off while the lock was held are made here. */
void hg_unlock(HgDev *d)
{
    uint32_t irq[HG_NUM_VECTORS], again = d->irq_again;
    bool any = d->irq_any, kick = d->kick_out;

    if (any) {
        memcpy(irq, d->irq_out, sizeof(irq));
        memset(d->irq_out, 0, sizeof(d->irq_out));
        d->irq_any = false;
        d->irq_again = 0;
    }
    d->kick_out = false;
    HOLD(NULL);
    pthread_mutex_unlock(&d->lock);
    for (unsigned i = 0; any && i < HG_NUM_VECTORS; i++) {
        for (; irq[i]; irq[i]--) {
            hg_trace(d, HG_EV_IRQ, i, 0, 0, 0);
            if (d->ops.irq) {
                d->ops.irq(d->host, i, irq[i] == 1 && (again >> i & 1));
            }
        }
    }
    if (kick && d->ops.kick) {
        d->ops.kick(d->host);
    }
}
