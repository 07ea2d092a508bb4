/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The `accesses` kernel: what it is given.  Shared by the kernel, the agent,
 * the reproducer runtime and tests; all of it lies in memory of the process.
 *
 * Thread t executes entries[lanes[t].first .. + lanes[t].count) in order, and
 * after each writes results[entry.result]: first the value (0 for a write), then
 * status = HB_AST_DONE.  So when a job fails or is killed, the
 * entries with status 0 are those whose access may not have happened; of one
 * thread at most the first of them may have.
 */
#ifndef HMMBENCH_ACCESSES_H
#define HMMBENCH_ACCESSES_H

#include <stdint.h>

#define HB_ACC_READ		0	/* 64 bit; result: what was read */
#define HB_ACC_WRITE		1
#define HB_ACC_ADD		2	/* result: old value */
#define HB_ACC_XCHG		3
#define HB_ACC_CAS		4
#define HB_ACC_READ32		5
#define HB_ACC_WRITE32		6
#define HB_ACC_DELAY		7	/* value = spins; no memory touched */

struct hb_access_result {	/* 16 bytes */
	uint64_t value;		/* what was read, or the old value; 0 for WRITE and DELAY */
	uint32_t status;	/* HB_AST_* */
	uint32_t order;		/* CPU only: position in the actor's program, for reading traces */
};
#define HB_AST_NOT_DONE		0	/* not reached; the first such access of a lane may or may not have taken effect */
#define HB_AST_DONE		1
#define HB_AST_SIGSEGV		2	/* CPU access, caught */
#define HB_AST_SIGBUS		3

struct acc_lane {
	uint32_t first;
	uint32_t count;
};

struct acc_entry {		/* 32 bytes */
	uint64_t addr;
	uint16_t kind;		/* HB_ACC_* */
	uint16_t pad;
	uint32_t result;	/* index in results */
	uint64_t value;
	uint64_t expect;
};

struct acc_args {
	uint64_t lanes;		/* struct acc_lane [nlanes] */
	uint64_t entries;	/* struct acc_entry [] */
	uint64_t results;	/* struct hb_access_result [] */
	uint32_t nlanes;	/* threads beyond end at once */
	uint32_t pad;
};

/* The `spin` kernel: increments *word (if not 0) for ever, or until *stop is not 0. */
struct spin_args {
	uint64_t stop;		/* uint32_t, 0: none */
	uint64_t word;		/* uint64_t, 0: none */
};

/*
 * The `touch` kernel of the bench: thread t of n accesses one 64-bit word in
 * pages t, t + n, t + 2n, ... of a range.
 */
struct touch_args {
	uint64_t base;
	uint64_t npages;
	uint32_t write;
	uint32_t pad;
	uint64_t value;
	uint64_t sum;		/* uint64_t, 0: none: sum of what was read, by atomic add */
};

/*
 * The `latency` kernel of the bench: one thread reads one word of each page in
 * the order of `order` and writes how long the access took by the clock of the
 * device, without and with the fault it causes.
 */
struct latency_args {
	uint64_t base;
	uint64_t order;		/* uint32_t [npages]: page numbers */
	uint64_t times;		/* uint64_t [npages]: ns */
	uint64_t npages;
};

/* The `stamp` kernel of libhmmgpu's events, one thread: what time it is on the device. */
struct stamp_args {
	uint64_t time;		/* ns */
	uint64_t done;		/* 1, after time */
};

#endif
