// SPDX-License-Identifier: GPL-2.0-or-later
/* Kernels of the agent's bench and of libhmmgpu itself: see accesses.h. */
#include "hmm_gpu_kernel.h"

#include "accesses.h"

/* Nothing: the cost of a launch. */
HMM_KERNEL(empty, void)
{
	(void)args;
}

HMM_KERNEL(touch, struct touch_args)
{
	uint64_t n = hmm_threads(), sum = 0;

	for (uint64_t i = hmm_thread(); i < args->npages; i += n) {
		volatile uint64_t *word = (volatile uint64_t *)(args->base + i * 4096);

		if (args->write)
			*word = args->value + i;
		else
			sum += *word;
	}
	if (args->sum)
		__atomic_fetch_add((uint64_t *)args->sum, sum, __ATOMIC_RELAXED);
}

HMM_KERNEL(latency, struct latency_args)
{
	const uint32_t *order = (const uint32_t *)args->order;
	volatile uint64_t *times = (volatile uint64_t *)args->times;

	if (hmm_thread() != 0)
		return;
	for (uint64_t i = 0; i < args->npages; i++) {
		volatile uint64_t *word = (volatile uint64_t *)(args->base + (uint64_t)order[i] * 4096);
		uint64_t start = hmm_time();

		(void)*word;
		hmm_fence();
		times[i] = hmm_time() - start;
	}
}

HMM_KERNEL(stamp, struct stamp_args)
{
	args->time = hmm_time();
	__atomic_store_n(&args->done, 1, __ATOMIC_RELEASE);
}
