// SPDX-License-Identifier: GPL-2.0-or-later
/* Each block waits at its mailbox for questions and answers them, while the CPU waits for it. */
#include "hmm_gpu_kernel.h"

#include "mailbox.h"

struct args {
	struct box *boxes;
};

HMM_KERNEL(answer, struct args)
{
	struct box *b = &args->boxes[hmm_bid()];

	for (uint64_t r = 0;; r++) {
		uint64_t turn;

		do {
			turn = __atomic_load_n(&b->turn, __ATOMIC_ACQUIRE);
			if (turn == BOX_CLOSED)
				return;
		} while (turn != 2 * r + 1);
		for (uint32_t i = 0; i < BOX_WORDS; i++)
			b->message[i] = 3 * b->message[i] + hmm_bid();
		/* Unless it was closed meanwhile: closed it stays. */
		__atomic_compare_exchange_n(&b->turn, &turn, 2 * r + 2, 0, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED);
	}
}
