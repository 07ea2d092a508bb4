/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_TRACE_H
#define HG_TRACE_H

#include "types/common.h"

void hg_trace(HgDev *d, HgTraceEvent ev, uint64_t a, uint64_t b, uint64_t c, uint64_t dd);
void hg_guest_error(HgDev *d, uint32_t err, uint64_t a, uint64_t v);   /* d->lock */

#endif /* HG_TRACE_H */
