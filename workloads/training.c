// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a two-layer network needs: y = relu(x w) v, its gradients, a step downhill.
 * Each sum is made in order by one thread, so that roundings do not depend on the grid.
 */
#include "hmm_gpu_kernel.h"

/*
 * c[rows][columns] = sum over k of a * b; a and b are reached by steps, so either may be
 * transposed.  A long sum may be made in pieces: from k, which is 0 in the first, to end.
 */
struct product {
	const float *a, *b;
	float *c;
	uint64_t rows, columns, k, end;
	uint64_t a_row, a_k, b_k, b_column;
	uint64_t relu;		/* negative results become 0 (of the last piece) */
	const float *mask;	/* where this is 0 the result is; NULL: nowhere */
};

HMM_KERNEL(product, struct product)
{
	uint64_t n = args->rows * args->columns;

	for (uint64_t i = hmm_thread(); i < n; i += hmm_threads()) {
		const float *a = args->a + i / args->columns * args->a_row;
		const float *b = args->b + i % args->columns * args->b_column;
		float sum = args->k ? args->c[i] : 0;

		for (uint64_t k = args->k; k < args->end; k++)
			sum += a[k * args->a_k] * b[k * args->b_k];
		if ((args->relu && sum < 0) || (args->mask && args->mask[i] == 0))
			sum = 0;
		args->c[i] = sum;
	}
}

struct loss {
	const float *y, *want;
	float *slope;		/* of the loss, by y */
	float *loss;		/* a row: sum of squares */
	uint64_t rows, columns;
	double scale;
};

HMM_KERNEL(loss, struct loss)
{
	for (uint64_t r = hmm_thread(); r < args->rows; r += hmm_threads()) {
		float sum = 0;

		for (uint64_t c = 0; c < args->columns; c++) {
			uint64_t i = r * args->columns + c;
			float off = args->y[i] - args->want[i];

			sum += off * off;
			args->slope[i] = off * (float)args->scale;
		}
		args->loss[r] = sum;
	}
}

struct descend {
	float *w;
	const float *slope;
	uint64_t n;
	double rate;
};

HMM_KERNEL(descend, struct descend)
{
	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		args->w[i] -= (float)args->rate * args->slope[i];
}
