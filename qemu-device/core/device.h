/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu core: the device.  Its parts are in types/.
 *
 * Locking, in one place:
 *
 *  d->lock      all control state: registers, contexts, rings, fault units,
 *               the stalled warps and copies, engines' request lists and their
 *               in_slice flags.  Held briefly, never across read/write/atomic.
 *  d->l2_lock   the shared TLB and the walk cache.  Leaf lock.
 *  d->data_lock which pages of VRAM the data cache has.  Leaf lock; nothing but the
 *               host's vram_written() is called under it.
 *  Observers have leaf locks of their own (observe/observe.h), and say in their files what
 *  their state relies on.
 *
 * Engines and slices.  An engine (SM, copy engine, front end) is either
 * *parked* (in_slice == false) or *in a slice*.  Both transitions happen under
 * d->lock.  Only an engine in a slice touches guest memory, VRAM, its
 * micro-TLB, its instruction cache or the RAM table; while it is parked, these
 * belong to whoever holds d->lock.  In a slice the engine passes a *safe
 * point* at least between any two instructions or copy pieces; one access
 * (translate, then perform) never contains a safe point.  At a safe point with
 * `attn` set it takes d->lock and serves the requests posted to it.
 *
 * The invalidation path relies on exactly this: after removing L2 entries (and tables
 * from the walk cache, in the same hold of l2_lock), it
 * flushes parked engines itself and posts to the others; an engine that has
 * served the request has finished every access under the old translation
 * (they lie before the safe point) and cannot find it in a TLB again (the L2
 * refuses inserts of walks that began before the removal).
 *
 * Stalled warps and copies belong to d->lock even while their engine is in a
 * slice (the engine only touches runnable ones; the transition to stalled
 * happens under d->lock), so replay and cancel act at once.
 *
 * hg_stop, reset, save, load, ram_add/remove raise d->pause and wait until no
 * engine is in a slice; an engine that sees it leaves its slice completely, so no
 * pointer of the old state survives on its stack.
 *
 * Deterministic stepping (base/step.c) keeps all of this and has no threads: each
 * engine is a coroutine, run by the host's thread inside hg_step_engine() until
 * its steps are used up.  It may stop at any *point* (hg_point()), which is
 * where others may come in between as they do between any two instructions of
 * a thread; so what is said above of an engine in a slice holds for one that
 * stands in the middle of it, and nothing else may be relied on there.  A point
 * is never passed with a lock held: d->lock, the leaf locks and the host's are
 * free whenever an engine stands, and only one engine runs at a time.  Instead of
 * waiting for engines in slices, hg_pause() runs them on to their safe points.
 * The machine's stop is no such pause: engines stay where they are (hg_stop()).
 */
#ifndef HG_DEVICE_H
#define HG_DEVICE_H

#include "types/common.h"
#include "types/translation.h"
#include "types/warps.h"
#include "types/context.h"
#include "types/rings.h"
#include "types/engine.h"
#include "hooks.h"

/*
 * The parts begin at cache lines of their own: every engine reads the first one at
 * each access, and would wait for the line each time another one takes a lock in it.
 */
struct HgDev {
    _Alignas(HG_LINE) HgConfig cfg;
    HgHostOps ops;
    void *host;
    uint8_t *vram;
    const struct HgVec *vec;    /* vec.h; NULL: lane by lane.  Changed with all engines parked */
    unsigned nsm, nce, neng;    /* eng[]: SMs, copy engines, front end */
    HgEngine *eng;
    HgRam *ram;                 /* sorted; changed with all engines parked */
    unsigned nram, ram_cap;

    _Alignas(HG_LINE) HgHooks hooks;
    struct HgObserve *seen;     /* observe/observe.h, and known there alone */

    _Alignas(HG_LINE) pthread_mutex_t l2_lock;
    HgTlb l2;                   /* l2_lock */
    uint64_t l2_gen;            /* l2_lock */
    HgWalkCache walks;          /* l2_lock */

    _Alignas(HG_LINE) pthread_mutex_t data_lock;
    HgDataCache data;           /* types/cache.h says what is under data_lock */

    _Alignas(HG_LINE) pthread_mutex_t lock;
    pthread_cond_t quiet;       /* an engine left its slice */

    bool started;
    bool exiting;
    bool stepping;              /* an engine's coroutine runs; the stepping thread's */
    uint32_t pause;             /* host wants all engines parked */
    bool bus_master;            /* changed with all engines parked */

    /* registers */
    uint32_t ctrl, intr_status, intr_enable, scratch;
    _Atomic uint64_t root[HG_NUM_ASIDS];
    uint32_t root_lo[HG_NUM_ASIDS];
    _Atomic uint32_t mode[HG_NUM_ASIDS];
    uint32_t inval_asid, inval_start_lo, inval_len_lo;
    uint64_t inval_start, inval_len, inval_seq, inval_issued, inval_done;
    uint32_t cancel_asid, cancel_client, cancel_addr_lo;
    uint64_t cancel_addr, replay_seq, replay_done;

    /* deferred host calls: made by hg_unlock() */
    uint32_t irq_out[HG_NUM_VECTORS], irq_again;    /* again: of the last, a bit a vector */
    bool irq_any, kick_out;

    /* invalidations not issued yet (injected delay): in order */
    struct {
        HgInval iv;
        uint64_t seq, due;
    } invq[HG_INVAL_QUEUE];
    unsigned ninvq;

    HgReplay rq[HG_REPLAY_QUEUE];
    unsigned nrq;
    HgTimer timer[HG_TIMERS];
    unsigned ntimer;

    HgRing ring[2];             /* replayable, non-replayable */
    uint64_t rng;
    uint64_t cnt[HG_NUM_COUNTERS];  /* those counted under d->lock */
    uint32_t stalled_warps;

    HgCtx ctx[HG_NUM_CTXS];
};

#endif /* HG_DEVICE_H */
