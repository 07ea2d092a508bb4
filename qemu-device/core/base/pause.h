/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_PAUSE_H
#define HG_PAUSE_H

#include "types/common.h"

void hg_pause(HgDev *d);        /* takes and keeps d->lock; all engines parked */
void hg_resume(HgDev *d);       /* releases d->lock */

#endif /* HG_PAUSE_H */
