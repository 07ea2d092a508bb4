/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Life cycle, engine threads, the front end and its timers, interrupts.
 * (Deterministic stepping: step.c.)
 */
#include "hg_internal.h"
#include "vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NSEC 1000000000ull

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

uint64_t hg_now(HgDev *d)
{
    return d->ops.now ? d->ops.now(d->host) : 0;
}

void hg_trace(HgDev *d, HgTraceEvent ev, uint64_t a, uint64_t b, uint64_t c, uint64_t dd)
{
    if (d->ops.trace) {
        d->ops.trace(d->host, ev, a, b, c, dd);
    }
}

void hg_guest_error(HgDev *d, uint32_t err, uint64_t a, uint64_t v)
{
    d->cnt[HG_CNT_GUEST_ERRORS]++;
    hg_trace(d, HG_EV_GUEST_ERROR, err, a, v, 0);
}

/* splitmix64 */
uint64_t hg_rand(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Vectors that are not enabled only set their status bit. */
void hg_raise_now(HgDev *d, unsigned vector)
{
    d->intr_status |= 1u << vector;
    if (d->intr_enable & (1u << vector)) {
        d->cnt[HG_CNT_IRQS]++;
        d->irq_out[vector]++;
        d->irq_any = true;
    }
}

void hg_raise(HgDev *d, unsigned vector)
{
    uint64_t arg, now;

    switch (hg_injected(d, HG_INJ_IRQ, vector, &arg)) {
    case HG_ACT_LOST:
        d->intr_status |= 1u << vector;
        return;
    case HG_ACT_DUPLICATE:
        hg_raise_now(d, vector);
        break;
    case HG_ACT_DELAY:
        now = hg_now(d);
        d->intr_status |= 1u << vector;
        if (hg_timer_add(d, now + arg < now ? UINT64_MAX : now + arg, HG_T_IRQ, vector, 0, 0)) {
            return;
        }
        break;
    default:
        break;
    }
    hg_raise_now(d, vector);
}

void hg_kick(HgEngine *e)
{
    HgDev *d = e->d;

    if (d->cfg.deterministic) {
        d->kick_out = true;
    } else {
        pthread_cond_signal(&e->cv);
    }
}

void hg_kick_sms(HgDev *d)
{
    for (unsigned i = 0; i < d->nsm; i++) {
        hg_kick(&d->eng[i]);
    }
}

void hg_kick_ces(HgDev *d)
{
    for (unsigned i = 0; i < d->nce; i++) {
        hg_kick(&d->eng[d->nsm + i]);
    }
}

void hg_kick_fe(HgDev *d)
{
    hg_kick(&d->eng[d->neng - 1]);
}

bool hg_may_run(HgDev *d)
{
    return d->started && !d->pause && !d->exiting && (d->ctrl & HG_CTRL_ENABLE);
}

void hg_slice_enter(HgEngine *e)
{
    e->in_slice = true;
    atomic_store_explicit(&e->attn, 0, memory_order_relaxed);
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
    e->nreq = 0;
    e->req_all = false;
    e->inval_ack = d->inval_issued;
    hg_inval_update(d);
}

void hg_slice_leave(HgEngine *e)
{
    HgDev *d = e->d;

    hg_serve(e);
    e->in_slice = false;
    if (d->pause || d->exiting) {
        pthread_cond_broadcast(&d->quiet);
    }
}

bool hg_wanted_parked(HgDev *d)
{
    pthread_mutex_lock(&d->lock);
    bool p = d->pause || d->exiting || !d->started;
    pthread_mutex_unlock(&d->lock);
    return p;
}

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

/* -- timers and front end -- */

bool hg_timer_add(HgDev *d, uint64_t due, uint8_t kind, uint32_t a, uint64_t b, uint32_t c)
{
    if (d->ntimer == HG_TIMERS) {
        return false;           /* the caller acts at once */
    }
    d->timer[d->ntimer++] = (HgTimer) { .due = due, .kind = kind, .a = a, .b = b, .c = c };
    hg_kick_fe(d);
    return true;
}

/* When the front end has something to do again; UINT64_MAX = when kicked. */
uint64_t hg_next_deadline(HgDev *d, uint64_t now)
{
    uint64_t at = UINT64_MAX;

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
    if (d->ninvq && d->invq[0].due <= now) {
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
        hg_raise_now(d, t->a);
        break;
    case HG_T_REPLAY:
        hg_replay_perform(d, t->b);
        break;
    case HG_T_DOORBELL:
        hg_doorbell(d, &d->ctx[t->a], (uint32_t)t->b);
        break;
    case HG_T_VALID:
        hg_slice_enter(e);
        hg_ring_valid_write(e, t->a, t->b, t->c);
        hg_slice_leave(e);
        break;
    }
}

static void run_timers(HgEngine *e, uint64_t now)
{
    HgDev *d = e->d;

    hg_inval_due(d, now);
    for (unsigned budget = HG_TIMERS; budget && timers_due(d, now); budget--) {
        bool flush = !(d->ctrl & HG_CTRL_ENABLE);
        unsigned best = HG_TIMERS;
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
        run_timer(e, &t);
    }
}

/* d->lock on entry and exit. */
void hg_fe_slice(HgEngine *e)
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

/* -- engine threads -- */

/* One turn of an engine.  d->lock on entry and exit; false: nothing to do. */
bool hg_engine_turn(HgEngine *e)
{
    HgDev *d = e->d;
    HgCtx *c;

    if (e->kind == HG_ENG_FE) {
        if (!hg_fe_work(d, hg_now(d))) {
            return false;
        }
        hg_fe_slice(e);
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
        hg_sm_slice(e, c, HG_SM_SLICE);
        return true;
    }
    c = hg_ce_pick(e);
    if (!c) {
        return false;
    }
    hg_ce_slice(e, c, HG_CE_SLICE);
    return true;
}

static void *engine_main(void *opaque)
{
    HgEngine *e = opaque;
    HgDev *d = e->d;

    if (d->ops.thread_enter) {
        d->ops.thread_enter(d->host);
    }
    hg_lock(d);
    while (!d->exiting) {
        if (hg_engine_turn(e)) {
            /* let a waiting MMIO handler have the lock, and make put-off host calls */
            hg_unlock(d);
            hg_lock(d);
            continue;
        }
        if (d->irq_any || d->kick_out) {
            hg_unlock(d);
            hg_lock(d);
            continue;
        }
        uint64_t now = hg_now(d), at = UINT64_MAX;
        if (e->kind == HG_ENG_FE && d->started && !d->pause) {
            at = hg_next_deadline(d, now);
        }
        if (at == UINT64_MAX) {
            pthread_cond_wait(&e->cv, &d->lock);
        } else {
            /*
             * Virtual time need not follow host time: look again soon, but
             * never spin.
             */
            uint64_t ns = at > now ? at - now : 0;
            struct timespec ts;
            ns = ns < 10000 ? 10000 : ns > 5000000 ? 5000000 : ns;
            clock_gettime(CLOCK_MONOTONIC, &ts);
            ns += ts.tv_nsec;
            ts.tv_sec += ns / NSEC;
            ts.tv_nsec = ns % NSEC;
            pthread_cond_timedwait(&e->cv, &d->lock, &ts);
        }
    }
    hg_unlock(d);
    if (d->ops.thread_exit) {
        d->ops.thread_exit(d->host);
    }
    return NULL;
}

void hg_start(HgDev *d)
{
    hg_lock(d);
    if (!d->started) {
        d->started = true;
        for (unsigned i = 0; i < d->neng; i++) {
            HgEngine *e = &d->eng[i];
            if (!d->cfg.deterministic && !e->running) {
                e->running = pthread_create(&e->thread, NULL, engine_main, e) == 0;
            }
            hg_kick(e);
        }
    }
    hg_unlock(d);
}

void hg_stop(HgDev *d)
{
    if (d->cfg.deterministic) {
        hg_lock(d);             /* nobody steps now */
    } else {
        hg_pause(d);
        d->pause--;
    }
    d->started = false;
    hg_unlock(d);
}

void hg_park(HgDev *d)
{
    hg_pause(d);
    hg_resume(d);
}

void hg_set_bus_master(HgDev *d, bool on)
{
    hg_pause(d);
    if (d->bus_master != on) {
        d->bus_master = on;
        hg_resolve_all(d);
    }
    hg_resume(d);
}

/* -- creation and reset -- */

void hg_config_default(HgConfig *cfg)
{
    *cfg = (HgConfig) {
        .sms = 2, .warps = 8, .ces = 2, .utlb_entries = 64, .utlb_misses = 56,
        .l2tlb_entries = 512, .asids = HG_NUM_ASIDS, .ctxs = HG_NUM_CTXS,
    };
}

static const char *config_error(const HgConfig *c)
{
    if (c->sms < 1 || c->sms > HG_MAX_SMS) {
        return "sms must be 1..16";
    }
    if (c->warps < 1 || c->warps > HG_MAX_WARPS) {
        return "warps must be 1..32";
    }
    if (c->ces < 2 || c->ces > HG_MAX_CES) {
        return "ces must be 2..4";
    }
    if (c->utlb_entries < 1 || c->utlb_entries > 65536) {
        return "utlb_entries must be 1..65536";
    }
    if (c->utlb_misses < 1 || c->utlb_misses > 4096) {
        return "utlb_misses must be 1..4096";
    }
    if (c->l2tlb_entries < 1 || c->l2tlb_entries > 1048576) {
        return "l2tlb_entries must be 1..1048576";
    }
    if (c->asids < 2 || c->asids > HG_NUM_ASIDS) {
        return "asids must be 2..256";
    }
    if (c->ctxs < 2 || c->ctxs > HG_NUM_CTXS) {
        return "ctxs must be 2..64";
    }
    if (!c->vram || ((uintptr_t)c->vram & HG_PAGE_MASK)) {
        return "vram must be page-aligned memory";
    }
    if (!c->vram_size || c->vram_size & ((1u << HG_HUGE_SHIFT) - 1) ||
        c->vram_size > HG_PTE_FRAME_MASK) {
        return "vram_size must be a multiple of 2 MiB";
    }
    if (!c->bar2_size || c->bar2_size & (c->bar2_size - 1) || c->bar2_size > c->vram_size) {
        return "bar2_size must be a power of two and at most vram_size";
    }
    if (c->coherent && c->bar2_size != c->vram_size) {
        return "coherent: bar2_size must be vram_size";
    }
    return NULL;
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
    hg_audit_reset(d);
    memset(d->ring, 0, sizeof(d->ring));
    hg_check_reset(d);
    memset(d->cnt, 0, sizeof(d->cnt));
    d->stalled_warps = 0;
    d->rng = d->cfg.seed;
    pthread_mutex_lock(&d->l2_lock);
    d->l2_gen++;
    hg_tlb_clear(&d->l2);
    pthread_mutex_unlock(&d->l2_lock);
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        e->nreq = 0;
        e->req_all = false;
        e->inval_ack = 0;
        e->cur = NULL;
        e->slice_end = e->cycles = 0;
        e->rr = 0;
        e->npend = 0;
        if (e->kind != HG_ENG_FE) {
            memset(e->pend, 0, d->cfg.utlb_misses * sizeof(*e->pend));
            hg_engine_flush(e, &all);
            hg_tlb_clear(&e->utlb);
        }
        for (unsigned n = 0; n < HG_NUM_COUNTERS; n++) {
            atomic_store_explicit(&e->cnt[n], 0, memory_order_relaxed);
        }
    }
}

void hg_reset(HgDev *d)
{
    hg_pause(d);
    hg_reset_locked(d);
    hg_resume(d);
}

HgDev *hg_new(const HgConfig *cfg, const HgHostOps *ops, void *host, char *err, size_t errlen)
{
    const char *bad = config_error(cfg);
    pthread_condattr_t attr;
    HgDev *d;

    if (bad) {
        if (err && errlen) {
            snprintf(err, errlen, "hmm-gpu: %s", bad);
        }
        return NULL;
    }
    d = hg_alloc_lines(sizeof(*d));
    if (!d) {
        goto oom;
    }
    d->cfg = *cfg;
    d->ops = *ops;
    d->host = host;
    d->vram = cfg->vram;
    d->vec = hg_vec_best();
    d->bus_master = true;
    d->inj_rng = cfg->seed ^ 0x696e6a656374ull;
    d->nsm = cfg->sms;
    d->nce = cfg->ces;
    d->neng = d->nsm + d->nce + 1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->l2_lock, NULL);
    pthread_mutex_init(&d->inj_lock, NULL);
    pthread_mutex_init(&d->viol_lock, NULL);
    pthread_cond_init(&d->quiet, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    d->eng = hg_alloc_lines(d->neng * sizeof(*d->eng));
    if (!d->eng || !hg_tlb_init(&d->l2, cfg->l2tlb_entries, HG_L2_WAYS)) {
        pthread_condattr_destroy(&attr);
        hg_free(d);
        goto oom;
    }
    bool ok = true;
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        e->d = d;
        e->kind = i < d->nsm ? HG_ENG_SM : i < d->nsm + d->nce ? HG_ENG_CE : HG_ENG_FE;
        e->num = e->kind == HG_ENG_CE ? i - d->nsm : i < d->nsm ? i : 0;
        pthread_cond_init(&e->cv, &attr);
        if (e->kind != HG_ENG_FE) {
            ok &= hg_tlb_init(&e->utlb, cfg->utlb_entries, HG_UTLB_WAYS);
            e->pend = hg_alloc_lines(cfg->utlb_misses * sizeof(*e->pend));
            ok &= e->pend != NULL;
        }
        if (cfg->deterministic) {
            ok &= hg_steps_new(e);
        }
        if (e->kind == HG_ENG_SM) {
            e->ic = calloc(HG_IC_PAGES, sizeof(*e->ic));
            ok &= e->ic != NULL;
        }
    }
    pthread_condattr_destroy(&attr);
    if (!ok) {
        hg_free(d);
        goto oom;
    }
    hg_lock(d);
    hg_reset_locked(d);
    hg_unlock(d);
    return d;
oom:
    if (err && errlen) {
        snprintf(err, errlen, "hmm-gpu: out of memory");
    }
    return NULL;
}

void hg_free(HgDev *d)
{
    if (!d) {
        return;
    }
    if (d->eng) {
        hg_stop(d);
        hg_pause(d);
        d->exiting = true;
        for (unsigned i = 0; i < d->neng; i++) {
            pthread_cond_broadcast(&d->eng[i].cv);
        }
        hg_unlock(d);
        for (unsigned i = 0; i < d->neng; i++) {
            HgEngine *e = &d->eng[i];
            if (e->running) {
                pthread_join(e->thread, NULL);
            }
        }
        for (unsigned i = 0; i < d->neng; i++) {
            HgEngine *e = &d->eng[i];
            hg_steps_free(e);
            pthread_cond_destroy(&e->cv);
            free(e->utlb.ent);
            free(e->utlb.next);
            free(e->pend);
            free(e->ic);
        }
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        hg_ctx_free(d, &d->ctx[i]);
    }
    free(d->eng);
    free(d->l2.ent);
    free(d->l2.next);
    free(d->ram);
    pthread_cond_destroy(&d->quiet);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->l2_lock);
    pthread_mutex_destroy(&d->inj_lock);
    pthread_mutex_destroy(&d->viol_lock);
    free(d);
}
