/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_LOCK_H
#define HG_LOCK_H

#include "types/common.h"

void hg_lock(HgDev *d);
void hg_unlock(HgDev *d);

/*
 * What a guest can make one hold of d->lock look at: at most so many entries (of lists,
 * tables, rings) and bytes, beside what TLBs, warps and miss tables of the host's choice
 * ask for (lock.c).  Whoever walks over what a guest made says so by hg_visit(): builds
 * with HG_COUNT_WORK (fuzz.c, unit.c) count, and end if it is more.
 *
 * Saving and loading find the machine standing and have a bound of their own: the lists of
 * all contexts, for each of them what a copy that begins looks at, and max_bytes, those of
 * the largest state.  hg_visit_state() says that this hold is one of those.
 */
#define HG_HOLD_ENTRIES  (1u << 17)
#define HG_HOLD_BYTES    (1u << 22)
#define HG_STATE_ENTRIES (1u << 21)

#ifdef HG_COUNT_WORK
void hg_visit(HgDev *d, uint64_t entries, uint64_t bytes);
void hg_visit_state(HgDev *d, uint64_t bytes, uint64_t max_bytes);
#else
static inline void hg_visit_state(HgDev *d, uint64_t bytes, uint64_t max_bytes)
{
    (void)d;
    (void)bytes;
    (void)max_bytes;
}

static inline void hg_visit(HgDev *d, uint64_t entries, uint64_t bytes)
{
    (void)d;
    (void)entries;
    (void)bytes;
}
#endif

#endif /* HG_LOCK_H */
