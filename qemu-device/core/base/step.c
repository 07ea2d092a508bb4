/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deterministic mode: engines as coroutines, stepped by the host (life/stepping.c).
 *
 * An engine's coroutine does what its thread would do, turn after turn, and hands
 * control back where its steps are used up (hg_used_up()), where it waits for time
 * (hg_wait_until()) and where it has nothing to do.  device.h says what an
 * engine that stands may rely on.
 *
 * Time is the host's virtual clock alone.  It may stand still during a call or not;
 * what waits for it is looked at again in the next one.
 *
 * Who may touch what: an engine's co, steps, at and wake, and
 * d->stepping, belong to the host thread that calls; there is one at a time, and
 * the coroutine runs in it.  So they need no lock; and as no engine runs while the
 * host looks, what d->lock protects can be read without it, too.
 */
#include "device.h"
#include "base/step.h"
#include "base/coro.h"
#include "base/slice.h"
#include "base/time.h"

#include <assert.h>

/* -- in the coroutine -- */

static void yield(HgEngine *e, HgAt at)
{
    e->at = at;
    hg_coro_yield(e->co);
}

void hg_used_up(HgEngine *e, HgAt at)
{
    e->steps = 0;
    yield(e, at);
}

void hg_point_stepped(HgEngine *e, HgAt at, uint32_t steps)
{
    hg_spend(e, at, steps);
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

void hg_rest(HgEngine *e)
{
    yield(e, HG_AT_SAFE);
}

/* -- by the host's thread -- */

void hg_engine_run(HgEngine *e, uint32_t steps)
{
    HgDev *d = e->d;

    assert(!d->stepping);       /* a host callback must not come back here */
    d->stepping = true;
    e->steps = steps;
    hg_coro_run(e->co);
    d->stepping = false;
}

void hg_steps_free(HgEngine *e)
{
    if (e->co && hg_coro_begun(e->co)) {
        hg_engine_run(e, UINT32_MAX);
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
            hg_engine_run(&d->eng[i], UINT32_MAX);
        }
    }
    hg_lock(d);
}
