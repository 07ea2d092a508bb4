// SPDX-License-Identifier: GPL-2.0-or-later
/* Sum of a vector: by thread, by warp (shuffles), by block (shared memory), then one atomic. */
#include "hmm_gpu_kernel.h"

struct args {
	const uint32_t *x;
	uint64_t n;
	uint64_t *sum;
};

HMM_KERNEL(reduce, struct args)
{
	uint64_t *warps = hmm_shared(), sum = 0;
	uint32_t t = hmm_tid();

	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		sum += args->x[i];
	for (uint32_t by = 16; by; by /= 2)
		sum += hmm_shuffle_xor(sum, by);
	if (t % 32 == 0)
		warps[t / 32] = sum;
	hmm_barrier();
	if (t == 0) {
		for (uint32_t w = 1; w < hmm_ntid() / 32; w++)
			sum += warps[w];
		__atomic_fetch_add(args->sum, sum, __ATOMIC_RELAXED);
	}
}
