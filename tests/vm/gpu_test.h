/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For the guest's test programs of the driver: a GPU, and conditions that are counted. */
#ifndef HMMBENCH_TESTS_GPU_TEST_H
#define HMMBENCH_TESTS_GPU_TEST_H

#include <stdarg.h>
#include <stdio.h>

#include "hmmgpu.h"
#include "need.h"

#define PAGE	4096UL

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;
static int failures;

static inline void __attribute__((format(printf, 2, 3))) fail(int line, const char *text, ...)
{
	va_list args;

	va_start(args, text);
	printf("line %d: ", line);
	vprintf(text, args);
	printf("\n");
	va_end(args);
	failures++;
}

#define CHECK(condition, ...)				\
	do {						\
		if (!(condition))			\
			fail(__LINE__, __VA_ARGS__);	\
	} while (0)

static inline void start_gpu(void)
{
	need(hmmgpu_open(&gpu, NULL), "open");
	need(hmmgpu_ctx_create(gpu, 0, &ctx), "context");
}

static inline void begin(const char *file)
{
	start_gpu();
	need(hmmgpu_kernel_load_file(file, &kernels), "kernels");
}

#endif
