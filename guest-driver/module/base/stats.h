/* SPDX-License-Identifier: GPL-2.0 */
/* Counting, and the names of what is counted. */
#ifndef HMM_GPU_BASE_STATS_H
#define HMM_GPU_BASE_STATS_H

#include "base/device.h"

static inline void hg_count(struct hg_device *hdev, enum hg_counter c, s64 n)
{
	atomic64_add(n, &hdev->stats.count[c]);
}

static inline void hg_live(struct hg_device *hdev, enum hg_gauge g, long n)
{
	atomic_long_add(n, &hdev->stats.live[g]);
}

#define hg_inc(hdev, name)		hg_count(hdev, HG_STAT_##name, 1)
#define hg_add(hdev, name, n)		hg_count(hdev, HG_STAT_##name, n)
#define hg_live_add(hdev, name, n)	hg_live(hdev, HG_LIVE_##name, n)

extern const char *const hg_counter_names[HG_NUM_STATS];
extern const char *const hg_gauge_names[HG_NUM_LIVE];
extern const char *const hg_device_counter_names[HG_NUM_COUNTERS];

#endif
