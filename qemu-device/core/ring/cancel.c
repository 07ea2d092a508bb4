/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cancel: jobs whose stalled accesses software gives up.
 */
#include "device.h"
#include "ring/cancel.h"
#include "base/trace.h"
#include "ce/ce.h"
#include "fault/fault.h"
#include "simt/sm.h"

unsigned hg_cancel(HgDev *d, unsigned type, unsigned scope)
{
    unsigned total = 0;

    d->cnt[HG_CNT_CANCELS]++;
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        HgResult r;
        unsigned hits;

        if (!c->enabled || c->asid != d->cancel_asid) {
            continue;
        }
        hits = hg_cancel_hits(d, c, type, scope, &r);
        if (hits && c->rs == HG_RS_LAUNCH) {
            hg_launch_fail(d, c, &r);
        } else if (hits) {
            c->res = r;
            hg_copy_end(d, c);
        }
        total += hits;
    }
    hg_trace(d, HG_EV_CANCEL, (uint64_t)d->cancel_asid << 32 | type, d->cancel_addr, total, 0);
    return total;
}
