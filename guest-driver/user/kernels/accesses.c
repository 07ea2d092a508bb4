// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Executes lists of accesses, one list a thread: see accesses.h.  Uses no stack
 * and no data of its own, so the only pages it touches beside those under test
 * are its code, its tables and its results.
 */
#include "hmm_gpu_kernel.h"

#include "accesses.h"

HMM_KERNEL(accesses, struct acc_args)
{
	uint32_t t = hmm_thread();
	const struct acc_lane *lane;
	const struct acc_entry *e, *end;

	if (t >= args->nlanes)
		return;
	lane = (const struct acc_lane *)args->lanes + t;
	e = (const struct acc_entry *)args->entries + lane->first;
	end = e + lane->count;
	for (; e != end; e++) {
		struct hb_access_result *r = (struct hb_access_result *)args->results + e->result;
		uint64_t value = e->value, expect = e->expect;
		uint32_t kind = e->kind;

		if (kind == HB_ACC_READ) {
			value = __atomic_load_n((uint64_t *)e->addr, __ATOMIC_RELAXED);
		} else if (kind == HB_ACC_WRITE) {
			__atomic_store_n((uint64_t *)e->addr, value, __ATOMIC_RELAXED);
			value = 0;
		} else if (kind == HB_ACC_ADD) {
			value = __atomic_fetch_add((uint64_t *)e->addr, value, __ATOMIC_RELAXED);
		} else if (kind == HB_ACC_XCHG) {
			value = __atomic_exchange_n((uint64_t *)e->addr, value, __ATOMIC_RELAXED);
		} else if (kind == HB_ACC_CAS) {
			__atomic_compare_exchange_n((uint64_t *)e->addr, &expect, value, 0,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
			value = expect;
		} else if (kind == HB_ACC_READ32) {
			value = __atomic_load_n((uint32_t *)e->addr, __ATOMIC_RELAXED);
		} else if (kind == HB_ACC_WRITE32) {
			__atomic_store_n((uint32_t *)e->addr, (uint32_t)value, __ATOMIC_RELAXED);
			value = 0;
		} else if (kind == HB_ACC_DELAY) {
			/* Volatile asm: the compiler may not drop an empty loop's turns. */
			while (value--)
				hmm_compiler_barrier();
			value = 0;
		} else {
			/* Unknown to this kernel: leave it undone, which the agent reports. */
			continue;
		}
		/* The access, then its value, then its status. */
		r->value = value;
		__atomic_store_n(&r->status, HB_AST_DONE, __ATOMIC_RELEASE);
	}
}
