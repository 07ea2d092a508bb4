/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Power-on state.
 */
#include "device.h"
#include "front/reset.h"
#include "base/trace.h"
#include "mem/data_cache.h"
#include "mem/posted.h"
#include "mmu/tlb.h"
#include "mmu/walk_cache.h"
#include "simt/sm.h"

void hg_reset_written(HgDev *d)
{
    hg_posted_drain_idle(d, NULL);
    hg_data_flush(d, 0, UINT64_MAX);
    hg_reset_locked(d);
}

/* Power-on state.  All engines are parked; d->lock is held. */
void hg_reset_locked(HgDev *d)
{
    HgInval all = { .type = HG_INVAL_ALL };

    hg_trace(d, HG_EV_RESET, 0, 0, 0, 0);
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        HgCtxSm *sm = c->sm;
        HgSeg *seg = c->copy.seg;
        hg_ctx_clear_warps(d, c);
        memset(c, 0, sizeof(*c));
        c->id = i;
        c->sm = sm;
        c->copy.seg = seg;
    }
    d->ctrl = d->intr_status = d->intr_enable = d->scratch = 0;
    for (unsigned i = 0; i < HG_NUM_ASIDS; i++) {
        atomic_store(&d->root[i], 0);
        atomic_store(&d->mode[i], HG_ASID_MODE_REPLAY);
        d->root_lo[i] = 0;
    }
    d->inval_asid = d->inval_start_lo = d->inval_len_lo = 0;
    d->inval_start = d->inval_len = d->inval_seq = d->inval_issued = d->inval_done = 0;
    d->cancel_asid = d->cancel_client = d->cancel_addr_lo = 0;
    d->cancel_addr = d->replay_seq = d->replay_done = 0;
    d->ninvq = d->nrq = d->ntimer = 0;
    memset(d->ring, 0, sizeof(d->ring));
    HG_HOOK(d, reset, d);
    memset(d->cnt, 0, sizeof(d->cnt));
    d->stalled_warps = 0;
    d->rng = d->cfg.seed;
    pthread_mutex_lock(&d->l2_lock);
    d->l2_gen++;
    hg_tlb_clear(&d->l2);
    hg_walk_cache_clear(&d->walks);
    pthread_mutex_unlock(&d->l2_lock);
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        e->nreq = 0;
        e->req_all = e->req_membar = false;
        if (e->posted) {
            e->posted->ctx = NULL;
            e->posted->n = e->posted->bytes = 0;
            e->posted->due = 0;
        }
        e->inval_ack = 0;
        e->cur = NULL;
        e->slice_end = e->cycles = 0;
        e->rr = 0;
        e->npend = 0;
        if (e->pend) {
            memset(e->pend, 0, d->cfg.utlb_misses * sizeof(*e->pend));
        }
        if (e->kind != HG_ENG_FE) {
            hg_engine_flush(e, &all);
            hg_tlb_clear(&e->utlb);
        }
        for (unsigned n = 0; n < HG_NUM_COUNTERS; n++) {
            atomic_store_explicit(&e->cnt[n], 0, memory_order_relaxed);
        }
    }
    hg_data_forget(d);
}
