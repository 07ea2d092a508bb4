/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_TLB_H
#define HG_TLB_H

#include "device.h"

bool hg_tlb_init(HgTlb *t, unsigned entries, unsigned ways);
void hg_tlb_clear(HgTlb *t);
HgTlbEnt *hg_tlb_find(HgTlb *t, unsigned asid, uint64_t vpn);
HgTlbEnt *hg_tlb_insert(HgTlb *t, const HgTlbEnt *n);
void hg_tlb_flush(HgTlb *t, const HgInval *iv);
HgTlbEnt *hg_l2_find(HgDev *d, unsigned asid, uint64_t vpn);    /* l2_lock */
void hg_tlb_resolve(HgEngine *e, HgTlbEnt *t);
void hg_resolve_all(HgDev *d);                          /* all engines parked */
void hg_engine_flush(HgEngine *e, const HgInval *iv);

static inline bool hg_pte_allows(uint64_t pte, unsigned access, uint8_t *reason)
{
    if ((access == HG_ACCESS_WRITE || access == HG_ACCESS_ATOMIC) && !(pte & HG_PTE_WRITE)) {
        *reason = HG_REASON_WRITE;
        return false;
    }
    if (access == HG_ACCESS_ATOMIC && !(pte & HG_PTE_ATOMIC)) {
        *reason = HG_REASON_ATOMIC;
        return false;
    }
    return true;
}

#endif /* HG_TLB_H */
