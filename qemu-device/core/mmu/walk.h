/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_WALK_H
#define HG_WALK_H

#include "device.h"

/*
 * Fills *n (vpn = first page of the leaf), or f->reason and f->level.
 * `way`: of an access of the GPU's, with no lock held: it begins at the table way->from;
 * else NULL: through the tables as they are, from the root.
 */
bool hg_walk(HgEngine *e, unsigned asid, uint64_t va, HgWay *way, HgTlbEnt *n, HgFault *f);
/* Do the tables, as they are now, allow what a cached entry forbids? */
bool hg_tables_allow(HgEngine *e, unsigned asid, uint64_t va, unsigned access);
/* Would a load miss?  Fills and counts nothing. */
bool hg_would_miss(HgEngine *e, unsigned asid, uint64_t va, HgFault *f);

#endif /* HG_WALK_H */
