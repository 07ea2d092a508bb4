/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The walk cache: where the tables of the lower levels are.  All under l2_lock.
 */
#ifndef HG_WALK_CACHE_H
#define HG_WALK_CACHE_H

#include "device.h"

bool hg_walk_cache_init(HgWalkCache *w, unsigned entries);
void hg_walk_cache_clear(HgWalkCache *w);
/* The lowest table on the way to vpn that is known: way->from and way->table[from]. */
void hg_walk_cache_find(HgWalkCache *w, unsigned asid, uint64_t vpn, HgWay *way);
/* The tables that a walk came to, whatever it found in the last one. */
void hg_walk_cache_add(HgWalkCache *w, unsigned asid, uint64_t vpn, const HgWay *way);
void hg_walk_cache_flush(HgWalkCache *w, const HgInval *iv);
/* The set that an entry belongs into. */
unsigned hg_walk_cache_set(const HgWalkCache *w, uint64_t span, unsigned level);

#endif /* HG_WALK_CACHE_H */
