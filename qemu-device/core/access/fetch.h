/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_FETCH_H
#define HG_FETCH_H

#include "device.h"

/* The instruction at pc, or NULL: *f says why. */
const HgInsn *hg_rv_fetch(HgEngine *e, unsigned asid, uint64_t pc, HgFault *f);

static inline HgIcPage *hg_ic_page(HgEngine *e, unsigned asid, uint64_t vpn)
{
    return &e->ic[(vpn ^ asid) & (HG_IC_PAGES - 1)];
}

/* The frame is not memory. */
static inline void hg_poison(HgFault *f, uint64_t va, unsigned access)
{
    f->va = va;
    f->access = access;
    f->reason = HG_REASON_POISON;
    f->level = 0;
    f->pend = HG_NO_PEND;
    f->ahead = false;
}

#endif /* HG_FETCH_H */
