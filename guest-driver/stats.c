// SPDX-License-Identifier: GPL-2.0
/* Names of the counters, and /proc/PID/fdinfo. */
#include <drm/drm_print.h>

#include "hmm_gpu.h"

const char *const hg_counter_names[HG_NUM_STATS] = {
#define X(n) #n,
	HG_COUNTERS(X)
#undef X
};

const char *const hg_gauge_names[HG_NUM_LIVE] = {
#define X(n) #n,
	HG_GAUGES(X)
#undef X
};

static const char *const device_counter_names[HG_NUM_COUNTERS] = {
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
};

const char *hg_device_counter_name(unsigned int n)
{
	return n < HG_NUM_COUNTERS && device_counter_names[n] ? device_counter_names[n] : "unknown";
}

void hg_show_fdinfo(struct drm_printer *p, struct drm_file *file)
{
	struct hg_file *hf = file->driver_priv;
	struct hg_svm *svm = hf->svm;
	unsigned long sys, vram;

	mutex_lock(&svm->pt_lock);
	sys = svm->gpu_sys;
	vram = svm->gpu_vram;
	mutex_unlock(&svm->pt_lock);
	drm_printf(p, "drm-engine-compute:\t%llu ns\n", atomic64_read(&hf->engine_ns[0]));
	drm_printf(p, "drm-engine-copy:\t%llu ns\n", atomic64_read(&hf->engine_ns[1]));
	/* what the GPU's page tables of this file map */
	drm_printf(p, "drm-resident-vram:\t%lu KiB\n", vram << (PAGE_SHIFT - 10));
	drm_printf(p, "drm-resident-system:\t%lu KiB\n", sys << (PAGE_SHIFT - 10));
	drm_printf(p, "hmm_gpu-asid:\t%u\n", svm->asid);
}
