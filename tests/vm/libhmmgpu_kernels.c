// SPDX-License-Identifier: GPL-2.0-or-later
/* GPU kernels of libhmmgpu_test.c. */
#include "hmm_gpu_kernel.h"

struct args {
	uint64_t *in;
	uint64_t *out;
	uint64_t n;
};

uint64_t counter;
const uint64_t table[4] = { 2, 3, 5, 7 };
static const uint64_t *const pointers[2] = { &table[1], &table[3] };

/* Numbers of the thread, as it sees them. */
HMM_KERNEL(ids, struct args)
{
	uint64_t *o = args->out + hmm_thread() * 4;

	o[0] = hmm_tid();
	o[1] = hmm_bid();
	o[2] = hmm_ntid() << 16 | hmm_nbid();
	o[3] = hmm_lane() == hmm_tid() % 32;
}

/* A block's sum by a tree over memory: needs the barrier. */
HMM_KERNEL(tree, struct args)
{
	uint64_t *a = args->in + hmm_bid() * hmm_ntid();

	for (uint32_t step = hmm_ntid() / 2; step; step /= 2) {
		hmm_barrier();
		if (hmm_tid() < step)
			a[hmm_tid()] += a[hmm_tid() + step];
	}
	if (hmm_tid() == 0)
		args->out[hmm_bid()] = a[0];
}

/* Recursion and an array: needs the stack, each thread its own. */
static __attribute__((noinline)) uint64_t fib(uint64_t n)
{
	volatile uint64_t keep[8];

	if (n < 2)
		return n;
	keep[n % 8] = fib(n - 1);
	return keep[n % 8] + fib(n - 2);
}

HMM_KERNEL(stack, struct args)
{
	args->out[hmm_thread()] = fib(hmm_thread() % 12);
}

/* Floating point, what a warp has together, and memory of the block. */
HMM_KERNEL(block, struct args)
{
	double *thirds = hmm_shared();
	uint64_t i = hmm_thread(), *out = args->out + 3 * i;

	thirds[hmm_tid()] = (double)args->in[i] / 3;
	out[0] = hmm_shuffle_xor(i, 1);
	out[1] = hmm_ballot(args->in[i] % 3 == 0);
	hmm_barrier();
	out[2] = (uint64_t)(thirds[hmm_ntid() - 1 - hmm_tid()] * 1000);
}

/* Data of the program itself: constants, pointers that need relocation, a counter. */
HMM_KERNEL(data, struct args)
{
	__atomic_fetch_add(&counter, *pointers[hmm_tid() & 1] + table[0], __ATOMIC_RELAXED);
	(void)args;
}

/* out[0] = in[0] + 1, n times, slowly. */
HMM_KERNEL(chain, struct args)
{
	for (volatile uint64_t i = 0; i < args->n; i++)
		;
	args->out[0] = args->in[0] + 1;
}

HMM_KERNEL(illegal, struct args)
{
	(void)args;
	__asm__ volatile(".word 0xffffffff");
}

HMM_KERNEL(forever, struct args)
{
	(void)args;
	for (;;)
		hmm_compiler_barrier();
}
