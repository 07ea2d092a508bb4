/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For the part of a workload that runs on the CPU: ordinary C of the guest's
 * process, which shares its memory with the kernels.
 *
 *	#include "hmm_host.h"
 *
 *	struct args { uint64_t *values; uint64_t n; };
 *
 *	HMM_HOST(add_one, struct args)
 *	{
 *		for (uint64_t i = 0; i < args->n; i++)
 *			args->values[i]++;
 *		return 0;
 *	}
 *
 * Python calls it by name, with arguments as a kernel has them: members of 8
 * bytes.  What it returns (an int64_t, also a pointer) goes back to Python.  It
 * may make threads, and allocate; kernels that were launched and not waited for
 * run meanwhile.  Standard output goes where standard error goes.
 */
#ifndef HMM_HOST_H
#define HMM_HOST_H

#include <stddef.h>
#include <stdint.h>

typedef int64_t hmm_host_fn(void *args);

struct hmm_host {
	const char *name;
	hmm_host_fn *fn;
	struct hmm_host *next;
};

/* Used by HMM_HOST before main() begins. */
void hmm_host_register(struct hmm_host *host);

#define HMM_HOST(name, type)							\
	static int64_t name(type *args);					\
	static int64_t name##_call(void *args) { return name(args); }		\
	__attribute__((constructor)) static void name##_register(void)		\
	{									\
		static struct hmm_host host = { #name, name##_call, NULL };	\
										\
		hmm_host_register(&host);					\
	}									\
	static int64_t name(type *args)

#endif
