// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A hash join and a group-by.  Customers go into a hash table; each order looks its
 * customer up and is added to the customer's region, first in the block's shared
 * memory, then in the result.
 */
#include "hmm_gpu_kernel.h"

#define REGIONS	16

struct slot {
	uint64_t id;		/* 0: free */
	uint64_t region;
};

struct group {
	uint64_t count;
	uint64_t amount;
};

struct args {
	struct slot *table;
	uint64_t size;		/* a power of two, more than there are customers */
	const uint64_t *ids;	/* of customers: each once, none 0 */
	const uint8_t *regions;
	uint64_t customers;
	const uint64_t *buyers;	/* of orders: may be nobody's id */
	const uint32_t *amounts;
	uint64_t orders;
	struct group *groups;
};

static inline uint64_t home(const struct args *args, uint64_t id)
{
	return id * 0x9e3779b97f4a7c15 >> 20 & (args->size - 1);
}

HMM_KERNEL(build, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->customers; i += hmm_threads()) {
		uint64_t at = home(args, args->ids[i]), nobody = 0;

		while (!__atomic_compare_exchange_n(&args->table[at].id, &nobody, args->ids[i], 0,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			nobody = 0;
			at = (at + 1) & (args->size - 1);
		}
		args->table[at].region = args->regions[i];
	}
}

HMM_KERNEL(probe, struct args)
{
	struct group *mine = hmm_shared();

	for (uint64_t i = hmm_thread(); i < args->orders; i += hmm_threads()) {
		uint64_t at = home(args, args->buyers[i]);

		while (args->table[at].id && args->table[at].id != args->buyers[i])
			at = (at + 1) & (args->size - 1);
		if (args->table[at].id) {
			struct group *g = &mine[args->table[at].region];

			__atomic_fetch_add(&g->count, 1, __ATOMIC_RELAXED);
			__atomic_fetch_add(&g->amount, args->amounts[i], __ATOMIC_RELAXED);
		}
	}
	hmm_barrier();
	for (uint32_t r = hmm_tid(); r < REGIONS; r += hmm_ntid()) {
		__atomic_fetch_add(&args->groups[r].count, mine[r].count, __ATOMIC_RELAXED);
		__atomic_fetch_add(&args->groups[r].amount, mine[r].amount, __ATOMIC_RELAXED);
	}
}
