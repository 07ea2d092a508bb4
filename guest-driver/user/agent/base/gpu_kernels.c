// SPDX-License-Identifier: GPL-2.0-or-later
/* The GPU kernels that programs and measurements launch. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base.h"
#include "gpu_kernels.h"
#include "hmmgpu.h"

uint64_t kernel_accesses, kernel_spin, kernel_empty, kernel_touch, kernel_latency;

/*
 * Shared memory never migrates to the device.  So whatever a program does with
 * policies and eviction, and however wrong a driver is about migrated pages,
 * the code that tells us so is not affected; nor does it look like a leak after
 * the program, when only the supervisor maps it.
 */
static int make_shared(uintptr_t start, uintptr_t end)
{
	size_t len = end - start;
	void *copy = malloc(len);
	int ret = 0;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, (void *)start, len);
	if (mmap((void *)start, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) == MAP_FAILED)
		ret = -errno;
	else
		memcpy((void *)start, copy, len);
	if (!ret && mprotect((void *)start, len, PROT_READ))
		ret = -errno;
	free(copy);
	return ret;
}

/* Loaded once: every process of every program inherits the mapping. */
int gpu_kernels_load(void)
{
	static const struct {
		const char *name;
		uint64_t *entry;
	} wanted[] = {
		{ "accesses", &kernel_accesses }, { "spin", &kernel_spin },
		{ "empty", &kernel_empty }, { "touch", &kernel_touch },
		{ "latency", &kernel_latency },
	};
	uint64_t start, end;
	struct hmmgpu_kernel *k;
	int ret = hmmgpu_kernel_load_builtin(&k);

	for (unsigned i = 0; i < ARRAY_SIZE(wanted) && !ret; i++)
		ret = hmmgpu_kernel_symbol(k, wanted[i].name, wanted[i].entry);
	if (!ret)
		ret = hmmgpu_kernel_text(k, &start, &end);
	if (!ret)
		ret = make_shared(start, end);
	if (ret)
		fprintf(stderr, "GPU kernels: %s\n", strerror(-ret));
	return ret;
}
