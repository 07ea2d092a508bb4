/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The walk cache, shared by all engines as the L2 TLB is, and by the same rules: an
 * entry lives until it is evicted or invalidated, and nothing else removes it: not a
 * changed table entry, not a new ROOT.  It says where the table of a level is that
 * covers an address, so that a walk begins there and reads nothing above.
 *
 * An entry goes with an invalidation that covers all that its table translates.  One
 * of a part of that removes leaves alone: who only unmaps pages need not pay for
 * walks from the root; who takes a table away has to say so (docs/device.md).
 *
 * Who walks, and an invalidation n that is issued meanwhile: the walk has a pointer in
 * hand that n removes here, goes on through the old table, and n is complete only after
 * it, as the walk's engine is in its slice.  What it found is not kept, as for the L2
 * (l2_gen).  So when n is complete nothing leads to the table.
 */
#include "device.h"
#include "mmu/walk_cache.h"

#define WAYS 4

bool hg_walk_cache_init(HgWalkCache *w, unsigned entries)
{
    *w = (HgWalkCache) { 0 };
    if (!entries) {
        return true;
    }
    w->ways = entries < WAYS ? entries : WAYS;
    w->sets = 1;
    while (w->sets * 2 * w->ways <= entries) {
        w->sets *= 2;
    }
    w->ent = hg_alloc_lines((size_t)w->sets * w->ways * sizeof(*w->ent));
    w->next = hg_alloc_lines(w->sets);
    return w->ent && w->next;
}

void hg_walk_cache_clear(HgWalkCache *w)
{
    if (w->ent) {
        memset(w->ent, 0, (size_t)w->sets * w->ways * sizeof(*w->ent));
        memset(w->next, 0, w->sets);
    }
}

unsigned hg_walk_cache_set(const HgWalkCache *w, uint64_t span, unsigned level)
{
    return (span ^ span >> 9 ^ level) & (w->sets - 1);
}

static HgWalkEnt *find(HgWalkCache *w, unsigned asid, uint64_t span, unsigned level)
{
    HgWalkEnt *s = &w->ent[hg_walk_cache_set(w, span, level) * w->ways];

    for (unsigned i = 0; i < w->ways; i++) {
        if (s[i].valid && s[i].span == span && s[i].asid == asid && s[i].level == level) {
            return &s[i];
        }
    }
    return NULL;
}

void hg_walk_cache_find(HgWalkCache *w, unsigned asid, uint64_t vpn, HgWay *way)
{
    for (unsigned level = 0; w->ent && level < HG_PT_LEVELS - 1; level++) {
        const HgWalkEnt *x = find(w, asid, vpn >> 9 * (level + 1), level);

        if (x) {
            way->from = level;
            way->table[level] = x->table;
            return;
        }
    }
}

void hg_walk_cache_add(HgWalkCache *w, unsigned asid, uint64_t vpn, const HgWay *way)
{
    for (unsigned level = way->low; w->ent && level < way->from; level++) {
        uint64_t span = vpn >> 9 * (level + 1);
        HgWalkEnt *x = find(w, asid, span, level);

        if (!x) {
            unsigned set = hg_walk_cache_set(w, span, level);
            HgWalkEnt *s = &w->ent[set * w->ways];

            for (unsigned i = 0; i < w->ways && !x; i++) {
                x = s[i].valid ? NULL : &s[i];
            }
            if (!x) {
                x = &s[w->next[set] % w->ways];
                w->next[set] = (w->next[set] + 1) % w->ways;
            }
        }
        *x = (HgWalkEnt) {
            .span = span, .table = way->table[level], .asid = asid, .level = level, .valid = true,
        };
    }
}

void hg_walk_cache_flush(HgWalkCache *w, const HgInval *iv)
{
    for (unsigned i = 0; i < w->sets * w->ways; i++) {
        HgWalkEnt *x = &w->ent[i];
        uint64_t first = x->span << 9 * (x->level + 1);
        uint64_t last = first | (((uint64_t)1 << 9 * (x->level + 1)) - 1);

        if (iv->type == HG_INVAL_ALL ||
            (iv->asid == x->asid &&
             (iv->type == HG_INVAL_ASID || (iv->first <= first && last <= iv->last)))) {
            x->valid = false;
        }
    }
}
