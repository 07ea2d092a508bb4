// SPDX-License-Identifier: GPL-2.0-or-later
/* One step of a 5-point stencil on a square grid; the border stays. */
#include "hmm_gpu_kernel.h"

struct args {
	const float *from;
	float *to;
	uint64_t n;	/* points a side */
};

HMM_KERNEL(step, struct args)
{
	const float *f = args->from;
	uint64_t n = args->n;

	for (uint64_t i = hmm_thread(); i < n * n; i += hmm_threads()) {
		uint64_t y = i / n, x = i % n;

		if (x == 0 || y == 0 || x == n - 1 || y == n - 1)
			args->to[i] = f[i];
		else
			args->to[i] = 0.25f * (((f[i - n] + f[i + n]) + f[i - 1]) + f[i + 1]);
	}
}
