// SPDX-License-Identifier: GPL-2.0-or-later
/* GPU kernels of golden_shapes.c. */
#include "hmm_gpu_kernel.h"

#define WORDS 512	/* a page's */

struct abc {
	const uint64_t *a, *b;
	uint64_t *c;
};

/* One page an element. */
HMM_KERNEL(abc, struct abc)
{
	uint64_t i = (uint64_t)hmm_thread() * WORDS;

	args->c[i] = args->a[i] + args->b[i];
}

struct walk {
	const uint64_t *in;
	uint64_t pages;
};

/* Every block reads all pages: 32 neighbours a warp at a time. */
HMM_KERNEL(shared, struct walk)
{
	for (uint64_t p = hmm_lane(); p < args->pages; p += 32)
		(void)*(const volatile uint64_t *)(args->in + p * WORDS);
}
