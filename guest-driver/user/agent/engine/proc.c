// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A process of a program: its actors walk the list of operations, each takes
 * those that are its own and waits for their phase.
 *
 * Phases.  The list is sorted by phase, so "all operations of lower phases have
 * ended" is "the first phase_start[i] operations are DONE", which is
 * sh->first >= phase_start[i].  `first` only grows, and whoever sees that the
 * operation at `first` is DONE may move it on; so an actor that dies between
 * ending its operation and moving `first` loses nothing: the supervisor calls
 * advance() after every death.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "engine.h"
#include "op.h"
#include "proc.h"

/* How long to spin for a short time before sleeping; turns of a pause instruction. */
#define SPINS		100
/* How long the actors of a phase wait for each other, so that they really race. */
#define RENDEZVOUS_NS	300000

static _Thread_local uint32_t self_bit;	/* ACTOR_BIT of this thread; 0 in the supervisor */

/* Who sees one begin may say so after somebody has seen the next. */
static void tell_phase(uint32_t phase)
{
	_Atomic uint32_t *latest = &told->phase;
	uint32_t before = atomic_load(latest);

	while (before < phase && !atomic_compare_exchange_weak(latest, &before, phase))
		;
}

void advance(void)
{
	uint32_t nops = sh->prog.nops, wanted = 0;

	for (;;) {
		uint32_t f = atomic_load(&sh->first);

		if (f >= nops || atomic_load(&sh->state[f]) != DONE)
			break;
		/* Losing the race to another caller is as good as winning it. */
		if (!atomic_compare_exchange_strong(&sh->first, &f, f + 1))
			continue;
		if (f + 1 == nops) {
			wanted = ALL_ACTORS;
			tell_phase(sh->ops[f].phase + 1);
		} else if (sh->phase_start[f + 1] == f + 1) {
			wanted |= sh->phase_actors[f + 1];
			tell_phase(sh->ops[f + 1].phase);
		}
	}
	/*
	 * Who sleeps waits for the start of a phase it is part of, or for the end;
	 * it counted itself before it looked at `first`.
	 */
	if (wanted & ~self_bit && atomic_load(&sh->waiters))
		futex_wake_bits(&sh->first, wanted);
}

static void wait_first(uint32_t wanted)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load(&sh->first) >= wanted)
			return;
		__builtin_ia32_pause();
	}
	atomic_fetch_add(&sh->waiters, 1);
	for (;;) {
		uint32_t f = atomic_load(&sh->first);

		if (f >= wanted)
			break;
		futex_wait(&sh->first, f, self_bit);
	}
	atomic_fetch_sub(&sh->waiters, 1);
}

/* The first operation of an actor in a phase with others: wait a little for them. */
static void rendezvous(uint32_t phase)
{
	unsigned width = sh->phase_width[phase];
	uint64_t end;

	if (width < 2)
		return;
	atomic_fetch_add(&sh->arrived[phase], 1);
	end = now_ns() + RENDEZVOUS_NS;
	for (unsigned i = 1; atomic_load(&sh->arrived[phase]) < width; i++) {
		if (i % 64 == 0) {
			if (now_ns() > end)
				return;
			sched_yield();
		}
		__builtin_ia32_pause();
	}
}

static int execute(unsigned i, uint32_t *order)
{
	const struct hb_op *op = &sh->ops[i];
	const struct op_call call = {
		.index = i, .op = op, .result = &sh->op_results[i], .order = order,
	};
	int status = sh->kind[i]->run(&call);

	if (status == OP_CHILD)
		process_run(op->arg);
	return status;
}

static void run_actor(unsigned actor)
{
	uint32_t order = 0, last_phase = UINT32_MAX;
	unsigned self = process_number();

	self_bit = ACTOR_BIT(self, actor);
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		struct hb_op_result *r = &sh->op_results[i];
		uint32_t phase = sh->phase_start[i];
		uint64_t start;
		int status;

		if (sh->ops[i].proc != self || sh->ops[i].actor != actor)
			continue;
		wait_first(phase);
		under_way(self, 1);
		if (phase != last_phase)
			rendezvous(phase);
		last_phase = phase;
		atomic_store(&sh->state[i], RUNNING);
		start = now_ns();
		/* Before the operation: it may never come back. */
		r->start_lo = (uint32_t)start;
		r->start_hi = start >> 32;
		status = execute(i, &order);
		r->time_ns = now_ns() - start;
		r->status = status;
		under_way(self, -1);
		atomic_store(&sh->state[i], DONE);
		advance();
	}
}

unsigned process_threads(unsigned number)
{
	/* Actor 0 is there whether it has something to do or not. */
	return __builtin_popcount(sh->actors[number] | 1);
}

/* Its part is done: waits for the others' and to be let go, if the supervisor wants that. */
static void rest(void)
{
	unsigned self = process_number();

	if (!atomic_load(&sh->hold))
		return;
	wait_first(sh->prog.nops);
	if (atomic_fetch_add(&sh->slot[self].held, 1) + 1 == process_threads(self))
		kick();
	while (atomic_load(&sh->hold))
		futex_wait(&sh->hold, 1, 0);
}

static void *actor_thread(void *arg)
{
	run_actor((uintptr_t)arg);
	rest();
	return NULL;
}

void process_run(unsigned number)
{
	pthread_attr_t small;

	process_is(number);
	/* No guard: each costs a call and a mapping, and nothing here recurses. */
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 * 1024);
	pthread_attr_setguardsize(&small, 0);
	for (uintptr_t a = 1; a < HB_MAX_ACTORS; a++) {
		pthread_t t;

		if (sh->actors[number] & (1 << a)) {
			if (pthread_create(&t, &small, actor_thread, (void *)a))
				_exit(2);
			pthread_detach(t);
		}
	}
	run_actor(0);
	/* It stays what it is, its memory included, until the whole program is over. */
	wait_first(sh->prog.nops);
	rest();
	_exit(0);
}
