// SPDX-License-Identifier: GPL-2.0-or-later
/* y = A x, A sparse in compressed rows; a thread a row. */
#include "hmm_gpu_kernel.h"

struct args {
	const uint32_t *start;	/* rows + 1 */
	const uint32_t *column;
	const double *value;
	const double *x;
	double *y;
	uint64_t rows;
};

HMM_KERNEL(spmv, struct args)
{
	for (uint64_t r = hmm_thread(); r < args->rows; r += hmm_threads()) {
		double sum = 0;

		for (uint32_t i = args->start[r]; i < args->start[r + 1]; i++)
			sum += args->value[i] * args->x[args->column[i]];
		args->y[r] = sum;
	}
}
