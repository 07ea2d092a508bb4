// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One pass of a radix sort by 4 bits, in three launches.  Each thread has a piece
 * of the keys, and a counter for each digit; the counters stand by digit, then by
 * thread, so that their prefix sums are where each thread puts its next key.
 */
#include "hmm_gpu_kernel.h"

#define DIGITS	16

struct args {
	const uint32_t *from;
	uint32_t *to;
	uint32_t *counts;	/* [DIGITS][threads] */
	uint64_t n;
	uint64_t shift;
	uint64_t threads;	/* of the launches that count and move */
};

static inline uint64_t begin(const struct args *args, uint64_t thread)
{
	return args->n * thread / args->threads;
}

static inline uint32_t digit(const struct args *args, uint32_t key)
{
	return key >> args->shift & (DIGITS - 1);
}

HMM_KERNEL(count, struct args)
{
	uint64_t t = hmm_thread(), end = begin(args, t + 1);

	for (uint32_t d = 0; d < DIGITS; d++)
		args->counts[d * args->threads + t] = 0;
	for (uint64_t i = begin(args, t); i < end; i++)
		args->counts[digit(args, args->from[i]) * args->threads + t]++;
}

/* One block: each thread sums a piece, thread 0 the pieces, each thread then its piece. */
HMM_KERNEL(scan, struct args)
{
	uint32_t *sums = hmm_shared(), t = hmm_tid(), sum = 0;
	uint64_t size = DIGITS * args->threads / hmm_ntid();
	uint32_t *mine = args->counts + t * size;

	for (uint64_t i = 0; i < size; i++)
		sum += mine[i];
	sums[t] = sum;
	hmm_barrier();
	if (t == 0) {
		sum = 0;
		for (uint32_t i = 0; i < hmm_ntid(); i++) {
			uint32_t own = sums[i];

			sums[i] = sum;
			sum += own;
		}
	}
	hmm_barrier();
	sum = sums[t];
	for (uint64_t i = 0; i < size; i++) {
		uint32_t own = mine[i];

		mine[i] = sum;
		sum += own;
	}
}

HMM_KERNEL(move, struct args)
{
	uint64_t t = hmm_thread(), end = begin(args, t + 1);

	for (uint64_t i = begin(args, t); i < end; i++) {
		uint32_t key = args->from[i];

		args->to[args->counts[digit(args, key) * args->threads + t]++] = key;
	}
}
