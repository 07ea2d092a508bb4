/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_INJECT_H
#define HG_INJECT_H

#include "observe/observe.h"

void hg_inject_observe(HgDev *d);

#endif /* HG_INJECT_H */
