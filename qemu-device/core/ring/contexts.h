/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Contexts: on, off, doorbell, halt.  d->lock.
 */
#ifndef HG_CONTEXTS_H
#define HG_CONTEXTS_H

#include "device.h"

void hg_ctx_enable(HgDev *d, HgCtx *c, bool priv, bool stall);
void hg_ctx_disable(HgDev *d, HgCtx *c);
void hg_ctx_try_quiesce(HgDev *d, HgCtx *c);
void hg_ctx_halt(HgDev *d, HgCtx *c, uint32_t err, uint64_t addr);
void hg_doorbell(HgDev *d, HgCtx *c, uint32_t put);

#endif /* HG_CONTEXTS_H */
