/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who watches the device, and may make it misbehave: the one interface between the
 * GPU and its observers (observe/).  The GPU calls hooks and knows nobody by name;
 * observers register (hg_hooks_add()), before the device is started.  It works as well
 * without any.
 *
 * HgObserver is the table of hooks: a function for each event, or NULL.  Observers
 * are called in the order in which they came.  Which of them want an event is a mask
 * that an observer may change at any time: so an event that nobody wants now costs one
 * load, and what is not wanted at each access is not called there.
 *
 * A hook changes nothing that a guest can see, but for `inject` and `dma`, which are there
 * for that, and for what an observer's own registers say.  The comments say what is held; where nothing is said, d->lock is.
 */
#ifndef HG_HOOKS_H
#define HG_HOOKS_H

#include <stddef.h>

#include "types/context.h"

/* What can be made to go wrong, and how: docs/device.md. */
typedef enum {
    HG_INJ_TLB_INVALIDATE, HG_INJ_FAULT, HG_INJ_REPLAY, HG_INJ_IRQ, HG_INJ_COPY,
    HG_INJ_DMA_READ, HG_INJ_DMA_WRITE, HG_INJ_DOORBELL, HG_INJ_FENCE,
    HG_INJ_LAUNCH, HG_INJ_WALK, HG_INJ_EVENTS
} HgInjEvent;

typedef enum {
    HG_ACT_NONE, HG_ACT_DELAY, HG_ACT_DELAY_VALID, HG_ACT_DUPLICATE, HG_ACT_DROP,
    HG_ACT_LOST, HG_ACT_ERROR, HG_ACT_PARTIAL, HG_ACT_REPEAT, HG_ACT_COUNT
} HgInjAct;

/* What a register of an observer says to a write. */
typedef enum { HG_REG_NONE, HG_REG_DONE, HG_REG_REFUSED } HgRegAnswer;

struct HgArchive;

typedef struct HgObserver {
    /* -- life: engines parked -- */
    void (*reset)(HgDev *d);
    void (*loading)(HgDev *d);                  /* a state is about to be loaded */
    void (*loaded)(HgDev *d);                   /* it is in place, but for direct pointers */
    void (*load_failed)(HgDev *d);
    void (*free)(HgDev *d);                     /* no lock; the device ends */
    void (*save)(HgDev *d, struct HgArchive *a);    /* its sections, both ways: state/archive.h */
    /* -- registers -- */
    /* The 8 bytes at off; false: nothing is there. */
    bool (*reg_read)(HgDev *d, uint64_t off, uint64_t *v);
    HgRegAnswer (*reg_write)(HgDev *d, uint64_t off, uint32_t v);
    bool (*reg_wide)(HgDev *d, uint64_t off);   /* the low half of a writable 64-bit register */
    bool (*command)(HgDev *d, uint64_t off, uint64_t v);    /* no lock; a write that takes long */
    void (*root)(HgDev *d, unsigned asid, uint64_t root);   /* before it changes */
    void (*enable)(HgDev *d);                   /* CTRL.ENABLE is about to change */
    uint64_t (*violations)(HgDev *d);           /* for the counter of that name */
    /* -- rings -- */
    void (*context)(HgDev *d, HgCtx *c);        /* is about to be enabled */
    void (*doorbell)(HgDev *d, HgCtx *c, uint32_t put);
    void (*fence)(HgEngine *e, HgCtx *c, uint64_t addr, uint64_t value);    /* no lock */
    void (*fault_get)(HgDev *d, unsigned ring, uint32_t get);   /* before GET changes */
    /* No lock; before an entry is written there. */
    void (*fault_slot)(HgEngine *e, unsigned ring, uint64_t addr);
    /*
     * -- copies --
     * No pairs: a reset ends copies without copy_end, a load begins some without
     * copy_begin.
     */
    void (*copy_begin)(HgDev *d, HgCtx *c);
    void (*copy_end)(HgDev *d, HgCtx *c);
    /* -- in an engine's slice, no lock held -- */
    void (*vram)(HgEngine *e, unsigned asid, uint64_t frame);   /* used by its physical address */
    void (*walk_begin)(HgDev *d, HgWay *way);
    void (*walk_found)(HgDev *d, unsigned asid, const HgWay *way);
    /* What is about to come into the micro-TLB: looked up, and found fit to be there. */
    void (*fill)(HgEngine *e, const HgTlbEnt *t, uint64_t va, unsigned access);
    void (*filled)(HgEngine *e, const HgTlbEnt *t, unsigned access);
    /* A hit is about to be used. */
    void (*access)(HgEngine *e, const HgTlbEnt *t, unsigned access);
    /*
     * The cached entry t forbids the access and so makes a fault of it.  t is the
     * engine's own, or a copy of one in the L2.
     */
    void (*denied)(HgEngine *e, HgTlbEnt *t, uint64_t va, unsigned access, bool in_l2);
    /* After the accesses of an instruction or piece, before the next safe point, if e->look. */
    void (*look)(HgEngine *e, uint64_t pc, unsigned warp);
    /* DMA, by the host.  Any lock but d->lock. */
    void (*refused)(HgDev *d, uint64_t addr, uint32_t len, bool write);
    /* -- l2_lock -- */
    /* A walk, found or not, and no invalidation was issued since it began. */
    void (*walk_read)(HgDev *d, unsigned asid, uint64_t va, const HgWay *way);
    void (*inval_l2)(HgDev *d, const HgInval *iv, uint64_t seq);    /* with the L2's flush */
    /* -- invalidations -- */
    void (*inval_asked)(HgDev *d, const HgInval *iv, uint64_t seq, uint64_t now);
    void (*inval_issued)(HgDev *d, const HgInval *iv, uint64_t seq);
    /* -- misbehaviour: any thread, any lock -- */
    HgInjAct (*inject)(HgDev *d, HgInjEvent ev, uint64_t key, uint64_t *arg);
    /*
     * True: the access to the bus fails.  As long as it is wanted no direct pointers are
     * made; those that are there go only with hg_resolve_all(), engines parked.
     */
    bool (*dma)(HgDev *d, HgInjEvent ev, uint64_t addr);
} HgObserver;

#define HG_NUM_HOOKS (sizeof(HgObserver) / sizeof(void (*)(void)))
#define HG_MAX_OBSERVERS 8

typedef struct HgHooks {
    _Atomic uint32_t want[HG_NUM_HOOKS];    /* bit i: who[i] wants it */
    _Atomic uint32_t lanes;     /* who wants `access` for each lane, not once for a warp */
    unsigned n;
    const HgObserver *who[HG_MAX_OBSERVERS];
} HgHooks;

#define HG_HOOK_NUM(event) (offsetof(HgObserver, event) / sizeof(void (*)(void)))

/* Does anybody want it? */
#define HG_HOOKED(d, event) \
    atomic_load_explicit(&(d)->hooks.want[HG_HOOK_NUM(event)], memory_order_relaxed)

#define HG_HOOK(d, event, ...)                                                  \
    do {                                                                        \
        for (uint32_t m_ = HG_HOOKED(d, event); m_; m_ &= m_ - 1) {             \
            (d)->hooks.who[__builtin_ctz(m_)]->event(__VA_ARGS__);              \
        }                                                                       \
    } while (0)

void hg_hooks_add(HgDev *d, const HgObserver *who);     /* wants all that it has */
/* From now on it wants this event, or not.  Engines see it a little later. */
void hg_hook_want(HgDev *d, const HgObserver *who, size_t event, bool wants);
void hg_hook_lanes(HgDev *d, const HgObserver *who, bool wants);

/* The action for this occurrence of ev, or HG_ACT_NONE. */
HgInjAct hg_injected(HgDev *d, HgInjEvent ev, uint64_t key, uint64_t *arg);

#endif /* HG_HOOKS_H */
