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
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

/* How long to spin for a short time before sleeping; turns of a pause instruction. */
#define SPINS		100
/* How long the actors of a phase wait for each other, so that they really race. */
#define RENDEZVOUS_NS	300000

static unsigned self;			/* number of this process; set before its threads exist */
static _Thread_local uint32_t self_bit;	/* ACTOR_BIT of this thread; 0 in the supervisor */

static long futex(void *word, int op, uint32_t value, uint32_t bits)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, bits);
}

long futex_wake_all(_Atomic uint32_t *word)
{
	return futex(word, FUTEX_WAKE, INT32_MAX, 0);
}

/* Who sees one begin may say so after somebody has seen the next. */
static void tell_phase(uint32_t phase)
{
	_Atomic uint32_t *told = &chan_told()->phase;
	uint32_t before = atomic_load(told);

	while (before < phase && !atomic_compare_exchange_weak(told, &before, phase))
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
		futex(&sh->first, FUTEX_WAKE_BITSET, INT32_MAX, wanted);
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
		futex(&sh->first, FUTEX_WAIT_BITSET, f, self_bit);
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

void under_way(unsigned number, int more)
{
	atomic_fetch_add(&chan_told()->under_way[number], more);
}

static void kick(void)
{
	uint64_t one = 1;

	if (write(sh->kick_fd, &one, sizeof(one)) < 0)
		_exit(3);
}

/* Makes a new process known; false if the program has already counted it as gone. */
static bool announce(unsigned number, pid_t pid)
{
	struct slot *s = &sh->slot[number];
	uint32_t none = SLOT_NONE;

	atomic_store(&s->pid, pid);
	return atomic_compare_exchange_strong(&s->state, &none, SLOT_ALIVE) || none == SLOT_ALIVE;
}

static int op_fork(const struct hb_op *op)
{
	pid_t pid = fork();

	if (pid < 0) {
		int err = -errno;

		/* Its operations will never run: the supervisor skips them. */
		atomic_store(&sh->slot[op->arg].state, SLOT_GONE);
		kick();
		return err;
	}
	if (pid == 0) {
		/* Parent and child both announce: one of them may be killed at any time. */
		if (!announce(op->arg, getpid()))
			_exit(0);
		kick();
		gpu_after_fork();
		process_run(op->arg);
	}
	announce(op->arg, pid);
	kick();
	return 0;
}

static int op_spawn(const struct hb_op *op)
{
	struct slot *s = &sh->slot[op->arg];
	int32_t answer;

	atomic_store(&s->spawn, SPAWN_ASKED);
	kick();
	while ((answer = atomic_load(&s->spawn)) == SPAWN_ASKED)
		futex(&s->spawn, FUTEX_WAIT, SPAWN_ASKED, 0);
	return answer == SPAWN_MADE ? 0 : answer;
}

static int op_kill(const struct hb_op *op)
{
	struct slot *s = &sh->slot[op->arg];
	struct pollfd p = { .events = POLLIN };

	if (atomic_load(&s->state) != SLOT_ALIVE)
		return -ESRCH;
	atomic_store(&s->asked, 1);
	/* Not reaped before the program ends, so the pid is still its own. */
	p.fd = syscall(SYS_pidfd_open, atomic_load(&s->pid), 0);
	if (p.fd < 0)
		return -errno;
	kill(atomic_load(&s->pid), SIGKILL);
	/* Readable when every thread is gone, and with them memory and files. */
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	close(p.fd);
	/* The supervisor notices too; the next phase may rely on it. */
	while (atomic_load(&s->state) == SLOT_ALIVE)
		sched_yield();
	return 0;
}

static void op_cpu_access(const struct hb_op *op, uint32_t *order)
{
	for (uint32_t i = op->access_first; i < op->access_first + op->access_count; i++) {
		const struct hb_access *a = &sh->accesses[i];
		struct hb_access_result *r = &sh->results[i];
		uint64_t value = 0;
		void *addr = (void *)(uintptr_t)region_addr(a->region, a->off, 8);
		uint32_t status = cpu_access(a, addr, &value);

		r->value = value;
		r->order = (*order)++;
		__atomic_store_n(&r->status, status, __ATOMIC_RELEASE);
		if (op->arg) {
			uint64_t end = now_ns() + op->arg;

			while (now_ns() < end)
				__builtin_ia32_pause();
		}
	}
}

static int op_sleep(const struct hb_op *op)
{
	struct timespec ts = { .tv_sec = op->a / 1000000, .tv_nsec = op->a % 1000000 * 1000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
	return 0;
}

static int execute(unsigned i, uint32_t *order)
{
	const struct hb_op *op = &sh->ops[i];
	struct hb_op_result *r = &sh->op_results[i];

	switch (op->op) {
	case HB_OP_NOP: return 0;
	case HB_OP_CPU_ACCESS: op_cpu_access(op, order); return 0;
	case HB_OP_FORK: return op_fork(op);
	case HB_OP_SPAWN: return op_spawn(op);
	case HB_OP_KILL: return op_kill(op);
	case HB_OP_SLEEP: return op_sleep(op);
	case HB_OP_EXIT:
		/* Stays RUNNING until the supervisor sees that the process is gone. */
		atomic_store(&sh->slot[self].asked, 1);
		_exit(0);
	case HB_OP_MMAP: case HB_OP_MUNMAP: case HB_OP_MPROTECT: case HB_OP_MREMAP:
	case HB_OP_MADVISE: case HB_OP_EVICT: case HB_OP_KSM:
		return mm_op(op, r);
	default:
		return gpu_op(i, op, r);
	}
}

static void run_actor(unsigned actor)
{
	uint32_t order = 0, last_phase = UINT32_MAX;

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

unsigned process_number(void)
{
	return self;
}

unsigned process_threads(unsigned number)
{
	/* Actor 0 is there whether it has something to do or not. */
	return __builtin_popcount(sh->actors[number] | 1);
}

/* Its part is done: waits for the others' and to be let go, if the supervisor wants that. */
static void rest(void)
{
	if (!atomic_load(&sh->hold))
		return;
	wait_first(sh->prog.nops);
	if (atomic_fetch_add(&sh->slot[self].held, 1) + 1 == process_threads(self))
		kick();
	while (atomic_load(&sh->hold))
		futex(&sh->hold, FUTEX_WAIT, 1, 0);
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

	self = number;
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
