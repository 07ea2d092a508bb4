/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions come from memory as data do, and stay decoded.
 */
#include "device.h"
#include "access/fetch.h"
#include "access/access.h"
#include "access/decode.h"

/* NULL: *f says why.  Decoded instructions stay until invalidated, evicted or fence.i. */
const HgInsn *hg_rv_fetch(HgEngine *e, unsigned asid, uint64_t pc, HgFault *f)
{
    uint64_t vpn = pc >> HG_PAGE_SHIFT;
    uint32_t off = pc & HG_PAGE_MASK, raw;
    HgIcPage *p = hg_ic_page(e, asid, vpn);
    HgTlbEnt *t;

    if (p->valid && p->vpn == vpn && p->asid == asid && p->insn[off / 4].op) {
        return &p->insn[off / 4];
    }
    t = hg_translate(e, asid, pc, HG_ACCESS_READ, f);
    if (!t) {
        return NULL;
    }
    if (!p->valid || p->vpn != vpn || p->asid != asid) {
        memset(p->insn, 0, sizeof(p->insn));
        p->vpn = vpn;
        p->asid = asid;
        p->order = t->order;
        p->valid = true;
    }
    if (t->host) {
        raw = __atomic_load_n((hg_u32a *)(t->host + off), __ATOMIC_RELAXED);
    } else if (hg_bus_read(e, t->addr + off, &raw, 4)) {
        hg_poison(f, pc, HG_ACCESS_READ);
        return NULL;
    }
    hg_rv_decode(&p->insn[off / 4], raw);
    return &p->insn[off / 4];
}
