/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The way from an address to a frame: micro-TLB, L2, walk.
 */
#ifndef HG_TRANSLATE_H
#define HG_TRANSLATE_H

#include "device.h"
#include "base/slice.h"
#include "base/step.h"
#include "mmu/tlb.h"

/* The hook, out of the way of those that nobody watches. */
void hg_watched_access(HgEngine *e, const HgTlbEnt *t, unsigned access);
HgTlbEnt *hg_translate_slow(HgEngine *e, unsigned asid, uint64_t va, unsigned access, HgFault *f);

/* NULL: *f says why (va, access, reason, level set). */
static inline HgTlbEnt *hg_translate(HgEngine *e, unsigned asid, uint64_t va, unsigned access,
                                     HgFault *f)
{
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgTlb *t = &e->utlb;
    HgTlbEnt *s = &t->ent[(vpn & (t->sets - 1)) * t->ways];

    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].vpn == vpn && s[i].asid == asid && s[i].valid) {
            uint8_t reason;
            if (!hg_pte_allows(s[i].pte, access, &reason)) {
                break;          /* the slow path makes the fault of it */
            }
            hg_cnt(e, HG_CNT_UTLB_HITS, 1);
            if (__builtin_expect(HG_HOOKED(e->d, access), 0)) {
                hg_watched_access(e, &s[i], access);
            }
            hg_point_held(e, vpn);
            return &s[i];
        }
    }
    return hg_translate_slow(e, asid, va, access, f);
}

#endif /* HG_TRANSLATE_H */
