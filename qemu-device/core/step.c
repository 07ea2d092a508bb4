/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deterministic mode: engines as coroutines, stepped by the host.
 *
 * An engine's coroutine does what its thread would do, turn after turn, and hands
 * control back where its steps are used up (hg_spend()), where it waits for time
 * (hg_wait_until()) and where it has nothing to do.  hg_internal.h says what an
 * engine that stands may rely on.
 *
 * Time is the host's virtual clock alone.  It may stand still during a call or not;
 * what waits for it is looked at again in the next one.
 *
 * Who may touch what: an engine's co, steps, at, audit_waits and wake, and
 * d->stepping, belong to the host thread that calls; there is one at a time, and
 * the coroutine runs in it.  So they need no lock; and as no engine runs while the
 * host looks, what d->lock protects can be read without it, too.
 */
#include "hg_internal.h"

#include <assert.h>

static const char *const at_name[HG_AT_COUNT] = {
    [HG_AT_REST] = "at rest",
    [HG_AT_SAFE] = "between instructions",
    [HG_AT_WALK] = "before a walk",
    [HG_AT_LEVEL] = "between levels of a walk",
    [HG_AT_LEAF] = "leaf in hand",
    [HG_AT_HELD] = "translation in hand",
    [HG_AT_DATA] = "data done",
    [HG_AT_AUDITED] = "audited",
    [HG_AT_BUS] = "at a ring",
    [HG_AT_PAUSE] = "injected pause",
    [HG_AT_AUDIT_WAIT] = "waits for the CPU's entry",
};

const char *hg_at_name(unsigned at)
{
    return at < HG_AT_COUNT ? at_name[at] : NULL;
}

/* -- in the coroutine -- */

static void yield(HgEngine *e, HgAt at)
{
    e->at = at;
    hg_coro_yield(e->co);
}

void hg_spend(HgEngine *e, HgAt at, uint32_t steps)
{
    if (at == HG_AT_SAFE || at == HG_AT_DATA) {
        e->held = 0;
    }
    e->steps -= steps < e->steps ? steps : e->steps;
    if (!e->steps) {
        yield(e, at);
    }
}

void hg_spend_held(HgEngine *e, uint64_t vpn)
{
    if (e->held != vpn + 1) {
        e->held = vpn + 1;
        hg_spend(e, HG_AT_HELD, 1);
    }
}

void hg_wait_until(HgEngine *e, HgAt at, uint64_t due)
{
    HgDev *d = e->d;

    e->wake = due;
    while (hg_now(d) < due && !hg_wanted_parked(d)) {
        yield(e, at);
    }
    e->wake = 0;
}

static void engine_loop(void *opaque)
{
    HgEngine *e = opaque;
    HgDev *d = e->d;

    hg_lock(d);
    while (!d->exiting) {
        bool busy = hg_engine_turn(e);
        hg_unlock(d);
        if (busy) {
            hg_spend(e, HG_AT_SAFE, 1);
        } else {
            yield(e, HG_AT_SAFE);
        }
        hg_lock(d);
    }
    hg_unlock(d);
}

/* -- by the host's thread -- */

static void run(HgEngine *e, uint32_t steps)
{
    HgDev *d = e->d;

    assert(!d->stepping);       /* a host callback must not come back here */
    d->stepping = true;
    e->steps = steps;
    hg_coro_run(e->co);
    d->stepping = false;
}

bool hg_steps_new(HgEngine *e)
{
    e->co = hg_coro_new(engine_loop, e);
    return e->co;
}

void hg_steps_free(HgEngine *e)
{
    if (e->co && hg_coro_begun(e->co)) {
        run(e, UINT32_MAX);
        assert(hg_coro_ended(e->co));
    }
    hg_coro_free(e->co);
    e->co = NULL;
}

/*
 * d->pause is set, and attention: each engine leaves its slice at its next safe
 * point, and breaks off what waits.
 */
void hg_steps_to_rest(HgDev *d)
{
    hg_unlock(d);
    for (unsigned i = d->neng; i-- > 0; ) {
        if (d->eng[i].in_slice) {
            run(&d->eng[i], UINT32_MAX);
        }
    }
    hg_lock(d);
}

unsigned hg_engines(HgDev *d)
{
    return d->neng;
}

HgAt hg_engine_at(HgDev *d, unsigned i)
{
    return i < d->neng && d->eng[i].in_slice ? d->eng[i].at : HG_AT_REST;
}

static bool sm_has_work(HgEngine *e)
{
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        if (hg_sm_has_work(e, &e->d->ctx[i])) {
            return true;
        }
    }
    return false;
}

static bool ready(HgEngine *e, uint64_t now)
{
    HgDev *d = e->d;

    if (e->in_slice) {
        return e->wake <= now;
    }
    switch (e->kind) {
    case HG_ENG_FE: return hg_fe_work(d, now);
    case HG_ENG_SM: return hg_may_run(d) && sm_has_work(e);
    default:        return hg_may_run(d) && hg_ce_has_work(e);
    }
}

uint32_t hg_engines_ready(HgDev *d)
{
    uint32_t mask = 0;

    if (!d->cfg.deterministic || !d->started) {
        return 0;
    }
    uint64_t now = hg_now(d);
    for (unsigned i = 0; i < d->neng; i++) {
        mask |= (uint32_t)ready(&d->eng[i], now) << i;
    }
    return mask;
}

uint64_t hg_deadline(HgDev *d)
{
    if (!d->cfg.deterministic || !d->started) {
        return UINT64_MAX;
    }
    uint64_t at = hg_next_deadline(d, hg_now(d));
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        if (e->wake && e->wake < at) {
            at = e->wake;
        }
    }
    return at;
}

uint32_t hg_step_engine(HgDev *d, unsigned i, uint32_t steps)
{
    if (!d->cfg.deterministic || i >= d->neng || !d->started || !steps) {
        return 0;
    }
    HgEngine *e = &d->eng[i];
    if ((!e->in_slice || e->wake) && !ready(e, hg_now(d))) {
        return 0;               /* without the way into the coroutine and back */
    }
    run(e, steps);
    return steps - e->steps;
}

bool hg_step(HgDev *d, uint32_t budget)
{
    uint64_t done = 0;
    uint32_t round;

    if (!d->cfg.deterministic) {
        return false;
    }
    /* whole rounds, so that where a call ends is not part of the state */
    do {
        round = 0;
        /* front end first, then copy engines, then SMs: the order is arbitrary but fixed */
        for (unsigned i = d->neng; i-- > 0; ) {
            round += hg_step_engine(d, i, i < d->nsm ? HG_ROUND_SM : HG_ROUND_OTHER);
        }
        done += round;
    } while (round && done < budget);
    return hg_engines_ready(d) || hg_deadline(d) != UINT64_MAX;
}
