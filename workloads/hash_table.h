/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A table with open addressing, the same for CPU and GPU: a slot is taken by
 * compare-and-swap of its key, and never given back; values are added up.
 */
#ifndef HASH_TABLE_H
#define HASH_TABLE_H

#include <stdint.h>

struct slot {
	uint64_t key;		/* 0: free */
	uint64_t value;
};

struct args {
	struct slot *table;
	uint64_t size;		/* a power of two */
	const uint64_t *keys;	/* none is 0; many are there several times */
	uint64_t n;
	uint64_t *refused;
};

/* Adds v to the key's value; 0: the table is full. */
static inline int put(const struct args *args, uint64_t key, uint64_t v)
{
	uint64_t at = key * 0x9e3779b97f4a7c15 >> 20;

	for (uint64_t i = 0; i < args->size; i++, at++) {
		struct slot *s = &args->table[at & (args->size - 1)];
		uint64_t seen = __atomic_load_n(&s->key, __ATOMIC_RELAXED);

		if (seen == 0 &&
		    __atomic_compare_exchange_n(&s->key, &seen, key, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			seen = key;
		/* A lost race left in `seen` who won it: perhaps the same key. */
		if (seen == key) {
			__atomic_fetch_add(&s->value, v, __ATOMIC_RELAXED);
			return 1;
		}
	}
	return 0;
}

#endif
