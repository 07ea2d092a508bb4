// SPDX-License-Identifier: GPL-2.0
/* Names of the counters. */
#include "base/stats.h"

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

const char *const hg_device_counter_names[HG_NUM_COUNTERS] = {
#define X(symbol, text) [HG_CNT_##symbol] = text,
	HG_DEVICE_COUNTERS(X)
#undef X
};
