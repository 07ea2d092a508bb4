// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * BENCH: measurements of this driver beside the same on the kernel's own HMM
 * test module (lib/test_hmm.c, /dev/hmm_dmirror0), in one run.
 *
 * Request, a flat JSON object:
 *	measure		name, see the table at the end
 *	pages		range of one round (default 1024)
 *	rounds		rounds that count (default 5); one more before them warms up
 *	thp		1: the range is made of huge pages (default 0: of none)
 *	populated	bulk_fault: 1: the CPU has written every page before (default 1)
 *	write		bulk_fault: 1: the GPU writes (default 0)
 *	random		cpu_fault_back: 1: in random order (default 0)
 *	threads		bulk_fault: GPU threads (default: all the hardware has)
 *	one_way		trip: 1: to the engine alone (default 0: and back to a thread)
 *
 * Answer, a flat JSON object: the request's numbers, and for each of the two,
 * with the prefixes ours_ and test_hmm_ (absent if the module is not loaded),
 * and with trips_ for a round trip, where they are made (see below; not if the
 * module is not loaded):
 *	us		median over the rounds of microseconds a page
 *	us_min
 *	p50_us, p99_us	of single events, all rounds together (if the measurement has them)
 *	ratio		ours_us / test_hmm_us
 * and of a measurement in which a GPU cannot do without trips:
 *	trips_ratio	median over the rounds of that round's
 *			ours / (test_hmm + so many times a trip)
 *
 * Rounds alternate between the two, each in a fresh process that opens only its
 * own driver, so neither pays for the other's notifiers.
 *
 * What test_hmm does more or less than ours, to read the ratios right: its
 * READ, WRITE and MIGRATE_TO_DEV also copy the whole range from or to a user
 * buffer by the CPU; its device memory is system memory and its page-table walk
 * a loop in the kernel, without interrupts, queues or a second processor.
 *
 * A round trip is what no GPU's driver can save where test_hmm calls a function:
 * from a thread's register write to an engine that acts on it, and from that
 * engine's interrupt to a thread.  It is measured as the driver's debugfs file
 * "trip" makes it (module/test/debugfs.c), by the kernel's clock: a doorbell, a
 * fence alone in the ring, its interrupt, the thread that the handler woke, on the
 * CPU of the interrupt.  So no fault, no mapping, no job, no system call is in
 * it, and what is (one descriptor read, one word written) is less than what is
 * done at the same places of a fault: a trip is rather too short than too long
 * for an event by itself.  For one of many faults that follow one another it may
 * be a little too long, since a file is read between two trips.
 *
 * How long it takes to wake a CPU or an engine depends on how long that one has
 * slept, and on what else the host does just then: trips one behind the other may
 * take half of what one takes by itself.  So trips are made between the events
 * that they are beside, as many and as close to one another as those.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accesses.h"
#include "agent.h"
#include "gpu_kernels.h"
#include "hmmgpu.h"

#define MAX_PAGES	65536
#define MAX_ROUNDS	100
#define MAX_EVENTS	MAX_PAGES
#define BENCH_TIMEOUT_MS	300000
#define HUGE_SIZE	(2ull << 20)

/* The test module's interface: facts of lib/test_hmm_uapi.h, unchanged from 6.1 on. */
struct dmirror_cmd {
	uint64_t addr;
	uint64_t ptr;
	uint64_t npages;
	uint64_t cpages;	/* out */
	uint64_t faults;	/* out */
};
#define DMIRROR_NODE		"/dev/hmm_dmirror0"
#define DMIRROR_READ		_IOWR('H', 0, struct dmirror_cmd)
#define DMIRROR_WRITE		_IOWR('H', 1, struct dmirror_cmd)
#define DMIRROR_MIGRATE_TO_DEV	_IOWR('H', 2, struct dmirror_cmd)

struct request {
	char measure[32];
	uint64_t pages, rounds, thp, populated, write, random, threads, one_way;
};

/* Filled by the process of a round, read by the one that made it: shared memory. */
struct sample {
	int error;		/* -errno, or 0 */
	char what[64];		/* that failed */
	uint64_t ns;		/* for the range */
	uint64_t nevents;
	uint64_t event_ns[MAX_EVENTS];
	/* beside ours, as many trips as events */
	uint64_t trips_ns, ntrips;
	uint64_t trip_ns[MAX_EVENTS];
};

/* One of the two drivers, open in the process of a round. */
struct device {
	bool ours;
	bool trips;		/* ours, and trips are made beside its events */
	struct hmmgpu *gpu;
	struct hmmgpu_ctx *ctx;
	int fd;			/* test_hmm */
	uint8_t *buffer;	/* its copies go there: pages bytes, touched */
	uint64_t slots;
};

static int fail(struct sample *s, const char *what, int error)
{
	s->error = error ? error : -EIO;
	snprintf(s->what, sizeof(s->what), "%s", what);
	return s->error;
}

/* Or what make_range() has said of it. */
static int no_memory(struct sample *s)
{
	return s->error ? s->error : fail(s, "memory", -ENOMEM);
}

static int open_device(struct device *d, const struct request *r, struct sample *s)
{
	int ret;

	if (d->ours) {
		ret = hmmgpu_open(&d->gpu, NULL);
		if (ret == 0)
			ret = hmmgpu_ctx_create(d->gpu, 0, &d->ctx);
		if (ret == 0)
			ret = hmmgpu_get_param(d->gpu, HMM_GPU_PARAM_THREAD_SLOTS, &d->slots);
		return ret ? fail(s, "opening the GPU", ret) : 0;
	}
	d->fd = open(DMIRROR_NODE, O_RDWR | O_CLOEXEC);
	if (d->fd < 0)
		return fail(s, "opening " DMIRROR_NODE, -errno);
	d->buffer = mmap(NULL, r->pages * PAGE_SIZE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	return d->buffer == MAP_FAILED ? fail(s, "buffer", -ENOMEM) : 0;
}

/* A fresh range on a huge page's boundary; word 0 of page i holds i + 1 if populated. */
static uint8_t *make_range(const struct request *r, bool populate, struct sample *s)
{
	uint64_t len = r->pages * PAGE_SIZE;
	uint8_t *p = mmap(NULL, len + HUGE_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		fail(s, "mmap", -errno);
		return NULL;
	}
	p = (uint8_t *)(((uintptr_t)p + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	if (madvise(p, len, r->thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) && r->thp) {
		fail(s, "MADV_HUGEPAGE", -errno);
		return NULL;
	}
	for (uint64_t i = 0; populate && i < r->pages; i++)
		*(volatile uint64_t *)(p + i * PAGE_SIZE) = i + 1;
	return p;
}

static int dmirror(const struct device *d, unsigned long code, void *addr, uint64_t pages,
		   struct sample *s)
{
	struct dmirror_cmd c = {
		.addr = (uintptr_t)addr, .ptr = (uintptr_t)d->buffer, .npages = pages,
	};

	if (ioctl(d->fd, code, &c) < 0)
		return fail(s, "test_hmm", -errno);
	return c.cpages == pages ? 0 : fail(s, "test_hmm did fewer pages", -EIO);
}

static int launch(const struct device *d, uint64_t entry, void *args, uint64_t threads,
		  struct sample *s)
{
	struct hmmgpu_launch l = {
		.entry = entry, .args = (uintptr_t)args,
		.block = threads < 32 ? threads : 32,
	};
	struct hmmgpu_result result;
	char text[128];
	int ret;

	l.grid = (threads + l.block - 1) / l.block;
	ret = hmmgpu_run(d->ctx, &l, &result);
	if (ret)
		return fail(s, result.error ? hmmgpu_result_text(&result, text, sizeof(text))
					    : "launch", ret);
	return 0;
}

/* All tables of a kernel are known to the GPU before what is measured begins. */
static int warm(const struct device *d, void *args, size_t len, struct sample *s)
{
	uintptr_t start = (uintptr_t)args & ~(PAGE_SIZE - 1);
	uintptr_t end = ((uintptr_t)args + len + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1);
	int ret = launch(d, kernel_empty, NULL, 1, s);

	if (ret)
		return ret;
	ret = hmmgpu_prefetch(d->gpu, (void *)start, end - start, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL);
	return ret ? fail(s, "prefetch", ret) : 0;
}

static int to_device(const struct device *d, uint8_t *p, uint64_t pages, struct sample *s)
{
	uint64_t migrated, failed;
	int ret;

	if (!d->ours)
		return dmirror(d, DMIRROR_MIGRATE_TO_DEV, p, pages, s);
	ret = hmmgpu_migrate(d->gpu, p, pages * PAGE_SIZE, HMM_GPU_MIGRATE_DEVICE, &migrated, &failed);
	if (ret)
		return fail(s, "migrate", ret);
	return migrated == pages ? 0 : fail(s, "not every page migrated", -EIO);
}

/* ---- trips ---- */

/*
 * The process goes to the CPU that takes the fence's interrupt: a thread that sleeps on another
 * one is woken by one more interrupt, between the CPUs, which a trip can do without.  All that
 * is compared with trips runs there, of both drivers.
 */
static int go_to_interrupt(struct sample *s)
{
	int cpu, n = 0;
	cpu_set_t set;
	char path[64];
	glob_t found;
	FILE *f;

	if (glob("/proc/irq/*/hmm_gpu-fence", 0, NULL, &found) == 0) {
		snprintf(path, sizeof(path), "%s/../effective_affinity_list", found.gl_pathv[0]);
		globfree(&found);
		f = fopen(path, "re");
		if (f) {
			n = fscanf(f, "%d", &cpu);
			fclose(f);
		}
	}
	if (n != 1)
		return fail(s, "the CPU of the interrupt", -ENOENT);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? fail(s, "affinity", -errno) : 0;
}

/* One trip, by the driver's debugfs. */
static int one_trip(bool one_way, uint64_t *ns, struct sample *s)
{
	char text[32], *end;
	ssize_t n = debugfs_read(one_way ? "trip_there" : "trip", text, sizeof(text));

	if (n <= 0)
		return fail(s, "trip of debugfs", n);
	*ns = strtoull(text, &end, 10);
	return end == text ? fail(s, "trip of debugfs: no number", -EIO) : 0;
}

/* As many as there were events since the last ones: what they are compared with. */
static int trips_beside(const struct device *d, struct sample *s)
{
	while (d->trips && s->ntrips < s->nevents) {
		uint64_t *ns = &s->trip_ns[s->ntrips];

		if (one_trip(false, ns, s))
			return s->error;
		s->trips_ns += *ns;
		s->ntrips++;
	}
	return 0;
}

/* ---- the measurements: each is one round ---- */

/* Many threads touch every page of a range that the GPU has not seen. */
static int bulk_fault(const struct device *d, const struct request *r, struct sample *s)
{
	uint64_t threads = r->threads ? r->threads : d->slots, start, sum, want;
	struct {
		struct touch_args args;
		uint64_t sum;
	} *t = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint8_t *p = make_range(r, r->populated, s);

	if (!p || t == MAP_FAILED)
		return no_memory(s);
	t->args = (struct touch_args){
		.base = (uintptr_t)p, .npages = r->pages, .write = r->write,
		.value = 7, .sum = r->write ? 0 : (uintptr_t)&t->sum,
	};
	if (d->ours && warm(d, t, sizeof(*t), s))
		return s->error;
	start = now_ns();
	if (d->ours ? launch(d, kernel_touch, &t->args, threads, s)
		    : dmirror(d, r->write ? DMIRROR_WRITE : DMIRROR_READ, p, r->pages, s))
		return s->error;
	s->ns = now_ns() - start;

	/* A wrong result makes the figure worthless. */
	sum = d->ours && !r->write ? t->sum : 0;
	want = 0;
	for (uint64_t i = 0; i < r->pages; i++) {
		if (r->write || !d->ours)
			sum += *(uint64_t *)((r->write ? p : d->buffer) + i * PAGE_SIZE);
		if (r->write)
			want += d->ours ? 7 + i : 0;
		else
			want += r->populated ? i + 1 : 0;
	}
	return sum == want ? 0 : fail(s, "wrong data", -EILSEQ);
}

static void shuffle(uint32_t *order, uint64_t n)
{
	uint64_t seed = 88172645463325252ull;

	for (uint64_t i = 0; i < n; i++)
		order[i] = i;
	for (uint64_t i = n - 1; i > 0; i--) {
		uint64_t j;
		uint32_t t;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		j = seed % (i + 1);
		t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
}

/* Faults of one launch: so many one behind the other, then as many trips. */
#define FAULTS_LAUNCH	16

/* One thread touches one page after the other, in random order; ours by the device's clock. */
static int single_fault(const struct device *d, const struct request *r, struct sample *s)
{
	size_t len = sizeof(struct latency_args) + r->pages * 12;
	struct latency_args *a = mmap(NULL, len, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint8_t *p = make_range(r, true, s);
	uint64_t *times;
	uint32_t *order;

	if (!p || a == MAP_FAILED)
		return no_memory(s);
	times = (uint64_t *)(a + 1);
	order = (uint32_t *)(times + r->pages);
	shuffle(order, r->pages);
	if (d->ours && warm(d, a, len, s))
		return s->error;
	for (uint64_t i = 0; i < r->pages; i++) {
		if (!d->ours) {
			uint64_t start = now_ns();

			if (dmirror(d, DMIRROR_READ, p + order[i] * PAGE_SIZE, 1, s))
				return s->error;
			times[i] = now_ns() - start;
		} else if (i % FAULTS_LAUNCH == 0) {
			uint64_t n = r->pages - i;

			*a = (struct latency_args){
				.base = (uintptr_t)p, .order = (uintptr_t)(order + i),
				.times = (uintptr_t)(times + i),
				.npages = n < FAULTS_LAUNCH ? n : FAULTS_LAUNCH,
			};
			if (trips_beside(d, s) || launch(d, kernel_latency, a, 1, s))
				return s->error;
		}
		s->ns += times[i];
		s->event_ns[s->nevents++] = times[i];
	}
	return trips_beside(d, s);
}

static int migrate_to_device(const struct device *d, const struct request *r, struct sample *s)
{
	uint8_t *p = make_range(r, true, s);
	uint64_t start;

	if (!p)
		return -ENOMEM;
	start = now_ns();
	if (to_device(d, p, r->pages, s))
		return s->error;
	s->ns = now_ns() - start;
	return *(uint64_t *)p == 1 ? 0 : fail(s, "wrong data", -EILSEQ);
}

static int cpu_fault_back(const struct device *d, const struct request *r, struct sample *s)
{
	uint32_t *order = malloc(r->pages * sizeof(*order));
	uint8_t *p = make_range(r, true, s);
	uint64_t begin;

	if (!p || !order)
		return no_memory(s);
	shuffle(order, r->pages);
	if (to_device(d, p, r->pages, s))
		return s->error;
	begin = now_ns();
	for (uint64_t i = 0, last = begin; i < r->pages; i++) {
		uint64_t page = r->random ? order[i] : i, now;

		if (*(volatile uint64_t *)(p + page * PAGE_SIZE) != page + 1)
			return fail(s, "wrong data", -EILSEQ);
		now = now_ns();
		s->event_ns[s->nevents++] = now - last;
		last = now;
	}
	s->ns = now_ns() - begin;
	return 0;
}

/* One page thrown away, touched by the CPU and read by the device, again and again. */
static int touch_round(const struct device *d, const struct request *r, struct sample *s)
{
	struct {
		struct touch_args args;
		uint64_t sum;
	} *t = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint8_t *p = make_range(r, true, s);

	if (!p || t == MAP_FAILED)
		return no_memory(s);
	if (d->ours && warm(d, t, sizeof(*t), s))
		return s->error;
	for (uint64_t i = 0; i < r->pages; i++) {
		uint8_t *page = p + i * PAGE_SIZE;
		uint64_t start = now_ns(), got;

		if (madvise(page, PAGE_SIZE, MADV_DONTNEED))
			return fail(s, "madvise", -errno);
		*(volatile uint64_t *)page = i + 9;
		if (d->ours) {
			t->args = (struct touch_args){
				.base = (uintptr_t)page, .npages = 1, .sum = (uintptr_t)&t->sum,
			};
			t->sum = 0;
			if (launch(d, kernel_touch, &t->args, 1, s))
				return s->error;
			got = t->sum;
		} else {
			if (dmirror(d, DMIRROR_READ, page, 1, s))
				return s->error;
			got = *(uint64_t *)d->buffer;
		}
		if (got != i + 9)
			return fail(s, "wrong data", -EILSEQ);
		start = now_ns() - start;
		s->ns += start;
		s->event_ns[s->nevents++] = start;
		if (trips_beside(d, s))
			return s->error;
	}
	return 0;
}

/* "pages" counts trips. */
static int trip(const struct device *d, const struct request *r, struct sample *s)
{
	(void)d;
	while (s->nevents < r->pages) {
		uint64_t *ns = &s->event_ns[s->nevents];

		if (one_trip(r->one_way, ns, s))
			return s->error;
		s->ns += *ns;
		s->nevents++;
	}
	return 0;
}

/* Launch and wait of an empty kernel; "pages" counts launches. */
static int launch_latency(const struct device *d, const struct request *r, struct sample *s)
{
	if (launch(d, kernel_empty, NULL, 1, s))
		return s->error;
	for (uint64_t i = 0; i < r->pages; i++) {
		uint64_t start = now_ns();

		if (launch(d, kernel_empty, NULL, 1, s))
			return s->error;
		start = now_ns() - start;
		s->ns += start;
		s->event_ns[s->nevents++] = start;
	}
	return 0;
}

static const struct measurement {
	const char *name;
	int (*round)(const struct device *d, const struct request *r, struct sample *s);
	bool compared;		/* test_hmm can do it too */
	/*
	 * Round trips of one event that follow one after the other in whatever serves it.
	 * A fault: its interrupt to the thread that serves, and that one's replay to the
	 * engine.  A touch: the doorbell of the job to the engine, the fault's two, and the
	 * interrupt of the job's end to who waits.  More than these nobody needs, so what a
	 * driver makes beyond them counts as its own (tests/vm/test_bench.py counts ours).
	 */
	unsigned trips;
	bool at_interrupt;	/* see go_to_interrupt() */
} measurements[] = {
	{ "bulk_fault", bulk_fault, true, 0, false },
	{ "single_fault", single_fault, true, 1, true },
	{ "migrate_to_device", migrate_to_device, true, 0, false },
	{ "cpu_fault_back", cpu_fault_back, true, 0, false },
	{ "touch_round", touch_round, true, 2, true },
	{ "launch", launch_latency, false, 0, false },
	{ "trip", trip, false, 0, true },
};

/* ---- running them ---- */

/* Whose turn it is; trips come with ours. */
enum { OURS, TEST_HMM, TRIPS, NUM_SERIES };
static const char *const series_name[] = { "hmm_gpu", "test_hmm" };

struct series {
	uint64_t rounds;
	uint64_t ns[MAX_ROUNDS];
	uint64_t nevents;
	uint64_t *events;
};

static void add_round(struct series *to, uint64_t ns, const uint64_t *event_ns, uint64_t nevents)
{
	to->ns[to->rounds++] = ns;
	memcpy(to->events + to->nevents, event_ns, nevents * sizeof(*event_ns));
	to->nevents += nevents;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print_series(int out, const char *prefix, const struct request *r, struct series *s)
{
	qsort(s->ns, s->rounds, sizeof(s->ns[0]), compare);
	dprintf(out, ",\"%s_us\":%.4f,\"%s_us_min\":%.4f", prefix,
		s->ns[s->rounds / 2] / 1000.0 / r->pages, prefix, s->ns[0] / 1000.0 / r->pages);
	if (!s->nevents)
		return;
	qsort(s->events, s->nevents, sizeof(s->events[0]), compare);
	dprintf(out, ",\"%s_p50_us\":%.3f,\"%s_p99_us\":%.3f", prefix,
		s->events[s->nevents / 2] / 1000.0, prefix,
		s->events[s->nevents * 99 / 100] / 1000.0);
}

/* Of a series in order. */
static double median(const struct series *s)
{
	return s->ns[s->rounds / 2];
}

/*
 * The median of the rounds' own ratios: what stands side by side was made side by side, which
 * medians of each series by itself need not have been.  Before the rounds are put in order.
 */
static double trips_ratio(const struct series *series, unsigned trips)
{
	uint64_t n = series[OURS].rounds, ppm[MAX_ROUNDS];

	for (uint64_t i = 0; i < n; i++)
		ppm[i] = 1e6 * series[OURS].ns[i] /
			 (series[TEST_HMM].ns[i] + trips * series[TRIPS].ns[i]);
	qsort(ppm, n, sizeof(ppm[0]), compare);
	return ppm[n / 2] / 1e6;
}

/* A round in a process of its own: the range, the device and its notifiers go with it. */
static void one_round(const struct measurement *m, const struct request *r, unsigned which,
		      bool both, struct sample *s)
{
	struct device d = { .ours = which == OURS, .trips = which == OURS && both && m->trips };
	int status;
	pid_t pid;

	s->error = 0;
	s->ns = s->nevents = s->trips_ns = s->ntrips = 0;
	pid = fork();
	if (pid == 0) {
		if (open_device(&d, r, s) == 0 && !(m->at_interrupt && go_to_interrupt(s)))
			m->round(&d, r, s);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail(s, "fork", -errno);
	else if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail(s, "the measuring process died", -ECHILD);
}

static void bench_child(int out, void *arg)
{
	const struct request *r = arg;
	const struct measurement *m = NULL;
	struct sample *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct series series[NUM_SERIES] = { { .rounds = 0 } };
	double with_trips = 0;
	bool both;

	for (unsigned i = 0; i < ARRAY_SIZE(measurements); i++)
		if (strcmp(measurements[i].name, r->measure) == 0)
			m = &measurements[i];
	if (!m || s == MAP_FAILED)
		_exit(1);
	both = m->compared && access(DMIRROR_NODE, F_OK) == 0;
	for (unsigned which = 0; which < NUM_SERIES; which++) {
		series[which].events = calloc(r->rounds * r->pages, sizeof(uint64_t));
		if (!series[which].events)
			_exit(1);
	}
	for (uint64_t round = 0; round <= r->rounds; round++) {
		for (unsigned which = OURS; which <= (both ? TEST_HMM : OURS); which++) {
			one_round(m, r, which, both, s);
			if (s->error) {
				dprintf(out, "!%s of %s: %s: %s", r->measure, series_name[which],
					s->what, strerror(-s->error));
				return;
			}
			if (!round)
				continue;	/* warming up */
			add_round(&series[which], s->ns, s->event_ns, s->nevents);
			if (s->ntrips)
				add_round(&series[TRIPS], s->trips_ns, s->trip_ns, s->ntrips);
		}
	}
	if (series[TRIPS].rounds)
		with_trips = trips_ratio(series, m->trips);
	dprintf(out, "{\"measure\":\"%s\",\"pages\":%llu,\"rounds\":%llu", r->measure,
		(unsigned long long)r->pages, (unsigned long long)r->rounds);
	print_series(out, "ours", r, &series[OURS]);
	if (both) {
		print_series(out, "test_hmm", r, &series[TEST_HMM]);
		dprintf(out, ",\"ratio\":%.4f", median(&series[OURS]) / median(&series[TEST_HMM]));
	}
	if (series[TRIPS].rounds) {
		print_series(out, "trips", r, &series[TRIPS]);
		dprintf(out, ",\"trips_ratio\":%.4f", with_trips);
	}
	dprintf(out, "}");
}

/* ---- the request ---- */

/* The text after "key": in a flat object, or NULL. */
static const char *json_value(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = text; (p = strchr(p, '"')); p++) {
		const char *q = p + 1 + len;

		if (strncmp(p + 1, key, len) || *q != '"')
			continue;
		q += 1 + strspn(q + 1, " \t\r\n");
		if (*q == ':')
			return q + 1 + strspn(q + 1, " \t\r\n");
	}
	return NULL;
}

static bool get_number(const char *text, const char *key, uint64_t *value, uint64_t max)
{
	const char *v = json_value(text, key);
	char *end;

	if (!v)
		return true;
	if (strncmp(v, "true", 4) == 0 || strncmp(v, "false", 5) == 0) {
		*value = *v == 't';
		return true;
	}
	errno = 0;
	*value = strtoull(v, &end, 10);
	return end != v && !errno && *v != '-' && *value <= max;
}

void serve_bench(const struct message *m)
{
	static char text[65536];
	const char *json = (char *)m->payload, *name = json_value(json, "measure");
	struct request r = { .pages = 1024, .rounds = 5, .populated = 1 };
	bool known = false;
	ssize_t n;

	if (name && *name == '"')
		snprintf(r.measure, sizeof(r.measure), "%.*s", (int)strcspn(name + 1, "\""), name + 1);
	for (unsigned i = 0; i < ARRAY_SIZE(measurements); i++)
		known |= strcmp(measurements[i].name, r.measure) == 0;
	if (!known) {
		chan_reply_error(m, "BENCH: no measurement of the name \"%s\"", r.measure);
		return;
	}
	if (!get_number(json, "pages", &r.pages, MAX_PAGES) || !r.pages ||
	    !get_number(json, "rounds", &r.rounds, MAX_ROUNDS) || !r.rounds ||
	    !get_number(json, "thp", &r.thp, 1) || !get_number(json, "populated", &r.populated, 1) ||
	    !get_number(json, "write", &r.write, 1) || !get_number(json, "random", &r.random, 1) ||
	    !get_number(json, "threads", &r.threads, 65536) ||
	    !get_number(json, "one_way", &r.one_way, 1)) {
		chan_reply_error(m, "BENCH: a number is missing its range (pages 1..%u, rounds 1..%u)",
				 MAX_PAGES, MAX_ROUNDS);
		return;
	}
	n = run_in_child(bench_child, &r, BENCH_TIMEOUT_MS, text, sizeof(text));
	if (n < 0)
		chan_reply_error(m, "BENCH: %s: %s", r.measure, strerror((int)-n));
	else if (text[0] == '!')
		chan_reply_error(m, "BENCH: %s", text + 1);
	else
		chan_reply(m, &(struct iovec){ text, n }, 1);
}
