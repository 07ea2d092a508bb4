/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Contexts: enable, disable, doorbell, halt.
 */
#include "device.h"
#include "ring/contexts.h"
#include "base/kick.h"
#include "base/trace.h"
#include "ce/ce.h"
#include "mem/posted.h"
#include "simt/sm.h"
#include "timer/irq.h"
#include "timer/timer.h"

void hg_ctx_halt(HgDev *d, HgCtx *c, uint32_t err, uint64_t addr)
{
    c->halted = true;
    c->error = err;
    c->error_addr = addr;
    hg_guest_error(d, err, c->id, addr);
    hg_raise(d, HG_VEC_ERROR);
}

void hg_doorbell(HgDev *d, HgCtx *c, uint32_t put)
{
    if (!c->enabled || c->aborting || put >= c->ring_size) {
        hg_guest_error(d, 0, c->id, put);
        return;
    }
    c->put = put;
    hg_kick_fe(d);
}

void hg_ctx_enable(HgDev *d, HgCtx *c, bool priv, bool stall)
{
    if (c->aborting || !c->ring_size || !hg_ctx_alloc(d, c)) {
        hg_guest_error(d, 0, c->id, c->ring_size);
        return;
    }
    HG_HOOK(d, context, d, c);
    c->enabled = true;
    c->priv = priv;
    c->stall = stall;
    c->halted = false;
    c->get = c->put = 0;
    c->error = HG_ERR_NONE;
    c->error_addr = 0;
    c->rs = HG_RS_FETCH;
}

void hg_ctx_disable(HgDev *d, HgCtx *c)
{
    if (!c->enabled) {
        return;
    }
    c->enabled = false;
    c->aborting = true;
    for (unsigned i = 0; i < d->neng; i++) {
        if (d->eng[i].in_slice) {
            atomic_store_explicit(&d->eng[i].attn, 1, memory_order_relaxed);
        }
    }
    hg_timers_drop(d, HG_T_DOORBELL, c->id, 0); /* late doorbells are for the old ring */
    hg_ctx_try_quiesce(d, c);
}

/* The last step of a disable: nobody uses the context any more. */
void hg_ctx_try_quiesce(HgDev *d, HgCtx *c)
{
    bool job;

    if (!c->aborting || c->fe_busy || c->copy.busy) {
        return;
    }
    for (unsigned i = 0; i < d->nsm; i++) {
        if (d->eng[i].run == c) {
            return;
        }
    }
    hg_posted_drain_idle(d, c);
    job = c->rs != HG_RS_FETCH || c->get != c->put;
    if (c->rs == HG_RS_LAUNCH) {
        hg_ctx_clear_warps(d, c);
        d->cnt[HG_CNT_LAUNCHES]++;
        hg_trace(d, HG_EV_LAUNCH_DONE, c->id, HG_ERR_ABORTED, 0, 0);
    } else if (c->rs == HG_RS_COPY) {
        c->res = (HgResult) { .err = HG_ERR_ABORTED };
        hg_copy_end(d, c);
    }
    c->copy.state = HG_CP_NONE; /* also one that an injected delay held back */
    c->dying = false;
    c->rs = HG_RS_FETCH;
    c->aborting = false;
    if (job && !c->halted) {
        c->error = HG_ERR_ABORTED;
    }
}
