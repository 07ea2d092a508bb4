/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Invalidations.  d->lock.
 */
#ifndef HG_INVAL_H
#define HG_INVAL_H

#include "device.h"

void hg_inval_make(HgInval *iv, unsigned type, unsigned asid, uint64_t start, uint64_t len);
uint64_t hg_inval_submit(HgDev *d, const HgInval *iv);  /* its sequence number */
void hg_inval_due(HgDev *d, uint64_t now);
void hg_serve(HgEngine *e);     /* requests posted to e */

#endif /* HG_INVAL_H */
