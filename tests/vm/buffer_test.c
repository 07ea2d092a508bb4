// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory that lives in VRAM (hmmgpu_malloc()): buffer_test TEST [SECONDS]
 *
 *   calls    what works, what is refused, what a CPU and a GPU may do with it
 *   full     VRAM is full of buffers, and of buffers and pages that migrated
 *   threads  made, used and freed by several threads while pages migrate and are evicted
 *   late     freed while a job uses it
 *   leave    ends without freeing, a job running in it
 *   hold     the same, and waits to be killed
 *   reset    a function-level reset with buffers: they keep what is in them
 *   unbind   the driver is unbound with buffers and a job in them
 *
 * A job that has to end is waited for so many SECONDS (60).
 *
 * Prints what failed, or "TEST passed" ("holding").  Exit status 0 or 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accesses.h"
#include "check.h"
#include "drm_core.h"
#include "hmm_gpu_hw.h"
#include "hmmgpu.h"

#define PAGE		4096ull
#define MIB		(1ull << 20)
#define PCI_NAME	"0000:01:00.0"

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;
static int64_t patience_ns = 60000000000;

static uint64_t sym(const char *name)
{
	uint64_t addr;

	CHECK(hmmgpu_kernel_symbol(kernels, name, &addr) == 0);
	return addr;
}

static uint64_t attr(enum hmmgpu_attr a)
{
	uint64_t value;

	CHECK(hmmgpu_get_attr(gpu, a, &value) == 0);
	return value;
}

/* Word 0 of each page: written with value + page, or all of them added up. */
static int touch(struct hmmgpu_ctx *c, void *at, uint64_t pages, int write, uint64_t value,
		 uint64_t *sum, struct hmmgpu_result *r)
{
	struct touch_args a = {
		.base = (uintptr_t)at, .npages = pages, .write = write, .value = value,
		.sum = (uintptr_t)sum,
	};
	struct hmmgpu_launch l = { .entry = sym("touch"), .grid = 2, .block = 64 };

	if (sum)
		*sum = 0;
	return hmmgpu_run_args(c, &l, &a, sizeof(a), r);
}

static uint64_t sum_of(uint64_t pages, uint64_t value)
{
	return pages * value + pages * (pages - 1) / 2;
}

/* A job that adds to a word for ever. */
static void spin(struct hmmgpu_ctx *c, uint64_t *word, uint64_t *job)
{
	struct spin_args a = { .word = (uintptr_t)word };
	struct hmmgpu_launch l = { .entry = sym("spin"), .grid = 1, .block = 32 };

	CHECK(hmmgpu_launch_args(c, &l, &a, sizeof(a), job) == 0);
}

static void wait_for_spin(struct hmmgpu_ctx *c, void *word)
{
	uint64_t n;

	do
		CHECK(hmmgpu_memcpy(c, &n, word, 8, NULL) == 0);
	while (!n);
}

static int all_are(const uint8_t *p, uint64_t n, uint8_t byte)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i] != byte)
			return 0;
	return 1;
}

static void contents(void)
{
	static const uint64_t sizes[] = { 1, 8, 4095, 4096, 4097, 2 * MIB - 4096, 2 * MIB,
					  2 * MIB + 1, 5 * MIB + 12345 };
	uint8_t *here = malloc(8 * MIB), *back = malloc(8 * MIB);
	void *p[9], *again;

	for (unsigned i = 0; i < 8 * MIB; i++)
		here[i] = i * 31 + i / 4096;
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < 9; i++) {
			CHECK(hmmgpu_malloc(gpu, &p[i], sizes[i]) == 0);
			CHECK((uintptr_t)p[i] % (2 * MIB) == 0 && (uintptr_t)p[i] >> 47 == 1);
			for (unsigned j = 0; j < i; j++)
				CHECK((uintptr_t)p[j] + sizes[j] <= (uintptr_t)p[i] ||
				      (uintptr_t)p[i] + sizes[i] <= (uintptr_t)p[j]);
			/* nothing of who had the memory before */
			CHECK(hmmgpu_memcpy(ctx, back, p[i], sizes[i], NULL) == 0);
			CHECK(all_are(back, sizes[i], 0));
			CHECK(hmmgpu_memset(ctx, p[i], 0xa5, sizes[i], NULL) == 0);
		}
		for (unsigned i = 0; i < 9; i++) {
			CHECK(hmmgpu_memcpy(ctx, back, p[i], sizes[i], NULL) == 0);
			CHECK(all_are(back, sizes[i], 0xa5));
			CHECK(hmmgpu_memcpy(ctx, p[i], here + i, sizes[i], NULL) == 0);
		}
		for (unsigned i = 0; i < 9; i++) {
			CHECK(hmmgpu_memcpy(ctx, back, p[i], sizes[i], NULL) == 0);
			CHECK(memcmp(back, here + i, sizes[i]) == 0);
		}
		/* from one to the other, and inside of one */
		CHECK(hmmgpu_memcpy(ctx, (char *)p[8] + 99, p[7], 2 * MIB, NULL) == 0);
		CHECK(hmmgpu_memcpy(ctx, (char *)p[8] + 3 * MIB, (char *)p[8] + 99, MIB, NULL) == 0);
		CHECK(hmmgpu_memcpy(ctx, back, (char *)p[8] + 3 * MIB, MIB, NULL) == 0);
		CHECK(memcmp(back, here + 7, MIB) == 0);
		for (unsigned i = 0; i < 9; i++)
			CHECK(hmmgpu_free(gpu, p[(i * 5) % 9]) == 0);
	}
	CHECK(hmmgpu_malloc(gpu, &again, 8 * MIB) == 0);
	CHECK(hmmgpu_memcpy(ctx, back, again, 8 * MIB, NULL) == 0 && all_are(back, 8 * MIB, 0));
	CHECK(hmmgpu_free(gpu, again) == 0);
	free(back);
	free(here);
}

static void kernels_use_it(void)
{
	struct hmmgpu_usage before, with;
	uint64_t sum, pages = 3 * MIB / PAGE;
	struct hmmgpu_result r;
	void *p, *row[4];

	CHECK(hmmgpu_usage(gpu, &before) == 0);
	CHECK(hmmgpu_malloc(gpu, &p, 3 * MIB) == 0);
	CHECK(hmmgpu_usage(gpu, &with) == 0 && with.vram_bytes == before.vram_bytes + 3 * MIB);
	CHECK(touch(ctx, p, pages, 1, 1000, NULL, NULL) == 0);
	CHECK(touch(ctx, p, pages, 0, 0, &sum, NULL) == 0 && sum == sum_of(pages, 1000));
	/* sums may be there, too: atomics */
	CHECK(touch(ctx, p, pages, 0, 0, NULL, NULL) == 0);
	/* the page behind it is nobody's, before it neither */
	CHECK(touch(ctx, p, pages + 1, 1, 0, NULL, &r) == -EFAULT);
	CHECK(r.status == HG_ERR_FAULT && r.addr == (uintptr_t)p + 3 * MIB);
	CHECK(touch(ctx, (char *)p - 8, 1, 1, 0, NULL, &r) == -EFAULT && r.addr == (uintptr_t)p - 8);
	CHECK(hmmgpu_memset(ctx, (char *)p + 3 * MIB - 8, 1, 16, &r) == -EFAULT);
	CHECK(hmmgpu_free(gpu, p) == 0);
	CHECK(touch(ctx, p, 1, 0, 0, &sum, &r) == -EFAULT && r.addr == (uintptr_t)p);
	CHECK(hmmgpu_usage(gpu, &with) == 0 && with.vram_bytes == before.vram_bytes);
	/* not even if others were made before and after */
	for (unsigned i = 0; i < 4; i++)
		CHECK(hmmgpu_malloc(gpu, &row[i], 2 * MIB) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(touch(ctx, (char *)row[i] + 2 * MIB, 1, 1, 0, NULL, &r) == -EFAULT);
	for (unsigned i = 0; i < 4; i++)
		CHECK(hmmgpu_free(gpu, row[i]) == 0);
}

static void refused(void)
{
	struct drm_hmm_gpu_bo_create c = { .size = PAGE, .flags = 1 };
	struct core_gem_close close_it = { .handle = 12345 };
	struct hmmgpu_residency residency;
	void *p = (void *)1, *mine = malloc(100);
	uint64_t n;

	CHECK(hmmgpu_malloc(gpu, &p, 0) == -EINVAL);
	CHECK(hmmgpu_malloc(gpu, &p, UINT64_MAX) == -ENOSPC);
	CHECK(hmmgpu_malloc(gpu, &p, UINT64_MAX - 4095) == -ENOSPC);
	CHECK(hmmgpu_malloc(gpu, &p, attr(HMMGPU_ATTR_VRAM_BYTES) + 1) == -ENOSPC);
	CHECK(p == (void *)1);
	CHECK(ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_BO_CREATE, &c) < 0 && errno == EINVAL);
	CHECK(ioctl(hmmgpu_fd(gpu), CORE_IOCTL_GEM_CLOSE, &close_it) < 0 && errno == EINVAL);
	CHECK(hmmgpu_free(gpu, NULL) == 0);
	CHECK(hmmgpu_free(gpu, mine) == -EINVAL);
	CHECK(hmmgpu_malloc(gpu, &p, 100) == 0);
	CHECK(hmmgpu_free(gpu, (char *)p + 1) == -EINVAL);
	/* it is no memory of the process */
	CHECK(hmmgpu_migrate(gpu, p, PAGE, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL) == -EINVAL);
	CHECK(hmmgpu_residency(gpu, p, PAGE, &residency) == -EINVAL);
	CHECK(write(open("/dev/null", O_WRONLY), p, 100) == 100 || errno == EFAULT);
	CHECK(read(open("/dev/zero", O_RDONLY), p, 100) < 0 && errno == EFAULT);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, hmmgpu_fd(gpu), 0) == MAP_FAILED);
	/* DRM_IOCTL_PRIME_HANDLE_TO_FD */
	{
		struct { uint32_t handle, flags; int32_t fd; } prime = { .handle = 1, .fd = -1 };

		CHECK(ioctl(hmmgpu_fd(gpu), _IOWR('d', 0x2d, typeof(prime)), &prime) < 0);
	}
	CHECK(hmmgpu_free(gpu, p) == 0);
	CHECK(hmmgpu_free(gpu, p) == -EINVAL);
	/* a write that means all addresses of the process means none of these */
	CHECK(hmmgpu_malloc(gpu, &p, 100) == 0);
	n = open("/proc/self/clear_refs", O_WRONLY);
	for (const char *what = "12345"; *what; what++)
		if (write(n, what, 1) < 0)
			CHECK(errno == EINVAL);
	CHECK(hmmgpu_memset(ctx, p, 1, 100, NULL) == 0);
	CHECK(hmmgpu_free(gpu, p) == 0);
	free(mine);
}

static void cpu_and_child(void)
{
	uint64_t value = 77, got = 0;
	int status;
	void *p;

	CHECK(hmmgpu_malloc(gpu, &p, PAGE) == 0);
	CHECK(hmmgpu_memcpy(ctx, p, &value, 8, NULL) == 0);
	for (int write = 0; write < 2; write++) {
		pid_t pid = fork();

		if (pid == 0) {
			if (write)
				*(volatile uint64_t *)p = 1;
			else
				(void)*(volatile uint64_t *)p;
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	if (fork() == 0) {
		void *q;
		struct hmmgpu_result r;

		if (hmmgpu_malloc(gpu, &q, PAGE) != -EPERM || hmmgpu_free(gpu, p) != -EPERM)
			_exit(1);
		hmmgpu_ctx_destroy(ctx);
		hmmgpu_close(gpu);
		if (hmmgpu_open(&gpu, NULL) || hmmgpu_ctx_create(gpu, 0, &ctx))
			_exit(2);
		/* its own, at the same address, and not the parent's */
		if (touch(ctx, p, 1, 1, 5, NULL, &r) != -EFAULT || hmmgpu_free(gpu, p) != -EINVAL)
			_exit(3);
		if (hmmgpu_malloc(gpu, &q, PAGE) || touch(ctx, q, 1, 1, 5, NULL, NULL))
			_exit(4);
		_exit(0);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(hmmgpu_memcpy(ctx, &got, p, 8, NULL) == 0 && got == 77);
	CHECK(hmmgpu_free(gpu, p) == 0);
}

static void calls(void)
{
	contents();
	kernels_use_it();
	refused();
	cpu_and_child();
}

/* VRAM in pieces of half of what the GPU can map at once: a buffer of several is none in one. */
static void halves(void)
{
	uint64_t n = attr(HMMGPU_ATTR_VRAM_BYTES) / MIB, pages = MIB / PAGE, sum;
	void **p = calloc(n, sizeof(*p)), *big;

	for (uint64_t i = 0; i < n; i++) {
		CHECK(hmmgpu_malloc(gpu, &p[i], MIB) == 0);
		CHECK(touch(ctx, p[i], pages, 1, i, NULL, NULL) == 0);
	}
	for (unsigned odd = 0; odd < 2; odd++) {
		for (uint64_t i = odd; i < n; i += 2)
			CHECK(hmmgpu_free(gpu, p[i]) == 0);
		CHECK(hmmgpu_malloc(gpu, &big, n / 2 * MIB) == 0);
		CHECK(touch(ctx, big, n / 2 * pages, 1, 7777, NULL, NULL) == 0);
		for (uint64_t i = !odd; i < n; i += 2) {
			CHECK(touch(ctx, p[i], pages, 0, 0, &sum, NULL) == 0);
			CHECK(sum == sum_of(pages, i));
		}
		CHECK(touch(ctx, big, n / 2 * pages, 0, 0, &sum, NULL) == 0);
		CHECK(sum == sum_of(n / 2 * pages, 7777));
		CHECK(hmmgpu_free(gpu, big) == 0);
		for (uint64_t i = odd; i < n; i += 2) {
			CHECK(hmmgpu_malloc(gpu, &p[i], MIB) == 0);
			CHECK(touch(ctx, p[i], pages, 1, i, NULL, NULL) == 0);
		}
	}
	for (uint64_t i = 0; i < n; i++)
		CHECK(hmmgpu_free(gpu, p[i]) == 0);
	free(p);
}

static void full(void)
{
	uint64_t all = attr(HMMGPU_ATTR_VRAM_BYTES), pages = 16 * MIB / PAGE, moved, failed, sum;
	uint64_t *mem = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	void *p[4096], *whole;
	struct hmmgpu_residency r;
	unsigned n = 0;

	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) == all);
	halves();
	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) == all);
	CHECK(madvise(mem, 16 * MIB, MADV_NOHUGEPAGE) == 0);
	for (uint64_t i = 0; i < pages; i++)
		mem[i * 512] = i;
	CHECK(hmmgpu_migrate(gpu, mem, 16 * MIB, HMM_GPU_MIGRATE_DEVICE, &moved, &failed) == 0);
	CHECK(moved == pages && failed == 0);
	/* all there is, at once: what migrated makes room */
	CHECK(hmmgpu_malloc(gpu, &whole, all) == 0);
	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) == 0);
	CHECK(hmmgpu_residency(gpu, mem, 16 * MIB, &r) == 0 && r.system == pages);
	for (uint64_t i = 0; i < pages; i++)
		CHECK(mem[i * 512] == i);
	CHECK(hmmgpu_malloc(gpu, &p[0], 1) == -ENOSPC);
	/* nothing moves there, and all goes on where it is */
	CHECK(hmmgpu_set_policy(gpu, HMM_GPU_POLICY_MIGRATE) == 0);
	CHECK(hmmgpu_migrate(gpu, mem, 16 * MIB, HMM_GPU_MIGRATE_DEVICE, &moved, &failed) == 0);
	CHECK(moved == 0 && failed == pages);
	CHECK(touch(ctx, mem, pages, 0, 0, &sum, NULL) == 0 && sum == sum_of(pages, 0));
	CHECK(touch(ctx, whole, all / PAGE, 1, 3, NULL, NULL) == 0);
	CHECK(touch(ctx, whole, all / PAGE, 0, 0, &sum, NULL) == 0 && sum == sum_of(all / PAGE, 3));
	CHECK(hmmgpu_free(gpu, whole) == 0);
	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) == all);

	/* in odd pieces until nothing is left, with pages beside */
	CHECK(hmmgpu_migrate(gpu, mem, 16 * MIB, HMM_GPU_MIGRATE_DEVICE, &moved, &failed) == 0);
	for (n = 0; n < 4096; n++) {
		int ret = hmmgpu_malloc(gpu, &p[n], (n * 77777) % (3 * MIB) + 1);

		if (ret == 0)
			ret = hmmgpu_memset(ctx, p[n], (int)n, 1 + (n * 77777) % (3 * MIB), NULL);
		else
			CHECK(ret == -ENOSPC);
		if (ret)
			break;
	}
	CHECK(n > 10 && n < 4096);
	while (hmmgpu_malloc(gpu, &p[n], PAGE) == 0)
		CHECK(++n < 4096);
	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) == 0);
	CHECK(hmmgpu_residency(gpu, mem, 16 * MIB, &r) == 0 && r.vram == 0);
	for (uint64_t i = 0; i < pages; i++)
		CHECK(mem[i * 512] == i);
	for (unsigned i = 0; i < n; i += 2)
		CHECK(hmmgpu_free(gpu, p[i]) == 0);
	/* holes take pages, and a buffer takes them back */
	CHECK(hmmgpu_migrate(gpu, mem, 16 * MIB, HMM_GPU_MIGRATE_DEVICE, &moved, &failed) == 0);
	CHECK(moved > 0 && touch(ctx, mem, pages, 0, 0, &sum, NULL) == 0 && sum == sum_of(pages, 0));
	for (unsigned i = 1; i < n; i += 2) {
		uint8_t byte = 1;

		CHECK(hmmgpu_memcpy(ctx, &byte, p[i], 1, NULL) == 0 && (byte == (uint8_t)i || !byte));
	}
	CHECK(hmmgpu_malloc(gpu, &whole, attr(HMMGPU_ATTR_VRAM_FREE_BYTES) + moved * PAGE / 2) == 0);
	CHECK(touch(ctx, mem, pages, 0, 0, &sum, NULL) == 0 && sum == sum_of(pages, 0));
	/* the rest goes with the file */
	munmap(mem, 16 * MIB);
}

static volatile int stop;

static void *make_and_free(void *seed)
{
	unsigned s = (unsigned)(uintptr_t)seed;
	uint8_t *buf = malloc(3 * MIB);
	struct hmmgpu_ctx *c;

	CHECK(hmmgpu_ctx_create(gpu, 0, &c) == 0);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t size = rand_r(&s) % (3 * MIB) + 1, pages = size / PAGE, sum;
		void *p;
		int ret = hmmgpu_malloc(gpu, &p, size);

		if (ret == -ENOSPC)
			continue;
		CHECK(ret == 0);
		CHECK(hmmgpu_memcpy(c, buf, p, size, NULL) == 0 && all_are(buf, size, 0));
		if (pages) {
			CHECK(touch(c, p, pages, 1, i, NULL, NULL) == 0);
			CHECK(touch(c, p, pages, 0, 0, &sum, NULL) == 0 && sum == sum_of(pages, i));
		}
		CHECK(hmmgpu_memset(c, p, 0xff, size, NULL) == 0);
		CHECK(hmmgpu_free(gpu, p) == 0);
	}
	hmmgpu_ctx_destroy(c);
	free(buf);
	return NULL;
}

static void *move_pages(void *unused)
{
	uint64_t pages = 24 * MIB / PAGE;
	uint64_t *mem = mmap(NULL, 24 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);

	for (uint64_t i = 0; i < pages; i++)
		mem[i * 512] = i + 9;
	while (!stop) {
		CHECK(hmmgpu_migrate(gpu, mem, 24 * MIB, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == 0);
		for (uint64_t i = 0; i < pages; i++)
			CHECK(mem[i * 512] == i + 9);
	}
	munmap(mem, 24 * MIB);
	return unused;
}

static void threads(void)
{
	pthread_t t[3], mover;

	CHECK(pthread_create(&mover, NULL, move_pages, NULL) == 0);
	for (uintptr_t i = 0; i < 3; i++)
		CHECK(pthread_create(&t[i], NULL, make_and_free, (void *)(i + 1)) == 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	stop = 1;
	CHECK(pthread_join(mover, NULL) == 0);
	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) == attr(HMMGPU_ATTR_VRAM_BYTES));
}

/* The memory is another's at once: what the job still wanted to do must not be done there. */
static void late(void)
{
	uint8_t *back = malloc(MIB);
	struct hmmgpu_ctx *c;
	struct hmmgpu_result r;
	uint64_t job;
	void *p, *q;

	CHECK(hmmgpu_ctx_create(gpu, 0, &c) == 0);
	for (unsigned i = 0; i < 20; i++) {
		CHECK(hmmgpu_malloc(gpu, &p, MIB) == 0);
		spin(c, p, &job);
		wait_for_spin(ctx, p);
		CHECK(hmmgpu_free(gpu, p) == 0);
		/* it must not go on for ever */
		CHECK(hmmgpu_wait(c, job, patience_ns, &r) == 0);
		CHECK(r.error == -EFAULT && r.addr == (uintptr_t)p);
		CHECK(hmmgpu_malloc(gpu, &q, MIB) == 0);
		CHECK(hmmgpu_memcpy(ctx, back, q, MIB, NULL) == 0 && all_are(back, MIB, 0));
		CHECK(hmmgpu_free(gpu, q) == 0);
	}
	hmmgpu_ctx_destroy(c);
	free(back);
}

static void stay(void)
{
	void *p[8];
	uint64_t job;

	for (unsigned i = 0; i < 8; i++)
		CHECK(hmmgpu_malloc(gpu, &p[i], i * MIB + 1) == 0);
	spin(ctx, (uint64_t *)((char *)p[7] + 3 * MIB), &job);
	{
		struct hmmgpu_ctx *c;

		CHECK(hmmgpu_ctx_create(gpu, 0, &c) == 0);
		wait_for_spin(c, (char *)p[7] + 3 * MIB);
	}
}

static void leave(void)
{
	stay();
	printf("leave passed\n");
	fflush(stdout);
	_exit(0);
}

static void hold(void)
{
	stay();
	printf("holding\n");
	fflush(stdout);
	for (;;)
		pause();
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void reset(void)
{
	uint64_t pages = 5 * MIB / PAGE, sum, job;
	struct hmmgpu_result r;
	void *p, *q;

	CHECK(hmmgpu_malloc(gpu, &p, 5 * MIB) == 0 && hmmgpu_malloc(gpu, &q, PAGE) == 0);
	CHECK(touch(ctx, p, pages, 1, 42, NULL, NULL) == 0);
	for (unsigned i = 0; i < 3; i++) {
		spin(ctx, q, &job);
		write_text("/sys/bus/pci/devices/" PCI_NAME "/reset", "1");
		CHECK(hmmgpu_wait(ctx, job, -1, &r) == 0 && r.error == -EIO);
		hmmgpu_ctx_destroy(ctx);
		CHECK(hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
		CHECK(touch(ctx, p, pages, 0, 0, &sum, NULL) == 0 && sum == sum_of(pages, 42));
	}
	CHECK(hmmgpu_free(gpu, p) == 0);
	CHECK(hmmgpu_malloc(gpu, &p, 5 * MIB) == 0);
	CHECK(touch(ctx, p, pages, 0, 0, &sum, NULL) == 0 && sum == 0);
}

/* Pages in VRAM over a reset that takes its content away. */
static void lost(void)
{
	uint8_t *mem = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint64_t moved;

	for (unsigned i = 0; i < 3; i++) {
		memset(mem, i + 1, 4 * MIB);
		CHECK(hmmgpu_migrate(gpu, mem, 4 * MIB, HMM_GPU_MIGRATE_DEVICE, &moved, NULL) == 0);
		CHECK(moved);
		write_text("/sys/bus/pci/devices/" PCI_NAME "/reset", "1");
		CHECK(all_are(mem, 4 * MIB, i + 1));
	}
}

static void unbind(void)
{
	uint64_t *mem = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	struct hmmgpu_result r;
	struct hmmgpu *old;
	uint64_t job;
	void *p, *q;

	for (unsigned i = 0; i < 5; i++) {
		CHECK(hmmgpu_malloc(gpu, &p, 3 * MIB) == 0 && hmmgpu_malloc(gpu, &q, PAGE) == 0);
		memset(mem, i + 1, 4 * MIB);
		CHECK(hmmgpu_migrate(gpu, mem, 4 * MIB, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == 0);
		spin(ctx, p, &job);
		write_text("/sys/bus/pci/drivers/hmm_gpu/unbind", PCI_NAME);
		CHECK(all_are((uint8_t *)mem, 4 * MIB, i + 1));
		CHECK(hmmgpu_wait(ctx, job, -1, &r) == -ENODEV);
		CHECK(hmmgpu_free(gpu, p) == -ENODEV && hmmgpu_malloc(gpu, &p, 1) == -ENODEV);
		old = gpu;
		hmmgpu_ctx_destroy(ctx);
		write_text("/sys/bus/pci/drivers/hmm_gpu/bind", PCI_NAME);
		CHECK(hmmgpu_open(&gpu, NULL) == 0 && hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
		/* the old file's buffers are no one's: all of VRAM is there */
		CHECK(hmmgpu_malloc(gpu, &p, attr(HMMGPU_ATTR_VRAM_BYTES)) == 0);
		hmmgpu_close(old);
		CHECK(touch(ctx, p, 10, 1, 0, NULL, NULL) == 0);
		CHECK(hmmgpu_free(gpu, p) == 0);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "calls", calls }, { "full", full }, { "threads", threads }, { "late", late },
		{ "leave", leave }, { "hold", hold }, { "reset", reset }, { "unbind", unbind },
		{ "lost", lost },
	};

	setvbuf(stdout, NULL, _IONBF, 0);
	CHECK(argc == 2 || argc == 3);
	if (argc == 3)
		patience_ns = atoi(argv[2]) * 1000000000ll;
	CHECK(hmmgpu_open(&gpu, NULL) == 0 && hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
	CHECK(hmmgpu_kernel_load_builtin(&kernels) == 0);
	for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (strcmp(argv[1], tests[i].name) != 0)
			continue;
		tests[i].run();
		hmmgpu_ctx_destroy(ctx);
		hmmgpu_close(gpu);
		printf("%s passed\n", argv[1]);
		return 0;
	}
	printf("no test %s\n", argv[1]);
	return 1;
}
