// SPDX-License-Identifier: GPL-2.0-or-later
/* x = 3 x + 1, wherever x is. */
#include "hmm_gpu_kernel.h"

struct args {
	uint32_t *x;
	uint64_t n;
};

HMM_KERNEL(advance, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		args->x[i] = 3 * args->x[i] + 1;
}
