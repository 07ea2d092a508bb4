/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For the guest's test programs of the driver: a GPU, and conditions that are counted. */
#ifndef HMMBENCH_TESTS_GPU_TEST_H
#define HMMBENCH_TESTS_GPU_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hmmgpu.h"

#define PAGE	4096UL

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;
static int failures;

#define CHECK(condition, ...)				\
	do {						\
		if (!(condition)) {			\
			printf("line %d: ", __LINE__);	\
			printf(__VA_ARGS__);		\
			printf("\n");			\
			failures++;			\
		}					\
	} while (0)

/* What a test cannot do without. */
static void need(int error, const char *what)
{
	if (error) {
		printf("%s: %s\n", what, strerror(-error));
		exit(1);
	}
}

static void begin(const char *file)
{
	need(hmmgpu_open(&gpu, NULL), "open");
	need(hmmgpu_ctx_create(gpu, 0, &ctx), "context");
	need(hmmgpu_kernel_load_file(file, &kernels), "kernels");
}

#endif
