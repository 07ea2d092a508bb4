// SPDX-License-Identifier: GPL-2.0-or-later
/* Inserts into a table that the CPU inserts into at the same time; the code is hash_table.h. */
#include "hmm_gpu_kernel.h"

#include "hash_table.h"

HMM_KERNEL(insert, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		if (!put(args, args->keys[i], 1))
			__atomic_fetch_add(args->refused, 1, __ATOMIC_RELAXED);
}
