/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Launches, and an SM's slices of them.
 */
#ifndef HG_SM_H
#define HG_SM_H

#include "device.h"

bool hg_sm_has_work(HgEngine *e, HgCtx *c);                 /* d->lock */
HgCtx *hg_sm_pick(HgEngine *e, uint64_t now);               /* d->lock */
/*
 * Run warps of context c for up to `budget` warp instructions.  d->lock on
 * entry and exit.  True: the job is done, and its ring may go on.
 */
bool hg_sm_slice(HgEngine *e, HgCtx *c, uint32_t budget);
void hg_launch_start(HgDev *d, HgCtx *c);                   /* d->lock */
void hg_launch_fail(HgDev *d, HgCtx *c, const HgResult *r); /* d->lock */
void hg_launch_try_finish(HgDev *d, HgCtx *c);              /* d->lock */
unsigned hg_block_slots(const HgDev *d, const HgCtx *c);   /* blocks that an SM takes at once */
bool hg_ctx_alloc(HgDev *d, HgCtx *c);
void hg_ctx_free(HgDev *d, HgCtx *c);
void hg_ctx_clear_warps(HgDev *d, HgCtx *c);                /* d->lock */

#endif /* HG_SM_H */
