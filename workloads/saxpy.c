// SPDX-License-Identifier: GPL-2.0-or-later
/* y = a * x + y, one element a turn, neighbours by neighbouring threads. */
#include "hmm_gpu_kernel.h"

struct args {
	const float *x;
	float *y;
	uint64_t n;
	double a;
};

HMM_KERNEL(saxpy, struct args)
{
	const float *x = args->x;
	float *y = args->y;
	float a = (float)args->a;

	for (uint64_t i = hmm_thread(), n = args->n; i < n; i += hmm_threads())
		y[i] = a * x[i] + y[i];
}
