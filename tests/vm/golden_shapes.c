// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs whose faults have a known shape; test_golden_shapes.py reads the
 * driver's trace meanwhile.
 *
 *	golden_shapes KERNELS.elf abc RUNS POLICY	prints the addresses of a, b, c of each run
 *	golden_shapes KERNELS.elf shared PAGES		all blocks read the same pages
 *	golden_shapes KERNELS.elf move PAGES PREFETCH	pages migrate by faults, or by one call before
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "hmmgpu.h"

#define PAGE	4096ul
#define HUGE	(1ul << 21)

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;

/* Small pages, at the start of 2 MiB, so that nothing depends on neighbours. */
static void *area(uint64_t pages)
{
	char *p = mmap(NULL, pages * PAGE + HUGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	CHECK(madvise(p, pages * PAGE + HUGE, MADV_NOHUGEPAGE) == 0);
	return (void *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
}

/* Text and arguments are on the GPU before, so that the faults are those of the data. */
static void run(const char *name, void *args, uint32_t grid, uint32_t block)
{
	struct hmmgpu_launch l = { .args = (uintptr_t)args, .grid = grid, .block = block };
	uint64_t start, end;

	CHECK(hmmgpu_kernel_symbol(kernels, name, &l.entry) == 0);
	CHECK(hmmgpu_kernel_text(kernels, &start, &end) == 0);
	CHECK(hmmgpu_prefetch(gpu, (void *)start, end - start, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL) == 0);
	CHECK(hmmgpu_prefetch(gpu, args, PAGE, HMM_GPU_MIGRATE_SYSTEM, NULL, NULL) == 0);
	CHECK(hmmgpu_run(ctx, &l, NULL) == 0);
}

static void abc(unsigned int runs, uint32_t policy)
{
	struct { uint64_t *a, *b, *c; } *args = area(1);

	CHECK(hmmgpu_set_policy(gpu, policy) == 0);
	for (unsigned int r = 0; r < runs; r++) {
		args->a = area(32);
		args->b = area(32);
		args->c = area(32);
		for (unsigned int i = 0; i < 32; i++) {
			args->a[i * PAGE / 8] = 1000 * r + i;
			args->b[i * PAGE / 8] = 7 * i;
		}
		printf("%#lx %#lx %#lx\n", (unsigned long)args->a, (unsigned long)args->b,
		       (unsigned long)args->c);
		run("abc", args, 1, 32);
		for (unsigned int i = 0; i < 32; i++)
			CHECK(args->c[i * PAGE / 8] == 1000 * r + 8 * i);
	}
}

static void walk(uint64_t pages, uint32_t policy, int prefetch, uint32_t grid, uint32_t block)
{
	struct { char *in; uint64_t pages; } *args = area(1);
	uint64_t moved;

	CHECK(hmmgpu_set_policy(gpu, policy) == 0);
	args->in = area(pages);
	args->pages = pages;
	memset(args->in, 1, pages * PAGE);
	if (prefetch) {
		CHECK(hmmgpu_prefetch(gpu, args->in, pages * PAGE, HMM_GPU_MIGRATE_DEVICE,
				      &moved, NULL) == 0);
		CHECK(moved == pages);
	}
	run("shared", args, grid, block);
	printf("%#lx\n", (unsigned long)args->in);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 4);
	CHECK(hmmgpu_open(&gpu, NULL) == 0);
	CHECK(hmmgpu_ctx_create(gpu, 0, &ctx) == 0);
	CHECK(hmmgpu_kernel_load_file(argv[1], &kernels) == 0);
	if (!strcmp(argv[2], "abc") && argc == 5)
		abc(atoi(argv[3]), atoi(argv[4]));
	else if (!strcmp(argv[2], "shared"))
		walk(atoi(argv[3]), HMM_GPU_POLICY_MAP, 0, 16, 256);
	else if (!strcmp(argv[2], "move") && argc == 5)
		walk(atoi(argv[3]), HMM_GPU_POLICY_MIGRATE, atoi(argv[4]), 1, 32);
	else
		CHECK(!"a mode");
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	hmmgpu_kernel_free(kernels);
	return 0;
}
