/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The front end, and one turn of any engine.  d->lock.
 */
#ifndef HG_FRONT_H
#define HG_FRONT_H

#include "device.h"

/* When the front end has something to do again; UINT64_MAX = when kicked. */
uint64_t hg_next_deadline(HgDev *d, uint64_t now);
bool hg_fe_work(HgDev *d, uint64_t now);
/* One turn of an engine.  d->lock on entry and exit; false: nothing to do. */
bool hg_engine_turn(HgEngine *e);

#endif /* HG_FRONT_H */
