/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runtime of the reproducers that `hmmbench replay --export-c` writes: one C
 * file that includes this header and needs libhmmgpu.a and the driver, not the
 * bench.
 *
 *	gcc -std=gnu11 -Ilib -Iinclude/uapi -Ikernels -Iagent/base repro.c libhmmgpu.a -lpthread
 *	./repro [TIMES]		exit status: 0 nothing found, 1 violation, 3 environment
 *
 * A reproducer is one function for each actor (thread) of each process:
 *
 *	#include "hmmgpu_repro.h"
 *
 *	static void p0_a0(void)
 *	{
 *		phase(0);
 *		map(0, 0, 4 * PAGE, HB_MAP_ANON_PRIVATE, PROT_READ | PROT_WRITE);
 *		cpu({ WRITE(0, 0x1000, 7) });
 *		phase(1);
 *		gpu(0, 32, { READ(0, 0x1000, 7, 8) }, { WRITE(0, 0x2000, 9), .lane = 3 });
 *	}
 *
 *	static void p0_a1(void)
 *	{
 *		phase(1);
 *		cpu({ WRITE(0, 0x1000, 8) });
 *	}
 *
 *	static const struct actor actors[] = {
 *		{ 0, 0, p0_a0 }, { 0, 1, p0_a1, .first = 1 },
 *	};
 *	REPRO_MAIN(actors)
 *
 * phase(n) waits until every actor has ended what it does before phase n; what
 * lies between phase(n) and the next runs at the same time as the others' phase
 * n.  .first is the phase of an actor's first operation.  Values after a READ's
 * address are those it may return; none means any.
 *
 * Process 0 is there from the start, and so is one made by SPAWN (its actors
 * just wait for their phase).  Others come by fork_process().
 *
 * Regions are fixed slots of address space: region(r) in every process, but
 * for the STACK and GLOBAL regions, declared by the .c file before the header:
 *	#define REPRO_STACK_REGION 5
 *	#define REPRO_GLOBAL_REGION 6
 */
#ifndef HMMGPU_REPRO_H
#define HMMGPU_REPRO_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accesses.h"
#include "hmmgpu.h"
#include "program.h"

#define PAGE		4096ull
#define REPRO_ACTORS	(HB_MAX_PROCS * HB_MAX_ACTORS)
#define REPRO_DONE	UINT32_MAX
#ifndef REPRO_TIMEOUT_S
#define REPRO_TIMEOUT_S	60
#endif
#ifndef REPRO_STACK_REGION
#define REPRO_STACK_REGION	-1
#endif
#ifndef REPRO_GLOBAL_REGION
#define REPRO_GLOBAL_REGION	-1
#endif
/* Pages of the shared files; the .c file may define what it needs. */
#ifndef REPRO_FILE_PAGES
#define REPRO_FILE_PAGES	{ 0, 0, 0, 0 }
#endif

struct actor {
	unsigned proc, number;
	void (*run)(void);
	uint32_t first;
	int forked;		/* 1: its process comes by fork_process() */
};

struct repro_access {
	uint16_t kind, region;
	uint32_t lane;
	uint64_t off, value, expect;
	unsigned nallowed;
	const uint64_t *allowed;	/* from [1] on */
};

/*
 * Shared by all processes of a run.  at[] is written by the actor it belongs
 * to, or by who made its process end; the rest as its comment says.
 */
struct repro_shared {
	volatile uint32_t at[REPRO_ACTORS];	/* phase the actor is in; REPRO_DONE: it has ended */
	volatile int32_t pid[HB_MAX_PROCS];	/* set by the parent and by the process itself */
	volatile uint32_t asked[HB_MAX_PROCS];	/* its end was part of the program */
	volatile uint32_t violations;		/* atomic counter */
	volatile uint32_t next_result;		/* atomic: results of launches are taken from here */
	struct hb_access_result results[HB_MAX_ACCESSES];
};

static struct repro_shared *repro;
static const struct actor *repro_actors;
static unsigned repro_nactors;
static unsigned repro_self;			/* this process */
static _Thread_local unsigned repro_index;	/* this actor, in repro_actors */
static int repro_files[HB_MAX_FILES];
static void *repro_stack;
static uint8_t repro_global[HB_GLOBAL_PAGES * PAGE] __attribute__((aligned(4096)));
static uint64_t repro_entry_accesses, repro_entry_spin;

/* ---- phases ---- */

static inline void repro_yield(void)
{
	struct timespec ts = { .tv_nsec = 50000 };

	if (sched_yield())
		nanosleep(&ts, NULL);
}

static inline void phase(uint32_t n)
{
	__atomic_store_n(&repro->at[repro_index], n, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < repro_nactors; i++)
		while (__atomic_load_n(&repro->at[i], __ATOMIC_SEQ_CST) < n)
			repro_yield();
}

static inline void repro_process_over(unsigned proc)
{
	for (unsigned i = 0; i < repro_nactors; i++)
		if (repro_actors[i].proc == proc)
			__atomic_store_n(&repro->at[i], REPRO_DONE, __ATOMIC_SEQ_CST);
}

static inline __attribute__((format(printf, 1, 2))) void violation(const char *format, ...)
{
	char text[400];
	va_list ap;
	int n;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	n = dprintf(2, "process %u actor %u phase %u: %s\n", repro_self,
		    repro_actors[repro_index].number, repro->at[repro_index], text);
	(void)n;
	__atomic_fetch_add(&repro->violations, 1, __ATOMIC_SEQ_CST);
}

static inline __attribute__((noreturn)) void repro_fail(const char *what, int error)
{
	dprintf(2, "%s: %s\n", what, strerror(error < 0 ? -error : error));
	_exit(3);
}

/* ---- memory ---- */

static inline uint8_t *region(unsigned r)
{
	if ((int)r == REPRO_STACK_REGION)
		return (uint8_t *)repro_stack;
	if ((int)r == REPRO_GLOBAL_REGION)
		return repro_global;
	return (uint8_t *)(HB_REGION_BASE + (uint64_t)r * HB_REGION_SIZE);
}

static inline int repro_mapped(void *p)
{
	return p == MAP_FAILED ? -errno : 0;
}

/* Each of these returns 0 or -errno, as the operation of the recipe did. */
static inline int map_file(unsigned r, uint64_t off, uint64_t len, int kind, int prot, unsigned file,
			   uint64_t file_off)
{
	static const int flags[] = {
		[HB_MAP_ANON_PRIVATE] = MAP_PRIVATE | MAP_ANONYMOUS,
		[HB_MAP_ANON_SHARED] = MAP_SHARED | MAP_ANONYMOUS,
		[HB_MAP_FILE_PRIVATE] = MAP_PRIVATE,
		[HB_MAP_FILE_SHARED] = MAP_SHARED,
		[HB_MAP_HUGETLB_PRIVATE] = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
		[HB_MAP_HUGETLB_SHARED] = MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB,
	};
	int fd = flags[kind % 6] & MAP_ANONYMOUS ? -1 : repro_files[file];

	if (kind == HB_MAP_STACK || kind == HB_MAP_GLOBAL) {
		if (mprotect(region(r) + off, len, prot))
			return -errno;
		return madvise(region(r) + off, len, MADV_DONTNEED) ? -errno : 0;
	}
	return repro_mapped(mmap(region(r) + off, len, prot, flags[kind] | MAP_FIXED, fd,
				 fd < 0 ? 0 : file_off));
}

static inline int map(unsigned r, uint64_t off, uint64_t len, int kind, int prot)
{
	return map_file(r, off, len, kind, prot, 0, 0);
}

static inline int unmap(unsigned r, uint64_t off, uint64_t len)
{
	return munmap(region(r) + off, len) ? -errno : 0;
}

static inline int protect(unsigned r, uint64_t off, uint64_t len, int prot)
{
	return mprotect(region(r) + off, len, prot) ? -errno : 0;
}

static inline int advise(unsigned r, uint64_t off, uint64_t len, int advice)
{
	return madvise(region(r) + off, len, advice) ? -errno : 0;
}

static inline int remap(unsigned r, uint64_t off, uint64_t len, unsigned to, uint64_t to_off,
			uint64_t new_len, int dontunmap)
{
	uint8_t *from = region(r) + off, *target = region(to) + to_off;
	int flags = (from == target ? 0 : MREMAP_MAYMOVE | MREMAP_FIXED) |
		    (dontunmap ? MREMAP_DONTUNMAP : 0);

	return repro_mapped(mremap(from, len, new_len, flags, target));
}

static inline void pause_us(uint64_t us)
{
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static inline int repro_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* pages of VRAM, 0 = all, are pushed back to system memory */
static inline int evict(uint64_t pages)
{
	char text[24];
	glob_t g;
	int ret = -ENODEV;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)pages);
	if (glob("/sys/kernel/debug/dri/*/evict", 0, NULL, &g) == 0)
		ret = repro_write(g.gl_pathv[0], pages ? text : "all");
	globfree(&g);
	return ret;
}

static inline int ksm(int on)
{
	int ret = repro_write("/sys/kernel/mm/ksm/run", on ? "1" : "0");

	if (on) {
		repro_write("/sys/kernel/mm/ksm/sleep_millisecs", "0");
		repro_write("/sys/kernel/mm/ksm/pages_to_scan", "10000");
		pause_us(200000);
		repro_write("/sys/kernel/mm/ksm/run", "0");
	}
	return ret;
}

/* ---- accesses ---- */

#define REPRO_NARGS_(...) (sizeof((uint64_t[]){ 0, ##__VA_ARGS__ }) / 8 - 1)
#define REPRO_READ_(k, r, o, v, e, ...)							\
	.kind = (k), .region = (r), .off = (o), .value = (v), .expect = (e),		\
	.nallowed = REPRO_NARGS_(__VA_ARGS__), .allowed = (const uint64_t[]){ 0, ##__VA_ARGS__ }
/*
 * Fields of an access: region, offset, then what may be seen.  Those that change
 * memory see the old value.  In braces: { READ(0, 0x1000, 7), .lane = 3 }.
 */
#define READ(r, o, ...)		REPRO_READ_(HB_ACC_READ, r, o, 0, 0, ##__VA_ARGS__)
#define READ32(r, o, ...)	REPRO_READ_(HB_ACC_READ32, r, o, 0, 0, ##__VA_ARGS__)
#define ADD(r, o, v, ...)	REPRO_READ_(HB_ACC_ADD, r, o, v, 0, ##__VA_ARGS__)
#define XCHG(r, o, v, ...)	REPRO_READ_(HB_ACC_XCHG, r, o, v, 0, ##__VA_ARGS__)
#define CAS(r, o, v, e, ...)	REPRO_READ_(HB_ACC_CAS, r, o, v, e, ##__VA_ARGS__)
#define WRITE(r, o, v)		.kind = HB_ACC_WRITE, .region = (r), .off = (o), .value = (v)
#define WRITE32(r, o, v)	.kind = HB_ACC_WRITE32, .region = (r), .off = (o), .value = (v)
#define DELAY(v)		.kind = HB_ACC_DELAY, .value = (v)

static _Thread_local sigjmp_buf repro_jump;
static _Thread_local volatile int repro_guarded;

static inline void repro_on_fault(int sig)
{
	if (repro_guarded)
		siglongjmp(repro_jump, sig);
	signal(sig, SIG_DFL);
}

static inline uint64_t repro_cpu_one(const struct repro_access *a)
{
	uint64_t *p = (uint64_t *)(region(a->region) + a->off), old = a->expect;

	switch (a->kind) {
	case HB_ACC_READ: return __atomic_load_n(p, __ATOMIC_SEQ_CST);
	case HB_ACC_READ32: return __atomic_load_n((uint32_t *)p, __ATOMIC_SEQ_CST);
	case HB_ACC_WRITE: __atomic_store_n(p, a->value, __ATOMIC_RELEASE); return 0;
	case HB_ACC_WRITE32: __atomic_store_n((uint32_t *)p, a->value, __ATOMIC_RELEASE); return 0;
	case HB_ACC_ADD: return __atomic_fetch_add(p, a->value, __ATOMIC_SEQ_CST);
	case HB_ACC_XCHG: return __atomic_exchange_n(p, a->value, __ATOMIC_SEQ_CST);
	case HB_ACC_CAS:
		__atomic_compare_exchange_n(p, &old, a->value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		return old;
	default:
		for (volatile uint64_t n = a->value; n; n--)
			;
		return 0;
	}
}

static inline void repro_check_value(const char *who, unsigned n, const struct repro_access *a,
				     uint64_t got)
{
	if (!a->nallowed)
		return;
	for (unsigned i = 1; i <= a->nallowed; i++)
		if (a->allowed[i] == got)
			return;
	violation("%s access %u, region %u offset 0x%llx: 0x%llx, not 0x%llx%s", who, n, a->region,
		  (unsigned long long)a->off, (unsigned long long)got,
		  (unsigned long long)a->allowed[1],
		  a->nallowed > 1 ? " or another value that is allowed" : "");
}

/* want: 0, SIGSEGV or SIGBUS: what every access of the list must meet; -1: any of them. */
static inline void repro_cpu(int want, const struct repro_access *a, unsigned n)
{
	for (volatile unsigned i = 0; i < n; i++) {
		volatile uint64_t got = 0;
		int sig = sigsetjmp(repro_jump, 1);

		if (!sig) {
			repro_guarded = 1;
			got = repro_cpu_one(&a[i]);
		}
		repro_guarded = 0;
		if (want >= 0 && sig != want)
			violation("CPU access %u, region %u offset 0x%llx: signal %d, not %d", i,
				  a[i].region, (unsigned long long)a[i].off, sig, want);
		else if (!sig)
			repro_check_value("CPU", i, &a[i], got);
	}
}
#define REPRO_LIST_(...) (const struct repro_access[]){ __VA_ARGS__ }, \
	sizeof((const struct repro_access[]){ __VA_ARGS__ }) / sizeof(struct repro_access)
#define cpu(...)		repro_cpu(0, REPRO_LIST_(__VA_ARGS__))
#define cpu_signal(sig, ...)	repro_cpu(sig, REPRO_LIST_(__VA_ARGS__))

/* ---- GPU ---- */

static struct {
	pthread_mutex_t lock;		/* guards opening */
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx[2];
	struct {
		unsigned ctx;
		uint64_t num;
	} job[HB_MAX_OPS];	/* not waited for, oldest first */
	unsigned njobs;
} repro_gpu = { .lock = PTHREAD_MUTEX_INITIALIZER };

static inline struct hmmgpu *gpu_device(void)
{
	int ret = 0;

	pthread_mutex_lock(&repro_gpu.lock);
	if (!repro_gpu.dev)
		ret = hmmgpu_open(&repro_gpu.dev, NULL);
	pthread_mutex_unlock(&repro_gpu.lock);
	if (ret)
		repro_fail("opening the GPU", ret);
	return repro_gpu.dev;
}

static inline struct hmmgpu_ctx *gpu_ctx(unsigned n)
{
	struct hmmgpu *dev = gpu_device();
	int ret = 0;

	pthread_mutex_lock(&repro_gpu.lock);
	if (!repro_gpu.ctx[n])
		ret = hmmgpu_ctx_create(dev, 0, &repro_gpu.ctx[n]);
	pthread_mutex_unlock(&repro_gpu.lock);
	if (ret)
		repro_fail("a GPU context", ret);
	return repro_gpu.ctx[n];
}

static inline void gpu_close(void)
{
	for (unsigned i = 0; i < 2; i++) {
		hmmgpu_ctx_destroy(repro_gpu.ctx[i]);
		repro_gpu.ctx[i] = NULL;
	}
	repro_gpu.njobs = 0;
	hmmgpu_close(repro_gpu.dev);
	repro_gpu.dev = NULL;
}

static inline int repro_finish(unsigned ctx, int ret, uint64_t job, int wait)
{
	struct hmmgpu_result result;

	if (ret)
		return ret;
	if (!wait) {
		if (repro_gpu.njobs == HB_MAX_OPS)
			repro_fail("jobs that are not waited for", ENOMEM);
		repro_gpu.job[repro_gpu.njobs].ctx = ctx;
		repro_gpu.job[repro_gpu.njobs++].num = job;
		return 0;
	}
	ret = hmmgpu_wait(gpu_ctx(ctx), job, -1, &result);
	return ret ? ret : result.error;
}

/* Waits for what gpu_start() and gpu_spin() began, but for the newest so many. */
static inline int gpu_wait(unsigned leave)
{
	unsigned n = repro_gpu.njobs > leave ? repro_gpu.njobs - leave : 0;
	int ret = 0;

	for (unsigned i = n; i-- > 0 && ret == 0;)
		ret = hmmgpu_wait(repro_gpu.ctx[repro_gpu.job[i].ctx], repro_gpu.job[i].num, -1, NULL);
	repro_gpu.njobs -= n;
	memmove(repro_gpu.job, repro_gpu.job + n, repro_gpu.njobs * sizeof(repro_gpu.job[0]));
	return ret;
}

/*
 * One launch.  want: what the job must end with (0 or -errno), or 1 for
 * anything.  Values are checked of accesses that were done.  With wait = 0
 * neither is checked.
 */
static inline void repro_gpu_run(unsigned ctx, unsigned block, int want, int wait,
				 const struct repro_access *a, unsigned n)
{
	struct {
		struct acc_args args;
		struct acc_entry entry[];
	} *t;
	struct acc_lane *lanes;
	uint32_t nlanes = 1, base = __atomic_fetch_add(&repro->next_result, n, __ATOMIC_SEQ_CST);
	struct hmmgpu_launch l = { .entry = repro_entry_accesses, .block = block ? block : 32 };
	unsigned k = 0;
	uint64_t job = 0;
	size_t len;
	int ret;

	for (unsigned i = 0; i < n; i++)
		if (a[i].lane >= nlanes)
			nlanes = a[i].lane + 1;
	if (base + n > HB_MAX_ACCESSES)
		repro_fail("results of GPU accesses", ENOMEM);
	len = sizeof(*t) + n * sizeof(t->entry[0]) + nlanes * sizeof(*lanes);
	t = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if ((void *)t == MAP_FAILED)
		repro_fail("tables of a launch", errno);
	lanes = (struct acc_lane *)(t->entry + n);
	/* By thread, in order. */
	for (uint32_t lane = 0; lane < nlanes; lane++) {
		lanes[lane].first = k;
		for (unsigned i = 0; i < n; i++) {
			if (a[i].lane != lane)
				continue;
			t->entry[k++] = (struct acc_entry){
				.addr = (uintptr_t)region(a[i].region) + a[i].off, .kind = a[i].kind,
				.result = base + i, .value = a[i].value, .expect = a[i].expect,
			};
		}
		lanes[lane].count = k - lanes[lane].first;
	}
	t->args = (struct acc_args){
		.lanes = (uintptr_t)lanes, .entries = (uintptr_t)t->entry,
		.results = (uintptr_t)repro->results, .nlanes = nlanes,
	};
	l.args = (uintptr_t)&t->args;
	l.grid = (nlanes + l.block - 1) / l.block;
	ret = hmmgpu_launch(gpu_ctx(ctx), &l, &job);
	ret = repro_finish(ctx, ret, job, wait);
	if (!wait)
		return;		/* the tables stay: the job may be running */
	if (want <= 0 && ret != want)
		violation("GPU job ended with %d, not %d", ret, want);
	for (unsigned i = 0; i < n; i++) {
		struct hb_access_result *r = &repro->results[base + i];

		if (r->status == HB_AST_DONE)
			repro_check_value("GPU", i, &a[i], r->value);
		else if (ret == 0)
			violation("GPU access %u, region %u offset 0x%llx: not done", i, a[i].region,
				  (unsigned long long)a[i].off);
	}
	munmap(t, len);
}
/* Context 0 or 1, threads a block, accesses. */
#define gpu(ctx, block, ...)		repro_gpu_run(ctx, block, 0, 1, REPRO_LIST_(__VA_ARGS__))
#define gpu_error(ctx, block, want, ...) repro_gpu_run(ctx, block, want, 1, REPRO_LIST_(__VA_ARGS__))
#define gpu_start(ctx, block, ...)	repro_gpu_run(ctx, block, 0, 0, REPRO_LIST_(__VA_ARGS__))

static inline int gpu_spin(unsigned ctx, uint64_t budget)
{
	static struct spin_args nothing;
	struct hmmgpu_launch l = {
		.entry = repro_entry_spin, .args = (uintptr_t)&nothing, .grid = 1, .block = 32,
		.budget = budget,
	};
	uint64_t job = 0;
	int ret = hmmgpu_launch(gpu_ctx(ctx), &l, &job);

	return repro_finish(ctx, ret, job, 0);
}

static inline int gpu_copy(unsigned ctx, unsigned r, uint64_t off, uint64_t len, unsigned to,
			   uint64_t to_off, int wait)
{
	uint64_t job = 0;
	int ret = hmmgpu_copy(gpu_ctx(ctx), region(to) + to_off, region(r) + off, len, 0, 0, &job);

	return repro_finish(ctx, ret, job, wait);
}

static inline int gpu_fill(unsigned ctx, unsigned r, uint64_t off, uint64_t len, uint64_t pattern,
			   int wait)
{
	uint64_t job = 0;
	int ret = hmmgpu_fill(gpu_ctx(ctx), region(r) + off, pattern, len, 0, 0, &job);

	return repro_finish(ctx, ret, job, wait);
}

static inline int migrate(unsigned r, uint64_t off, uint64_t len, uint32_t dst, uint32_t flags)
{
	return flags & HMM_GPU_MIGRATE_MAP ?
		hmmgpu_prefetch(gpu_device(), region(r) + off, len, dst, NULL, NULL) :
		hmmgpu_migrate(gpu_device(), region(r) + off, len, dst, NULL, NULL);
}

static inline int policy(uint32_t p)
{
	return hmmgpu_set_policy(gpu_device(), p);
}

/* Bits of HMM_GPU_Q_* under mask of a page must be `want`. */
static inline void check_query(unsigned r, uint64_t off, uint32_t mask, uint32_t want)
{
	uint32_t got;
	int ret = hmmgpu_query(gpu_device(), region(r) + off, 1, &got);

	if (ret)
		violation("query of region %u offset 0x%llx: %d", r, (unsigned long long)off, ret);
	else if ((got & mask) != want)
		violation("query of region %u offset 0x%llx: 0x%x, not 0x%x under 0x%x", r,
			  (unsigned long long)off, got & mask, want, mask);
}

/* The status of an operation, where the recipe has one to compare with. */
static inline void want(int got, int wanted, const char *what)
{
	if (got != wanted)
		violation("%s: %d, not %d", what, got, wanted);
}
#define WANT(status, call) want(call, status, #call)

/* ---- processes ---- */

static inline void *repro_thread(void *index)
{
	repro_index = (unsigned)(uintptr_t)index;
	repro_actors[repro_index].run();
	__atomic_store_n(&repro->at[repro_index], REPRO_DONE, __ATOMIC_SEQ_CST);
	return NULL;
}

/* The life of a process: its actors; it stays until all actors of all processes have ended. */
static inline __attribute__((noreturn)) void repro_process(unsigned proc)
{
	unsigned main_actor = REPRO_ACTORS;

	repro_self = proc;
	repro->pid[proc] = getpid();
	for (unsigned i = 0; i < repro_nactors; i++) {
		pthread_t t;

		if (repro_actors[i].proc != proc)
			continue;
		if (repro_actors[i].number == 0)
			main_actor = i;
		else if (pthread_create(&t, NULL, repro_thread, (void *)(uintptr_t)i))
			repro_fail("a thread", EAGAIN);
	}
	if (main_actor < REPRO_ACTORS)
		repro_thread((void *)(uintptr_t)main_actor);
	for (unsigned i = 0; i < repro_nactors; i++)
		while (__atomic_load_n(&repro->at[i], __ATOMIC_SEQ_CST) != REPRO_DONE)
			pause_us(100);
	_exit(0);
}

static inline int fork_process(unsigned proc)
{
	pid_t pid = fork();

	if (pid == 0) {
		pthread_mutex_init(&repro_gpu.lock, NULL);
		gpu_close();
		repro_process(proc);
	}
	if (pid < 0) {
		int err = -errno;

		repro_process_over(proc);
		return err;
	}
	repro->pid[proc] = pid;
	return 0;
}

static inline __attribute__((noreturn)) void exit_process(void)
{
	repro->asked[repro_self] = 1;
	/* The parent of all ends the actors once the process is gone. */
	_exit(0);
}

static inline int kill_process(unsigned proc)
{
	struct pollfd p = { .events = POLLIN };

	repro->asked[proc] = 1;
	p.fd = syscall(SYS_pidfd_open, repro->pid[proc], 0);
	if (p.fd < 0)
		return -errno;
	kill(repro->pid[proc], SIGKILL);
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	close(p.fd);
	repro_process_over(proc);
	return 0;
}

/* ---- a run ---- */

/* Whether a process that was born still lives; *fd becomes its pidfd. */
static inline int repro_alive(unsigned proc, int *fd)
{
	struct pollfd p = { .fd = *fd, .events = POLLIN };

	if (*fd < 0)
		p.fd = *fd = syscall(SYS_pidfd_open, repro->pid[proc], 0);
	return *fd >= 0 && poll(&p, 1, 0) == 0;
}

static inline int repro_once(void)
{
	int fds[HB_MAX_PROCS] = { -1, -1, -1, -1 }, used[HB_MAX_PROCS] = { 0 };
	int over[HB_MAX_PROCS] = { 0 }, status, hang = 0;
	time_t end = time(NULL) + REPRO_TIMEOUT_S;
	pid_t group = 0, pid;

	memset(repro, 0, sizeof(*repro));
	for (unsigned i = 0; i < repro_nactors; i++) {
		used[repro_actors[i].proc] = repro_actors[i].forked ? 2 : 1;
		repro->at[i] = repro_actors[i].first;
	}
	for (unsigned p = 0; p < HB_MAX_PROCS; p++) {
		if (used[p] != 1)
			continue;
		pid = fork();
		if (pid < 0)
			repro_fail("fork", errno);
		if (pid == 0) {
			setpgid(0, group);
			repro_process(p);
		}
		setpgid(pid, group);
		if (!group)
			group = pid;
		repro->pid[p] = pid;
	}
	for (;;) {
		unsigned living = 0;

		for (unsigned p = 0; p < HB_MAX_PROCS; p++) {
			if (!used[p] || over[p] || !repro->pid[p])
				continue;
			if (repro_alive(p, &fds[p])) {
				living++;
				continue;
			}
			over[p] = 1;
			repro_process_over(p);
		}
		if (!living)
			break;
		if (time(NULL) > end) {
			hang = 1;
			break;
		}
		pause_us(500);
	}
	if (hang) {
		fprintf(stderr, "not over after %d s\n", REPRO_TIMEOUT_S);
		for (unsigned i = 0; i < repro_nactors; i++)
			if (repro->at[i] != REPRO_DONE)
				fprintf(stderr, "  process %u actor %u is in phase %u\n",
					repro_actors[i].proc, repro_actors[i].number, repro->at[i]);
	}
	kill(-group, SIGKILL);
	while ((pid = waitpid(-1, &status, 0)) > 0) {
		for (unsigned p = 0; p < HB_MAX_PROCS; p++) {
			if (repro->pid[p] != pid || repro->asked[p] || hang)
				continue;
			if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
				exit(3);
			if (WIFSIGNALED(status)) {
				fprintf(stderr, "process %u was ended by signal %d\n", p,
					WTERMSIG(status));
				repro->violations++;
			}
		}
	}
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		if (fds[p] >= 0)
			close(fds[p]);
	return hang || repro->violations;
}

static inline void repro_make_files(void)
{
	static const uint32_t pages[HB_MAX_FILES] = REPRO_FILE_PAGES;

	for (unsigned i = 0; i < HB_MAX_FILES; i++) {
		repro_files[i] = memfd_create("repro", MFD_CLOEXEC);
		if (repro_files[i] < 0 || ftruncate(repro_files[i], pages[i] * PAGE))
			repro_fail("file", errno);
	}
}

static inline int repro_main(int argc, char **argv, const struct actor *actors, unsigned n)
{
	uint8_t stack[(HB_STACK_PAGES + 1) * PAGE];
	long times = argc > 1 ? strtol(argv[1], NULL, 0) : 1;
	struct hmmgpu_kernel *k;
	int bad = 0;

	repro_actors = actors;
	repro_nactors = n;
	__asm__ volatile("" :: "r"(stack) : "memory");
	repro_stack = (void *)(((uintptr_t)stack + PAGE - 1) & ~(PAGE - 1));
	repro = mmap(NULL, sizeof(*repro), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if ((void *)repro == MAP_FAILED || hmmgpu_kernel_load_builtin(&k) ||
	    hmmgpu_kernel_symbol(k, "accesses", &repro_entry_accesses) ||
	    hmmgpu_kernel_symbol(k, "spin", &repro_entry_spin))
		repro_fail("setting up", ENOMEM);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGSEGV, repro_on_fault);
	signal(SIGBUS, repro_on_fault);
	for (long i = 0; i < times && !bad; i++) {
		repro_make_files();
		bad = repro_once();
		for (unsigned f = 0; f < HB_MAX_FILES; f++)
			close(repro_files[f]);
		if (bad)
			printf("violation in run %ld of %ld\n", i + 1, times);
	}
	if (!bad)
		printf("no violation in %ld runs\n", times);
	return bad;
}

#define REPRO_MAIN(list)								\
	int main(int argc, char **argv)							\
	{										\
		return repro_main(argc, argv, list, sizeof(list) / sizeof((list)[0]));	\
	}

#endif
