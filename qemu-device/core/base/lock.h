/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_LOCK_H
#define HG_LOCK_H

#include "types/common.h"

void hg_lock(HgDev *d);
void hg_unlock(HgDev *d);

#endif /* HG_LOCK_H */
