// SPDX-License-Identifier: GPL-2.0-or-later
/* The CPU's side of the mailboxes: a thread for each, which asks until it is told to end. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "hmm_host.h"

#include "mailbox.h"

#define MAX_BOXES	16

/* A thread's own, but for the last two, which the session's thread reads (relaxed: it looks). */
static struct side {
	pthread_t thread;
	struct box *box;
	uint64_t number;
	uint64_t answered;	/* rounds, each answer checked */
	uint64_t wrong;		/* words of the last answer */
} sides[MAX_BOXES];

static uint64_t count;

/* Written by the session's thread, read by the sides (relaxed: they need not see it at once). */
static bool last_round, give_up;

static bool told(const bool *what)
{
	return __atomic_load_n(what, __ATOMIC_RELAXED);
}

/* One question and its answer; false if there was none, or a wrong one. */
static bool talk(struct side *s, uint64_t r, uint64_t *want)
{
	struct box *b = s->box;
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < BOX_WORDS; i++) {
		b->message[i] += r + i;
		want[i] = 3 * (want[i] + r + i) + s->number;
	}
	__atomic_store_n(&b->turn, 2 * r + 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&b->turn, __ATOMIC_ACQUIRE) != 2 * r + 2) {
		if (told(&give_up))
			return false;
		sched_yield();
	}
	for (uint64_t i = 0; i < BOX_WORDS; i++)
		wrong += b->message[i] != want[i];
	__atomic_store_n(&s->wrong, wrong, __ATOMIC_RELAXED);
	return !wrong;
}

static void *ask(void *arg)
{
	uint64_t want[BOX_WORDS] = { 0 }, r = 0;
	struct side *s = arg;

	while (!told(&last_round) && talk(s, r, want))
		__atomic_store_n(&s->answered, ++r, __ATOMIC_RELAXED);
	__atomic_store_n(&s->box->turn, BOX_CLOSED, __ATOMIC_RELEASE);
	return NULL;
}

struct begin {
	struct box *boxes;
	uint64_t count;
};

/* 0, or what pthread_create() said. */
HMM_HOST(begin, struct begin)
{
	uint64_t n = args->count < MAX_BOXES ? args->count : MAX_BOXES;

	for (count = 0; count < n; count++) {
		struct side *s = &sides[count];
		int error;

		s->box = &args->boxes[count];
		s->number = count;
		error = pthread_create(&s->thread, NULL, ask, s);
		if (error)
			return error;
	}
	return 0;
}

struct which {
	uint64_t box;
};

/* Rounds that a box has behind it. */
HMM_HOST(answered, struct which)
{
	return __atomic_load_n(&sides[args->box].answered, __ATOMIC_RELAXED);
}

/* Wrong words of a box's last answer. */
HMM_HOST(wrong, struct which)
{
	return __atomic_load_n(&sides[args->box].wrong, __ATOMIC_RELAXED);
}

struct end {
	uint64_t at_once;	/* do not wait for answers */
};

/* All threads have ended. */
HMM_HOST(end, struct end)
{
	__atomic_store_n(&give_up, args->at_once != 0, __ATOMIC_RELAXED);
	__atomic_store_n(&last_round, true, __ATOMIC_RELAXED);
	while (count)
		pthread_join(sides[--count].thread, NULL);
	return 0;
}
