// SPDX-License-Identifier: GPL-2.0-or-later
/* The CPU's side of the mailboxes: a thread for each. */
#include <pthread.h>
#include <sched.h>

#include "hmm_host.h"

#include "mailbox.h"

#define MAX_BOXES	16

struct args {
	struct box *boxes;
	uint64_t rounds;
	uint64_t count;
};

struct side {
	pthread_t thread;
	struct box *box;
	uint64_t rounds;
};

static void *ask(void *arg)
{
	struct side *s = arg;

	for (uint64_t r = 0; r < s->rounds; r++) {
		/* It is the CPU's: the GPU writes nothing before the next odd turn. */
		s->box->value += r;
		__atomic_store_n(&s->box->turn, 2 * r + 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(&s->box->turn, __ATOMIC_ACQUIRE) != 2 * r + 2)
			sched_yield();
	}
	return NULL;
}

/* 0, or what pthread_create() said. */
HMM_HOST(converse, struct args)
{
	struct side sides[MAX_BOXES];
	uint64_t n = args->count < MAX_BOXES ? args->count : MAX_BOXES;
	int error = 0;

	for (uint64_t i = 0; i < n && !error; i++) {
		sides[i] = (struct side){ .box = &args->boxes[i], .rounds = args->rounds };
		error = pthread_create(&sides[i].thread, NULL, ask, &sides[i]);
		if (error)
			n = i;
	}
	for (uint64_t i = 0; i < n; i++)
		pthread_join(sides[i].thread, NULL);
	return error;
}
