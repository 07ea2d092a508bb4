// SPDX-License-Identifier: GPL-2.0-or-later
/* Each block waits at its mailbox for questions and answers them, while the CPU waits for it. */
#include "hmm_gpu_kernel.h"

#include "mailbox.h"

struct args {
	struct box *boxes;
	uint64_t rounds;
};

HMM_KERNEL(answer, struct args)
{
	struct box *b = &args->boxes[hmm_bid()];

	for (uint64_t r = 0; r < args->rounds; r++) {
		while (__atomic_load_n(&b->turn, __ATOMIC_ACQUIRE) != 2 * r + 1)
			;
		b->value = 3 * b->value + hmm_bid();
		__atomic_store_n(&b->turn, 2 * r + 2, __ATOMIC_RELEASE);
	}
}
