/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Copies, and a copy engine's slices of them.
 */
#ifndef HG_CE_H
#define HG_CE_H

#include "device.h"

bool hg_ce_has_work(HgEngine *e);                           /* d->lock */
HgCtx *hg_ce_pick(HgEngine *e);                             /* d->lock */
/* d->lock on entry and exit.  True: the copy is done, and its ring may go on. */
bool hg_ce_slice(HgEngine *e, HgCtx *c, uint32_t budget);
/* May the context name these bytes of that space (HG_SPACE_*)? */
bool hg_span_ok(HgDev *d, HgCtx *c, unsigned space, uint64_t addr, uint64_t bytes);
bool hg_copy_check(HgDev *d, HgCtx *c, const HgSeg *s);
void hg_copy_faulted(HgDev *d, HgCtx *c, uint32_t how);     /* d->lock; HG_FAULTED_* */
void hg_copy_end(HgDev *d, HgCtx *c);                       /* d->lock; c->res is set */
bool hg_seg_alloc(HgCtx *c);

#endif /* HG_CE_H */
