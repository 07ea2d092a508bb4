/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the micro-TLB does not know.
 */
#include "device.h"
#include "mmu/translate.h"
#include "base/trace.h"
#include "mmu/walk.h"
#include "mmu/walk_cache.h"

void hg_watched_access(HgEngine *e, const HgTlbEnt *t, unsigned access)
{
    HG_HOOK(e->d, access, e, t, access);
}

HgTlbEnt *hg_translate_slow(HgEngine *e, unsigned asid, uint64_t va, unsigned access, HgFault *f)
{
    HgDev *d = e->d;
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgWay way = { .low = HG_PT_LEVELS, .from = HG_PT_LEVELS - 1 };
    HgTlbEnt leaf, *t;

    f->va = va;
    f->access = access;
    f->level = 0;
    f->pend = HG_NO_PEND;
    f->ahead = false;
    if (va >> HG_VA_BITS) {
        f->reason = HG_REASON_RANGE;
        f->level = HG_PT_LEVELS - 1;
        return NULL;
    }
    t = hg_tlb_find(&e->utlb, asid, vpn);
    if (t) {                    /* the fast path saw that it forbids the access */
        hg_cnt(e, HG_CNT_UTLB_HITS, 1);
        hg_pte_allows(t->pte, access, &f->reason);
        f->level = t->order == HG_HUGE_ORDER;
        HG_HOOK(d, denied, e, t, va, access, false);
        return NULL;
    }
    hg_cnt(e, HG_CNT_UTLB_MISSES, 1);

    memset(&leaf, 0, sizeof(leaf));
    pthread_mutex_lock(&d->l2_lock);
    uint64_t gen = d->l2_gen;
    t = hg_l2_find(d, asid, vpn);
    if (t) {
        leaf = *t;
    } else {
        hg_walk_cache_find(&d->walks, asid, vpn, &way);
    }
    pthread_mutex_unlock(&d->l2_lock);
    if (t) {
        hg_cnt(e, HG_CNT_L2TLB_HITS, 1);
    } else {
        HG_HOOK(d, walk_begin, d, &way);
        hg_cnt(e, HG_CNT_L2TLB_MISSES, 1);
        bool found = hg_walk(e, asid, va, &way, &leaf, f), shown = HG_HOOKED(d, walk_read);
        if (found || (d->walks.ent && way.low < HG_PT_LEVELS - 1)) {
            HG_HOOK(d, walk_found, d, asid, &way);
        }
        if (!found && !shown && !d->walks.ent) {
            return NULL;
        }
        pthread_mutex_lock(&d->l2_lock);
        if (gen == d->l2_gen) {
            if (found) {
                hg_tlb_insert(&d->l2, &leaf);
            }
            hg_walk_cache_add(&d->walks, asid, vpn, &way);
            HG_HOOK(d, walk_read, d, asid, va, &way);
        }
        /*
         * Otherwise an invalidation came in between.  The micro-TLB may still
         * take the entry: this engine has the request and serves it at its
         * next safe point, after this access.
         */
        pthread_mutex_unlock(&d->l2_lock);
        if (!found) {
            return NULL;
        }
    }
    if (!hg_pte_allows(leaf.pte, access, &f->reason)) {
        f->level = leaf.order == HG_HUGE_ORDER;
        if (t) {
            HG_HOOK(d, denied, e, &leaf, va, access, true);
        }
        return NULL;
    }
    leaf.addr += (vpn - leaf.vpn) << HG_PAGE_SHIFT;
    leaf.vpn = vpn;
    if ((leaf.pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM &&
        leaf.addr > d->cfg.vram_size - HG_PAGE_SIZE) {
        f->reason = HG_REASON_POISON;
        f->level = leaf.order == HG_HUGE_ORDER;
        return NULL;
    }
    HG_HOOK(d, fill, e, &leaf, va, access);
    hg_tlb_resolve(e, &leaf);
    hg_trace(d, HG_EV_TLB_FILL, (uint64_t)asid << 32 | e->kind | e->num << 8,
             vpn << HG_PAGE_SHIFT, leaf.pte, 0);
    HG_HOOK(d, filled, e, &leaf, access);
    t = hg_tlb_insert(&e->utlb, &leaf);
    hg_point_held(e, vpn);
    return t;
}
