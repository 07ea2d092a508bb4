/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the host is told of.
 */
#include "device.h"
#include "base/trace.h"

void hg_trace(HgDev *d, HgTraceEvent ev, uint64_t a, uint64_t b, uint64_t c, uint64_t dd)
{
    if (d->ops.trace) {
        d->ops.trace(d->host, ev, a, b, c, dd);
    }
}

void hg_guest_error(HgDev *d, uint32_t err, uint64_t a, uint64_t v)
{
    d->cnt[HG_CNT_GUEST_ERRORS]++;
    hg_trace(d, HG_EV_GUEST_ERROR, err, a, v, 0);
}
