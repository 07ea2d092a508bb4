// SPDX-License-Identifier: GPL-2.0-or-later
/* One thread follows pointers: the next fault can only come when the last was served. */
#include "hmm_gpu_kernel.h"

struct node {
	struct node *next;
	uint64_t value;
};

struct args {
	struct node *first;
	uint64_t *out;		/* nodes, and a hash of the values in their order */
};

HMM_KERNEL(chase, struct args)
{
	uint64_t count = 0, hash = 0;

	for (struct node *n = args->first; n; n = n->next) {
		hash = hash * 31 + n->value;
		count++;
	}
	args->out[0] = count;
	args->out[1] = hash;
}
