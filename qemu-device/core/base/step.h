/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deterministic mode, in the engine's coroutine: points, steps and waits.
 */
#ifndef HG_STEP_H
#define HG_STEP_H

#include "types/engine.h"
#include "base/lock.h"

void hg_used_up(HgEngine *e, HgAt at);
void hg_point_stepped(HgEngine *e, HgAt at, uint32_t steps);
void hg_spend_held(HgEngine *e, uint64_t vpn);
void hg_wait_until(HgEngine *e, HgAt at, uint64_t due);     /* or until it is to be parked */
void hg_rest(HgEngine *e);                                  /* until it is run again */
/* -- by the host's thread -- */
void hg_engine_run(HgEngine *e, uint32_t steps);
void hg_steps_free(HgEngine *e);                            /* d->exiting is set */
void hg_steps_to_rest(HgDev *d);                            /* d->lock on entry and exit; d->pause */

static inline void hg_spend(HgEngine *e, HgAt at, uint32_t steps)
{
    if (at == HG_AT_SAFE || at == HG_AT_DATA) {
        e->held = 0;
    }
    if (__builtin_expect(steps < e->steps, 1)) {
        e->steps -= steps;
    } else {
        hg_used_up(e, at);
    }
}

/*
 * A point: in a slice, no lock held.  Others may come in between here, as they may
 * anywhere if engines are threads; for threads it is nothing.
 */
static inline void hg_point(HgEngine *e, HgAt at)
{
    if (__builtin_expect(e->co != NULL, 0)) {
        hg_point_stepped(e, at, 1);
    }
}

/*
 * A translation is in hand.  Lanes one after the other in the same page are one
 * access, however they are executed: so steps do not depend on the host's vectors.
 */
static inline void hg_point_held(HgEngine *e, uint64_t vpn)
{
    if (__builtin_expect(e->co != NULL, 0)) {
        hg_spend_held(e, vpn);
    }
}

/* After n instructions in a row, which hg_steps_room() has allowed. */
static inline void hg_point_insns(HgEngine *e, uint32_t n)
{
    if (__builtin_expect(e->co != NULL, 0)) {
        hg_point_stepped(e, HG_AT_SAFE, n);
    }
}

static inline uint32_t hg_steps_room(const HgEngine *e, uint32_t n)
{
    return __builtin_expect(e->co != NULL, 0) && e->steps < n ? e->steps : n;
}

/* In a slice: let d->lock go for accesses to memory, and take it again. */
static inline void hg_leave_lock(HgEngine *e)
{
    hg_unlock(e->d);
    hg_point(e, HG_AT_BUS);
}

static inline void hg_retake_lock(HgEngine *e)
{
    hg_point(e, HG_AT_BUS);
    hg_lock(e->d);
}

#endif /* HG_STEP_H */
