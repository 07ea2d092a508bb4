/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_VIOLATION_H
#define HG_VIOLATION_H

#include "observe/observe.h"

void hg_violation_observe(HgDev *d);

#endif /* HG_VIOLATION_H */
