// SPDX-License-Identifier: GPL-2.0-or-later
/* Scrambles every element; the CPU's part is in one_pointer_host.c. */
#include "hmm_gpu_kernel.h"

struct args {
	uint64_t *data;
	uint64_t n;
};

HMM_KERNEL(scramble, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		args->data[i] = args->data[i] * 0x9e3779b97f4a7c15 + i;
}
