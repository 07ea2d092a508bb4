// SPDX-License-Identifier: GPL-2.0-or-later
/* An array of pointers to rows that have pointers to arrays: each from malloc, none copied. */
#include <stdlib.h>

#include "hmm_host.h"

struct row {
	uint64_t length;
	uint32_t *data;
	uint64_t sum;
};

struct build {
	const uint64_t *lengths;
	uint64_t n;
};

struct use {
	struct row **rows;
	uint64_t n;
	uint64_t *sums;		/* by the GPU, then by the CPU: 2 a row */
};

/* The array of pointers; 0 if there is no memory. */
HMM_HOST(build, struct build)
{
	struct row **rows = calloc(args->n, sizeof(*rows));

	for (uint64_t r = 0; rows && r < args->n; r++) {
		struct row *row = malloc(sizeof(*row));
		uint32_t *data = calloc(args->lengths[r] + 1, sizeof(*data));

		if (!row || !data)
			return 0;
		for (uint64_t i = 0; i < args->lengths[r]; i++)
			data[i] = (uint32_t)(r * 1000 + i);
		*row = (struct row){ args->lengths[r], data, 0 };
		rows[r] = row;
	}
	return (int64_t)(intptr_t)rows;
}

HMM_HOST(collect, struct use)
{
	for (uint64_t r = 0; r < args->n; r++) {
		const struct row *row = args->rows[r];
		uint64_t sum = 0;

		for (uint64_t i = 0; i < row->length; i++)
			sum += row->data[i];
		args->sums[2 * r] = row->sum;
		args->sums[2 * r + 1] = sum;
	}
	return 0;
}
