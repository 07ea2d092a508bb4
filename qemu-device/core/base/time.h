/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_TIME_H
#define HG_TIME_H

#include "types/common.h"

uint64_t hg_now(HgDev *d);     /* virtual nanoseconds, the host's */

#endif /* HG_TIME_H */
