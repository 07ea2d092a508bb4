// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on processes, and those that pass time. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "op.h"

static int op_nop(const struct op_call *call)
{
	(void)call;
	return 0;
}

/*
 * fork() ends with ENOMEM while anybody holds the lock of a page that is the
 * device's alone: copy_nonpresent_pte() of 6.12 and 7.3 only tries it
 * (docs/kernel-bugs.md).  So it is asked again; what lasts longer is told.  Each
 * try is an invalidation of the whole mirror, after which a driver that had a page
 * locked begins again: tries at a fixed pace and such a driver can keep each other
 * from ending.  Pauses grow, so that it serves some pages in each of the longest, if
 * it holds a lock for less than half of that.
 */
#define FORK_TRIES	24
#define FORK_PAUSE_MS	128

static pid_t fork_at_last(void)
{
	unsigned pause = 1;
	pid_t pid;

	for (int tries = 1;; tries++) {
		pid = fork();
		if (pid >= 0 || errno != ENOMEM || tries == FORK_TRIES)
			return pid;
		nanosleep(&(struct timespec){ .tv_nsec = pause * 1000000L }, NULL);
		if (pause < FORK_PAUSE_MS)
			pause *= 2;
	}
}

static int op_fork(const struct op_call *call)
{
	unsigned child = call->op->arg;
	pid_t pid = fork_at_last();

	if (pid < 0) {
		int err = -errno;

		/* Its operations will never run: the supervisor skips them. */
		atomic_store(&sh->slot[child].state, SLOT_GONE);
		kick();
		return err;
	}
	if (pid == 0) {
		/* Parent and child both announce: one of them may be killed at any time. */
		if (!announce(child, getpid()))
			_exit(0);
		kick();
		gpu_after_fork();
		return OP_CHILD;
	}
	announce(child, pid);
	kick();
	return 0;
}

static int op_spawn(const struct op_call *call)
{
	struct slot *s = &sh->slot[call->op->arg];
	int32_t answer;

	atomic_store(&s->spawn, SPAWN_ASKED);
	kick();
	while ((answer = atomic_load(&s->spawn)) == SPAWN_ASKED)
		futex_wait(&s->spawn, SPAWN_ASKED, 0);
	return answer == SPAWN_MADE ? 0 : answer;
}

static int op_exit(const struct op_call *call)
{
	(void)call;
	/* Stays RUNNING until the supervisor sees that the process is gone. */
	atomic_store(&sh->slot[process_number()].asked, 1);
	_exit(0);
}

static int op_kill(const struct op_call *call)
{
	struct slot *s = &sh->slot[call->op->arg];
	struct pollfd p = { .events = POLLIN };

	if (atomic_load(&s->state) != SLOT_ALIVE)
		return -ESRCH;
	atomic_store(&s->asked, 1);
	/* Not reaped before the program ends, so the pid is still its own. */
	p.fd = syscall(SYS_pidfd_open, atomic_load(&s->pid), 0);
	if (p.fd < 0)
		return -errno;
	kill(atomic_load(&s->pid), SIGKILL);
	/*
	 * As an OOM killer's reaper, in whose notifiers nobody may sleep.  It has what it
	 * waits for, or the process was faster.
	 */
	while (call->op->a && syscall(SYS_process_mrelease, p.fd, 0) && errno == EAGAIN)
		if (poll(&p, 1, 0) > 0)
			break;
	/* Readable when every thread is gone, and with them memory and files. */
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	close(p.fd);
	/* The supervisor notices too; the next phase may rely on it. */
	while (atomic_load(&s->state) == SLOT_ALIVE)
		sched_yield();
	return 0;
}

static int op_sleep(const struct op_call *call)
{
	uint64_t us = call->op->a;
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
	return 0;
}

static const struct op_kind processes[] = {
	{ 0, "nop", op_nop, 0, NULL },
	/* arg = number of the child process; the child has no GPU file of its own yet */
	{ 14, "fork", op_fork, OP_MAIN_ONLY | OP_BEARS, NULL },
	/* arg = number of the new process */
	{ 15, "spawn", op_spawn, OP_BEARS, NULL },
	/* the process ends (_exit) */
	{ 16, "exit", op_exit, OP_MAIN_ONLY | OP_EXITS, NULL },
	/* kill -9 process arg (not itself), waits until it is gone; a = 1: takes its memory first */
	{ 17, "kill", op_kill, OP_KILLS, NULL },
	/* a = microseconds */
	{ 19, "sleep", op_sleep, 0, NULL },
};
OP_FAMILY(processes);
