// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs a program's processes, supervises them, answers.
 *
 * The supervisor forks process 0 and, on request, every spawned one; fork is done
 * by the parent itself.  All are one process group.  None is reaped before the end
 * (a process reaps no children, orphans come to the supervisor, which is a
 * subreaper), so a pid in a slot always means the process it was given for,
 * and ends are noticed through pidfds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "access.h"
#include "bystander.h"
#include "census.h"
#include "engine.h"
#include "hmm_mailbox_hw.h"
#include "op.h"
#include "patience.h"
#include "prepare.h"
#include "proc.h"
#include "remains.h"

#define KILL_GRACE_MS		3000
#define MIN_KILL_GRACE_MS	1000

static const struct engine_hooks *hooks;

/* Of the program that runs; the supervisor's own. */
static struct {
	pid_t group;
	int pidfd[HB_MAX_PROCS];	/* -1: none yet, or closed */
	bool buried[HB_MAX_PROCS];	/* its operations are accounted for */
	uint32_t timeout;		/* HB_TIMEOUT_*; 0: not yet */
	bool hold;			/* the machine has to stand before anybody ends */
	struct patience patience;
} run;

void engine_init(void *stack_area, const struct engine_hooks *asked)
{
	hooks = asked;
	prepare_init(stack_area);
	access_init();
	/* Orphans come to us, and are told from what we do not know. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void engine_tell(struct told *to)
{
	told = to;
}

/* ---- supervise ---- */

/* Forks a process from the supervisor itself, which is clean; 0 or -errno. */
static int make_process(unsigned number)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		setpgid(0, run.group);
		/* Both sides do this, too: a child of its may look for it first. */
		atomic_store(&sh->slot[number].pid, getpid());
		/* Cleared by fork(), so a forked child does not die with its parent. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		hooks->in_child();
		process_run(number);
	}
	/* Both sides do this, so that it is done whoever runs first. */
	setpgid(pid, run.group);
	if (!run.group)
		run.group = pid;
	atomic_store(&sh->slot[number].pid, pid);
	atomic_store(&sh->slot[number].state, SLOT_ALIVE);
	return 0;
}

/*
 * Process p has ended or will never live: settles its operations, so that
 * nobody waits for them.  A process that only p could have made goes with it.
 */
static void bury(unsigned p)
{
	run.buried[p] = true;
	atomic_store(&sh->slot[p].state, SLOT_GONE);
	atomic_store(&told->under_way[p], 0);
	if (run.pidfd[p] >= 0)
		close(run.pidfd[p]);
	run.pidfd[p] = -1;
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];
		const struct op_kind *kind = sh->kind[i];
		uint32_t none = SLOT_NONE;

		if (op->proc != p || atomic_load(&sh->state[i]) == DONE)
			continue;
		if (atomic_load(&sh->state[i]) == RUNNING)
			sh->op_results[i].status = kind->flags & OP_EXITS ? 0 : HB_RES_KILLED;
		atomic_store(&sh->state[i], DONE);
		/* If the child announced itself first, it lives and is waited for like any other. */
		if (kind->flags & OP_BEARS &&
		    atomic_compare_exchange_strong(&sh->slot[op->arg].state, &none, SLOT_GONE))
			bury(op->arg);
	}
	advance();
	/* Whoever died may have moved `first` and not have woken the others. */
	futex_wake_all(&sh->first);
}

static void serve_spawns(void)
{
	for (unsigned p = 1; p < HB_MAX_PROCS; p++) {
		struct slot *s = &sh->slot[p];
		int ret;

		if (atomic_load(&s->spawn) != SPAWN_ASKED || run.buried[p])
			continue;
		ret = make_process(p);
		if (ret)
			bury(p);
		atomic_store(&s->spawn, ret ? ret : SPAWN_MADE);
		futex_wake_all((_Atomic uint32_t *)&s->spawn);
	}
}

/* Takes in births and failed births; the number of living processes. */
static unsigned look_at_slots(void)
{
	unsigned alive = 0;

	for (unsigned p = 0; p < HB_MAX_PROCS; p++) {
		uint32_t state = atomic_load(&sh->slot[p].state);

		if (run.buried[p] || state == SLOT_NONE)
			continue;
		if (state == SLOT_ALIVE && run.pidfd[p] < 0)
			run.pidfd[p] = syscall(SYS_pidfd_open, atomic_load(&sh->slot[p].pid), 0);
		/* Without a pidfd it cannot be waited for: out of descriptors. Give it up. */
		if (state == SLOT_GONE || run.pidfd[p] < 0) {
			bury(p);
			continue;
		}
		alive++;
	}
	return alive;
}

/* Who waits little for a program to end waits no longer for it to die. */
static uint32_t kill_grace_ms(void)
{
	uint32_t ms = sh->prog.timeout_ms;

	return ms < MIN_KILL_GRACE_MS ? MIN_KILL_GRACE_MS : ms < KILL_GRACE_MS ? ms : KILL_GRACE_MS;
}

/*
 * Of living processes, of which there is one: whether every thread waits to be
 * let go, which it does when all operations have ended.
 */
static bool all_rest(void)
{
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		if (atomic_load(&sh->slot[p].state) == SLOT_ALIVE &&
		    atomic_load(&sh->slot[p].held) < process_threads(p))
			return false;
	return true;
}

/* The machine stands, once; then those who waited go. */
static void stand(void)
{
	if (!run.hold)
		return;
	run.hold = false;
	hooks->ended();
	atomic_store(&sh->hold, 0);
	futex_wake_all(&sh->hold);
}

/* Until every process has ended; false: some do not even end by SIGKILL. */
static bool supervise(void)
{
	for (;;) {
		struct pollfd pf[HB_MAX_PROCS + 1];
		enum patience_verdict verdict;
		uint64_t kicks, now;
		int n = 0;

		serve_spawns();
		if (!look_at_slots()) {
			stand();
			return true;
		}
		if (run.hold && all_rest())
			stand();
		verdict = patience_look(&run.patience);
		if (verdict != PATIENCE_WAIT) {
			if (run.timeout)
				return false;
			run.timeout = verdict == PATIENCE_BUSY ? HB_TIMEOUT_BUSY : HB_TIMEOUT_STILL;
			stand();
			patience_begin(&run.patience, kill_grace_ms());
			kill(-run.group, SIGKILL);
		}
		for (unsigned p = 0; p < HB_MAX_PROCS; p++)
			pf[n++] = (struct pollfd){ .fd = run.pidfd[p], .events = POLLIN };
		pf[n++] = (struct pollfd){ .fd = sh->kick_fd, .events = POLLIN };
		now = now_ns();
		if (poll(pf, n, now < run.patience.next_ns ?
				(run.patience.next_ns - now) / 1000000 + 1 : 0) <= 0)
			continue;
		if (pf[HB_MAX_PROCS].revents && read(sh->kick_fd, &kicks, sizeof(kicks)) < 0)
			continue;
		for (unsigned p = 0; p < HB_MAX_PROCS; p++)
			if (pf[p].fd >= 0 && pf[p].revents)
				bury(p);
	}
}

static void note_death(struct hb_result *r, const siginfo_t *si)
{
	for (unsigned p = 0; p < HB_MAX_PROCS; p++) {
		if (atomic_load(&sh->slot[p].pid) != si->si_pid)
			continue;
		if (si->si_code == CLD_EXITED && si->si_status == 0)
			return;
		if (atomic_load(&sh->slot[p].asked) || (run.timeout && si->si_status == SIGKILL))
			return;
		r->died |= 1u << p;
		/* An exit status other than 0 is the engine's own failure in that process. */
		if (!r->died_signal)
			r->died_signal = si->si_code == CLD_EXITED ? 0x100u | si->si_status
								   : (uint32_t)si->si_status;
		return;
	}
}

/* Reaps everything; how many are left because they cannot be killed. */
static unsigned reap(struct hb_result *r, uint32_t grace_ms)
{
	struct patience patience;
	unsigned left = 0;

	patience_begin(&patience, grace_ms);
	for (;;) {
		siginfo_t si = { 0 };

		if (waitid(P_PGID, run.group, &si, WEXITED | WNOHANG) < 0)
			break;
		if (si.si_pid) {
			note_death(r, &si);
			continue;
		}
		/* A child that was never announced, or one that does not die. */
		kill(-run.group, SIGKILL);
		if (patience_look(&patience) != PATIENCE_WAIT) {
			for (unsigned p = 0; p < HB_MAX_PROCS; p++)
				left += atomic_load(&sh->slot[p].state) == SLOT_ALIVE;
			return left ? left : 1;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	return 0;
}

/* What operations leave behind, once for each kind. */
static void clean_up(void)
{
	const struct op_kind *last = NULL;

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		if (sh->kind[i]->after && sh->kind[i] != last)
			sh->kind[i]->after();
		last = sh->kind[i]->after ? sh->kind[i] : last;
	}
}

static void set_answer(struct program_answer *a, char *before, char *after)
{
	uint32_t data = atomic_load(&sh->data_used);
	struct hb_result *r = &a->result;

	r->version = HB_PROTOCOL_VERSION;
	r->nops = sh->prog.nops;
	r->naccesses = sh->prog.naccesses;
	r->data_len = data < MAX_DATA ? data : MAX_DATA;
	r->counters_before_len = strlen(before);
	r->counters_after_len = strlen(after);
	memcpy(a->parts, (struct iovec[PROGRAM_PARTS]){
		{ r, sizeof(*r) },
		{ sh->op_results, r->nops * sizeof(sh->op_results[0]) },
		{ sh->results, r->naccesses * sizeof(sh->results[0]) },
		{ sh->data, r->data_len },
		{ before, r->counters_before_len },
		{ after, r->counters_after_len },
	}, sizeof(a->parts));
}

/* Of the answer, what the same program, run again, writes over; given back by program_done(). */
static uint8_t *kept;

/* A large program's memory is given back; what a small one needs stays for the next. */
void program_done(void)
{
	free(kept);
	kept = NULL;
	if (sh->prog.naccesses > 4096) {
		madvise(sh->accesses, sizeof(sh->accesses) / PAGE_SIZE * PAGE_SIZE, MADV_REMOVE);
		madvise(sh->gpu_area, sizeof(sh->gpu_area) / PAGE_SIZE * PAGE_SIZE, MADV_REMOVE);
	}
	if (atomic_load(&sh->data_used) > 0x10000)
		madvise(sh->data, sizeof(sh->data), MADV_REMOVE);
}

/* Waits for the driver's live counters to go back to zero. */
static void settle(struct hb_result *r, char *text)
{
	struct patience patience;
	long nap_ns = 200000;

	patience_begin(&patience, sh->prog.settle_ms);
	while (true) {
		if (debugfs_read("counters", text, COUNTERS_SIZE) <= 0) {
			/* A driver may have none; but not lose them. */
			if (debugfs_known())
				r->live_nonzero = HB_LIVE_UNREAD;
			return;
		}
		if (!counters_live(text))
			return;
		if (patience_look(&patience) != PATIENCE_WAIT) {
			r->live_nonzero = HB_LIVE_LEFT;
			return;
		}
		nanosleep(&(struct timespec){ .tv_nsec = nap_ns }, NULL);
		if (nap_ns < 10000000)
			nap_ns *= 2;
	}
}

/*
 * What has been prepared, until everybody has gone and all has settled; false: nobody could be
 * made.
 */
static bool run_once(bool hold, struct hb_result *r, char *after, char *err)
{
	uint64_t kicks, start;
	int ret;

	/* Left over by a process of an earlier program that was killed. */
	if (read(sh->kick_fd, &kicks, sizeof(kicks)) < 0 && errno != EAGAIN) {
		snprintf(err, PROGRAM_ERROR, "eventfd: %s", strerror(errno));
		program_close_files();
		return false;
	}
	memset(&run, 0, sizeof(run));
	memset(run.pidfd, -1, sizeof(run.pidfd));
	run.hold = hold;
	atomic_store(&sh->hold, hold);
	patience_begin(&run.patience, sh->prog.timeout_ms);
	start = run.patience.begun_ns;
	ret = make_process(0);
	if (ret) {
		snprintf(err, PROGRAM_ERROR, "fork: %s", strerror(-ret));
		program_close_files();
		return false;
	}
	/* Those that do not die were waited for already. */
	r->stuck = reap(r, supervise() ? kill_grace_ms() : 0);
	r->timeout = run.timeout;
	r->elapsed_ns = now_ns() - start;
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		if (run.pidfd[p] >= 0)
			close(run.pidfd[p]);
	/* who is stuck may have a lock of theirs */
	if (!r->stuck)
		program_empty_files();
	program_close_files();
	clean_up();
	if (sh->prog.flags & HB_PF_COUNTERS || sh->prog.settle_ms)
		settle(r, after);
	return true;
}

static bool keep_answer(struct program_answer *a)
{
	size_t len = 0;
	uint8_t *to;

	for (unsigned i = 1; i < PROGRAM_PARTS; i++)
		len += a->parts[i].iov_len;
	to = kept = malloc(len + 1);
	if (!kept)
		return false;
	for (unsigned i = 1; i < PROGRAM_PARTS; i++) {
		memcpy(to, a->parts[i].iov_base, a->parts[i].iov_len);
		a->parts[i].iov_base = to;
		to += a->parts[i].iov_len;
	}
	return true;
}

static void add_text(struct program_answer *a, const char *more)
{
	static char both[2 * COUNTERS_SIZE];
	struct iovec *last = &a->parts[PROGRAM_PARTS - 1];

	snprintf(both, sizeof(both), "%.*s%s", (int)last->iov_len, (char *)last->iov_base, more);
	*last = (struct iovec){ both, strlen(both) };
	a->result.counters_after_len = last->iov_len;
}

static bool is_well(const struct hb_result *r)
{
	return !r->timeout && !r->stuck && !r->died && !r->live_nonzero;
}

/*
 * The program again and again, with a look each time at what the kernel then has.  Before
 * the first look it has run twice, so that what it needs of the kernel's caches is there.
 */
static void run_again(const uint8_t *text, size_t len, struct program_answer *a, char *after)
{
	static struct told nobody;
	struct told *was = told;
	char err[PROGRAM_ERROR];
	uint64_t times = sh->prog.again;

	if (!is_well(&a->result) || !keep_answer(a))
		return;
	/* Whoever follows the phases has seen all of them. */
	program_tell_none();
	told = &nobody;
	census_begin();
	for (uint64_t n = 0; n < times && n < CENSUS_LOOKS; n++) {
		struct hb_result r = { 0 };

		if (!program_prepare(text, len, err) || !program_make_files(err) ||
		    !run_once(false, &r, after, err))
			break;
		if (!is_well(&r)) {
			/* It is what the whole example came to. */
			a->result.timeout = r.timeout;
			a->result.stuck = r.stuck;
			a->result.died = r.died;
			a->result.died_signal = r.died_signal;
			a->result.live_nonzero = r.live_nonzero;
			break;
		}
		census_look();
		if (n == times - 1 && census_suspects())
			times++;
	}
	told = was;
	after[0] = 0;
	census_tell(after, COUNTERS_SIZE);
}

/* Behind the counters after. */
static void tell_remains(const struct remains *before, char *after)
{
	size_t len = strlen(after);
	struct remains more;

	if (remains_more(before, sh->prog.settle_ms, &more))
		snprintf(after + len, COUNTERS_SIZE - len, "%sremains %lld %lld\n",
			 len && after[len - 1] != '\n' ? "\n" : "",
			 (long long)more.unmapped, (long long)more.tables);
}

static bool run_told(const uint8_t *text, size_t len, bool hold, struct program_answer *a,
		     char *err)
{
	static char before[COUNTERS_SIZE], after[COUNTERS_SIZE];
	struct hb_result *r = &a->result;
	struct remains was;
	bool known;

	memset(a, 0, sizeof(*a));
	if (!program_prepare(text, len, err) || !program_make_files(err))
		return false;
	bystander_begin();
	before[0] = after[0] = 0;
	if (sh->prog.flags & HB_PF_COUNTERS)
		debugfs_read("counters", before, sizeof(before));
	known = sh->prog.settle_ms && remains_look(&was);
	if (!run_once(hold, r, after, err))
		return false;
	r->strays = bystander_check();
	if (!(sh->prog.flags & HB_PF_COUNTERS))
		after[0] = 0;
	if (known && is_well(r))
		tell_remains(&was, after);
	set_answer(a, before, after);
	if (sh->prog.again) {
		static char left[COUNTERS_SIZE];

		left[0] = 0;
		run_again(text, len, a, left);
		add_text(a, left);
		r->strays += bystander_check();
	}
	return true;
}

void program_tell_none(void)
{
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		atomic_store(&told->under_way[p], 0);
	atomic_store(&told->phase, HM_NO_PHASE);
}

bool program_run(const uint8_t *text, size_t len, bool hold, struct program_answer *a, char *err)
{
	bool ran = run_told(text, len, hold, a, err);

	program_tell_none();
	return ran;
}
