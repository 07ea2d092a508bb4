/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_AHEAD_H
#define HG_AHEAD_H

#include "device.h"

void hg_look_ahead(HgEngine *e, HgCtx *c, HgWarp *w, const HgInsn *in, uint64_t pc, uint32_t mask);

/* A prefetch by the lanes of mask: software is told of pages that are not there, and nobody waits. */
void hg_prefetch(HgEngine *e, HgCtx *c, unsigned warp, const HgInsn *in, uint32_t mask);

#endif /* HG_AHEAD_H */
