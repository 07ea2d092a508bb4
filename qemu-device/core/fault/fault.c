/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fault unit: miss tables, fault rings, cancel (replay: replay.c).
 *
 * A stalled access either owns a reference to a slot of its engine's, or its group of
 * SMs', miss table (an entry for that page was written, or dropped, since the last
 * replay), or found the table full and waits without one.  A replay empties
 * the tables and makes every stalled access runnable; so no access waits for a
 * page that nobody was told of, as long as software answers every entry, and
 * every overflow, with a replay.
 */
#include "device.h"
#include "fault/fault.h"
#include "base/lock.h"
#include "base/step.h"
#include "base/time.h"
#include "base/trace.h"
#include "fault/replay.h"
#include "mem/mem.h"
#include "timer/irq.h"
#include "timer/timer.h"

static uint32_t source_word(const HgEngine *e, unsigned client)
{
    return e->kind | (uint32_t)e->num << 8 | (client & 0xff) << 16;
}

static void entry(HgEngine *e, HgCtx *c, unsigned ring, unsigned client, const HgFault *f,
                  HgFaultEntry *m)
{
    uint64_t now = hg_now(e->d), page = f->va & ~(uint64_t)HG_PAGE_MASK;

    memset(m, 0, sizeof(*m));
    m->w[HG_FE_ADDR_LO] = (uint32_t)page;
    m->w[HG_FE_ADDR_HI] = page >> 32;
    m->w[HG_FE_TIME_LO] = (uint32_t)now;
    m->w[HG_FE_TIME_HI] = now >> 32;
    m->w[HG_FE_ASID] = c->asid | c->id << 16;
    m->w[HG_FE_SOURCE] = source_word(e, client);
    m->w[HG_FE_INFO] = f->access | (uint32_t)f->reason << 4 | (uint32_t)f->level << 12;
    m->w[HG_FE_FLAGS] = HG_FE_VALID | (ring ? c->copy.waits ? HG_FE_WAITS : 0 : HG_FE_REPLAYABLE);
}

static bool emit_one(HgDev *d, unsigned ring, const HgFaultEntry *m, HgFaultEntry *out, bool drop)
{
    HgRing *r = &d->ring[ring];

    if (!r->enabled || r->overflow || drop || ((r->put + 1) & (r->size - 1)) == r->get) {
        if (r->enabled && !r->overflow) {
            r->overflow = true;
            /* no entry comes any more whose interrupt would tell of it */
            hg_raise(d, ring ? HG_VEC_ERROR : HG_VEC_FAULT);
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

#define REPEAT_MIN 10000u       /* ns; a guest must get to answer */

/*
 * The entry comes again as long as its slot of the miss table is taken and its context is
 * active: until a replay, or until nobody waits there any more.  A replay ends it (hg_replay_perform()), as the
 * access is sent again and has a new entry if it still misses.
 */
static void repeat(HgEngine *e, HgCtx *c, unsigned client, const HgFault *f, uint64_t ns)
{
    HgDev *d = e->d;
    unsigned engine = e - d->eng;

    if (f->pend == HG_NO_PEND) {
        return;
    }
    ns = ns < REPEAT_MIN ? REPEAT_MIN : ns > UINT32_MAX ? UINT32_MAX : ns;
    /* no room for a timer: once is all */
    hg_timer_add(d, hg_later(hg_now(d), ns), HG_T_REPEAT,
                 f->pend | engine << 12 | client << 17 | (uint32_t)c->id << 25,
                 (f->va & ~(uint64_t)HG_PAGE_MASK) | f->reason | f->level << 4, ns);
}

/* Returns how many entries were added to out (0..2). */
static unsigned emit(HgEngine *e, HgCtx *c, unsigned ring, unsigned client,
                     const HgFault *f, HgFaultEntry *out)
{
    HgDev *d = e->d;
    HgFaultEntry m;
    uint64_t page = f->va & ~(uint64_t)HG_PAGE_MASK, arg = 0;
    HgInjAct act;
    unsigned n = 0;

    entry(e, c, ring, client, f, &m);
    act = hg_injected(d, HG_INJ_FAULT, page, &arg);
    if (act == HG_ACT_DELAY_VALID) {
        m.delay = arg ? arg : 1;
    }
    n += emit_one(d, ring, &m, &out[n], act == HG_ACT_DROP);
    if (act == HG_ACT_DUPLICATE && n) {
        n += emit_one(d, ring, &m, &out[n], false);
    }
    if (act == HG_ACT_REPEAT && !ring) {
        repeat(e, c, client, f, arg);
    }
    return n;
}

static void begin(HgDev *d, HgFaultBatch *b)
{
    b->n = 0;
    for (unsigned i = 0; i < 2; i++) {
        b->was_empty[i] = d->ring[i].get == d->ring[i].put;
    }
}

bool hg_fault_repeat_ok(const HgDev *d, const HgTimer *t)
{
    return (t->a & 0xfff) < d->cfg.utlb_misses && (t->a >> 12 & 0x1f) < d->nsm + d->nce &&
           t->a >> 25 < HG_NUM_CTXS && t->b >> HG_VA_BITS == 0 && !(t->b & HG_PAGE_MASK & ~0x3full) &&
           (t->b & 0xf) <= HG_REASON_POISON && t->c >= REPEAT_MIN;
}

void hg_fault_repeat(HgEngine *e, const HgTimer *t)
{
    HgDev *d = e->d;
    HgEngine *of = &d->eng[t->a >> 12 & 0x1f];
    const HgPend *p = &of->misses->pend[t->a & 0xfff];
    HgCtx *c = &d->ctx[t->a >> 25];
    HgFaultBatch b;
    HgFault f = { .va = t->b & ~(uint64_t)HG_PAGE_MASK, .access = p->access,
                  .reason = t->b & 0xf, .level = t->b >> 4 & 3 };
    HgFaultEntry m;

    if (p->refs <= p->hint || p->vpn != f.va >> HG_PAGE_SHIFT || p->asid != c->asid) {
        return;                 /* nobody waits there any more */
    }
    if (!c->enabled || c->aborting) {
        return;                 /* others may: of an inactive context comes nothing new */
    }
    begin(d, &b);
    if (d->ctrl & HG_CTRL_ENABLE) {
        entry(of, c, 0, t->a >> 17 & 0xff, &f, &m);
        b.n = emit_one(d, 0, &m, b.entry, false);
    }
    hg_timer_add(d, hg_later(hg_now(d), t->c), HG_T_REPEAT, t->a, t->b, t->c);
    hg_fault_write(e, &b);
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
void hg_fault_write(HgEngine *e, HgFaultBatch *b)
{
    HgDev *d = e->d;
    HgFaultEntry *m = b->entry;
    unsigned n = b->n, bad = 0, order[HG_FAULT_BATCH];
    bool irq[2] = { false, false };

    if (!n) {
        return;
    }
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
        HG_HOOK(d, fault_slot, e, m[i].ring, m[i].addr);
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
        HgFaultEntry *x = &m[order[i]];
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
            uint64_t due = hg_later(now, m[i].delay);
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
    if (irq[0] && b->was_empty[0]) {
        hg_raise(d, HG_VEC_FAULT);
    }
    if (irq[1]) {
        hg_raise(d, HG_VEC_ERROR);
    }
}

/* A prefetch is the weakest, whatever its number. */
static bool stronger_than(unsigned access, unsigned than)
{
    return (access + 1) % (HG_ACCESS_PREFETCH + 1) > (than + 1) % (HG_ACCESS_PREFETCH + 1);
}

/* Give each fault a slot of the miss table; true if an entry is due for it. */
static bool pend_add(HgEngine *e, unsigned asid, HgFault *f)
{
    uint64_t vpn = f->va >> HG_PAGE_SHIFT;
    unsigned limit = e->d->cfg.utlb_misses, free_slot = limit;

    hg_visit(e->d, limit, 0);
    for (unsigned i = 0; i < limit; i++) {
        HgPend *p = &e->misses->pend[i];
        if (!p->refs) {
            free_slot = free_slot == limit ? i : free_slot;
        } else if (p->vpn == vpn && p->asid == asid) {
            bool stronger = stronger_than(f->access, p->access);
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
    e->misses->pend[free_slot] = (HgPend) {
        .vpn = vpn, .asid = asid, .refs = 1, .access = f->access,
    };
    e->misses->npend++;
    f->pend = free_slot;
    return true;
}

/*
 * A prefetch takes a slot of the miss table, so that it is reported once, and has nobody
 * who waits: the next replay frees it.  If the page has a slot already, somebody has
 * asked; without a free one nobody is told.
 */
void hg_fault_prefetch(HgEngine *e, HgCtx *c, unsigned warp, HgFault *f, unsigned n)
{
    HgDev *d = e->d;
    HgFaultBatch b;

    hg_lock(d);
    begin(d, &b);
    if (c->dying || c->aborting ||
        atomic_load_explicit(&d->mode[c->asid], memory_order_relaxed) == HG_ASID_MODE_FATAL) {
        n = 0;
    }
    for (unsigned i = 0; i < n; i++) {
        if (pend_add(e, c->asid, &f[i])) {
            e->misses->pend[f[i].pend].hint = true;
            b.n += emit(e, c, 0, warp, &f[i], &b.entry[b.n]);
        } else {
            hg_pend_drop(e, &f[i], 1);
        }
    }
    hg_fault_write(e, &b);
    hg_unlock(d);
}

void hg_fault_drop_hints(HgDev *d)
{
    for (unsigned i = 0; i < d->nsm; i++) {
        HgEngine *e = &d->eng[i];

        for (unsigned k = 0; e->pend && e->npend && k < d->cfg.utlb_misses; k++) {
            HgPend *p = &e->pend[k];

            hg_visit(d, 1, 0);
            if (p->hint) {
                p->hint = false;
                e->npend -= --p->refs == 0;
            }
        }
    }
}

void hg_pend_drop(HgEngine *e, HgFault *f, unsigned n)
{
    hg_visit(e->d, n, 0);
    for (unsigned i = 0; i < n; i++) {
        if (f[i].pend != HG_NO_PEND) {
            HgPend *p = &e->misses->pend[f[i].pend];
            if (p->refs && --p->refs == 0) {
                e->misses->npend--;
            }
            f[i].pend = HG_NO_PEND;
        }
    }
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

HgVerdict hg_fault_warp(HgEngine *e, HgCtx *c, unsigned warp, HgFaultBatch *b, HgResult *r)
{
    HgDev *d = e->d;
    HgCtxSm *cs = &c->sm[e->num];
    HgWarp *w = &cs->warps[warp];
    const HgFault *die;

    begin(d, b);
    hg_replay_answer(d, &w->owed);
    if (c->dying || c->aborting) {
        return HG_FAULT_MOOT;
    }
    die = fatal(d, c, w->fault, w->nfault);
    if (die) {
        warp_result(c, e->num, w, die, r);
        r->die = die->reason != HG_REASON_RANGE && die->reason != HG_REASON_POISON;
        b->n = emit(e, c, 1, warp, die, b->entry);
        return HG_FAULT_ENDS;
    }
    w->state = HG_W_STALL;
    atomic_fetch_and_explicit(&cs->run_mask, ~(1u << warp), memory_order_relaxed);
    d->stalled_warps++;
    for (unsigned i = 0; i < w->nfault; i++) {
        if (pend_add(e, c->asid, &w->fault[i])) {
            b->n += emit(e, c, 0, warp, &w->fault[i], &b->entry[b->n]);
        }
    }
    return HG_FAULT_WAITS;
}

HgVerdict hg_fault_copy(HgEngine *e, HgCtx *c, HgFaultBatch *b, HgResult *r)
{
    HgDev *d = e->d;
    HgCopy *k = &c->copy;
    const HgFault *die;

    begin(d, b);
    hg_replay_answer(d, &k->owed);
    k->replayed = false;
    if (c->aborting || k->state != HG_CP_RUN) {
        return HG_FAULT_MOOT;
    }
    die = fatal(d, c, k->fault, k->nfault);
    if (die) {
        *r = (HgResult) { .err = HG_ERR_FAULT, .reason = die->reason, .addr = die->va };
        r->die = die->reason != HG_REASON_RANGE && die->reason != HG_REASON_POISON;
        b->n = emit(e, c, 1, 0, die, b->entry);
        return HG_FAULT_ENDS;
    }
    k->state = HG_CP_STALL;
    k->eng = e->num;
    k->waits = c->stall;
    for (unsigned i = 0; i < k->nfault; i++) {
        if (k->waits) {         /* told of each time; if there is no room, OVERFLOW says so */
            b->n += emit(e, c, 1, 0, &k->fault[i], &b->entry[b->n]);
            continue;
        }
        if (pend_add(e, c->asid, &k->fault[i])) {
            b->n += emit(e, c, 0, 0, &k->fault[i], &b->entry[b->n]);
        }
    }
    return HG_FAULT_WAITS;
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

unsigned hg_cancel_hits(HgDev *d, HgCtx *c, unsigned type, unsigned scope, HgResult *r)
{
    unsigned hits = 0;

    if (c->rs == HG_RS_LAUNCH && !c->dying && c->sm) {
        for (unsigned s = 0; s < d->nsm; s++) {
            for (unsigned k = 0; k < d->cfg.warps; k++) {
                HgWarp *w = &c->sm[s].warps[k];
                hg_visit(d, 1 + (w->state == HG_W_STALL ? w->nfault : 0), 0);
                for (unsigned j = 0; w->state == HG_W_STALL && j < w->nfault; j++) {
                    if (cancels(d, type, scope, source_word(&d->eng[s], k), &w->fault[j]) &&
                        !hits++) {
                        warp_result(c, s, w, &w->fault[j], r);
                    }
                }
            }
        }
    } else if (c->rs == HG_RS_COPY && c->copy.state == HG_CP_STALL) {
        HgCopy *k = &c->copy;
        for (unsigned j = 0; j < k->nfault; j++) {
            if (cancels(d, type, scope, source_word(&d->eng[d->nsm + k->eng], 0), &k->fault[j]) &&
                !hits++) {
                *r = (HgResult) { .err = HG_ERR_FAULT, .reason = k->fault[j].reason,
                                  .addr = k->fault[j].va };
            }
        }
    }
    return hits;
}
