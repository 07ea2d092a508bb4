/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a load or store does beside moving the bytes, for one lane (rv.c) and for
 * a whole warp (rv.c, vec_run.h).  Only the owner of the engine's slice calls these.
 */
#ifndef HG_ACCESS_H
#define HG_ACCESS_H

#include "mem/data_cache.h"
#include "mem/mem.h"
#include "mem/posted.h"
#include "mmu/translate.h"

static inline void hg_dirty(HgEngine *e, const HgTlbEnt *t, uint32_t off, uint32_t size)
{
    if (t->frame) {             /* at once: its reference may go with the next translation */
        hg_frame_written(t->frame, off, size);
        return;
    }
    if (e->dirty.hi && e->dirty.ptr != t->host) {
        hg_dirty_flush(e);
    }
    if (!e->dirty.hi) {
        e->dirty.ptr = t->host;
        e->dirty.opaque = t->opaque;
        e->dirty.addr = t->addr;
        e->dirty.vram = (t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM;
        e->dirty.lo = off;
        e->dirty.hi = off + size;
        return;
    }
    e->dirty.lo = off < e->dirty.lo ? off : e->dirty.lo;
    e->dirty.hi = off + size > e->dirty.hi ? off + size : e->dirty.hi;
}

static inline void hg_count_bytes(HgEngine *e, const HgTlbEnt *t, bool write, uint32_t n)
{
    bool vram = (t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM;

    hg_cnt(e, write ? (vram ? HG_CNT_WRITE_VRAM : HG_CNT_WRITE_SYS)
                    : (vram ? HG_CNT_READ_VRAM : HG_CNT_READ_SYS), n);
}

/*
 * Bytes of the block's shared memory, or NULL: then the address is one like any
 * other, and all there are beyond 48 bits.  Only this SM touches them.
 */
static inline uint8_t *hg_in_shared(HgEngine *e, uint64_t va, unsigned size)
{
    uint64_t off = va - HG_SHARED_BASE;

    return off < e->shared_bytes && size <= e->shared_bytes - off ? e->shared + off : NULL;
}

/*
 * The entry of this page if the access may just be done: it is there, in
 * memory that we have a pointer to, and nobody wants to look at each lane's
 * access.  NULL says nothing.
 *
 * It is the engine's own micro-TLB, so no lock: others touch it only while
 * this engine is parked.  An invalidation that is posted after this look-up
 * cannot complete before the next safe point, which comes after the access,
 * exactly as for one lane; 32 lanes are one access to it.
 *
 * `post`: the caller asks whether a write is posted; others do not get such an entry.
 */
static inline HgTlbEnt *hg_warp_entry(HgEngine *e, unsigned asid, uint64_t va, bool write,
                                      unsigned lanes, bool post)
{
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgTlb *t = &e->utlb;
    HgTlbEnt *s = &t->ent[(vpn & (t->sets - 1)) * t->ways];
    unsigned access = write ? HG_ACCESS_WRITE : HG_ACCESS_READ;
    bool watched = HG_HOOKED(e->d, access);

    if (__builtin_expect(watched, 0) &&
        atomic_load_explicit(&e->d->hooks.lanes, memory_order_relaxed)) {
        return NULL;
    }
    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].vpn == vpn && s[i].asid == asid && s[i].valid) {
            uint8_t reason;
            if (!s[i].host || (write && s[i].host_ro) || !hg_pte_allows(s[i].pte, access, &reason)) {
                return NULL;
            }
            if (__builtin_expect(s[i].posted, 0)) {
                if (write && !post) {
                    return NULL;
                }
                if (!write) {
                    hg_posted_order(e);
                }
            }
            hg_cnt(e, HG_CNT_UTLB_HITS, lanes);
            if (__builtin_expect(watched, 0)) {         /* all lanes are one */
                hg_watched_access(e, &s[i], access);
            }
            hg_point_held(e, vpn);
            return &s[i];
        }
    }
    return NULL;
}

/* After the accesses of an instruction or piece, before the next safe point. */
static inline void hg_look(HgEngine *e, uint64_t pc, unsigned warp)
{
    if (e->look) {
        HG_HOOK(e->d, look, e, pc, warp);
    }
}

#endif /* HG_ACCESS_H */
