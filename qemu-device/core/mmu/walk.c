/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Walks of the GPU's page tables.
 */
#include "device.h"
#include "mmu/walk.h"
#include "base/slice.h"
#include "base/step.h"
#include "base/time.h"
#include "mem/mem.h"
#include "mmu/tlb.h"

#include <time.h>

/* One table entry.  False: outside VRAM or bus error. */
static bool read_entry(HgEngine *e, bool vram, uint64_t addr, uint64_t *pte)
{
    HgDev *d = e->d;

    if (vram) {
        if (addr > d->cfg.vram_size - 8) {
            return false;
        }
        *pte = __atomic_load_n((hg_u64a *)(d->vram + addr), __ATOMIC_ACQUIRE);
        return true;
    }
    if (hg_bus_read(e, addr, pte, 8)) {
        return false;
    }
    atomic_thread_fence(memory_order_acquire);
    return true;
}

/*
 * An injected pause of a walk, between two of its reads: it has found a table
 * and has not looked into it.  The engine is in its slice, so no invalidation
 * can complete meanwhile, which is what keeps a driver's tables alive.  Broken
 * off if the engines are to be parked.
 */
static void walk_pause(HgEngine *e, uint64_t va)
{
    HgDev *d = e->d;
    uint64_t ns, begun;

    if (hg_injected(d, HG_INJ_WALK, va, &ns) != HG_ACT_DELAY) {
        return;
    }
    begun = hg_now(d);
    if (e->co) {
        hg_wait_until(e, HG_AT_PAUSE, hg_later(begun, ns));
        return;
    }
    while (hg_now(d) - begun < ns && !hg_wanted_parked(d)) {
        struct timespec ts = { .tv_nsec = 20000 };
        nanosleep(&ts, NULL);
    }
}

bool hg_walk(HgEngine *e, unsigned asid, uint64_t va, HgWay *way, HgTlbEnt *n, HgFault *f)
{
    if (way) {
        hg_point(e, HG_AT_WALK);
    }
    uint64_t root = atomic_load_explicit(&e->d->root[asid], memory_order_acquire);
    bool vram = root & HG_ROOT_VRAM;
    uint64_t table = root & HG_PTE_FRAME_MASK;

    int level = HG_PT_LEVELS - 1;

    f->level = level;
    if (!(root & HG_ROOT_ENABLE)) {
        f->reason = HG_REASON_ASID;
        return false;
    }
    if (way && way->from < HG_PT_LEVELS - 1) {
        level = way->from;      /* from the walk cache */
        vram = way->table[level] & HG_ROOT_VRAM;
        table = way->table[level] & HG_PTE_FRAME_MASK;
    }
    for (; ; level--) {
        unsigned idx = (va >> (HG_PAGE_SHIFT + 9 * level)) & (HG_PT_ENTRIES - 1);
        uint64_t pte, aper;
        f->level = level;
        if (way) {
            way->table[level] = table | (vram ? HG_ROOT_VRAM : 0);
            way->low = level;
            if (!level) {
                walk_pause(e, va);
            }
        }
        if (!read_entry(e, vram, table + idx * 8, &pte)) {
            f->reason = HG_REASON_POISON;
            return false;
        }
        if (!(pte & HG_PTE_VALID)) {
            f->reason = HG_REASON_PTE;
            return false;
        }
        aper = pte & HG_PTE_APER_MASK;
        if (aper != HG_PTE_APER_VRAM && aper != HG_PTE_APER_SYS) {
            f->reason = HG_REASON_APERTURE;
            return false;
        }
        if (level == 0 || (level == 1 && (pte & HG_PTE_HUGE))) {
            if (way) {
                hg_point(e, HG_AT_LEAF);
            }
            n->order = level ? HG_HUGE_ORDER
                     : pte & HG_PTE_BIG && e->d->cfg.big_pages ? HG_BIG_ORDER : 0;
            n->vpn = va >> HG_PAGE_SHIFT >> n->order << n->order;
            n->addr = pte & HG_PTE_FRAME_MASK & -((uint64_t)HG_PAGE_SIZE << n->order);
            n->pte = pte;
            n->asid = asid;
            n->valid = true;
            return true;
        }
        vram = aper == HG_PTE_APER_VRAM;
        table = pte & HG_PTE_FRAME_MASK;
        if (way) {
            hg_point(e, HG_AT_LEVEL);
        }
    }
}

bool hg_tables_allow(HgEngine *e, unsigned asid, uint64_t va, unsigned access)
{
    HgTlbEnt now = { 0 };
    HgFault f = { 0 };

    return hg_walk(e, asid, va, NULL, &now, &f) && hg_pte_allows(now.pte, access, &f.reason);
}

bool hg_would_miss(HgEngine *e, unsigned asid, uint64_t va, HgFault *f)
{
    HgDev *d = e->d;
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgTlbEnt leaf = { 0 };
    bool cached;

    *f = (HgFault) { .va = va, .access = HG_ACCESS_READ, .pend = HG_NO_PEND };
    if (va >> HG_VA_BITS || hg_tlb_find(&e->utlb, asid, vpn)) {
        return false;
    }
    pthread_mutex_lock(&d->l2_lock);
    cached = hg_l2_find(d, asid, vpn);
    pthread_mutex_unlock(&d->l2_lock);
    return !cached && !hg_walk(e, asid, va, NULL, &leaf, f) && f->reason == HG_REASON_PTE;
}
