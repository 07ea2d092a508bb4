// SPDX-License-Identifier: GPL-2.0-or-later
/* Random updates: table[hash(i) % size] ^= hash(i), atomically, so that none is lost. */
#include "hmm_gpu_kernel.h"

struct args {
	uint64_t *table;
	uint64_t size;		/* a power of two */
	uint64_t updates;
};

/* splitmix64's output function */
static inline uint64_t hash(uint64_t i)
{
	uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

HMM_KERNEL(update, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->updates; i += hmm_threads()) {
		uint64_t h = hash(i);

		__atomic_fetch_xor(&args->table[h & (args->size - 1)], h, __ATOMIC_RELAXED);
	}
}
