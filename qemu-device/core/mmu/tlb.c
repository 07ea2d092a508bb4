/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Micro-TLBs and the shared L2 TLB.
 *
 * A TLB entry lives until it is evicted or invalidated by command; nothing
 * else removes or refreshes it: not a PTE change, not a new ROOT, not a launch
 * or context switch, and not a permission fault (an entry without WRITE keeps
 * faulting after the PTE got WRITE, until it is invalidated).  Entries that
 * are not valid in the tables are never cached.
 */
#include "device.h"
#include "mmu/tlb.h"
#include "base/lock.h"
#include "mem/data_cache.h"
#include "mem/mem.h"

bool hg_tlb_init(HgTlb *t, unsigned entries, unsigned ways)
{
    t->ways = entries < ways ? entries : ways;
    t->sets = 1;
    while (t->sets * 2 * t->ways <= entries) {
        t->sets *= 2;
    }
    t->ent = hg_alloc_lines((size_t)t->sets * t->ways * sizeof(*t->ent));
    t->next = hg_alloc_lines(t->sets);
    return t->ent && t->next;
}

void hg_tlb_clear(HgTlb *t)
{
    memset(t->ent, 0, (size_t)t->sets * t->ways * sizeof(*t->ent));
    memset(t->next, 0, t->sets);
}

static HgTlbEnt *tlb_set(HgTlb *t, uint64_t vpn, unsigned *set)
{
    *set = vpn & (t->sets - 1);
    return &t->ent[(size_t)*set * t->ways];
}

HgTlbEnt *hg_tlb_find(HgTlb *t, unsigned asid, uint64_t vpn)
{
    unsigned set;
    HgTlbEnt *s = tlb_set(t, vpn, &set);

    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].valid && s[i].vpn == vpn && s[i].asid == asid) {
            return &s[i];
        }
    }
    return NULL;
}

HgTlbEnt *hg_tlb_insert(HgTlb *t, const HgTlbEnt *n)
{
    unsigned set;
    HgTlbEnt *s = tlb_set(t, n->vpn, &set), *v = NULL;

    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].valid && s[i].vpn == n->vpn && s[i].asid == n->asid) {
            v = &s[i];          /* two engines walked at once */
            break;
        }
        if (!v && !s[i].valid) {
            v = &s[i];
        }
    }
    if (!v) {
        v = &s[t->next[set] % t->ways];
        t->next[set] = (t->next[set] + 1) % t->ways;
    }
    hg_frame_put(v->valid ? v->frame : NULL);
    *v = *n;
    return v;
}

/*
 * The L2 holds leaves under their first page; entries of other sizes with the same
 * page number are told apart by `order`.
 */
HgTlbEnt *hg_l2_find(HgDev *d, unsigned asid, uint64_t vpn)
{
    static const uint8_t order[] = { 0, HG_BIG_ORDER, HG_HUGE_ORDER };

    for (unsigned i = 0; i < sizeof(order); i++) {
        HgTlbEnt *h = i == 1 && !d->cfg.big_pages ? NULL
                    : hg_tlb_find(&d->l2, asid, vpn >> order[i] << order[i]);

        if (h && h->order >= order[i]) {
            return h;
        }
    }
    return NULL;
}

static bool match(const HgInval *iv, unsigned asid, uint64_t vpn, unsigned order)
{
    if (iv->type == HG_INVAL_ALL) {
        return true;
    }
    if (asid != iv->asid) {
        return false;
    }
    if (iv->type == HG_INVAL_ASID) {
        return true;
    }
    /* a piece of a large leaf goes with its leaf */
    uint64_t first = vpn >> order << order;
    uint64_t last = first + ((uint64_t)1 << order) - 1;
    return iv->first <= iv->last && first <= iv->last && iv->first <= last;
}

void hg_tlb_flush(HgTlb *t, const HgInval *iv)
{
    for (unsigned i = 0; i < t->sets * t->ways; i++) {
        HgTlbEnt *x = &t->ent[i];
        if (x->valid && match(iv, x->asid, x->vpn, x->order)) {
            x->valid = false;
            x->host = NULL;
            hg_frame_put(x->frame);
            x->frame = NULL;
        }
    }
}

/* Micro-TLB and decoded instructions.  By the slice owner, or under d->lock if parked. */
void hg_engine_flush(HgEngine *e, const HgInval *iv)
{
    hg_visit(e->d, e->utlb.sets * e->utlb.ways + HG_IC_PAGES, 0);
    hg_tlb_flush(&e->utlb, iv);
    if (e->ic) {
        for (unsigned i = 0; i < HG_IC_PAGES; i++) {
            HgIcPage *p = &e->ic[i];
            if (p->valid && match(iv, p->asid, p->vpn, p->order)) {
                p->valid = false;
            }
        }
    }
}

/* Direct pointer to the entry's frame, if it may be used without further checks. */
void hg_tlb_resolve(HgEngine *e, HgTlbEnt *t)
{
    HgDev *d = e->d;

    t->host = NULL;
    t->host_ro = t->posted = false;
    if ((t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM) {
        if (t->addr <= d->cfg.vram_size - HG_PAGE_SIZE) {
            if ((t->pte & HG_PTE_CACHED) && d->data.n && !t->frame) {
                t->frame = hg_frame_get(d, t->addr);
            }
            t->host = t->frame ? t->frame->data : d->vram + t->addr;
            t->opaque = NULL;
        }
        return;
    }
    if (hg_direct_sys(d)) {
        const HgRam *r = hg_ram_find(d, t->addr, HG_PAGE_SIZE);
        if (r) {
            t->host = r->ptr + (t->addr - r->base);
            t->opaque = r->opaque;
            t->host_ro = r->ro;
            t->posted = e->posted && !r->ro;
        }
    }
}

/*
 * Pointers kept in micro-TLBs are only a shortcut: finding them anew changes
 * no translation.
 */
void hg_resolve_all(HgDev *d)
{
    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        HgTlb *t = &d->eng[i].utlb;
        hg_visit(d, t->sets * t->ways, 0);
        for (unsigned j = 0; j < t->sets * t->ways; j++) {
            if (t->ent[j].valid) {
                hg_tlb_resolve(&d->eng[i], &t->ent[j]);
            }
        }
    }
}
