/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_CANCEL_H
#define HG_CANCEL_H

#include "device.h"

/* Ends the job of every stalled access that matches; how many accesses did.  d->lock. */
unsigned hg_cancel(HgDev *d, unsigned type, unsigned scope);

#endif /* HG_CANCEL_H */
