// SPDX-License-Identifier: GPL-2.0-or-later
/* The CPU makes the data before the GPU has it, and uses it after. */
#include "hmm_host.h"

struct args {
	uint64_t *data;
	uint64_t n;
};

HMM_HOST(make, struct args)
{
	for (uint64_t i = 0; i < args->n; i++)
		args->data[i] = i * i;
	return 0;
}

HMM_HOST(total, struct args)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < args->n; i++)
		sum += args->data[i];
	return (int64_t)sum;
}
