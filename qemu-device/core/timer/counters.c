/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counters: those of the engines are summed on reading. */
#include "device.h"
#include "timer/counters.h"
#include "base/lock.h"

static const char *const name[HG_NUM_COUNTERS] = {
#define X(symbol, text) [HG_CNT_##symbol] = text,
    HG_DEVICE_COUNTERS(X)
#undef X
};

const char *hg_counter_name(unsigned n)
{
    return n < HG_NUM_COUNTERS ? name[n] : NULL;
}

static uint32_t pending_faults(HgDev *d)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        n += d->eng[i].npend;
    }
    return n;
}

uint64_t hg_counter(HgDev *d, unsigned n)
{
    uint64_t v;

    if (n >= HG_NUM_COUNTERS) {
        return 0;
    }
    hg_lock(d);
    v = d->cnt[n];
    switch (n) {
    case HG_CNT_STALLED_WARPS:
        v = d->stalled_warps;
        break;
    case HG_CNT_PENDING_FAULTS:
        v = pending_faults(d);
        break;
    case HG_CNT_VIOLATIONS:
        v = 0;
        for (uint32_t m = HG_HOOKED(d, violations); m; m &= m - 1) {
            v += d->hooks.who[__builtin_ctz(m)]->violations(d);
        }
        break;
    case HG_CNT_ACTIVE_CTXS:
        v = 0;
        for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
            v += d->ctx[i].enabled;
        }
        break;
    default:
        for (unsigned i = 0; i < d->neng; i++) {
            v += atomic_load_explicit(&d->eng[i].cnt[n], memory_order_relaxed);
        }
    }
    hg_unlock(d);
    return v;
}
