// SPDX-License-Identifier: GPL-2.0-or-later
/* Counts of byte values: atomics in the block's shared memory, then to the result. */
#include "hmm_gpu_kernel.h"

#define BINS	256

struct args {
	const uint8_t *data;
	uint64_t n;
	uint64_t *bins;
};

HMM_KERNEL(histogram, struct args)
{
	uint32_t *mine = hmm_shared();

	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		__atomic_fetch_add(&mine[args->data[i]], 1, __ATOMIC_RELAXED);
	hmm_barrier();
	for (uint32_t b = hmm_tid(); b < BINS; b += hmm_ntid())
		if (mine[b])
			__atomic_fetch_add(&args->bins[b], mine[b], __ATOMIC_RELAXED);
}
