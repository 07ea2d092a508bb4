/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timers: what an injected delay holds back.  d->lock.
 */
#ifndef HG_TIMER_H
#define HG_TIMER_H

#include "types/rings.h"

/* False: no room, and the caller acts at once. */
bool hg_timer_add(HgDev *d, uint64_t due, uint8_t kind, uint32_t a, uint64_t b, uint32_t c);
/* Those of this kind never come; those of `a` that are due at `from` or later: how many. */
void hg_timers_drop_all(HgDev *d, uint8_t kind);
unsigned hg_timers_drop(HgDev *d, uint8_t kind, uint32_t a, uint64_t from);

#endif /* HG_TIMER_H */
