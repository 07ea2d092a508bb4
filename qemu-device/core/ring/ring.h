/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rings of descriptors.  d->lock.
 */
#ifndef HG_RING_H
#define HG_RING_H

#include "device.h"

bool hg_ring_ready(HgDev *d, HgCtx *c, uint64_t now);
void hg_ring_run(HgEngine *e, HgCtx *c);                    /* d->lock on entry and exit */
bool hg_launch_ok(HgDev *d, HgCtx *c);

#endif /* HG_RING_H */
