// SPDX-License-Identifier: GPL-2.0-or-later
/* Runs until it is killed, its budget is used up, or it is told to stop: see accesses.h. */
#include "hmm_gpu_kernel.h"

#include "accesses.h"

HMM_KERNEL(spin, struct spin_args)
{
	uint32_t *stop = (uint32_t *)args->stop;
	uint64_t *word = (uint64_t *)args->word;

	while (!stop || !__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		if (word)
			__atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
		hmm_compiler_barrier();
	}
}
