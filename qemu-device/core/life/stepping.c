/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deterministic mode: what an engine's coroutine does, and how the host steps it (base/step.c).
 */
#include "device.h"
#include "life/stepping.h"
#include "base/coro.h"
#include "base/lock.h"
#include "base/slice.h"
#include "base/step.h"
#include "base/time.h"
#include "ce/ce.h"
#include "front/front.h"
#include "simt/sm.h"

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
            hg_rest(e);
        }
        hg_lock(d);
    }
    hg_unlock(d);
}

bool hg_steps_new(HgEngine *e)
{
    e->co = hg_coro_new(engine_loop, e);
    return e->co;
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
    hg_engine_run(e, steps);
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
