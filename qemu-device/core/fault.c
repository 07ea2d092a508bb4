/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fault unit: miss tables, fault rings, replay, cancel.
 *
 * A stalled access either owns a reference to a slot of its engine's miss
 * table (an entry for that page was written, or dropped, since the last
 * replay), or found the table full and waits without one.  A replay empties
 * the tables and makes every stalled access runnable; so no access waits for a
 * page that nobody was told of, as long as software answers every entry, and
 * every overflow, with a replay.
 */
#include "hg_internal.h"

/* An entry to write once the lock is released. */
typedef struct Emit {
    uint64_t addr;
    uint64_t delay;             /* of VALID, ns */
    uint32_t w[8];
    uint8_t ring;
} Emit;

#define EMIT_MAX (2 * HG_STALL_MAX)

static uint32_t source_word(const HgEngine *e, unsigned client)
{
    return e->kind | (uint32_t)e->num << 8 | (client & 0xff) << 16;
}

static bool emit_one(HgDev *d, unsigned ring, const Emit *m, Emit *out, bool drop)
{
    HgRing *r = &d->ring[ring];

    if (!r->enabled || r->overflow || drop || ((r->put + 1) & (r->size - 1)) == r->get) {
        if (r->enabled) {
            r->overflow = true;
        }
        d->cnt[HG_CNT_FAULTS_DROPPED]++;
        hg_trace(d, HG_EV_FAULT_DROPPED, (uint64_t)m->w[HG_FE_ASID] << 32 | m->w[HG_FE_SOURCE],
                 (uint64_t)m->w[HG_FE_ADDR_HI] << 32 | m->w[HG_FE_ADDR_LO], m->w[HG_FE_INFO], 0);
        return false;
    }
    *out = *m;
    out->ring = ring;
    out->addr = r->base + (uint64_t)r->put * HG_FAULT_ENTRY_SIZE;
    r->put = (r->put + 1) & (r->size - 1);
    r->writers++;
    d->cnt[ring ? HG_CNT_FAULTS_NONREPLAY : HG_CNT_FAULTS]++;
    hg_trace(d, HG_EV_FAULT, (uint64_t)m->w[HG_FE_ASID] << 32 | m->w[HG_FE_SOURCE],
             (uint64_t)m->w[HG_FE_ADDR_HI] << 32 | m->w[HG_FE_ADDR_LO], m->w[HG_FE_INFO], 0);
    return true;
}

/* Returns how many entries were added to out (0..2). */
static unsigned emit(HgEngine *e, HgCtx *c, unsigned ring, unsigned client,
                     const HgFault *f, Emit *out)
{
    HgDev *d = e->d;
    Emit m;
    uint64_t now = hg_now(d), page = f->va & ~(uint64_t)HG_PAGE_MASK, arg = 0;
    HgInjAct act;
    unsigned n = 0;

    memset(&m, 0, sizeof(m));
    m.w[HG_FE_ADDR_LO] = (uint32_t)page;
    m.w[HG_FE_ADDR_HI] = page >> 32;
    m.w[HG_FE_TIME_LO] = (uint32_t)now;
    m.w[HG_FE_TIME_HI] = now >> 32;
    m.w[HG_FE_ASID] = c->asid | c->id << 16;
    m.w[HG_FE_SOURCE] = source_word(e, client);
    m.w[HG_FE_INFO] = f->access | (uint32_t)f->reason << 4 | (uint32_t)f->level << 12;
    m.w[HG_FE_FLAGS] = HG_FE_VALID | (ring ? 0 : HG_FE_REPLAYABLE);

    act = hg_injected(d, HG_INJ_FAULT, page, &arg);
    if (act == HG_ACT_DELAY_VALID) {
        m.delay = arg ? arg : 1;
    }
    n += emit_one(d, ring, &m, &out[n], act == HG_ACT_DROP);
    if (act == HG_ACT_DUPLICATE && n) {
        n += emit_one(d, ring, &m, &out[n], false);
    }
    return n;
}

/* VALID of a delayed entry; d->lock on entry and exit. */
void hg_ring_valid_write(HgEngine *e, unsigned ring, uint64_t addr, uint32_t word)
{
    HgDev *d = e->d;
    int r;

    hg_leave_lock(e);
    atomic_thread_fence(memory_order_release);
    r = hg_bus_write(e, addr + HG_FE_FLAGS * 4, &word, 4);
    hg_retake_lock(e);
    d->ring[ring].writers--;
    if (r) {
        d->cnt[HG_CNT_FAULTS_DROPPED]++;
        hg_guest_error(d, HG_ERR_BUS, addr, 0);
    }
    hg_raise(d, ring ? HG_VEC_ERROR : HG_VEC_FAULT);
}

/*
 * Write entries: bodies first, then the VALIDs in an order drawn from the
 * seed.  d->lock on entry and exit, released in between; the engine is in a
 * slice, and `writers` keeps the ring's memory in use.
 */
static void emit_write(HgEngine *e, Emit *m, unsigned n, bool was_empty[2])
{
    HgDev *d = e->d;
    unsigned bad = 0, order[EMIT_MAX];
    bool irq[2] = { false, false };

    for (unsigned i = 0; i < n; i++) {
        order[i] = i;
    }
    for (unsigned i = n; i > 1; i--) {
        unsigned j = hg_rand(&d->rng) % i, t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
    hg_leave_lock(e);
    for (unsigned i = 0; i < n; i++) {
        uint32_t body[8];
        hg_check_fault_slot(e, m[i].ring, m[i].addr);
        memcpy(body, m[i].w, sizeof(body));
        body[HG_FE_FLAGS] &= ~HG_FE_VALID;
        if (hg_bus_write(e, m[i].addr, body, sizeof(body))) {
            m[i].w[HG_FE_FLAGS] = 0;
            bad++;
        }
    }
    atomic_thread_fence(memory_order_release);
    hg_point(e, HG_AT_BUS);
    for (unsigned i = 0; i < n; i++) {
        Emit *x = &m[order[i]];
        if (x->w[HG_FE_FLAGS] && !x->delay &&
            hg_bus_write(e, x->addr + HG_FE_FLAGS * 4, &x->w[HG_FE_FLAGS], 4)) {
            bad++;
        }
    }
    hg_retake_lock(e);
    for (unsigned i = 0; i < n; i++) {
        HgRing *r = &d->ring[m[i].ring];
        irq[m[i].ring] = true;
        if (m[i].w[HG_FE_FLAGS] && m[i].delay && r->enabled) {
            uint64_t now = hg_now(d);
            uint64_t due = now + m[i].delay < now ? UINT64_MAX : now + m[i].delay;
            if (!hg_timer_add(d, due, HG_T_VALID, m[i].ring, m[i].addr, m[i].w[HG_FE_FLAGS])) {
                hg_ring_valid_write(e, m[i].ring, m[i].addr, m[i].w[HG_FE_FLAGS]);
            }
            continue;           /* stays in writers until then */
        }
        r->writers--;
    }
    if (bad) {
        d->cnt[HG_CNT_FAULTS_DROPPED] += bad;
        hg_guest_error(d, HG_ERR_BUS, n ? m[0].addr : 0, bad);
    }
    if (irq[0] && was_empty[0]) {
        hg_raise(d, HG_VEC_FAULT);
    }
    if (irq[1]) {
        hg_raise(d, HG_VEC_ERROR);
    }
}

/* Give each fault a slot of the miss table; true if an entry is due for it. */
static bool pend_add(HgEngine *e, unsigned asid, HgFault *f)
{
    uint64_t vpn = f->va >> HG_PAGE_SHIFT;
    unsigned limit = e->d->cfg.utlb_misses, free_slot = limit;

    for (unsigned i = 0; i < limit; i++) {
        HgPend *p = &e->pend[i];
        if (!p->refs) {
            free_slot = free_slot == limit ? i : free_slot;
        } else if (p->vpn == vpn && p->asid == asid) {
            bool stronger = f->access > p->access;
            p->refs++;
            f->pend = i;
            if (stronger) {     /* software was told of a weaker access only */
                p->access = f->access;
            }
            return stronger;
        }
    }
    if (free_slot == limit) {
        f->pend = HG_NO_PEND;
        return false;
    }
    e->pend[free_slot] = (HgPend) { .vpn = vpn, .asid = asid, .refs = 1, .access = f->access };
    e->npend++;
    f->pend = free_slot;
    return true;
}

void hg_pend_drop(HgEngine *e, HgFault *f, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (f[i].pend != HG_NO_PEND) {
            HgPend *p = &e->pend[f[i].pend];
            if (p->refs && --p->refs == 0) {
                e->npend--;
            }
            f[i].pend = HG_NO_PEND;
        }
    }
}

uint32_t hg_pending_faults(HgDev *d)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        n += d->eng[i].npend;
    }
    return n;
}

/* The fault of f[0..n) that ends the job, or NULL. */
static const HgFault *fatal(HgDev *d, HgCtx *c, const HgFault *f, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (f[i].reason == HG_REASON_RANGE || f[i].reason == HG_REASON_POISON) {
            return &f[i];
        }
    }
    return atomic_load_explicit(&d->mode[c->asid], memory_order_relaxed) == HG_ASID_MODE_FATAL
        ? &f[0] : NULL;
}

static void was_empty_now(HgDev *d, bool was_empty[2])
{
    for (unsigned i = 0; i < 2; i++) {
        was_empty[i] = d->ring[i].get == d->ring[i].put;
    }
}

/*
 * The pc of a fetch that fails says little about the program: the jump that
 * went there does.  A fault at the pc itself is the fetch's, and if the lane's
 * last JALR went to this pc, that one is named.  A lane that ran into the page
 * from the instruction before, or by a branch, is reported where it is.
 */
static uint64_t result_pc(const HgWarp *w, const HgFault *f)
{
    uint64_t pc = w->pc[f->lane];

    return f->va == pc && w->jump_to[f->lane] == pc ? w->jump_pc[f->lane] : pc;
}

static void warp_result(HgCtx *c, unsigned sm, const HgWarp *w, const HgFault *f, HgResult *r)
{
    *r = (HgResult) {
        .err = HG_ERR_FAULT, .reason = f->reason, .addr = f->va, .pc = result_pc(w, f),
        .block = c->sm[sm].blocks[w->block].bid, .thread = w->index * HG_LANES + f->lane,
    };
}

/*
 * The warp's instruction missed; w->fault[0..nfault) has one entry a page,
 * w->stall_mask the lanes.  Called in the slice, without the lock.
 */
void hg_sm_stalled(HgEngine *e, HgCtx *c, unsigned warp)
{
    HgDev *d = e->d;
    HgCtxSm *cs = &c->sm[e->num];
    HgWarp *w = &cs->warps[warp];
    Emit m[EMIT_MAX];
    unsigned n = 0;
    bool was_empty[2];
    const HgFault *die;

    hg_lock(d);
    hg_replay_answer(d, &w->owed);
    if (c->dying || c->aborting) {
        hg_unlock(d);
        return;
    }
    was_empty_now(d, was_empty);
    die = fatal(d, c, w->fault, w->nfault);
    if (die) {
        HgResult r;
        warp_result(c, e->num, w, die, &r);
        r.die = die->reason != HG_REASON_RANGE && die->reason != HG_REASON_POISON;
        n = emit(e, c, 1, warp, die, m);
        hg_launch_fail(d, c, &r);
        hg_raise(d, HG_VEC_ERROR);
    } else {
        w->state = HG_W_STALL;
        atomic_fetch_and_explicit(&cs->run_mask, ~(1u << warp), memory_order_relaxed);
        d->stalled_warps++;
        for (unsigned i = 0; i < w->nfault; i++) {
            if (pend_add(e, c->asid, &w->fault[i])) {
                n += emit(e, c, 0, warp, &w->fault[i], &m[n]);
            }
        }
    }
    if (n) {
        emit_write(e, m, n, was_empty);
    }
    hg_unlock(d);
}

void hg_copy_stalled(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    HgCopy *k = &c->copy;
    Emit m[EMIT_MAX];
    unsigned n = 0;
    bool was_empty[2];
    const HgFault *die;

    hg_lock(d);
    hg_replay_answer(d, &k->owed);
    k->replayed = false;
    if (c->aborting || k->state != HG_CP_RUN) {
        hg_unlock(d);
        return;
    }
    was_empty_now(d, was_empty);
    die = fatal(d, c, k->fault, k->nfault);
    if (die) {
        c->res = (HgResult) { .err = HG_ERR_FAULT, .reason = die->reason, .addr = die->va };
        c->res.die = die->reason != HG_REASON_RANGE && die->reason != HG_REASON_POISON;
        n = emit(e, c, 1, 0, die, m);
        hg_copy_end(d, c);
        hg_raise(d, HG_VEC_ERROR);
    } else {
        k->state = HG_CP_STALL;
        k->eng = e->num;
        for (unsigned i = 0; i < k->nfault; i++) {
            if (pend_add(e, c->asid, &k->fault[i])) {
                n += emit(e, c, 0, 0, &k->fault[i], &m[n]);
            }
        }
    }
    if (n) {
        emit_write(e, m, n, was_empty);
    }
    hg_unlock(d);
}

/* -- replay -- */

static void replay_update(HgDev *d)
{
    bool any = false;

    while (d->nrq && !d->rq[0].waiting &&
           (d->rq[0].type == HG_REPLAY_START || d->rq[0].owed == 0)) {
        d->replay_done = d->rq[0].seq;
        d->nrq--;
        memmove(&d->rq[0], &d->rq[1], d->nrq * sizeof(d->rq[0]));
        any = true;
    }
    if (any) {
        hg_trace(d, HG_EV_REPLAY, 0, d->replay_done, 0, 0);
    }
}

/* An access that a replay sent again was translated, faulted again, or went away. */
void hg_replay_answer(HgDev *d, uint64_t *owed)
{
    if (!*owed) {
        return;
    }
    for (unsigned i = 0; i < d->nrq; i++) {
        if (d->rq[i].key == *owed) {
            if (d->rq[i].owed) {
                d->rq[i].owed--;
            }
            break;
        }
    }
    *owed = 0;
    replay_update(d);
}

void hg_replay_perform(HgDev *d, uint64_t key)
{
    HgReplay *q = NULL;

    for (unsigned i = 0; i < d->nrq; i++) {
        if (d->rq[i].key == key) {
            q = &d->rq[i];
        }
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        if (c->rs == HG_RS_LAUNCH && c->sm) {
            for (unsigned s = 0; s < d->nsm; s++) {
                HgCtxSm *cs = &c->sm[s];
                for (unsigned k = 0; k < d->cfg.warps; k++) {
                    HgWarp *w = &cs->warps[k];
                    if (w->state != HG_W_STALL) {
                        continue;
                    }
                    hg_pend_drop(&d->eng[s], w->fault, w->nfault);
                    w->nfault = 0;
                    w->replay = w->stall_mask;
                    w->stall_mask = 0;
                    if (q && q->type == HG_REPLAY_START_ACK_ALL) {
                        w->owed = key;
                        q->owed++;
                    }
                    w->state = HG_W_ACTIVE;
                    d->stalled_warps--;
                    atomic_fetch_or_explicit(&cs->run_mask, 1u << k, memory_order_release);
                }
            }
        } else if (c->rs == HG_RS_COPY && c->copy.state == HG_CP_STALL) {
            HgCopy *k = &c->copy;
            hg_pend_drop(&d->eng[d->nsm + k->eng], k->fault, k->nfault);
            k->nfault = 0;
            k->replayed = true;
            if (q && q->type == HG_REPLAY_START_ACK_ALL) {
                k->owed = key;
                q->owed++;
            }
            k->state = HG_CP_RUN;
        }
    }
    if (q) {
        q->waiting = false;
    }
    hg_kick_sms(d);
    hg_kick_ces(d);
    replay_update(d);
}

uint64_t hg_replay(HgDev *d, unsigned type)
{
    uint64_t seq = ++d->replay_seq, key = seq, arg = 0, now = hg_now(d);
    HgInjAct act;
    HgReplay *q;

    d->cnt[HG_CNT_REPLAYS]++;
    hg_trace(d, HG_EV_REPLAY, type, seq, 0, 0);
    if (d->nrq == HG_REPLAY_QUEUE) {
        /* later ones answer together with the last in the queue */
        q = &d->rq[d->nrq - 1];
        q->seq = seq;
        q->type = type > q->type ? type : q->type;
        key = q->key;
    } else {
        q = &d->rq[d->nrq++];
        *q = (HgReplay) { .key = key, .seq = seq, .type = type };
    }
    act = hg_injected(d, HG_INJ_REPLAY, type, &arg);
    if (act == HG_ACT_LOST) {
        replay_update(d);       /* acknowledged, never performed */
        return seq;
    }
    if (act == HG_ACT_DELAY &&
        hg_timer_add(d, now + arg < now ? UINT64_MAX : now + arg, HG_T_REPLAY, 0, key, 0)) {
        q->waiting = true;
        return seq;
    }
    if (!q->waiting) {
        hg_replay_perform(d, key);
    }
    return seq;
}

/* -- cancel -- */

static bool cancels(const HgDev *d, unsigned type, unsigned scope, uint32_t source,
                    const HgFault *f)
{
    if (f->ahead) {             /* the program is not there yet */
        return false;
    }
    if (scope == HG_CANCEL_SCOPE_WRITE &&
        f->access != HG_ACCESS_WRITE && f->access != HG_ACCESS_ATOMIC) {
        return false;
    }
    if (scope == HG_CANCEL_SCOPE_ATOMIC && f->access != HG_ACCESS_ATOMIC) {
        return false;
    }
    switch (type) {
    case HG_CANCEL_ADDR:
        return f->va >> HG_PAGE_SHIFT == d->cancel_addr >> HG_PAGE_SHIFT;
    case HG_CANCEL_CLIENT:
        return source == (d->cancel_client & 0xffffff);
    default:
        return true;
    }
}

/* Ends the job of every stalled access that matches; how many accesses did. */
unsigned hg_cancel(HgDev *d, unsigned type, unsigned scope)
{
    unsigned total = 0;

    d->cnt[HG_CNT_CANCELS]++;
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        HgResult r;
        unsigned hits = 0;

        if (!c->enabled || c->asid != d->cancel_asid) {
            continue;
        }
        if (c->rs == HG_RS_LAUNCH && !c->dying && c->sm) {
            for (unsigned s = 0; s < d->nsm; s++) {
                for (unsigned k = 0; k < d->cfg.warps; k++) {
                    HgWarp *w = &c->sm[s].warps[k];
                    for (unsigned j = 0; w->state == HG_W_STALL && j < w->nfault; j++) {
                        if (cancels(d, type, scope, source_word(&d->eng[s], k), &w->fault[j])) {
                            if (!hits++) {
                                warp_result(c, s, w, &w->fault[j], &r);
                            }
                        }
                    }
                }
            }
            if (hits) {
                hg_launch_fail(d, c, &r);
            }
        } else if (c->rs == HG_RS_COPY && c->copy.state == HG_CP_STALL) {
            HgCopy *k = &c->copy;
            for (unsigned j = 0; j < k->nfault; j++) {
                if (cancels(d, type, scope, source_word(&d->eng[d->nsm + k->eng], 0),
                            &k->fault[j]) && !hits++) {
                    c->res = (HgResult) { .err = HG_ERR_FAULT, .reason = k->fault[j].reason,
                                          .addr = k->fault[j].va };
                }
            }
            if (hits) {
                hg_copy_end(d, c);
            }
        }
        total += hits;
    }
    hg_trace(d, HG_EV_CANCEL, (uint64_t)d->cancel_asid << 32 | type, d->cancel_addr, total, 0);
    return total;
}
