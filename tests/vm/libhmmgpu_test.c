// SPDX-License-Identifier: GPL-2.0-or-later
/* Tests of libhmmgpu on the device: libhmmgpu_test KERNELS.elf; prints "all passed", or what failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accesses.h"
#include "check.h"
#include "hmm_gpu_hw.h"
#include "hmmgpu.h"

struct args {
	uint64_t *in;
	uint64_t *out;
	uint64_t n;
};

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;

static uint64_t sym(const char *name)
{
	uint64_t addr;

	CHECK(hmmgpu_kernel_symbol(kernels, name, &addr) == 0);
	return addr;
}

static void ids(void)
{
	uint64_t *out = calloc(5 * 96 * 4, 8);	/* malloc'ed memory is as good as any */
	struct args a = { .out = out };
	struct hmmgpu_launch l = {
		.entry = sym("ids"), .args = (uintptr_t)&a, .grid = 5, .block = 96,
	};
	struct hmmgpu_result r;

	CHECK(hmmgpu_run(ctx, &l, &r) == 0);
	CHECK(r.error == 0 && r.status == HG_ERR_NONE && r.instrs > 5 * 96);
	for (unsigned i = 0; i < 5 * 96; i++) {
		CHECK(out[i * 4] == i % 96 && out[i * 4 + 1] == i / 96);
		CHECK(out[i * 4 + 2] == (96 << 16 | 5) && out[i * 4 + 3] == 1);
	}
	free(out);
}

static void barrier(void)
{
	uint64_t in[4 * 128], out[4];
	struct args a = { in, out, 0 };
	struct hmmgpu_launch l = {
		.entry = sym("tree"), .args = (uintptr_t)&a, .grid = 4, .block = 128,
	};

	for (unsigned i = 0; i < 4 * 128; i++)
		in[i] = i;
	CHECK(hmmgpu_run(ctx, &l, NULL) == 0);
	for (uint64_t b = 0; b < 4; b++)
		CHECK(out[b] == b * 128 * 128 + 127 * 64);
}

static void stacks(void)
{
	static const uint64_t fib[12] = { 0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89 };
	uint64_t out[32 * 24] = { 0 };
	struct args a = { .out = out };
	struct hmmgpu_launch l = {
		.entry = sym("stack"), .args = (uintptr_t)&a, .grid = 12, .block = 64,
	};

	/* First small, then large: a new mapping while the old one exists. */
	for (unsigned round = 0; round < 2; round++) {
		l.local_size = round ? 40000 : 0;
		memset(out, 0, sizeof(out));
		CHECK(hmmgpu_run(ctx, &l, NULL) == 0);
		for (unsigned i = 0; i < 32 * 24; i++)
			CHECK(out[i] == fib[i % 12]);
	}
}

static void blocks(void)
{
	uint64_t in[3 * 96], out[3 * 96 * 3];
	struct args a = { in, out, 0 };
	struct hmmgpu_launch l = {
		.entry = sym("block"), .args = (uintptr_t)&a, .grid = 3, .block = 96,
		.shared_size = 96 * sizeof(double),
	};
	struct hmmgpu_result r;

	for (unsigned i = 0; i < 3 * 96; i++)
		in[i] = i * i * 7 + i % 5;
	CHECK(hmmgpu_run(ctx, &l, NULL) == 0);
	for (unsigned i = 0; i < 3 * 96; i++) {
		unsigned other = i / 96 * 96 + 95 - i % 96;
		uint32_t votes = 0;

		for (unsigned k = 0; k < 32; k++)
			votes |= (uint32_t)(in[i / 32 * 32 + k] % 3 == 0) << k;
		CHECK(out[3 * i] == (i ^ 1) && out[3 * i + 1] == votes);
		CHECK(out[3 * i + 2] == (uint64_t)((double)in[other] / 3 * 1000));
	}
	l.shared_size -= 8;	/* the last thread's word is not there */
	CHECK(hmmgpu_run(ctx, &l, &r) == -EFAULT && r.status == HG_ERR_FAULT);
	CHECK(r.thread == 95 && r.addr == HG_SHARED_BASE + 95 * 8);
}

static void kernel_data(void)
{
	struct hmmgpu_launch l = { .entry = sym("data"), .grid = 1, .block = 64 };
	uint64_t *counter = (uint64_t *)sym("counter"), addr;

	CHECK(*counter == 0);
	CHECK(hmmgpu_run(ctx, &l, NULL) == 0);
	CHECK(*counter == 32 * (3 + 2) + 32 * (7 + 2));
	CHECK(hmmgpu_kernel_symbol(kernels, "no such thing", &addr) == -ENOENT);
}

static void job_errors(void)
{
	struct args a = { .in = (uint64_t *)0x10, .out = (uint64_t *)0x10 };
	struct hmmgpu_launch l = {
		.entry = sym("chain"), .args = (uintptr_t)&a, .grid = 1, .block = 1,
	};
	struct hmmgpu_result r;
	char text[200];

	CHECK(hmmgpu_run(ctx, &l, &r) == -EFAULT);
	CHECK(r.status == HG_ERR_FAULT && (r.addr & ~0xfffull) == 0 && r.pc >= l.entry);
	CHECK(strstr(hmmgpu_result_text(&r, text, sizeof(text)), "access fault at 0x"));
	l.entry = sym("illegal");
	CHECK(hmmgpu_run(ctx, &l, &r) == -EILSEQ && r.status == HG_ERR_ILLEGAL);
	CHECK(r.addr == 0xffffffff);
	CHECK(strstr(hmmgpu_result_text(&r, text, sizeof(text)), "illegal instruction"));
	hmmgpu_result_report(&r, kernels, text, sizeof(text));
	CHECK(strstr(text, "illegal instruction") && strstr(text, ", in illegal+0x") &&
	      strstr(text, "libhmmgpu_kernels.c:"));
	l.entry = sym("forever");
	l.budget = 1000;
	CHECK(hmmgpu_run(ctx, &l, &r) == -ETIME && r.status == HG_ERR_BUDGET);
	/* Calls that are wrong by themselves. */
	l.grid = 0;
	CHECK(hmmgpu_run(ctx, &l, &r) == -EINVAL);
	l.grid = 1;
	l.block = HG_MAX_BLOCK + 1;
	CHECK(hmmgpu_run(ctx, &l, &r) == -EINVAL);
	l.block = 1;
	l.shared_size = HG_SHARED_MAX + 1;
	CHECK(hmmgpu_run(ctx, &l, &r) == -EINVAL);
	/* The context works on. */
	ids();
}

static void wait_and_poll(void)
{
	struct hmmgpu_launch l = { .entry = sym("forever"), .grid = 1, .block = 1 };
	struct hmmgpu_ctx *other;
	struct hmmgpu_result r;
	uint64_t job;

	CHECK(hmmgpu_ctx_create(gpu, 100, &other) == 0);
	CHECK(hmmgpu_launch(other, &l, &job) == 0);
	CHECK(job == 1);
	CHECK(hmmgpu_wait(other, job, 0, &r) == -ETIME);
	CHECK(hmmgpu_wait(other, job, 20000000, &r) == -ETIME);
	/* Another context is not held up by it. */
	ids();
	hmmgpu_ctx_destroy(other);
	CHECK(hmmgpu_ctx_create(gpu, 0, &other) == 0);
	l.entry = sym("data");
	CHECK(hmmgpu_launch(other, &l, &job) == 0);
	CHECK(hmmgpu_wait(other, job, -1, &r) == 0 && r.error == 0);
	CHECK(hmmgpu_wait(other, job, 0, NULL) == 0);
	hmmgpu_ctx_destroy(other);
}

/* A chain of jobs over two contexts, ordered by fences alone. */
static void fences(void)
{
	uint64_t cell[17] = { 100 };
	struct args a[16];
	uint32_t obj[17];
	struct hmmgpu_ctx *two[2];

	for (unsigned i = 0; i < 17; i++)
		CHECK(hmmgpu_syncobj_create(gpu, 0, &obj[i]) == 0);
	for (unsigned i = 0; i < 2; i++)
		CHECK(hmmgpu_ctx_create(gpu, 0, &two[i]) == 0);
	for (unsigned i = 0; i < 16; i++) {
		struct hmmgpu_launch l = {
			.entry = sym("chain"), .args = (uintptr_t)&a[i], .grid = 1, .block = 1,
			.in_syncobj = i ? obj[i - 1] : 0, .out_syncobj = obj[i],
		};

		a[i] = (struct args){ &cell[i], &cell[i + 1], i % 3 ? 10 : 3000 };
		CHECK(hmmgpu_launch(two[i % 2], &l, NULL) == 0);
	}
	CHECK(hmmgpu_syncobj_wait(gpu, obj[16], 1000000) == -ETIME);
	CHECK(hmmgpu_syncobj_wait(gpu, obj[15], 20000000000) == 0);
	for (unsigned i = 0; i < 17; i++)
		CHECK(cell[i] == 100 + i);
	/* Fences order copies, too. */
	CHECK(hmmgpu_fill(two[0], cell, 7, 16 * 8, obj[15], obj[16], NULL) == 0);
	CHECK(hmmgpu_copy(two[1], &cell[16], cell, 8, obj[16], obj[0], NULL) == 0);
	CHECK(hmmgpu_syncobj_wait(gpu, obj[0], -1) == 0);
	CHECK(cell[16] == 7);
	CHECK(hmmgpu_copy(two[0], cell, cell, 8, 0x7fffffff, 0, NULL) == -ENOENT);
	for (unsigned i = 0; i < 2; i++)
		hmmgpu_ctx_destroy(two[i]);
	for (unsigned i = 0; i < 17; i++)
		CHECK(hmmgpu_syncobj_destroy(gpu, obj[i]) == 0);
	CHECK(hmmgpu_syncobj_destroy(gpu, obj[0]) < 0);
	CHECK(hmmgpu_syncobj_create(gpu, 1, &obj[0]) == 0);
	CHECK(hmmgpu_syncobj_wait(gpu, obj[0], 0) == 0);
	CHECK(hmmgpu_syncobj_destroy(gpu, obj[0]) == 0);
}

static void memory(void)
{
	uint8_t *p = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t migrated, failed, job, value;
	uint32_t bits[16];
	struct hmmgpu_result r;

	memset(p, 1, 16 * 4096);
	CHECK(hmmgpu_migrate(gpu, p, 16 * 4096, HMM_GPU_MIGRATE_DEVICE, &migrated, &failed) == 0);
	CHECK(migrated == 16 && failed == 0);
	CHECK(hmmgpu_query(gpu, p, 16, bits) == 0);
	for (unsigned i = 0; i < 16; i++)
		CHECK(bits[i] & HMM_GPU_Q_CPU_DEVICE);
	CHECK(hmmgpu_prefetch(gpu, p, 16 * 4096, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == 0);
	CHECK(hmmgpu_query(gpu, p, 16, bits) == 0);
	CHECK((bits[5] & HMM_GPU_Q_GPU_VALID) && (bits[5] & HMM_GPU_Q_GPU_VRAM));
	CHECK(hmmgpu_prefetch(gpu, p, 16 * 4096, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL) == 0);
	CHECK(hmmgpu_query(gpu, p, 16, bits) == 0);
	CHECK((bits[5] & HMM_GPU_Q_GPU_VALID) && !(bits[5] & HMM_GPU_Q_GPU_VRAM));
	CHECK(p[5 * 4096] == 1 && p[16 * 4096 - 1] == 1);
	CHECK(hmmgpu_migrate(gpu, p + 1, 4096, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == -EINVAL);
	CHECK(hmmgpu_fill(ctx, p + 4, 0, 8, 0, 0, &job) == -EINVAL ||
	      (hmmgpu_wait(ctx, job, -1, &r) == 0 && r.error));
	CHECK(hmmgpu_set_policy(gpu, 99) == -EINVAL);
	CHECK(hmmgpu_get_param(gpu, 999, &value) == -EINVAL);
	CHECK(hmmgpu_get_param(gpu, HMM_GPU_PARAM_VERSION, &value) == 0 && value == 1);
	munmap(p, 16 * 4096);
	CHECK(hmmgpu_migrate(gpu, p, 16 * 4096, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == -EFAULT);
}

static void forked(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		uint64_t migrated;

		/* The inherited handle is of no use, and giving it up does not hurt the parent. */
		if (hmmgpu_migrate(gpu, &status, 4096, 0, &migrated, NULL) == 0)
			_exit(1);
		if (hmmgpu_set_policy(gpu, HMM_GPU_POLICY_MAP) != -EPERM)
			_exit(2);
		hmmgpu_ctx_destroy(ctx);
		hmmgpu_close(gpu);
		if (hmmgpu_open(&gpu, NULL) || hmmgpu_ctx_create(gpu, 0, &ctx))
			_exit(3);
		ids();
		barrier();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ids();
}

static void *many(void *arg)
{
	uint64_t out[64] = { 0 };
	struct args a = { .out = out };
	struct hmmgpu_launch l = {
		.entry = sym("stack"), .args = (uintptr_t)&a, .grid = 2, .block = 32,
	};

	for (unsigned i = 0; i < 50; i++) {
		/* Different sizes, so that stacks grow under other threads' launches. */
		l.local_size = 2048 + 512 * ((i + (uintptr_t)arg) % 8);
		memset(out, 0, sizeof(out));
		if (hmmgpu_run(ctx, &l, NULL) || out[11] != 89)
			return (void *)1;
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[4];
	void *bad;

	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, many, (void *)i) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], &bad) == 0 && !bad);
}

static uint64_t attr(enum hmmgpu_attr a)
{
	uint64_t value = 77;

	CHECK(hmmgpu_get_attr(gpu, a, &value) == 0);
	return value;
}

static void attributes(void)
{
	uint64_t value, pages;
	unsigned n = 1;

	while (hmmgpu_get_attr(gpu, n, &value) == 0) {
		CHECK(strcmp(hmmgpu_attr_name(n), "unknown attribute") != 0);
		n++;
	}
	CHECK(n == HMMGPU_ATTR_MAX_COPY_BYTES + 1);
	CHECK(strcmp(hmmgpu_attr_name(n), "unknown attribute") == 0);
	CHECK(hmmgpu_get_attr(gpu, 0, &value) == -EINVAL);
	CHECK(attr(HMMGPU_ATTR_PAGEABLE_ACCESS) == 1 && attr(HMMGPU_ATTR_HOST_PAGE_TABLES) == 0);
	CHECK(attr(HMMGPU_ATTR_CONCURRENT_ACCESS) == 1 && attr(HMMGPU_ATTR_NATIVE_ATOMICS) == 1);
	CHECK(attr(HMMGPU_ATTR_CPU_ACCESS_TO_VRAM) == 0);
	CHECK(attr(HMMGPU_ATTR_SMS) * attr(HMMGPU_ATTR_WARPS) * attr(HMMGPU_ATTR_LANES) ==
	      attr(HMMGPU_ATTR_THREADS));
	CHECK(attr(HMMGPU_ATTR_MAX_BLOCK) <= attr(HMMGPU_ATTR_WARPS) * attr(HMMGPU_ATTR_LANES));
	CHECK(hmmgpu_get_param(gpu, HMM_GPU_PARAM_VRAM_PAGES, &pages) == 0);
	CHECK(attr(HMMGPU_ATTR_VRAM_BYTES) == pages * attr(HMMGPU_ATTR_PAGE_BYTES));
	CHECK(attr(HMMGPU_ATTR_VRAM_FREE_BYTES) <= attr(HMMGPU_ATTR_VRAM_BYTES));
	/* the limits are those of the launch */
	struct hmmgpu_launch l = { .entry = sym("data"), .grid = 1 };

	l.block = attr(HMMGPU_ATTR_MAX_BLOCK);
	CHECK(hmmgpu_run(ctx, &l, NULL) == 0);
	l.block++;
	CHECK(hmmgpu_run(ctx, &l, NULL) == -EINVAL);
}

/* A context that is held up by a GPU thread until let go. */
static struct {
	struct hmmgpu_kernel *kernel;
	struct hmmgpu_ctx *ctx;
	volatile uint32_t stop;
	struct spin_args args;
} held;

static void hold(void)
{
	struct hmmgpu_launch l = { .args = (uintptr_t)&held.args, .grid = 1, .block = 1 };

	held.stop = 0;
	held.args = (struct spin_args){ .stop = (uintptr_t)&held.stop };
	CHECK(hmmgpu_kernel_load_builtin(&held.kernel) == 0);
	CHECK(hmmgpu_kernel_symbol(held.kernel, "spin", &l.entry) == 0);
	CHECK(hmmgpu_ctx_create(gpu, 0, &held.ctx) == 0);
	CHECK(hmmgpu_launch(held.ctx, &l, NULL) == 0);
}

static void let_go(void)
{
	held.stop = 1;
	CHECK(hmmgpu_ctx_sync(held.ctx, -1) == 0);
}

static void end_hold(void)
{
	hmmgpu_ctx_destroy(held.ctx);
	hmmgpu_kernel_free(held.kernel);
}

/* More jobs under way than some chunks have room for; each its own struct. */
static void arguments(void)
{
	enum { JOBS = 60, MANY = 3000 };
	static uint64_t in[MANY], out[MANY];
	struct hmmgpu_launch l = { .entry = sym("chain"), .grid = 1, .block = 1 };
	struct { struct args a; char more[4000]; } big;

	for (unsigned i = 0; i < MANY; i++)
		in[i] = 5 * i;
	hold();
	for (unsigned i = 0; i < JOBS; i++) {
		big.a = (struct args){ &in[i], &out[i], 0 };
		CHECK(hmmgpu_launch_args(held.ctx, &l, &big, sizeof(big), NULL) == 0);
		memset(&big, 0xff, sizeof(big));	/* the copy counts */
	}
	let_go();
	for (unsigned i = 0; i < JOBS; i++)
		CHECK(out[i] == in[i] + 1);
	for (unsigned i = 0; i < MANY; i++) {		/* and chunks are used again */
		struct args a = { &in[i], &out[i], 0 };

		out[i] = 0;
		CHECK(hmmgpu_launch_args(held.ctx, &l, &a, sizeof(a), NULL) == 0);
	}
	CHECK(hmmgpu_ctx_sync(held.ctx, -1) == 0);
	for (unsigned i = 0; i < MANY; i++)
		CHECK(out[i] == in[i] + 1);
	end_hold();

	big.a = (struct args){ in, out, 0 };
	CHECK(hmmgpu_run_args(ctx, &l, &big, sizeof(big), NULL) == 0 && out[0] == in[0] + 1);
	CHECK(hmmgpu_run_args(ctx, &l, &big, 0, NULL) == -EINVAL);
	CHECK(hmmgpu_run_args(ctx, &l, &big, HMMGPU_MAX_ARGS + 1, NULL) == -EINVAL);
	big.a.out = (uint64_t *)0x10;
	CHECK(hmmgpu_run_args(ctx, &l, &big, sizeof(big), NULL) == -EFAULT);
	l.args = 16;
	CHECK(hmmgpu_run_args(ctx, &l, &big, sizeof(big), NULL) == -EINVAL);
}

/* A record whose job is still to come, given up: its time may not become another's. */
static void late_records(void)
{
	enum { N = 20 };
	struct hmmgpu_event *e[N], *gone;
	uint64_t time[N], again;
	int64_t ns;

	hold();
	for (unsigned i = 0; i < N; i++) {
		CHECK(hmmgpu_event_create(gpu, &gone) == 0 && hmmgpu_event_create(gpu, &e[i]) == 0);
		CHECK(hmmgpu_event_record(gone, held.ctx) == 0);
		hmmgpu_event_destroy(gone);
		CHECK(hmmgpu_event_record(e[i], ctx) == 0 && hmmgpu_event_sync(e[i], -1) == 0);
		CHECK(hmmgpu_event_time(e[i], &time[i]) == 0);
	}
	CHECK(hmmgpu_event_create(gpu, &gone) == 0 && hmmgpu_event_record(gone, held.ctx) == 0);
	CHECK(hmmgpu_event_elapsed(e[0], gone, &ns) == -ETIME);
	let_go();
	CHECK(hmmgpu_event_elapsed(e[0], gone, &ns) == 0 && ns >= 0);
	hmmgpu_event_destroy(gone);
	for (unsigned i = 0; i < N; i++) {
		CHECK(hmmgpu_event_time(e[i], &again) == 0 && again == time[i]);
		hmmgpu_event_destroy(e[i]);
	}
	end_hold();
}

static void events(void)
{
	struct hmmgpu_launch l = { .entry = sym("forever"), .grid = 1, .block = 1 };
	struct hmmgpu_event *e[100], *other;
	struct hmmgpu_ctx *stuck, *third;
	uint64_t time, last = 0;
	int64_t ns;

	for (unsigned i = 0; i < 100; i++)
		CHECK(hmmgpu_event_create(gpu, &e[i]) == 0);
	CHECK(hmmgpu_event_query(e[0]) == 0 && hmmgpu_event_sync(e[0], -1) == 0);
	CHECK(hmmgpu_event_time(e[0], &time) == -EINVAL);
	CHECK(hmmgpu_ctx_wait_event(ctx, e[0]) == 0);
	for (unsigned i = 0; i < 100; i++)
		CHECK(hmmgpu_event_record(e[i], ctx) == 0);
	CHECK(hmmgpu_event_elapsed(e[0], e[1], &ns) != -EINVAL);
	CHECK(hmmgpu_event_sync(e[99], -1) == 0);
	for (unsigned i = 0; i < 100; i++) {	/* all before it have happened, in order */
		CHECK(hmmgpu_event_query(e[i]) == 0);
		CHECK(hmmgpu_event_time(e[i], &time) == 0 && time >= last);
		last = time;
	}
	CHECK(hmmgpu_event_elapsed(e[0], e[99], &ns) == 0 && ns >= 0);
	CHECK(hmmgpu_event_elapsed(e[99], e[0], &ns) == 0 && ns <= 0);

	/* A point that is not reached: not by asking, waiting, or another context behind it. */
	CHECK(hmmgpu_ctx_create(gpu, 0, &stuck) == 0);
	CHECK(hmmgpu_event_create(gpu, &other) == 0);
	CHECK(hmmgpu_launch(stuck, &l, NULL) == 0);
	CHECK(hmmgpu_event_record(e[0], stuck) == 0);
	CHECK(hmmgpu_event_record(other, stuck) == 0);
	CHECK(hmmgpu_event_query(e[0]) == -ETIME && hmmgpu_event_sync(e[0], 5000000) == -ETIME);
	CHECK(hmmgpu_event_elapsed(e[0], e[1], &ns) == -ETIME);
	CHECK(hmmgpu_ctx_wait_event(ctx, e[0]) == 0);
	CHECK(hmmgpu_event_record(e[1], ctx) == 0);
	CHECK(hmmgpu_ctx_sync(ctx, 5000000) == -ETIME && hmmgpu_event_query(e[1]) == -ETIME);
	hmmgpu_event_destroy(other);		/* its job is still to come */
	/* Recorded again it stands for the new point; the old job writes where nobody looks. */
	CHECK(hmmgpu_ctx_create(gpu, 0, &third) == 0);
	CHECK(hmmgpu_event_record(e[2], stuck) == 0 && hmmgpu_event_record(e[2], third) == 0);
	CHECK(hmmgpu_event_sync(e[2], -1) == 0 && hmmgpu_event_time(e[2], &time) == 0);
	hmmgpu_ctx_destroy(stuck);
	CHECK(hmmgpu_event_sync(e[0], -1) == -ECANCELED);
	CHECK(hmmgpu_event_elapsed(e[0], e[1], &ns) == -ECANCELED);
	hmmgpu_ctx_destroy(third);
	CHECK(hmmgpu_event_sync(e[1], -1) == 0);	/* what waited for it goes on */
	for (unsigned i = 0; i < 100; i++)
		hmmgpu_event_destroy(e[i]);
	hmmgpu_event_destroy(NULL);
}

static struct hmmgpu_event *common;

static void *use_event(void *arg)
{
	uint64_t time;

	for (unsigned i = 0; i < 100; i++) {
		if (hmmgpu_event_record(common, ctx) || hmmgpu_event_sync(common, -1) ||
		    hmmgpu_event_time(common, &time) == -ECANCELED)
			return (void *)1;
	}
	return arg;
}

static void event_threads(void)
{
	pthread_t t[4];
	void *bad;

	CHECK(hmmgpu_event_create(gpu, &common) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, use_event, NULL) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], &bad) == 0 && !bad);
	hmmgpu_event_destroy(common);
}

/* Against the CPU's, with bytes around that must stay. */
static void any_bytes(void)
{
	enum { ROOM = 3 * 4096 };
	uint8_t *a = malloc(ROOM), *b = malloc(ROOM), *want = malloc(ROOM);
	struct hmmgpu_result r;
	unsigned seed = 7;

	for (unsigned i = 0; i < ROOM; i++)
		b[i] = want[i] = a[i] = i * 31 + i / 256;
	for (unsigned i = 0; i < 300; i++) {
		unsigned at = rand_r(&seed) % 4200, from = rand_r(&seed) % 4200;
		unsigned len = rand_r(&seed) % (i % 3 ? 40 : 5000);

		if (i % 2) {
			memset(want + at, i, len);
			CHECK(hmmgpu_memset(ctx, a + at, i, len, i % 4 == 1 ? &r : NULL) == 0);
		} else {
			memcpy(want + at, b + from, len);
			CHECK(hmmgpu_memcpy(ctx, a + at, b + from, len, NULL) == 0);
		}
		CHECK(memcmp(a, want, ROOM) == 0);
	}
	CHECK(hmmgpu_memcpy(ctx, a, a + 99, 100, NULL) == -EINVAL);
	CHECK(hmmgpu_memcpy(ctx, a, a + 99, 99, NULL) == 0);
	CHECK(hmmgpu_memset(ctx, (void *)-8ul, 0, 16, NULL) == -EINVAL);
	CHECK(hmmgpu_memset(ctx, (void *)0x13, 0, 2, &r) == -EFAULT && r.status == HG_ERR_FAULT);
	CHECK(hmmgpu_memcpy(ctx, a, (void *)0x13, 5000, &r) == -EFAULT && r.addr < 0x2000);
	CHECK(hmmgpu_memset(ctx, NULL, 0, 0, NULL) == 0 && hmmgpu_memcpy(ctx, a, a, 0, NULL) == 0);
	free(want);
	free(b);
	free(a);
}

static void residency(void)
{
	enum { PAGES = 1500 };
	uint8_t *p = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	struct hmmgpu_residency r;

	CHECK(madvise(p, PAGES * 4096, MADV_NOHUGEPAGE) == 0);
	CHECK(hmmgpu_residency(gpu, p, PAGES * 4096, &r) == 0);
	CHECK(r.pages == PAGES && r.none == PAGES && !r.vram && !r.system && !r.gpu_mapped);
	memset(p, 1, 1200 * 4096);
	CHECK(hmmgpu_migrate(gpu, p + 4096, 1100 * 4096, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == 0);
	CHECK(hmmgpu_residency(gpu, p, PAGES * 4096, &r) == 0);
	CHECK(r.pages == PAGES && r.vram == 1100 && r.system == 100 && r.none == 300);
	CHECK(hmmgpu_prefetch(gpu, p, 10 * 4096, HMM_GPU_MIGRATE_DEVICE, NULL, NULL) == 0);
	/* parts of pages count as pages */
	CHECK(hmmgpu_residency(gpu, p + 4095, 2, &r) == 0);
	CHECK(r.pages == 2 && r.vram == 2 && r.gpu_mapped == 2 && r.gpu_writable == 2);
	CHECK(hmmgpu_residency(gpu, p, 0, &r) == -EINVAL);
	munmap(p, PAGES * 4096);
}

static void statistics(void)
{
	struct hmmgpu_launch l = { .entry = sym("data"), .grid = 1, .block = 64 };
	uint64_t from[2] = { 1, 2 }, to[2], instrs = 0;
	struct hmmgpu_usage before, after;
	struct hmmgpu_ctx_stats s;
	struct hmmgpu_result r;
	struct hmmgpu_ctx *c;

	CHECK(hmmgpu_usage(gpu, &before) == 0);
	CHECK(hmmgpu_ctx_create(gpu, 0, &c) == 0);
	CHECK(hmmgpu_ctx_stats(c, &s) == 0 && !s.launches && !s.done && !s.instrs);
	CHECK(hmmgpu_ctx_sync(c, 0) == 0);
	for (unsigned i = 0; i < 3; i++) {
		l.entry = sym(i == 1 ? "illegal" : "data");
		CHECK(hmmgpu_run(c, &l, &r) == (i == 1 ? -EILSEQ : 0));
		instrs += r.instrs;
	}
	CHECK(hmmgpu_memcpy(c, to, from, 16, NULL) == 0 && to[1] == 2);
	for (unsigned i = 0; i < 2; i++) {	/* asking twice counts once */
		CHECK(hmmgpu_ctx_stats(c, &s) == 0);
		CHECK(s.launches == 3 && s.copies == 1 && s.copy_bytes == 16);
		CHECK(s.done == 4 && s.failed == 1 && s.unknown == 0 && s.instrs == instrs);
	}
	for (unsigned i = 0; i < 1500; i++)
		CHECK(hmmgpu_copy(c, to, from, 16, 0, 0, NULL) == 0);
	CHECK(hmmgpu_ctx_sync(c, -1) == 0);
	CHECK(hmmgpu_ctx_stats(c, &s) == 0);
	CHECK(s.done == 1504 && s.unknown == 1500 - 1024 && s.failed == 1 && s.copies == 1501);
	CHECK(hmmgpu_usage(gpu, &after) == 0);
	CHECK(after.copy_ns > before.copy_ns && after.compute_ns > before.compute_ns);
	hmmgpu_ctx_destroy(c);
}

static void opening(void)
{
	struct hmmgpu *other;
	struct hmmgpu_ctx *c[HG_NUM_CTXS + 1];
	unsigned n = 0;
	int ret;

	CHECK(hmmgpu_open(&other, "/dev/null") == -ENODEV);
	CHECK(hmmgpu_open(&other, "/nothing") == -ENOENT);
	CHECK(hmmgpu_open(&other, NULL) == 0);
	while (n <= HG_NUM_CTXS && (ret = hmmgpu_ctx_create(other, 0, &c[n])) == 0)
		n++;
	CHECK(n > 2 && n < HG_NUM_CTXS && ret == -ENOSPC);
	while (n)
		hmmgpu_ctx_destroy(c[--n]);
	hmmgpu_close(other);
	for (unsigned i = 0; i < 100; i++) {
		CHECK(hmmgpu_open(&other, NULL) == 0);
		CHECK(hmmgpu_ctx_create(other, 0, &c[0]) == 0);
		hmmgpu_ctx_destroy(c[0]);
		hmmgpu_close(other);
	}
	hmmgpu_close(NULL);
	hmmgpu_ctx_destroy(NULL);
	hmmgpu_kernel_free(NULL);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	CHECK(argc == 2);
	CHECK(hmmgpu_open(&gpu, NULL) == 0);
	CHECK(hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
	CHECK(hmmgpu_kernel_load_file(argv[1], &kernels) == 0);
	ids();
	barrier();
	stacks();
	blocks();
	kernel_data();
	job_errors();
	wait_and_poll();
	fences();
	memory();
	attributes();
	arguments();
	late_records();		/* first, while there are no other stamps to use again */
	events();
	event_threads();
	any_bytes();
	residency();
	statistics();
	forked();
	threads();
	opening();
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	hmmgpu_kernel_free(kernels);
	printf("all passed\n");
	return 0;
}
