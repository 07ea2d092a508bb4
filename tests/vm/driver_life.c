// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Life and death of the driver under load: driver_life KERNELS.elf TEST
 *
 *   unbind   the driver is unbound with jobs running and pages in VRAM, 5 times
 *   reset    the same with a function-level reset; and while others begin to use the device
 *   unplug   prints "unplug now" and waits for the device to go
 *   lazyfree memory given back with MADV_FREE and then written by the GPU is kept
 *   batches  pages that an idle CPU has in a batch for the LRU lists move all the same
 *   cow      pages in VRAM that fork() shares: either side writes by GPU or CPU
 *   tight    more memory in use than the driver may have VRAM
 *   starve   the address space changes all the time while the GPU faults
 *   copyerr  some copies of the kernel's copy engine fail (injected by the caller)
 *   silent   the device does not answer a TLB invalidation (injected by the caller)
 *   unload   the module is to go while pages cannot leave VRAM, and who asked is killed; it
 *            does when they are unmapped
 *
 * Prints what failed, or "TEST passed".  Exit status 0 or 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accesses.h"
#include "gpu_test.h"

#define WORDS		(PAGE / sizeof(uint64_t))
#define PCI_NAME	"0000:01:00.0"
#define DRIVER		"/sys/bus/pci/drivers/hmm_gpu/"
#define DEVICE		"/sys/bus/pci/devices/" PCI_NAME
#define DEBUGFS		"/sys/kernel/debug/dri/0/"
#define MODULE		"/sys/module/hmm_gpu/"

static void stop_gpu(void)
{
	if (!gpu)
		return;
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	gpu = NULL;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	CHECK(fd >= 0, "%s: %s", path, strerror(errno));
	if (fd < 0)
		return;
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s: %s", path,
	      strerror(errno));
	close(fd);
}

static uint64_t *pages(size_t n)
{
	uint64_t *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

/* Word 0 of page i becomes or must be i + value. */
static void fill(uint64_t *p, size_t n, uint64_t value)
{
	for (size_t i = 0; i < n; i++)
		p[i * WORDS] = i + value;
}

static void expect(int line, const uint64_t *p, size_t n, uint64_t value)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i * WORDS] != i + value) {
			fail(line, "page %zu has %lu, not %lu", i, p[i * WORDS], i + value);
			return;
		}
	}
}

/* The GPU reads (and sums up) or writes word 0 of each page: i + value. */
static int touch(uint64_t *p, size_t n, int write, uint64_t value, uint64_t *sum)
{
	struct touch_args args = {
		.base = (uintptr_t)p, .npages = n, .write = write, .value = value,
		.sum = (uintptr_t)sum,
	};
	struct hmmgpu_launch launch = { .args = (uintptr_t)&args, .grid = 2, .block = 128 };

	need(hmmgpu_kernel_symbol(kernels, "touch", &launch.entry), "kernel touch");
	return hmmgpu_run(ctx, &launch, NULL);
}

static void to_device(int line, uint64_t *p, size_t n)
{
	uint64_t moved = 0;
	int error = hmmgpu_prefetch(gpu, p, n * PAGE, HMM_GPU_MIGRATE_DEVICE, &moved, NULL);

	if (error || moved != n)
		fail(line, "migrate: %d, %lu of %zu pages", error, moved, n);
}

static uint64_t *job_memory;

/* Jobs one after the other until one ends with an error, which it returns. */
static void *run_jobs(void *unused)
{
	int error;

	(void)unused;
	do
		error = touch(job_memory, 64, 1, 1, NULL);
	while (!error);
	return (void *)(long)error;
}

static void disturb(const char *path, const char *text, int want, int rebind)
{
	size_t n = 600;

	for (int round = 0; round < 5; round++) {
		uint64_t *p = pages(n), sum = 0;
		pthread_t thread;
		void *end;

		job_memory = pages(64);
		fill(p, n, 51);
		to_device(__LINE__, p, n);
		pthread_create(&thread, NULL, run_jobs, NULL);
		usleep(10000 + 3000 * round);
		write_text(path, text);
		pthread_join(thread, &end);
		CHECK((long)end == want, "jobs ended with %ld, not %d", (long)end, want);
		if (rebind) {
			expect(__LINE__, p, n, 51);
			stop_gpu();
			write_text(DRIVER "bind", PCI_NAME);
			start_gpu();
		} else {
			CHECK(touch(p, n, 0, 0, NULL) == want, "a lost context works");
			hmmgpu_ctx_destroy(ctx);
			need(hmmgpu_ctx_create(gpu, 0, &ctx), "context");
		}
		CHECK(!touch(p, n, 0, 0, &sum), "job after it failed");
		CHECK(sum == n * (n - 1) / 2 + 51 * n, "GPU sees %lu", sum);
		expect(__LINE__, p, n, 51);
		munmap(p, n * PAGE);
		munmap(job_memory, 64 * PAGE);
	}
}

static void test_unbind(void)
{
	disturb(DRIVER "unbind", PCI_NAME, -ENODEV, 1);
}

static volatile int renewing;

/* Opens the device, and makes a context, again and again: a job there is done or says -EIO. */
static void *renew(void *counted)
{
	uint64_t *p = pages(4);
	long n = 0;

	while (renewing) {
		struct touch_args args = { .base = (uintptr_t)p, .npages = 4, .write = 1 };
		struct hmmgpu_launch l = { .args = (uintptr_t)&args, .grid = 1, .block = 32 };
		struct hmmgpu_result r = { 0 };
		struct hmmgpu_ctx *c;
		struct hmmgpu *g;
		uint64_t job;
		int error;

		need(hmmgpu_kernel_symbol(kernels, "touch", &l.entry), "kernel touch");
		need(hmmgpu_open(&g, NULL), "open during a reset");
		need(hmmgpu_ctx_create(g, 0, &c), "context during a reset");
		error = hmmgpu_launch(c, &l, &job);
		if (!error)
			error = hmmgpu_wait(c, job, 30000000000, &r);
		if (!error)
			error = r.error;
		CHECK(!error || error == -EIO, "job during a reset: %d", error);
		n += !error;
		hmmgpu_ctx_destroy(c);
		hmmgpu_close(g);
	}
	munmap(p, 4 * PAGE);
	*(long *)counted = n;
	return NULL;
}

static void test_reset(void)
{
	pthread_t threads[2];
	long done[2];

	disturb(DEVICE "/reset", "1", -EIO, 0);

	renewing = 1;
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, renew, &done[i]);
	for (int round = 0; round < 10; round++) {
		usleep(20000 + 1000 * round);
		write_text(DEVICE "/reset", "1");
	}
	usleep(100000);
	renewing = 0;
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		CHECK(done[i], "no job was ever done");
	}
}

static void test_unplug(void)
{
	size_t n = 600;
	uint64_t *p = pages(n);
	pthread_t thread;
	void *end;

	job_memory = pages(64);
	fill(p, n, 3);
	to_device(__LINE__, p, n);
	pthread_create(&thread, NULL, run_jobs, NULL);
	printf("unplug now\n");
	fflush(stdout);
	pthread_join(thread, &end);
	CHECK((long)end == -ENODEV, "jobs ended with %ld", (long)end);
	expect(__LINE__, p, n, 3);
	for (int wait = 0; wait < 100 && !access(DEVICE, F_OK); wait++)
		usleep(100000);
	CHECK(access(DEVICE, F_OK), "device is still there");
}

static void test_lazyfree(void)
{
	size_t n = 256;

	for (int device = 0; device < 2; device++) {
		uint64_t *p = pages(n);

		madvise(p, n * PAGE, MADV_NOHUGEPAGE);
		fill(p, n, 1);
		CHECK(!madvise(p, n * PAGE, MADV_FREE), "MADV_FREE: %s", strerror(errno));
		if (device)
			to_device(__LINE__, p, n);
		CHECK(!touch(p, n, 1, 77, NULL), "job failed");
		if (device)
			need(hmmgpu_migrate(gpu, p, n * PAGE, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL),
			     "migrate back");
		/* reclaim them: what is not dirty would be dropped */
		CHECK(!madvise(p, n * PAGE, MADV_PAGEOUT), "MADV_PAGEOUT: %s", strerror(errno));
		expect(__LINE__, p, n, 77);
		munmap(p, n * PAGE);
	}
}

static void on_cpu(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	need(sched_setaffinity(0, sizeof(one), &one) ? errno : 0, "affinity");
}

/* A byte from or for the other process. */
static void hear(const int *way)
{
	char byte;

	if (read(way[0], &byte, 1) != 1)
		exit(1);
}

static void tell(const int *way)
{
	if (write(way[1], "", 1) != 1)
		exit(1);
}

/*
 * Pages in VRAM that another process has unlocked, on a CPU where nothing runs since:
 * a CPU touches them, or the device is unbound.
 */
static void unlocked(int unbind)
{
	size_t n = 8;
	uint64_t *p = pages(n);
	int go[2], come[2], status = -1;
	pid_t child;

	fill(p, n, 5);
	need(pipe(go) || pipe(come) ? errno : 0, "pipe");
	child = fork();
	if (!child) {
		alarm(30);
		on_cpu(1);
		/* read-only, or locking would copy them */
		if (mprotect(p, n * PAGE, PROT_READ) || mlock(p, n * PAGE))
			_exit(2);
		tell(come);
		hear(go);
		munmap(p, n * PAGE);
		tell(come);
		hear(go);
		_exit(0);
	}
	hear(come);
	to_device(__LINE__, p, n);
	if (unbind)
		stop_gpu();
	tell(go);
	hear(come);
	if (unbind)
		write_text(DRIVER "unbind", PCI_NAME);
	expect(__LINE__, p, n, 5);
	tell(go);
	waitpid(child, &status, 0);
	CHECK(!status, "child: status %#x", status);
	munmap(p, n * PAGE);
	/* now that the child has closed its GPU, too */
	if (unbind) {
		write_text(DRIVER "bind", PCI_NAME);
		start_gpu();
	}
}

static void test_batches(void)
{
	size_t n = 256;
	uint64_t *p = pages(n);

	alarm(30);
	madvise(p, n * PAGE, MADV_NOHUGEPAGE);
	on_cpu(1);
	fill(p, n, 1);
	CHECK(!madvise(p, n * PAGE, MADV_FREE), "MADV_FREE: %s", strerror(errno));
	on_cpu(0);
	to_device(__LINE__, p, n);
	munmap(p, n * PAGE);
	unlocked(0);
	unlocked(1);
	alarm(0);
}

static void test_cow(void)
{
	size_t n = 128;

	for (int how = 0; how < 4; how++) {
		uint64_t *p = pages(n);
		int go[2], status = -1;
		pid_t child;

		fill(p, n, 100);
		to_device(__LINE__, p, n);
		need(pipe(go), "pipe");
		child = fork();
		if (!child) {
			char byte;
			int bad = 0;

			close(go[1]);
			if (how & 1) {	/* the child writes first */
				fill(p, n, 500);
				_exit(read(go[0], &byte, 1) != 0 || p[WORDS] != 501);
			}
			bad = read(go[0], &byte, 1) != 0;
			for (size_t i = 0; i < n; i++)
				bad |= p[i * WORDS] != i + 100;
			_exit(bad);
		}
		close(go[0]);
		if (how & 2)
			fill(p, n, 900);
		else
			CHECK(!touch(p, n, 1, 900, NULL), "job failed");
		close(go[1]);
		waitpid(child, &status, 0);
		CHECK(!status, "child of variant %d: status %#x", how, status);
		expect(__LINE__, p, n, 900);
		munmap(p, n * PAGE);
	}
}

static void test_tight(void)
{
	size_t n = 2048;
	uint64_t *p = pages(n), vram;
	char old[24];

	need(hmmgpu_get_param(gpu, HMM_GPU_PARAM_VRAM_PAGES, &vram), "parameter");
	snprintf(old, sizeof(old), "%lu", vram);
	write_text(DEBUGFS "vram_limit", "700");
	fill(p, n, 8);
	for (int round = 0; round < 4; round++) {
		uint64_t moved, free = 0, sum = 0;

		hmmgpu_set_policy(gpu, round & 1);
		need(hmmgpu_migrate(gpu, p, n * PAGE, HMM_GPU_MIGRATE_DEVICE, &moved, NULL),
		     "migrate");
		CHECK(moved, "nothing moved");
		CHECK(!touch(p, n, 0, 0, &sum), "job failed");
		CHECK(sum == n * (n - 1) / 2 + 8 * n, "GPU sees %lu", sum);
		need(hmmgpu_get_param(gpu, HMM_GPU_PARAM_VRAM_FREE, &free), "parameter");
		CHECK(free <= 700, "%lu pages free of 700", free);
	}
	write_text(DEBUGFS "vram_limit", old);
	expect(__LINE__, p, n, 8);
	munmap(p, n * PAGE);
}

static volatile int stop;

static void *change_mappings(void *unused)
{
	while (!stop) {
		uint64_t *p = pages(4);

		p[0] = 1;
		munmap(p, 4 * PAGE);
	}
	return unused;
}

static void test_starve(void)
{
	size_t n = 512;
	uint64_t *p = pages(n);
	pthread_t thread;

	pthread_create(&thread, NULL, change_mappings, NULL);
	for (int round = 0; round < 10; round++) {
		CHECK(!touch(p, n, 1, round, NULL), "job failed");
		expect(__LINE__, p, n, round);
		madvise(p, n * PAGE, MADV_DONTNEED);
	}
	stop = 1;
	pthread_join(thread, NULL);
	munmap(p, n * PAGE);
}

static sigjmp_buf no_page;

static void on_sigbus(int sig)
{
	siglongjmp(no_page, sig);
}

/* Reads a word; false: SIGBUS instead. */
static int can_read(volatile uint64_t *p, uint64_t *value)
{
	if (sigsetjmp(no_page, 1))
		return 0;
	*value = *p;
	return 1;
}

/* A copy that fails leaves the page where it is: it is never lost, nor wrong. */
static void test_copyerr(void)
{
	size_t n = 1024;
	uint64_t *p = pages(n), value = 0, moved;

	madvise(p, n * PAGE, MADV_NOHUGEPAGE);
	fill(p, n, 5);
	signal(SIGBUS, on_sigbus);
	for (int round = 0; round < 10; round++) {
		need(hmmgpu_migrate(gpu, p, n * PAGE, HMM_GPU_MIGRATE_DEVICE, &moved, NULL),
		     "migrate");
		CHECK(moved, "nothing moved");
		need(hmmgpu_migrate(gpu, p, n * PAGE, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL),
		     "migrate back");
	}
	for (size_t i = 0; i < n; i++) {
		int tries = 100;

		/* a CPU fault whose copy fails is a SIGBUS; the page is still there */
		while (!can_read(p + i * WORDS, &value) && --tries)
			;
		CHECK(tries && value == i + 5, "page %zu: %d tries left, %lu", i, tries, value);
	}
	munmap(p, n * PAGE);
}

/*
 * The driver gives the device up after 10 s, and nobody waits longer or reads rubbish.  A
 * reset brings it back.
 */
static void test_silent(void)
{
	size_t n = 300;
	uint64_t *p = pages(n), *mapped = pages(n), value, sum = 0;
	int error;

	fill(p, n, 1);
	to_device(__LINE__, p, n);
	CHECK(!touch(mapped, n, 0, 0, NULL), "job failed");
	munmap(mapped, n * PAGE);
	error = touch(mapped, n, 0, 0, NULL);
	CHECK(error == -EIO, "job on a dead device: %d", error);
	signal(SIGBUS, on_sigbus);
	CHECK(!can_read(p, &value), "a page that cannot be had reads as %lu", value);

	/* only one answer was missing: after a reset it is all there again */
	write_text(DEVICE "/reset", "1");
	hmmgpu_ctx_destroy(ctx);
	need(hmmgpu_ctx_create(gpu, 0, &ctx), "context after the reset");
	CHECK(!touch(p, n, 0, 0, &sum), "job after the reset failed");
	CHECK(sum == n * (n - 1) / 2 + n, "GPU sees %lu", sum);
	expect(__LINE__, p, n, 1);
	munmap(p, n * PAGE);
}

/* Pages in VRAM, where no driver reaches them any more: the device answers nobody. */
static uint64_t *lost_pages(size_t n)
{
	static const uint16_t off;
	uint64_t *p = pages(n);
	int fd;

	start_gpu();
	fill(p, n, 1);
	to_device(__LINE__, p, n);
	stop_gpu();
	/* its registers are off, and a reset leaves the configuration as it finds it */
	fd = open(DEVICE "/config", O_WRONLY);
	CHECK(fd >= 0 && pwrite(fd, &off, sizeof(off), 4) == sizeof(off), "command register: %s",
	      strerror(errno));
	close(fd);
	write_text(DEVICE "/reset", "1");
	return p;
}

static int unload(void)
{
	return syscall(SYS_delete_module, "hmm_gpu", O_NONBLOCK) ? -errno : 0;
}

/* Whether a one-line file has just this text. */
static int reads(const char *path, const char *text)
{
	char line[32] = "";
	FILE *f = fopen(path, "r");

	if (f && fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = 0;
	if (f)
		fclose(f);
	return !strcmp(line, text);
}

static void test_unload(void)
{
	size_t n = 4;
	uint64_t *p;
	pid_t pid;
	int error, status = -1;

	/* removed by an unbind: the module is held */
	stop_gpu();
	p = lost_pages(n);
	write_text(DRIVER "unbind", PCI_NAME);
	error = unload();
	CHECK(error == -EWOULDBLOCK, "unloading a module that is held: %d", error);
	munmap(p, n * PAGE);
	for (int wait = 0; wait < 100 && !reads(MODULE "refcnt", "0"); wait++)
		usleep(100000);
	CHECK(reads(MODULE "refcnt", "0"), "pages are gone, and somebody waits for them");

	/* removed by the module's exit: that waits, also if it is killed while it removes */
	write_text(DRIVER "bind", PCI_NAME);
	p = lost_pages(n);
	pid = fork();
	if (!pid) {
		munmap(p, n * PAGE);
		_exit(-unload());
	}
	for (long look = 0; look < 10000000 && !reads(MODULE "initstate", "going"); look++)
		;
	kill(pid, SIGKILL);
	CHECK(!access(DRIVER, F_OK), "killed after the device was removed");
	for (int wait = 0; wait < 100 && !access(DRIVER, F_OK); wait++)
		usleep(100000);
	CHECK(access(DRIVER, F_OK), "the device is not removed");
	/* it looks twice meanwhile */
	usleep(2500000);
	CHECK(waitpid(pid, &status, WNOHANG) == 0, "the module went with pages in VRAM: %#x", status);
	munmap(p, n * PAGE);
	for (int wait = 0; status == -1 && wait < 100 && !waitpid(pid, &status, WNOHANG); wait++)
		usleep(100000);
	CHECK(status == SIGKILL, "unloading: %#x", status);
	CHECK(access(MODULE, F_OK), "the module is still there");
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "unbind", test_unbind },
	{ "reset", test_reset },
	{ "unplug", test_unplug },
	{ "lazyfree", test_lazyfree },
	{ "batches", test_batches },
	{ "cow", test_cow },
	{ "tight", test_tight },
	{ "starve", test_starve },
	{ "copyerr", test_copyerr },
	{ "silent", test_silent },
	{ "unload", test_unload },
};

int main(int argc, char **argv)
{
	if (argc != 3) {
		printf("usage: driver_life KERNELS.elf TEST\n");
		return 2;
	}
	need(hmmgpu_kernel_load_file(argv[1], &kernels), "kernels");
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if (strcmp(tests[i].name, argv[2]))
			continue;
		start_gpu();
		tests[i].run();
		stop_gpu();
		if (!failures)
			printf("%s passed\n", argv[2]);
		return failures != 0;
	}
	printf("no such test: %s\n", argv[2]);
	return 2;
}
