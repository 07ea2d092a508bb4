/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Invalidations: issued at once or later, posted to engines in slices, complete when all have
 * served them.  device.h says what that relies on.
 */
#include "device.h"
#include "mmu/inval.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/time.h"
#include "base/trace.h"
#include "mem/posted.h"
#include "mmu/tlb.h"
#include "mmu/walk_cache.h"
#include "timer/irq.h"

void hg_inval_make(HgInval *iv, unsigned type, unsigned asid, uint64_t start, uint64_t len)
{
    iv->type = type & ~HG_INVAL_MEMBAR;
    iv->membar = type & HG_INVAL_MEMBAR;
    iv->asid = asid;
    iv->first = 1;
    iv->last = 0;
    if (iv->type == HG_INVAL_RANGE && len) {
        uint64_t end = start + (len - 1);
        if (end < start) {
            end = UINT64_MAX;
        }
        iv->first = start >> HG_PAGE_SHIFT;
        iv->last = end >> HG_PAGE_SHIFT;
    }
}

/* DONE = the last invalidation that every engine has served. */
static void inval_update(HgDev *d)
{
    uint64_t done = d->inval_issued;

    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        if (d->eng[i].inval_ack < done) {
            done = d->eng[i].inval_ack;
        }
    }
    if (done > d->inval_done) {
        d->inval_done = done;
        hg_trace(d, HG_EV_INVAL_DONE, done, 0, 0, 0);
        if (d->intr_enable & (1u << HG_VEC_INVAL)) {
            hg_raise(d, HG_VEC_INVAL);
        }
        hg_kick_fe(d);          /* INVALIDATE descriptors wait for it */
    }
}

static void inval_issue(HgDev *d, const HgInval *iv, uint64_t seq)
{
    pthread_mutex_lock(&d->l2_lock);
    d->l2_gen++;
    hg_visit(d, d->l2.sets * d->l2.ways + d->walks.sets * d->walks.ways, 0);
    hg_tlb_flush(&d->l2, iv);
    hg_walk_cache_flush(&d->walks, iv);
    HG_HOOK(d, inval_l2, d, iv, seq);
    pthread_mutex_unlock(&d->l2_lock);

    d->inval_issued = seq;
    HG_HOOK(d, inval_issued, d, iv, seq);
    if (iv->membar) {           /* the other SMs: hg_serve() */
        hg_posted_drain_idle(d, NULL);
    }
    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        HgEngine *e = &d->eng[i];
        if (!e->in_slice) {
            hg_engine_flush(e, iv);
            e->inval_ack = seq;
            continue;
        }
        if (e->nreq < HG_INVAL_REQS) {
            e->req[e->nreq++] = *iv;
        } else {
            e->req_all = true;
        }
        e->req_membar |= iv->membar;
        atomic_store_explicit(&e->attn, 1, memory_order_relaxed);
    }
    inval_update(d);
}

uint64_t hg_inval_submit(HgDev *d, const HgInval *iv)
{
    uint64_t seq = ++d->inval_seq, arg = 0, due = 0, now = hg_now(d);

    d->cnt[HG_CNT_INVALS]++;
    hg_trace(d, HG_EV_INVAL_START, (uint64_t)iv->asid << 32 | iv->type,
             iv->first << HG_PAGE_SHIFT,
             iv->first <= iv->last ? (iv->last - iv->first + 1) << HG_PAGE_SHIFT : 0, seq);
    HG_HOOK(d, inval_asked, d, iv, seq, now);
    if (hg_injected(d, HG_INJ_TLB_INVALIDATE, iv->first << HG_PAGE_SHIFT, &arg) == HG_ACT_DELAY) {
        due = hg_later(now, arg);
    }
    if (!due && !d->ninvq) {
        inval_issue(d, iv, seq);
        return seq;
    }
    /* slow hardware: the flush itself comes later, in order */
    if (d->ninvq == HG_INVAL_QUEUE) {
        unsigned t = d->ninvq - 1;
        d->invq[t].iv = (HgInval) {
            .type = HG_INVAL_ALL, .membar = d->invq[t].iv.membar || iv->membar,
        };
        d->invq[t].seq = seq;
        d->invq[t].due = due > d->invq[t].due ? due : d->invq[t].due;
    } else {
        d->invq[d->ninvq].iv = *iv;
        d->invq[d->ninvq].seq = seq;
        d->invq[d->ninvq].due = due;
        d->ninvq++;
    }
    hg_kick_fe(d);
    return seq;
}

void hg_inval_due(HgDev *d, uint64_t now)
{
    while (d->ninvq && d->invq[0].due <= now) {
        HgInval iv = d->invq[0].iv;
        uint64_t seq = d->invq[0].seq;
        d->ninvq--;
        memmove(&d->invq[0], &d->invq[1], d->ninvq * sizeof(d->invq[0]));
        inval_issue(d, &iv, seq);
    }
}

/* Invalidations posted while the engine was in its slice. */
void hg_serve(HgEngine *e)
{
    HgDev *d = e->d;

    atomic_store_explicit(&e->attn, 0, memory_order_relaxed);
    if (!e->nreq && !e->req_all) {
        return;
    }
    if (e->req_all) {
        HgInval all = { .type = HG_INVAL_ALL };
        hg_engine_flush(e, &all);
    } else {
        for (unsigned i = 0; i < e->nreq; i++) {
            hg_engine_flush(e, &e->req[i]);
        }
    }
    if (e->req_membar) {
        hg_posted_order(e);
    }
    e->nreq = 0;
    e->req_all = e->req_membar = false;
    e->inval_ack = d->inval_issued;
    inval_update(d);
}
