// SPDX-License-Identifier: GPL-2.0-or-later
/* The CPU's threads that insert while the GPU does. */
#include <pthread.h>

#include "hmm_host.h"

#include "hash_table.h"

#define THREADS	2
/* What tells the CPU's insertions from the GPU's in a slot's value. */
#define BY_CPU	(1ull << 32)

struct side {
	pthread_t thread;
	const struct args *args;
	uint64_t first;
};

static void *insert(void *arg)
{
	struct side *s = arg;

	for (uint64_t i = s->first; i < s->args->n; i += THREADS)
		if (!put(s->args, s->args->keys[i], BY_CPU))
			__atomic_fetch_add(s->args->refused, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* 0, or what pthread_create() said. */
HMM_HOST(insert_all, struct args)
{
	struct side sides[THREADS];
	unsigned n = 0;
	int error = 0;

	while (n < THREADS && !error) {
		sides[n] = (struct side){ .args = args, .first = n };
		error = pthread_create(&sides[n].thread, NULL, insert, &sides[n]);
		n += !error;
	}
	while (n)
		pthread_join(sides[--n].thread, NULL);
	return error;
}
