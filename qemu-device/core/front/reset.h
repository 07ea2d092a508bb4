/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_RESET_H
#define HG_RESET_H

#include "device.h"

/* All engines are parked; d->lock is held. */
void hg_reset_locked(HgDev *d);         /* what caches had is lost */
void hg_reset_written(HgDev *d);        /* what they had is in VRAM and RAM */

#endif /* HG_RESET_H */
