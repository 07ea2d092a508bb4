/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_RV_H
#define HG_RV_H

#include "device.h"

typedef enum { HG_RUN_OK, HG_RUN_STALL, HG_RUN_IDLE, HG_RUN_ERROR } HgRun;
/* Up to *budget warp instructions (decremented); returns at attention. */
HgRun hg_rv_run(HgEngine *e, HgCtx *c, HgWarp *w, uint32_t *budget, HgResult *r);

/*
 * All 32 lanes' load or store if it is aligned, in one page, and needs no look
 * at each lane.  False: nothing was done.
 */
bool hg_warp_access(HgEngine *e, unsigned asid, HgWarp *w, const HgInsn *in);

#endif /* HG_RV_H */
