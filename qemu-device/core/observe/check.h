/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_CHECK_H
#define HG_CHECK_H

#include "observe/observe.h"

/* Any lock but report.lock may be held. */
void hg_violated(HgDev *d, HgCheck what, uint32_t asid, uint64_t addr, uint64_t a, uint64_t b);
void hg_check_observe(HgDev *d);

#endif /* HG_CHECK_H */
