/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counters: those of the engines are summed on reading. */
#include "hg_internal.h"

static const char *const name[HG_NUM_COUNTERS] = {
    [HG_CNT_FAULTS] = "faults",
    [HG_CNT_FAULTS_DROPPED] = "faults_dropped",
    [HG_CNT_FAULTS_NONREPLAY] = "faults_nonreplay",
    [HG_CNT_REPLAYS] = "replays",
    [HG_CNT_CANCELS] = "cancels",
    [HG_CNT_INVALS] = "invals",
    [HG_CNT_UTLB_HITS] = "utlb_hits",
    [HG_CNT_UTLB_MISSES] = "utlb_misses",
    [HG_CNT_L2TLB_HITS] = "l2tlb_hits",
    [HG_CNT_L2TLB_MISSES] = "l2tlb_misses",
    [HG_CNT_INSTRS] = "instrs",
    [HG_CNT_LOADS] = "loads",
    [HG_CNT_STORES] = "stores",
    [HG_CNT_ATOMICS] = "atomics",
    [HG_CNT_READ_VRAM] = "read_vram",
    [HG_CNT_READ_SYS] = "read_sys",
    [HG_CNT_WRITE_VRAM] = "write_vram",
    [HG_CNT_WRITE_SYS] = "write_sys",
    [HG_CNT_COPIES] = "copies",
    [HG_CNT_COPY_BYTES] = "copy_bytes",
    [HG_CNT_LAUNCHES] = "launches",
    [HG_CNT_FENCES] = "fences",
    [HG_CNT_PREEMPTS] = "preempts",
    [HG_CNT_IRQS] = "irqs",
    [HG_CNT_GUEST_ERRORS] = "guest_errors",
    [HG_CNT_STALLED_WARPS] = "stalled_warps",
    [HG_CNT_PENDING_FAULTS] = "pending_faults",
    [HG_CNT_ACTIVE_CTXS] = "active_ctxs",
    [HG_CNT_VIOLATIONS] = "violations",
};

const char *hg_counter_name(unsigned n)
{
    return n < HG_NUM_COUNTERS ? name[n] : NULL;
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
        v = hg_pending_faults(d);
        break;
    case HG_CNT_VIOLATIONS:
        v = hg_violations(d);
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
