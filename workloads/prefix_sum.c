// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Inclusive prefix sum in three launches: each block sums a piece of its own, one
 * block turns the sums into where each piece begins, each block scans its piece.
 */
#include "hmm_gpu_kernel.h"

struct args {
	const uint32_t *in;
	uint32_t *out;
	uint32_t *sums;		/* one a block */
	uint64_t n;
	uint64_t blocks;
};

static inline void piece(const struct args *args, uint64_t *from, uint64_t *to)
{
	uint64_t size = (args->n + args->blocks - 1) / args->blocks;

	*from = hmm_bid() * size;
	*to = *from + size < args->n ? *from + size : args->n;
}

/* In shared memory, all threads of the block; v is this thread's, the result includes it. */
static inline uint32_t block_scan(uint32_t v)
{
	uint32_t *s = hmm_shared(), t = hmm_tid();

	s[t] = v;
	for (uint32_t by = 1; by < hmm_ntid(); by *= 2) {
		uint32_t left;

		hmm_barrier();
		left = t >= by ? s[t - by] : 0;
		hmm_barrier();
		s[t] += left;
	}
	hmm_barrier();
	return s[t];
}

HMM_KERNEL(sum_pieces, struct args)
{
	uint64_t from, to;
	uint32_t sum = 0;

	piece(args, &from, &to);
	for (uint64_t i = from + hmm_tid(); i < to; i += hmm_ntid())
		sum += args->in[i];
	sum = block_scan(sum);
	if (hmm_tid() == hmm_ntid() - 1)
		args->sums[hmm_bid()] = sum;
}

/* One block, a thread for each sum. */
HMM_KERNEL(scan_sums, struct args)
{
	uint32_t t = hmm_tid(), own = t < args->blocks ? args->sums[t] : 0;
	uint32_t upto = block_scan(own);

	if (t < args->blocks)
		args->sums[t] = upto - own;
}

HMM_KERNEL(scan_pieces, struct args)
{
	uint32_t *s = hmm_shared(), before = args->sums[hmm_bid()];
	uint64_t from, to;

	piece(args, &from, &to);
	/* All threads take every turn: they meet at the barriers. */
	for (uint64_t at = from; at < to; at += hmm_ntid()) {
		uint64_t i = at + hmm_tid();
		uint32_t v = block_scan(i < to ? args->in[i] : 0);

		if (i < to)
			args->out[i] = before + v;
		before += s[hmm_ntid() - 1];
		hmm_barrier();
	}
}
