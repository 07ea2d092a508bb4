// SPDX-License-Identifier: GPL-2.0-or-later
/* One level of a breadth-first search: who is at distance `level` reaches its neighbours. */
#include "hmm_gpu_kernel.h"

#define FAR	UINT32_MAX

struct args {
	const uint32_t *start;		/* nodes + 1 */
	const uint32_t *neighbour;
	uint32_t *distance;
	uint64_t nodes;
	uint64_t level;
	uint32_t *reached;		/* how many more */
};

HMM_KERNEL(level, struct args)
{
	uint32_t next = (uint32_t)args->level + 1;

	for (uint64_t n = hmm_thread(); n < args->nodes; n += hmm_threads()) {
		if (__atomic_load_n(&args->distance[n], __ATOMIC_RELAXED) != args->level)
			continue;
		for (uint32_t i = args->start[n]; i < args->start[n + 1]; i++) {
			uint32_t *d = &args->distance[args->neighbour[i]], far = FAR;

			if (__atomic_compare_exchange_n(d, &far, next, 0, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED))
				__atomic_fetch_add(args->reached, 1, __ATOMIC_RELAXED);
		}
	}
}
