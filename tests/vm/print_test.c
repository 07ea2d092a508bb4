// SPDX-License-Identifier: GPL-2.0-or-later
/* Tests of hmm_printf() on the device: print_test KERNELS.elf; prints "all passed", or what failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hmm_gpu_hw.h"
#include "hmm_gpu_print.h"
#include "hmmgpu.h"

struct args {
	uint64_t n;
	char *text;
	uint64_t *flag;
};

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;

static char *got;
static size_t got_len;
static uint64_t calls, lost;

static void collect(void *data, const char *text, size_t len, uint32_t block, uint32_t thread)
{
	unsigned b, t;

	CHECK(data == &got_len);
	got = realloc(got, got_len + len + 1);
	CHECK(got);
	memcpy(got + got_len, text, len);
	got[got_len + len] = 0;
	if (block == HMMGPU_PRINT_LOST) {
		uint64_t n;

		CHECK(sscanf(got + got_len, "[hmmgpu: %" SCNu64 " calls", &n) == 1);
		lost += n;
		got[got_len] = 0;
		return;
	}
	if (sscanf(got + got_len, "b%u t%u ", &b, &t) == 2)
		CHECK(b == block && t == thread);
	got_len += len;
	calls++;
}

static void forget(void)
{
	got = realloc(got, 1);
	*got = 0;
	got_len = calls = lost = 0;
}

static struct hmmgpu_launch launch_of(const char *name, uint32_t grid, uint32_t block)
{
	struct hmmgpu_launch l = { .grid = grid, .block = block };

	CHECK(hmmgpu_kernel_symbol(kernels, name, &l.entry) == 0);
	return l;
}

static int run(const char *name, uint32_t grid, uint32_t block, struct args a)
{
	struct hmmgpu_launch l = launch_of(name, grid, block);

	forget();
	return hmmgpu_run_args(ctx, &l, &a, sizeof(a), NULL);
}

static void cases(void)
{
	static char want[100000], *w = want;

#define CASE(...) w += snprintf(w, want + sizeof(want) - w, __VA_ARGS__);
#include "print_cases.h"
#undef CASE
	CHECK(run("cases", 1, 1, (struct args){ 0 }) == 0);
	for (size_t i = 0; i < got_len || want[i]; i++) {
		if (got[i] != want[i]) {
			fprintf(stderr, "got  %.60s\nwant %.60s\n", got + i, want + i);
			exit(1);
		}
	}
	CHECK(got_len == strlen(want) && lost == 0);
}

/* Every line once, whole, and a thread's in order. */
static void check_threads(unsigned blocks, unsigned block, unsigned n)
{
	unsigned *next = calloc(blocks * block, sizeof(*next));
	char *save, *line = strtok_r(got, "\n", &save);
	unsigned long i;
	unsigned b, t;

	for (; line; line = strtok_r(NULL, "\n", &save)) {
		CHECK(sscanf(line, "b%u t%u %lu", &b, &t, &i) == 3 && b < blocks && t < block);
		CHECK(i == next[b * block + t]++);
	}
	for (b = 0; b < blocks * block; b++)
		CHECK(next[b] == n);
	free(next);
}

static void threads(void)
{
	CHECK(run("threads", 5, 96, (struct args){ .n = 10 }) == 0);
	CHECK(calls == 5 * 96 * 10 && lost == 0);
	check_threads(5, 96, 10);
	/* many times more than there is room for, in several jobs */
	for (unsigned i = 0; i < 20; i++)
		CHECK(run("numbers", 4, 64, (struct args){ 4000, NULL, &(uint64_t){ 0 } }) == 0 &&
		      calls == 4000 && lost == 0);
}

static void order(void)
{
	uint64_t round = 0, in = 0, i;
	char *save, *line;

	CHECK(run("ordered", 1, 64, (struct args){ .n = 50 }) == 0);
	CHECK(calls == 50 * 64 && lost == 0);
	for (line = strtok_r(got, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "round %" SCNu64, &i) == 1) {
			CHECK(i == round && in == 63 * round);
			round++;
		} else {
			CHECK(sscanf(line, "in %" SCNu64, &i) == 1 && i + 1 == round);
			in++;
		}
	}
}

/* Nobody waits, so the buffer gets full: the first of it comes, the rest is counted. */
static void overflow(void)
{
	const uint64_t many = HMM_PRINT_GRANULES + 5000;
	volatile uint64_t flag = 0;
	struct args a = { .n = many, .flag = (uint64_t *)&flag };
	struct hmmgpu_launch l = launch_of("numbers", 2, 64);
	uint64_t job;

	for (unsigned i = 0; i < 3; i++) {
		forget();
		flag = 0;
		CHECK(hmmgpu_launch_args(ctx, &l, &a, sizeof(a), &job) == 0);
		while (flag < 128)
			usleep(1000);
		CHECK(calls == 0);
		CHECK(hmmgpu_wait(ctx, job, -1, NULL) == 0);
		CHECK(calls == HMM_PRINT_GRANULES && lost == 5000);
		CHECK(run("threads", 1, 32, (struct args){ .n = 1 }) == 0 && calls == 32 && lost == 0);
	}
	/* records of several granules: one does not fit, though there is still some room */
	forget();
	flag = 0;
	for (uint64_t left = HMM_PRINT_GRANULES - 2, some; left; left -= some) {
		some = left < 10000 ? left : 10000;
		a.n = some;
		l = launch_of("numbers", 1, 1);
		CHECK(hmmgpu_launch_args(ctx, &l, &a, sizeof(a), &job) == 0);
	}
	l = launch_of("text", 1, 1);
	a.text = malloc(200);
	memset(a.text, 'x', 199);
	a.text[199] = 0;
	a.n = 150;
	CHECK(hmmgpu_launch_args(ctx, &l, &a, sizeof(a), &job) == 0);
	while (flag < 2)
		usleep(1000);
	{
		/* a job behind it in the queue, so that it is over when this one is seen to be */
		l = launch_of("numbers", 1, 1);
		a.n = 0;
		CHECK(hmmgpu_launch_args(ctx, &l, &a, sizeof(a), NULL) == 0);
		while (flag < 3)
			usleep(1000);
	}
	hmmgpu_print_flush();
	CHECK(calls == HMM_PRINT_GRANULES - 2 && lost == 2);
	CHECK(run("threads", 1, 32, (struct args){ .n = 1 }) == 0 && calls == 32 && lost == 0);
	free(a.text);
}

/* What a kernel prints that never ends comes while it is waited for. */
static void endless(void)
{
	struct hmmgpu_launch l = launch_of("forever", 1, 1);
	volatile uint64_t flag = 0;
	struct args a = { .flag = (uint64_t *)&flag };
	struct hmmgpu_ctx *other;
	uint64_t job, before, rounds = 0, theirs = 0, seen = 0, n = 0, i;
	char *line, *save;

	forget();
	CHECK(hmmgpu_ctx_create(gpu, 0, &other) == 0);
	CHECK(hmmgpu_launch_args(other, &l, &a, sizeof(a), &job) == 0);
	while (calls < 3 * HMM_PRINT_GRANULES)
		CHECK(hmmgpu_wait(other, job, 1000000, NULL) == -ETIME);
	/* of another context: its own, if it found any room, and whatever else is there */
	l = launch_of("threads", 1, 32);
	do {
		before = lost;
		CHECK(hmmgpu_run_args(ctx, &l, &(struct args){ .n = 2 }, sizeof(a), NULL) == 0);
		rounds++;
	} while (!strstr(got, "b0 t31 1") && lost > before);
	CHECK(strstr(got, "b0 t31 1"));
	hmmgpu_ctx_destroy(other);
	for (line = strtok_r(got, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (*line == 'b') {
			theirs++;
			continue;
		}
		CHECK(sscanf(line, "%" SCNu64, &i) == 1 && i >= seen);
		seen = i + 1;
		n++;
	}
	/* each that returned has come or was counted, and perhaps one more */
	n += theirs + lost - 32 * 2 * rounds;
	CHECK(n == flag + 1 || n == flag + 2);
	CHECK(run("threads", 2, 64, (struct args){ .n = 5 }) == 0 && calls == 640 && lost == 0);
	check_threads(2, 64, 5);
}

/* A context is destroyed while a thread has most of the buffer: all of it is there for the next. */
static void destroyed(void)
{
	struct hmmgpu_launch l = launch_of("stuck", 1, 1);
	volatile uint64_t flag = 0;
	struct args a = { .n = HMM_PRINT_GRANULES - 10, .flag = (uint64_t *)&flag };
	struct hmmgpu_ctx *other;
	uint64_t job;

	forget();
	CHECK(hmmgpu_ctx_create(gpu, 0, &other) == 0);
	CHECK(hmmgpu_launch_args(other, &l, &a, sizeof(a), &job) == 0);
	while (!flag)
		usleep(1000);
	hmmgpu_ctx_destroy(other);
	CHECK(calls == 0 && lost == 0);
	CHECK(run("threads", 1, 32, (struct args){ .n = 1 }) == 0 && calls == 32 && lost == 0);
}

static void strings(void)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *s = malloc(3000);

	strcpy(s, "malloc'ed");
	CHECK(run("text", 1, 1, (struct args){ .text = s, .n = 3 }) == 0);
	CHECK(strcmp(got, "[malloc'ed][mal]") == 0);
	/* a precision is a promise not to read on */
	munmap(page + 4096, 4096);
	memcpy(page + 4096 - 5, "12345", 5);
	CHECK(run("text", 1, 1, (struct args){ .text = page + 4096 - 5, .n = 5 }) == -EFAULT);
	CHECK(got_len == 0);
	page[4095] = 0;
	CHECK(run("text", 1, 1, (struct args){ .text = page + 4096 - 5, .n = 4 }) == 0);
	CHECK(strcmp(got, "[1234][1234]") == 0);
	memset(s, 's', 2999);
	s[2999] = 0;
	CHECK(run("text", 1, 1, (struct args){ .text = s, .n = 2000 }) == 0);
	CHECK(got_len == 2 * (HMM_PRINT_STRING + 2));
	CHECK(strspn(got + 1, "s") == HMM_PRINT_STRING);
	free(s);
	munmap(page, 4096);
	munmap(page + 8192, 4096);
}

/* A job that fails takes nothing along that was complete, and leaves the buffer to the next. */
static void failures(void)
{
	for (unsigned i = 0; i < 3; i++) {
		CHECK(run("dies", 1, 64, (struct args){ .n = 40 }) == -EFAULT);
		CHECK(calls == 64 && !strstr(got, "never") && !strstr(got, "after") && lost == 0);
	}
	/* 16 threads leave 700 granules each without a record in them */
	for (unsigned i = 0; i < 5; i++) {
		CHECK(run("unfinished", 1, 16, (struct args){ .n = 700 }) == -EFAULT);
		CHECK(calls == 32 && strstr(got, "whole 15\n") && strstr(got, "whole too 15\n"));
		CHECK(lost == 0);
	}
	CHECK(run("numbers", 4, 64, (struct args){ HMM_PRINT_GRANULES, NULL, &(uint64_t){ 0 } }) == 0);
	CHECK(calls == HMM_PRINT_GRANULES && lost == 0);
}

static void odd(void)
{
	CHECK(run("odd", 1, 1, (struct args){ 0 }) == 0);
	CHECK(strncmp(got, "(a format that is no string", 27) == 0);
	CHECK(strcmp(strchr(got, '\n') + 1, "1 %y %d|1 %ls %d|1 %Lf|1 %1$d|1 %(null)|(null)|") == 0);
}

static void *from_thread(void *data)
{
	struct hmmgpu_ctx *mine;
	struct hmmgpu_launch l = launch_of("threads", 2, 64);
	struct args a = { .n = 3 };

	CHECK(hmmgpu_ctx_create(gpu, 0, &mine) == 0);
	for (unsigned i = 0; i < *(unsigned *)data; i++)
		CHECK(hmmgpu_run_args(mine, &l, &a, sizeof(a), NULL) == 0);
	hmmgpu_ctx_destroy(mine);
	return data;
}

/* Contexts and threads at the same time: each call once, or counted if there was no room. */
static void contexts(unsigned jobs)
{
	pthread_t t[4];

	forget();
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, from_thread, &jobs) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(calls + lost == 4 * jobs * 128 * 3);
}

/* A child prints what is its own; what its parent has not put out yet stays the parent's. */
static void forked(void)
{
	volatile uint64_t flag = 0;
	struct args a = { .n = 10, .flag = (uint64_t *)&flag };
	struct hmmgpu_launch l = launch_of("numbers", 1, 1);
	uint64_t job;
	int status;
	pid_t pid;

	forget();
	CHECK(hmmgpu_launch_args(ctx, &l, &a, sizeof(a), &job) == 0);
	while (!flag)
		usleep(1000);
	pid = fork();
	if (pid == 0) {
		hmmgpu_ctx_destroy(ctx);
		hmmgpu_close(gpu);
		CHECK(calls == 0);
		CHECK(hmmgpu_open(&gpu, NULL) == 0 && hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
		CHECK(run("threads", 1, 32, (struct args){ .n = 1 }) == 0 && calls == 32);
		check_threads(1, 32, 1);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(calls == 0);
	CHECK(hmmgpu_wait(ctx, job, -1, NULL) == 0 && calls == 10);
	CHECK(strcmp(got, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n") == 0);
}

/* Every way to wait. */
static void ways(void)
{
	struct hmmgpu_launch l = launch_of("threads", 1, 32);
	struct args a = { .n = 1 };
	struct hmmgpu_event *e;
	struct hmmgpu_ctx *c;
	uint32_t obj;

	CHECK(hmmgpu_event_create(gpu, &e) == 0 && hmmgpu_syncobj_create(gpu, 0, &obj) == 0);
	CHECK(hmmgpu_ctx_create(gpu, 0, &c) == 0);
	forget();
	CHECK(hmmgpu_launch_args(c, &l, &a, sizeof(a), NULL) == 0);
	CHECK(hmmgpu_ctx_sync(c, -1) == 0 && calls == 32);
	CHECK(hmmgpu_launch_args(c, &l, &a, sizeof(a), NULL) == 0 && hmmgpu_event_record(e, c) == 0);
	CHECK(hmmgpu_event_sync(e, -1) == 0 && calls == 64);
	l.out_syncobj = obj;
	CHECK(hmmgpu_launch_args(c, &l, &a, sizeof(a), NULL) == 0);
	CHECK(hmmgpu_syncobj_wait(gpu, obj, -1) == 0 && calls == 96);
	CHECK(hmmgpu_syncobj_destroy(gpu, obj) == 0);
	hmmgpu_event_destroy(e);
	hmmgpu_ctx_destroy(c);
}

/* With no function it is stdio's standard output, in the program's own order. */
static void to_stdout(void)
{
	struct hmmgpu_launch l = launch_of("threads", 1, 1);

	hmmgpu_set_print(NULL, NULL);
	printf("first\n");
	CHECK(hmmgpu_run_args(ctx, &l, &(struct args){ .n = 2 }, sizeof(struct args), NULL) == 0);
	printf("last\n");
}

int main(int argc, char **argv)
{
	struct hmmgpu_kernel *again;

	CHECK(argc == 2);
	CHECK(hmmgpu_open(&gpu, NULL) == 0);
	CHECK(hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
	hmmgpu_set_print(collect, &got_len);
	CHECK(hmmgpu_kernel_load_file(argv[1], &kernels) == 0);
	CHECK(hmmgpu_kernel_load_file(argv[1], &again) == 0);
	cases();
	threads();
	order();
	overflow();
	endless();
	destroyed();
	strings();
	failures();
	odd();
	hmmgpu_kernel_free(again);
	/* two granules a record at most: as much as there is room for, and more */
	contexts(5);
	CHECK(lost == 0);
	contexts(20);
	forked();
	ways();
	to_stdout();
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	hmmgpu_kernel_free(kernels);
	printf("all passed\n");
	return 0;
}
