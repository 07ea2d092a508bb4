// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PROGRAM: checks a program, prepares what its processes need, runs and
 * supervises them, answers.
 *
 * The agent forks process 0 and, on request, every SPAWN; FORK is done by the
 * parent itself.  All are one process group.  None is reaped before the end
 * (a process reaps no children, orphans come to the agent, which is a
 * subreaper), so a pid in a slot always means the process it was given for,
 * and ends are noticed through pidfds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hmm_mailbox_hw.h"
#include "patience.h"
#include "program.h"

#define DEFAULT_TIMEOUT_MS	10000
#define MAX_TIMEOUT_MS		3600000
#define KILL_GRACE_MS		3000
#define MIN_KILL_GRACE_MS	1000

struct shared *const sh = (struct shared *)SHARED_BASE;

/* The GLOBAL region: a global variable like any other. */
static uint8_t global_region[HB_GLOBAL_PAGES * PAGE_SIZE] __attribute__((aligned(4096)));
static void *stack_region;

/* Of the program that runs; the supervisor's own. */
static struct {
	pid_t group;
	int pidfd[HB_MAX_PROCS];	/* -1: none yet, or closed */
	bool buried[HB_MAX_PROCS];	/* its operations are accounted for */
	uint32_t timeout;		/* HB_TIMEOUT_*; 0: not yet */
	bool hold;			/* the machine has to stand before anybody ends */
	struct patience patience;
} run;

void program_init(void *stack_area)
{
	void *p = mmap((void *)SHARED_BASE, sizeof(*sh), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (p != sh) {
		perror("agent: memory for programs");
		exit(3);
	}
	stack_region = stack_area;
	sh->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sh->kick_fd < 0) {
		perror("agent: eventfd");
		exit(3);
	}
}

void program_bases(uint64_t *stack, uint64_t *global)
{
	*stack = (uintptr_t)stack_region;
	*global = (uintptr_t)global_region;
}

/* ---- check and prepare ---- */

static bool bad(char *err, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(err, 256, format, ap);
	va_end(ap);
	return false;
}

static bool set_regions(char *err)
{
	for (unsigned r = 0; r < HB_MAX_REGIONS; r++) {
		sh->region_kind[r] = 0;
		sh->region_base[r] = HB_REGION_BASE + (uint64_t)r * HB_REGION_SIZE;
		sh->region_size[r] = HB_REGION_SIZE;
	}
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (op->op != HB_OP_MMAP ||
		    (op->arg != HB_MAP_STACK && op->arg != HB_MAP_GLOBAL))
			continue;
		sh->region_kind[op->region] = op->arg;
		if (op->arg == HB_MAP_STACK) {
			sh->region_base[op->region] = (uintptr_t)stack_region;
			sh->region_size[op->region] = HB_STACK_PAGES * PAGE_SIZE;
		} else {
			sh->region_base[op->region] = (uintptr_t)global_region;
			sh->region_size[op->region] = HB_GLOBAL_PAGES * PAGE_SIZE;
		}
	}
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (op->op == HB_OP_MMAP && sh->region_kind[op->region] &&
		    op->arg != sh->region_kind[op->region])
			return bad(err, "operation %u: region %u is the stack or global region elsewhere",
				   i, op->region);
	}
	return true;
}

static bool check_accesses(unsigned i, const struct hb_op *op, uint8_t *used, char *err)
{
	if (op->access_first > sh->prog.naccesses ||
	    op->access_count > sh->prog.naccesses - op->access_first)
		return bad(err, "operation %u: accesses beyond the table", i);
	for (uint32_t n = op->access_first; n < op->access_first + op->access_count; n++) {
		const struct hb_access *a = &sh->accesses[n];
		unsigned size = a->kind == HB_ACC_READ32 || a->kind == HB_ACC_WRITE32 ? 4 : 8;

		if (used[n]++)
			return bad(err, "access %u is used by two operations", n);
		if (a->kind > HB_ACC_DELAY)
			return bad(err, "access %u: kind %u is unknown", n, a->kind);
		if (a->region >= HB_MAX_REGIONS)
			return bad(err, "access %u: region %u", n, a->region);
		if (a->lane >= HB_MAX_ACCESSES)
			return bad(err, "access %u: lane %u", n, a->lane);
		if (a->kind != HB_ACC_DELAY &&
		    (a->off % size || !region_addr(a->region, a->off, size)))
			return bad(err, "access %u: offset 0x%llx", n, (unsigned long long)a->off);
	}
	return true;
}

/* Who is born when: exactly once, not after its first operation, and nobody else's duty. */
static bool check_births(char *err)
{
	bool born[HB_MAX_PROCS] = { true };

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (!born[op->proc])
			return bad(err, "operation %u: process %u is not there yet", i, op->proc);
		if (op->op != HB_OP_FORK && op->op != HB_OP_SPAWN && op->op != HB_OP_KILL)
			continue;
		if (op->arg >= HB_MAX_PROCS || op->arg == op->proc)
			return bad(err, "operation %u: process %u", i, op->arg);
		if (op->op == HB_OP_KILL)
			continue;
		if (born[op->arg])
			return bad(err, "operation %u: process %u is there already", i, op->arg);
		born[op->arg] = true;
	}
	return true;
}

static void set_phases(void)
{
	unsigned n = sh->prog.nops;

	for (unsigned i = 0, end; i < n; i = end) {
		bool seen[HB_MAX_PROCS][HB_MAX_ACTORS] = { { false } };

		sh->phase_width[i] = 0;
		sh->phase_actors[i] = 0;
		for (end = i; end < n && sh->ops[end].phase == sh->ops[i].phase; end++) {
			bool *s = &seen[sh->ops[end].proc][sh->ops[end].actor];

			sh->phase_start[end] = i;
			sh->phase_width[i] += !*s;
			sh->phase_actors[i] |= ACTOR_BIT(sh->ops[end].proc, sh->ops[end].actor);
			*s = true;
		}
		atomic_store(&sh->arrived[i], 0);
	}
}

static bool check_ops(char *err)
{
	static uint8_t used[HB_MAX_ACCESSES];

	memset(used, 0, sh->prog.naccesses);
	memset(sh->actors, 0, sizeof(sh->actors));
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (op->op > HB_OP_KSM)
			return bad(err, "operation %u: code %u is unknown", i, op->op);
		if (op->proc >= HB_MAX_PROCS || op->actor >= HB_MAX_ACTORS)
			return bad(err, "operation %u: process %u, actor %u", i, op->proc, op->actor);
		if (op->region >= HB_MAX_REGIONS)
			return bad(err, "operation %u: region %u", i, op->region);
		if (i && op->phase < sh->ops[i - 1].phase)
			return bad(err, "operation %u: phase %u after %u", i, op->phase,
				   sh->ops[i - 1].phase);
		if ((op->op == HB_OP_FORK || op->op == HB_OP_EXIT) && op->actor)
			return bad(err, "operation %u: only actor 0 may fork or exit", i);
		sh->actors[op->proc] |= 1 << op->actor;
	}
	if (!set_regions(err) || !check_births(err))
		return false;
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (op->op == HB_OP_CPU_ACCESS || op->op == HB_OP_GPU_ACCESS)
			if (!check_accesses(i, op, used, err))
				return false;
	}
	set_phases();
	return true;
}

/* Threads of a launch: as many as the accesses name, at least one. */
static uint32_t count_lanes(const struct hb_op *op)
{
	uint32_t nlanes = 1;

	for (uint32_t n = op->access_first; n < op->access_first + op->access_count; n++)
		if (sh->accesses[n].lane >= nlanes)
			nlanes = sh->accesses[n].lane + 1;
	return nlanes;
}

/* Divides gpu_area: arguments, lanes, entries, results. */
static bool place_gpu_tables(char *err)
{
	uint32_t nlanes = 0;

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		if (sh->ops[i].op != HB_OP_GPU_ACCESS)
			continue;
		nlanes += count_lanes(&sh->ops[i]);
		if (nlanes > MAX_LANES)
			return bad(err, "more than %u lanes in all launches", MAX_LANES);
	}
	sh->gpu_args = (struct acc_args *)sh->gpu_area;
	sh->gpu_entries = (struct acc_entry *)(sh->gpu_args + sh->prog.nops);
	sh->results = (struct hb_access_result *)(sh->gpu_entries + sh->prog.naccesses);
	sh->gpu_lanes = (struct acc_lane *)(sh->results + sh->prog.naccesses);
	return true;
}

/*
 * Fills the tables of the launches: here, once, since addresses are the same in
 * every process.  Accesses are sorted by thread, stable.
 */
static void fill_gpu_tables(void)
{
	struct acc_lane *lanes = sh->gpu_lanes;

	memset(sh->gpu_args, 0, sh->prog.nops * sizeof(sh->gpu_args[0]));
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];
		const struct hb_access *a = sh->accesses + op->access_first;
		uint32_t nlanes, at = op->access_first;

		if (op->op != HB_OP_GPU_ACCESS)
			continue;
		nlanes = count_lanes(op);
		memset(lanes, 0, nlanes * sizeof(*lanes));
		for (uint32_t n = 0; n < op->access_count; n++)
			lanes[a[n].lane].count++;
		for (uint32_t l = 0; l < nlanes; l++) {
			lanes[l].first = at;
			at += lanes[l].count;
			lanes[l].count = 0;
		}
		for (uint32_t n = 0; n < op->access_count; n++) {
			struct acc_lane *l = &lanes[a[n].lane];

			sh->gpu_entries[l->first + l->count++] = (struct acc_entry){
				.addr = sh->region_base[a[n].region] + a[n].off,
				.kind = a[n].kind,
				.result = op->access_first + n,
				.value = a[n].value,
				.expect = a[n].expect,
			};
		}
		sh->gpu_args[i] = (struct acc_args){
			.lanes = (uintptr_t)lanes,
			.entries = (uintptr_t)sh->gpu_entries,
			.results = (uintptr_t)sh->results,
			.nlanes = nlanes,
		};
		lanes += nlanes;
	}
}

static void none_under_way(void)
{
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		atomic_store(&chan_told()->under_way[p], 0);
}

static bool prepare(const uint8_t *p, size_t len, char *err)
{
	size_t ops_len, acc_len;

	if (len < sizeof(sh->prog))
		return bad(err, "too short");
	memcpy(&sh->prog, p, sizeof(sh->prog));
	if (sh->prog.version != HB_PROTOCOL_VERSION)
		return bad(err, "protocol version %u, this agent has %u", sh->prog.version,
			   HB_PROTOCOL_VERSION);
	if (sh->prog.nops > HB_MAX_OPS || sh->prog.naccesses > HB_MAX_ACCESSES)
		return bad(err, "%u operations, %u accesses", sh->prog.nops, sh->prog.naccesses);
	ops_len = sh->prog.nops * sizeof(struct hb_op);
	acc_len = sh->prog.naccesses * sizeof(struct hb_access);
	if (len != sizeof(sh->prog) + ops_len + acc_len)
		return bad(err, "%zu bytes for %u operations and %u accesses", len,
			   sh->prog.nops, sh->prog.naccesses);
	if (!sh->prog.timeout_ms)
		sh->prog.timeout_ms = DEFAULT_TIMEOUT_MS;
	if (sh->prog.timeout_ms > MAX_TIMEOUT_MS)
		sh->prog.timeout_ms = MAX_TIMEOUT_MS;
	memcpy(sh->ops, p + sizeof(sh->prog), ops_len);
	memcpy(sh->accesses, p + sizeof(sh->prog) + ops_len, acc_len);
	if (!check_ops(err) || !place_gpu_tables(err))
		return false;
	fill_gpu_tables();

	memset(sh->op_results, 0, sh->prog.nops * sizeof(sh->op_results[0]));
	memset(sh->results, 0, sh->prog.naccesses * sizeof(sh->results[0]));
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		sh->op_results[i].status = HB_RES_SKIPPED;
		sh->op_results[i].fault_region = -1;
		atomic_store(&sh->state[i], PENDING);
	}
	memset(sh->slot, 0, sizeof(sh->slot));
	none_under_way();
	atomic_store(&chan_told()->phase, sh->prog.nops ? sh->ops[0].phase : 0);
	atomic_store(&sh->first, 0);
	atomic_store(&sh->waiters, 0);
	atomic_store(&sh->data_used, 0);
	return true;
}

static void close_files(void)
{
	for (unsigned f = 0; f < HB_MAX_FILES; f++) {
		if (sh->file_fd[f] >= 0)
			close(sh->file_fd[f]);
		sh->file_fd[f] = -1;
	}
}

static bool make_files(char *err)
{
	for (unsigned f = 0; f < HB_MAX_FILES; f++)
		sh->file_fd[f] = -1;
	for (unsigned f = 0; f < HB_MAX_FILES; f++) {
		uint64_t pages = sh->prog.file_pages[f];
		int fd;

		if (!pages)
			continue;
		fd = memfd_create("hmmbench", MFD_CLOEXEC);
		sh->file_fd[f] = fd;
		if (fd < 0 || pages > HB_REGION_SIZE / PAGE_SIZE ||
		    ftruncate(fd, pages * PAGE_SIZE)) {
			bad(err, "file %u of %llu pages: %s", f, (unsigned long long)pages,
			    fd < 0 || pages <= HB_REGION_SIZE / PAGE_SIZE ? strerror(errno)
									  : "larger than a region");
			close_files();
			return false;
		}
	}
	return true;
}

/* ---- supervise ---- */

/* Forks a process from the agent itself, which is clean; 0 or -errno. */
static int make_process(unsigned number)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		setpgid(0, run.group);
		/* Cleared by fork(), so a FORKed child does not die with its parent. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		chan_forget();
		set_expendable();
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
	atomic_store(&chan_told()->under_way[p], 0);
	if (run.pidfd[p] >= 0)
		close(run.pidfd[p]);
	run.pidfd[p] = -1;
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];
		uint32_t none = SLOT_NONE;

		if (op->proc != p || atomic_load(&sh->state[i]) == DONE)
			continue;
		if (atomic_load(&sh->state[i]) == RUNNING)
			sh->op_results[i].status = op->op == HB_OP_EXIT ? 0 : HB_RES_KILLED;
		atomic_store(&sh->state[i], DONE);
		/* If the child announced itself first, it lives and is waited for like any other. */
		if ((op->op == HB_OP_FORK || op->op == HB_OP_SPAWN) &&
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
	chan_stand(HM_STAND_ENDED);
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
		/* An exit status other than 0 is the agent's own failure in that process. */
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

static bool has_op(uint16_t code)
{
	for (unsigned i = 0; i < sh->prog.nops; i++)
		if (sh->ops[i].op == code)
			return true;
	return false;
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

/* A large program's memory is given back; what a small one needs stays for the next. */
void program_done(void)
{
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
	while (debugfs_read("counters", text, COUNTERS_SIZE) > 0 && counters_live(text)) {
		r->live_nonzero = patience_look(&patience) != PATIENCE_WAIT;
		if (r->live_nonzero)
			return;
		nanosleep(&(struct timespec){ .tv_nsec = nap_ns }, NULL);
		if (nap_ns < 10000000)
			nap_ns *= 2;
	}
}

static bool run_told(const uint8_t *text, size_t len, bool hold, struct program_answer *a, char *err)
{
	static char before[COUNTERS_SIZE], after[COUNTERS_SIZE];
	struct hb_result *r = &a->result;
	uint64_t kicks, start;
	int ret;

	memset(a, 0, sizeof(*a));
	if (!prepare(text, len, err) || !make_files(err))
		return false;
	before[0] = after[0] = 0;
	if (sh->prog.flags & HB_PF_COUNTERS)
		debugfs_read("counters", before, sizeof(before));
	/* Left over by a process of an earlier program that was killed. */
	if (read(sh->kick_fd, &kicks, sizeof(kicks)) < 0 && errno != EAGAIN) {
		bad(err, "eventfd: %s", strerror(errno));
		close_files();
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
		bad(err, "fork: %s", strerror(-ret));
		close_files();
		return false;
	}
	/* Those that do not die were waited for already. */
	r->stuck = reap(r, supervise() ? kill_grace_ms() : 0);
	r->timeout = run.timeout;
	r->elapsed_ns = now_ns() - start;
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		if (run.pidfd[p] >= 0)
			close(run.pidfd[p]);
	close_files();
	if (has_op(HB_OP_KSM))
		write_text("/sys/kernel/mm/ksm/run", "0");
	if (sh->prog.flags & HB_PF_COUNTERS || sh->prog.settle_ms)
		settle(r, after);
	if (!(sh->prog.flags & HB_PF_COUNTERS))
		after[0] = 0;
	set_answer(a, before, after);
	return true;
}

void program_tell_none(void)
{
	none_under_way();
	atomic_store(&chan_told()->phase, HM_NO_PHASE);
}

bool program_run(const uint8_t *text, size_t len, bool hold, struct program_answer *a, char *err)
{
	bool ran = run_told(text, len, hold, a, err);

	program_tell_none();
	return ran;
}

void serve_program(const struct message *m)
{
	struct program_answer a;
	char err[256];

	if (!program_run(m->payload, m->header.len, false, &a, err)) {
		chan_reply_error(m, "PROGRAM: %s", err);
		return;
	}
	chan_reply(m, a.parts, PROGRAM_PARTS);
	program_done();
}
