/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Streaming multiprocessors: warp slots, block hand-out, slices, preemption,
 * end of a launch.
 */
#include "device.h"
#include "simt/sm.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/slice.h"
#include "base/time.h"
#include "base/trace.h"
#include "fault/fault.h"
#include "fault/replay.h"
#include "mem/posted.h"
#include "mmu/inval.h"
#include "simt/rv.h"
#include "timer/irq.h"

static uint32_t launch_grid(const HgCtx *c)
{
    return (uint32_t)c->desc[3];
}

static uint32_t launch_block(const HgCtx *c)
{
    return c->desc[3] >> 32;
}

static unsigned block_warps(const HgCtx *c)
{
    return (launch_block(c) + HG_LANES - 1) / HG_LANES;
}

static uint32_t all_warps(const HgDev *d)
{
    return d->cfg.warps == 32 ? UINT32_MAX : (1u << d->cfg.warps) - 1;
}

bool hg_ctx_alloc(HgDev *d, HgCtx *c)
{
    if (c->sm) {
        return true;
    }
    c->sm = hg_alloc_lines(d->nsm * sizeof(*c->sm));
    if (!c->sm) {
        return false;
    }
    hg_visit(d, 0, d->nsm * (d->cfg.warps * sizeof(HgWarp) + HG_SHARED_MAX));
    for (unsigned i = 0; i < d->nsm; i++) {
        c->sm[i].warps = hg_alloc_lines(d->cfg.warps * sizeof(HgWarp));
        c->sm[i].blocks = calloc(d->cfg.warps, sizeof(HgBlock));
        c->sm[i].shared = calloc(1, HG_SHARED_MAX);
        c->sm[i].free_mask = all_warps(d);
        if (!c->sm[i].warps || !c->sm[i].blocks || !c->sm[i].shared) {
            hg_ctx_free(d, c);
            return false;
        }
    }
    return true;
}

void hg_ctx_free(HgDev *d, HgCtx *c)
{
    for (unsigned i = 0; c->sm && i < d->nsm; i++) {
        free(c->sm[i].warps);
        free(c->sm[i].blocks);
        free(c->sm[i].shared);
    }
    free(c->sm);
    c->sm = NULL;
    free(c->copy.seg);
    c->copy.seg = NULL;
}

/* All warps to FREE; no SM is in a slice with this context. */
void hg_ctx_clear_warps(HgDev *d, HgCtx *c)
{
    for (unsigned s = 0; c->sm && s < d->nsm; s++) {
        HgCtxSm *cs = &c->sm[s];
        hg_visit(d, d->cfg.warps, 0);
        for (unsigned k = 0; k < d->cfg.warps; k++) {
            HgWarp *w = &cs->warps[k];
            if (w->state == HG_W_STALL) {
                hg_pend_drop(&d->eng[s], w->fault, w->nfault);
                d->stalled_warps--;
            }
            if (w->state != HG_W_FREE) {
                hg_replay_answer(d, &w->owed);
            }
            w->state = HG_W_FREE;
            w->nfault = 0;
            w->stall_mask = w->replay = w->live = w->barrier = w->wsync = 0;
        }
        memset(cs->blocks, 0, d->cfg.warps * sizeof(HgBlock));
        atomic_store_explicit(&cs->run_mask, 0, memory_order_relaxed);
        cs->free_mask = all_warps(d);
    }
}

static bool sm_busy_with(const HgDev *d, const HgCtx *c)
{
    for (unsigned i = 0; i < d->nsm; i++) {
        if (d->eng[i].run == c) {
            return true;
        }
    }
    return false;
}

void hg_launch_start(HgDev *d, HgCtx *c)
{
    c->next_block = c->blocks_done = 0;
    c->dying = false;
    c->res = (HgResult) { 0 };
    for (unsigned i = 0; i < d->nsm; i++) {
        c->sm[i].instrs = 0;
        c->sm[i].last = HG_MAX_WARPS - 1;   /* the first is warp 0 */
    }
    c->rs = HG_RS_LAUNCH;
    hg_trace(d, HG_EV_LAUNCH, c->id, c->desc[1], launch_grid(c), launch_block(c));
    hg_kick_sms(d);
}

/* First failure wins; SMs in a slice with the context leave at their next safe point. */
void hg_launch_fail(HgDev *d, HgCtx *c, const HgResult *r)
{
    if (c->rs != HG_RS_LAUNCH || c->dying) {
        return;
    }
    c->dying = true;
    c->res = *r;
    for (unsigned i = 0; i < d->nsm; i++) {
        if (d->eng[i].run == c) {
            atomic_store_explicit(&d->eng[i].attn, 1, memory_order_relaxed);
        }
    }
    hg_launch_try_finish(d, c);
}

void hg_launch_try_finish(HgDev *d, HgCtx *c)
{
    if (c->rs != HG_RS_LAUNCH || c->aborting || sm_busy_with(d, c) ||
        !(c->dying || c->blocks_done == launch_grid(c))) {
        return;
    }
    hg_ctx_clear_warps(d, c);
    for (unsigned i = 0; i < d->nsm; i++) {
        c->res.instrs += c->sm[i].instrs;
    }
    d->cnt[HG_CNT_LAUNCHES]++;
    c->rs = HG_RS_REPORT;
    hg_trace(d, HG_EV_LAUNCH_DONE, c->id, c->res.err, c->res.instrs, 0);
    hg_kick_fe(d);
}

unsigned hg_block_slots(const HgDev *d, const HgCtx *c)
{
    uint32_t step = hg_shared_step(c);

    return step && HG_SHARED_MAX / step < d->cfg.warps ? HG_SHARED_MAX / step : d->cfg.warps;
}

static int free_block(const HgDev *d, const HgCtx *c, const HgCtxSm *cs)
{
    unsigned n = hg_block_slots(d, c);

    for (unsigned b = 0; b < n; b++) {
        if (!cs->blocks[b].warps_left) {
            return (int)b;
        }
    }
    return -1;
}

static bool can_take_block(HgEngine *e, HgCtx *c)
{
    const HgCtxSm *cs = &c->sm[e->num];

    return c->next_block < launch_grid(c) &&
           (unsigned)__builtin_popcount(cs->free_mask) >= block_warps(c) &&
           free_block(e->d, c, cs) >= 0;
}

bool hg_sm_has_work(HgEngine *e, HgCtx *c)
{
    return c->enabled && !c->aborting && c->rs == HG_RS_LAUNCH && !c->dying &&
           (atomic_load_explicit(&c->sm[e->num].run_mask, memory_order_acquire) ||
            can_take_block(e, c));
}

/* Keep the current context until its time slice ends or it has nothing to issue. */
HgCtx *hg_sm_pick(HgEngine *e, uint64_t now)
{
    HgDev *d = e->d;
    HgCtx *old = e->cur;
    bool keep = old && hg_sm_has_work(e, old);

    if (keep && now < e->slice_end) {
        return old;
    }
    for (unsigned i = 1; i <= HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[(e->rr + i) % HG_NUM_CTXS];
        if (!hg_sm_has_work(e, c)) {
            continue;
        }
        uint32_t us = c->timeslice ? c->timeslice : HG_DEFAULT_SLICE_US;
        if (old && c != old && old->rs == HG_RS_LAUNCH && !old->dying && !old->aborting) {
            d->cnt[HG_CNT_PREEMPTS]++;
            hg_trace(d, HG_EV_PREEMPT, old->id, c->id, 0, 0);
        }
        e->slice_end = now + (uint64_t)us * 1000;
        e->rr = c->id;
        e->cur = c;
        return c;
    }
    return NULL;
}

/* Under d->lock: reserve slots for the next block; false if none fits or none is left. */
static bool claim_block(HgEngine *e, HgCtx *c, unsigned *slot)
{
    HgCtxSm *cs = &c->sm[e->num];
    unsigned nw = block_warps(c), b;
    HgBlock *blk;

    if (!can_take_block(e, c)) {
        return false;
    }
    b = free_block(e->d, c, cs);
    blk = &cs->blocks[b];
    *blk = (HgBlock) { .bid = c->next_block++, .threads = launch_block(c),
                       .live = launch_block(c), .warps_left = nw };
    for (unsigned i = 0; i < nw; i++) {
        unsigned k = __builtin_ctz(cs->free_mask);
        cs->free_mask &= ~(1u << k);
        blk->warp_mask |= 1u << k;
        cs->warps[k].state = HG_W_ACTIVE;
        cs->warps[k].block = b;
        cs->warps[k].index = i;
    }
    *slot = b;
    return true;
}

/* In the slice, without the lock: the warps are ACTIVE, so they are ours. */
static void init_block(HgEngine *e, HgCtx *c, unsigned b)
{
    HgCtxSm *cs = &c->sm[e->num];
    HgBlock *blk = &cs->blocks[b];

    for (uint32_t m = blk->warp_mask; m; m &= m - 1) {
        unsigned k = __builtin_ctz(m);
        HgWarp *w = &cs->warps[k];
        unsigned first = w->index * HG_LANES;
        unsigned n = blk->threads - first < HG_LANES ? blk->threads - first : HG_LANES;
        uint64_t slot = ((uint64_t)e->num * e->d->cfg.warps + k) * HG_LANES;
        uint32_t bytes = (uint32_t)c->desc[5];

        memset(w->x, 0, sizeof(w->x));
        memset(w->f, 0, sizeof(w->f));
        memset(w->fcsr, 0, sizeof(w->fcsr));
        memset(w->icount, 0, sizeof(w->icount));
        memset(w->res_addr, 0, sizeof(w->res_addr));
        memset(w->res_val, 0, sizeof(w->res_val));
        memset(w->res_size, 0, sizeof(w->res_size));
        for (unsigned l = 0; l < HG_LANES; l++) {
            w->pc[l] = c->desc[1];
            w->jump_to[l] = UINT64_MAX;     /* no pc */
            w->x[10][l] = c->desc[2];
            w->x[2][l] = c->desc[4] + (slot + l + 1) * bytes;
        }
        w->live = n == 32 ? UINT32_MAX : (1u << n) - 1;
        w->barrier = w->wsync = w->replay = w->starve = w->stall_mask = 0;
        w->nfault = 0;
        w->owed = 0;
    }
    memset(cs->shared + b * hg_shared_step(c), 0, hg_shared_bytes(c));
    atomic_fetch_or_explicit(&cs->run_mask, blk->warp_mask, memory_order_release);
}

/* A warp ended (live == 0).  Under d->lock. */
static void retire_warp(HgEngine *e, HgCtx *c, unsigned k)
{
    HgCtxSm *cs = &c->sm[e->num];
    HgWarp *w = &cs->warps[k];
    HgBlock *blk = &cs->blocks[w->block];

    hg_replay_answer(e->d, &w->owed);
    w->state = HG_W_FREE;
    cs->free_mask |= 1u << k;
    blk->warp_mask &= ~(1u << k);
    if (--blk->warps_left == 0) {
        c->blocks_done++;
    }
}

/*
 * The warp has no lane to issue: it ended, or all that live wait at the
 * barrier.  Counts are per block and belong to this SM.
 */
static void barrier_check(HgEngine *e, HgCtx *c, unsigned k)
{
    HgCtxSm *cs = &c->sm[e->num];
    HgBlock *blk = &cs->blocks[cs->warps[k].block];

    if (!blk->arrived || blk->arrived < blk->live) {
        return;
    }
    if (blk->live == blk->threads) {
        blk->arrived = 0;
        for (uint32_t m = blk->warp_mask; m; m &= m - 1) {
            cs->warps[__builtin_ctz(m)].barrier = 0;
        }
        atomic_fetch_or_explicit(&cs->run_mask, blk->warp_mask, memory_order_release);
        return;
    }
    /* a thread ended, so the rest wait for ever */
    for (uint32_t m = blk->warp_mask; m; m &= m - 1) {
        HgWarp *w = &cs->warps[__builtin_ctz(m)];
        if (w->barrier) {
            unsigned l = __builtin_ctz(w->barrier);
            HgResult r = { .err = HG_ERR_BARRIER, .pc = w->pc[l] - 4, .block = blk->bid,
                           .thread = w->index * HG_LANES + l };
            hg_launch_fail(e->d, c, &r);
            return;
        }
    }
}

/* The warp's instruction missed.  Lock not held. */
static void stalled(HgEngine *e, HgCtx *c, unsigned warp)
{
    HgDev *d = e->d;
    HgFaultBatch batch;
    HgResult r;

    hg_lock(d);
    if (hg_fault_warp(e, c, warp, &batch, &r) == HG_FAULT_ENDS) {
        hg_launch_fail(d, c, &r);
        hg_raise(d, HG_VEC_ERROR);
    }
    hg_fault_write(e, &batch);
    hg_unlock(d);
}

bool hg_sm_slice(HgEngine *e, HgCtx *c, uint32_t budget)
{
    HgDev *d = e->d;
    HgCtxSm *cs = &c->sm[e->num];
    uint32_t left = budget;

    e->cur = e->run = c;
    hg_slice_enter(e);
    if (e->posted && e->posted->ctx != c) {
        hg_posted_drain(e);
        e->posted->ctx = c;
    }
    for (;;) {
        unsigned b;
        if (hg_attn(e)) {
            hg_serve(e);
        }
        if (hg_any_posted(e) && (!(d->ctrl & HG_CTRL_ENABLE) || e->posted->due <= hg_now(d))) {
            hg_posted_drain(e);
        }
        if (!hg_may_run(d) || c->dying || c->aborting || !left) {
            break;
        }
        /* d->lock is held here */
        if (claim_block(e, c, &b)) {
            hg_unlock(d);
            init_block(e, c, b);
            hg_lock(d);
            continue;
        }
        if (!atomic_load_explicit(&cs->run_mask, memory_order_acquire)) {
            break;
        }
        hg_unlock(d);
        bool retired = false;
        while (left && !hg_attn(e) && !retired) {
            uint32_t mask = atomic_load_explicit(&cs->run_mask, memory_order_acquire);
            if (!mask) {
                break;
            }
            /* the next runnable warp after the last one */
            uint32_t above = cs->last >= 31 ? 0 : mask & ~((2u << cs->last) - 1);
            unsigned k = __builtin_ctz(above ? above : mask);
            HgWarp *w = &cs->warps[k];
            HgBlock *blk = &cs->blocks[w->block];
            uint32_t chunk = left < HG_WARP_CHUNK ? left : HG_WARP_CHUNK, was = chunk;
            uint32_t live = w->live, waiting = w->barrier;
            HgResult r;

            cs->last = k;
            HgRun res = hg_rv_run(e, c, w, &chunk, &r);
            left -= was - chunk;
            blk->live -= __builtin_popcount(live & ~w->live);
            blk->arrived += __builtin_popcount(w->barrier & ~waiting);
            if (w->owed && !w->replay && res != HG_RUN_STALL) {
                hg_lock(d);
                hg_replay_answer(d, &w->owed);
                hg_unlock(d);
            }
            switch (res) {
            case HG_RUN_OK:
                break;
            case HG_RUN_STALL:
                stalled(e, c, k);
                break;
            case HG_RUN_IDLE:
                atomic_fetch_and_explicit(&cs->run_mask, ~(1u << k), memory_order_relaxed);
                hg_lock(d);
                if (!w->live) {
                    barrier_check(e, c, k);
                    retire_warp(e, c, k);
                    retired = true;
                } else {
                    barrier_check(e, c, k);
                }
                hg_unlock(d);
                break;
            case HG_RUN_ERROR:
                r.block = blk->bid;
                r.thread += w->index * HG_LANES;
                hg_lock(d);
                hg_launch_fail(d, c, &r);
                hg_unlock(d);
                break;
            }
        }
        hg_lock(d);
    }
    e->run = NULL;
    hg_serve(e);
    hg_slice_leave(e);
    if (hg_any_posted(e)) {
        hg_kick_fe(d);          /* which looks to it that they are there in time */
    }
    hg_launch_try_finish(d, c);
    return c->rs == HG_RS_REPORT;
}
