// SPDX-License-Identifier: GPL-2.0-or-later
/* A block a row: adds the row's number to its elements and leaves their sum. */
#include "hmm_gpu_kernel.h"

struct row {
	uint64_t length;
	uint32_t *data;
	uint64_t sum;
};

struct args {
	struct row **rows;
};

HMM_KERNEL(rows, struct args)
{
	struct row *row = args->rows[hmm_bid()];
	uint64_t sum = 0;

	for (uint64_t i = hmm_tid(); i < row->length; i += hmm_ntid()) {
		row->data[i] += hmm_bid();
		sum += row->data[i];
	}
	__atomic_fetch_add(&row->sum, sum, __ATOMIC_RELAXED);
}
