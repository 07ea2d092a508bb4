/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The front end: timers, rings whose turn it is; and who of the engines does what in one turn.
 */
#include "device.h"
#include "front/front.h"
#include "base/lock.h"
#include "base/slice.h"
#include "base/time.h"
#include "ce/ce.h"
#include "fault/fault.h"
#include "fault/replay.h"
#include "mem/posted.h"
#include "mmu/inval.h"
#include "ring/contexts.h"
#include "ring/ring.h"
#include "simt/sm.h"
#include "timer/irq.h"

/* When the front end has something to do again; UINT64_MAX = when kicked. */
uint64_t hg_next_deadline(HgDev *d, uint64_t now)
{
    uint64_t at = hg_posted_deadline(d);

    for (unsigned i = 0; i < d->ntimer; i++) {
        at = d->timer[i].due < at ? d->timer[i].due : at;
    }
    if (d->ninvq && d->invq[0].due < at) {
        at = d->invq[0].due;
    }
    if (!hg_may_run(d)) {
        return at;
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        if (!c->enabled || c->aborting || c->halted || c->fe_busy) {
            continue;
        }
        if (hg_ring_ready(d, c, now)) {
            return now;
        }
        if (c->rs == HG_RS_DELAY && c->not_before < at) {
            at = c->not_before;
        } else if (c->rs == HG_RS_WAIT && c->poll_at < at) {
            at = c->poll_at;
        }
    }
    return at;
}

/* Timers do not need CTRL.ENABLE: only a stopped or paused device holds them. */
static bool timers_due(HgDev *d, uint64_t now)
{
    bool flush = !(d->ctrl & HG_CTRL_ENABLE);

    if (!d->started || d->pause || d->exiting) {
        return false;
    }
    if ((d->ninvq && d->invq[0].due <= now) || hg_posted_deadline(d) <= now) {
        return true;
    }
    for (unsigned i = 0; i < d->ntimer; i++) {
        /* a disabled device writes what it owes to the fault ring, then is parked */
        if (d->timer[i].due <= now || (flush && d->timer[i].kind == HG_T_VALID)) {
            return true;
        }
    }
    return false;
}

bool hg_fe_work(HgDev *d, uint64_t now)
{
    if (timers_due(d, now)) {
        return true;
    }
    for (unsigned i = 0; hg_may_run(d) && i < HG_NUM_CTXS; i++) {
        if (hg_ring_ready(d, &d->ctx[i], now)) {
            return true;
        }
    }
    return false;
}

static void run_timer(HgEngine *e, const HgTimer *t)
{
    HgDev *d = e->d;

    switch (t->kind) {
    case HG_T_IRQ:
        if (t->b) {             /* a duplicate: the event was there already */
            hg_irq_message(d, t->a);
        } else {
            hg_raise_now(d, t->a);
        }
        break;
    case HG_T_REPLAY:
        hg_replay_perform(d, t->b);
        break;
    case HG_T_DOORBELL:
        hg_doorbell(d, &d->ctx[t->a], (uint32_t)t->b);
        break;
    case HG_T_REPEAT:
        hg_slice_enter(e);
        hg_fault_repeat(e, t);
        hg_serve(e);
        hg_slice_leave(e);
        break;
    case HG_T_VALID:
        hg_slice_enter(e);
        hg_ring_valid_write(e, t->a, t->b, t->c);
        hg_serve(e);
        hg_slice_leave(e);
        break;
    }
}

static void run_timers(HgEngine *e, uint64_t now)
{
    HgDev *d = e->d;

    unsigned replays = HG_REPLAYS_TURN;

    hg_inval_due(d, now);
    hg_posted_drain_due(d, now);
    for (unsigned budget = HG_TIMERS_TURN; budget && replays && timers_due(d, now); budget--) {
        bool flush = !(d->ctrl & HG_CTRL_ENABLE);
        unsigned best = HG_TIMERS;
        hg_visit(d, 2 * d->ntimer, 0);
        for (unsigned i = 0; i < d->ntimer; i++) {
            if ((d->timer[i].due <= now || (flush && d->timer[i].kind == HG_T_VALID)) &&
                (best == HG_TIMERS || d->timer[i].due < d->timer[best].due)) {
                best = i;
            }
        }
        if (best == HG_TIMERS) {
            break;
        }
        HgTimer t = d->timer[best];
        d->ntimer--;
        memmove(&d->timer[best], &d->timer[best + 1], (d->ntimer - best) * sizeof(t));
        replays -= t.kind == HG_T_REPLAY;
        run_timer(e, &t);
    }
}

/* d->lock on entry and exit. */
static void fe_slice(HgEngine *e)
{
    HgDev *d = e->d;

    run_timers(e, hg_now(d));
    for (unsigned i = 1; i <= HG_NUM_CTXS && hg_may_run(d); i++) {
        HgCtx *c = &d->ctx[(e->rr + i) % HG_NUM_CTXS];
        if (hg_ring_ready(d, c, hg_now(d))) {
            e->rr = c->id;
            hg_ring_run(e, c);
            i = 0;
            if (hg_fe_work(d, hg_now(d))) {
                return;         /* timers may be due */
            }
        }
    }
}

/* After a slice of context c on e. */
static void slice_over(HgEngine *e, HgCtx *c, bool job_done)
{
    HgDev *d = e->d;

    hg_ctx_try_quiesce(d, c);
    if (job_done && hg_ring_ready(d, c, hg_now(d)) && hg_may_run(d)) {
        hg_ring_run(e, c);      /* saves a thread hop between launch, report and fence */
    }
}

bool hg_engine_turn(HgEngine *e)
{
    HgDev *d = e->d;
    HgCtx *c;

    if (e->kind == HG_ENG_FE) {
        if (!hg_fe_work(d, hg_now(d))) {
            return false;
        }
        fe_slice(e);
        return true;
    }
    if (!hg_may_run(d)) {
        return false;
    }
    if (e->kind == HG_ENG_SM) {
        c = hg_sm_pick(e, hg_now(d));
        if (!c) {
            return false;
        }
        slice_over(e, c, hg_sm_slice(e, c, HG_SM_SLICE));
        return true;
    }
    c = hg_ce_pick(e);
    if (!c) {
        return false;
    }
    slice_over(e, c, hg_ce_slice(e, c, HG_CE_SLICE));
    return true;
}
