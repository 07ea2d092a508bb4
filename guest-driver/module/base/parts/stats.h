/* SPDX-License-Identifier: GPL-2.0 */
/* Counters: what of them a device has.  What they are called: base/stats.c. */
#ifndef HMM_GPU_BASE_PARTS_STATS_H
#define HMM_GPU_BASE_PARTS_STATS_H

#include <linux/atomic.h>

/* Cumulative: only ever grow. */
#define HG_COUNTERS(X)			\
	X(fault_batches)		\
	X(faults)			\
	X(faults_duplicate)		\
	X(faults_stale)			\
	X(faults_thrashing)		\
	X(faults_dropped)		\
	X(faults_served)		\
	X(fault_retries)		\
	X(fault_overflows)		\
	X(nonreplay_faults)		\
	X(replays)			\
	X(cancels)			\
	X(invalidations)		\
	X(invalidations_mapped)		\
	X(tlb_invalidates)		\
	X(maps)				\
	X(maps_huge)			\
	X(maps_big)			\
	X(maps_exclusive)		\
	X(unmaps)			\
	X(pages_to_device)		\
	X(pages_to_device_failed)	\
	X(pages_to_system)		\
	X(pages_to_system_failed)	\
	X(cpu_faults)			\
	X(cpu_fault_retries)		\
	X(batch_drains)			\
	X(huge_to_device)		\
	X(huge_to_system)		\
	X(evictions)			\
	X(pages_evicted)		\
	X(copies)			\
	X(copy_bytes)			\
	X(copy_errors)			\
	X(jobs_submitted)		\
	X(jobs_done)			\
	X(jobs_failed)			\
	X(ctx_restarts)			\
	X(resets)			\
	X(device_errors)

/* Live: 0 when no file is open and no VRAM page is in use. */
#define HG_GAUGES(X)			\
	X(contexts)			\
	X(svms)				\
	X(asids)			\
	X(vram_pages)			\
	X(buffers)			\
	X(buffer_pages)			\
	X(pt_pages)			\
	X(jobs)				\
	X(sys_pages_held)		\
	X(mm_refs)

enum hg_counter {
#define X(n) HG_STAT_##n,
	HG_COUNTERS(X)
	HG_NUM_STATS,
#undef X
};

enum hg_gauge {
#define X(n) HG_LIVE_##n,
	HG_GAUGES(X)
	HG_NUM_LIVE,
#undef X
};

struct hg_stats {
	atomic64_t count[HG_NUM_STATS];
	atomic_long_t live[HG_NUM_LIVE];
};

#endif
