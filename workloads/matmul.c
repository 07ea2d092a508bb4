// SPDX-License-Identifier: GPL-2.0-or-later
/* c = a * b, square, n a multiple of TILE; a block makes a tile of c from tiles in shared memory. */
#include "hmm_gpu_kernel.h"

#define TILE	16

struct args {
	const float *a, *b;
	float *c;
	uint64_t n;
};

HMM_KERNEL(matmul, struct args)
{
	float (*a)[TILE] = hmm_shared();
	float (*b)[TILE] = a + TILE;
	uint32_t x = hmm_tid() % TILE, y = hmm_tid() / TILE;
	uint64_t n = args->n, tiles = n / TILE;
	uint64_t row = hmm_bid() / tiles * TILE + y, column = hmm_bid() % tiles * TILE + x;
	float sum = 0;

	for (uint64_t k = 0; k < n; k += TILE) {
		a[y][x] = args->a[row * n + k + x];
		b[y][x] = args->b[(k + y) * n + column];
		hmm_barrier();
		for (uint32_t i = 0; i < TILE; i++)
			sum += a[y][i] * b[i][x];
		hmm_barrier();
	}
	args->c[row * n + column] = sum;
}
