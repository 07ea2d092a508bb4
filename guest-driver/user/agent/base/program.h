/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program and what becomes of it, as bytes: what the bench sends in PROGRAM
 * (protocol.h), what a reproducer makes of its table, what the engine runs.
 * Little endian.  Python (hmmbench.guest.program) has the same numbers and
 * layouts, which tests/host/guest/test_protocol.py compares, field by field.
 */
#ifndef HMMBENCH_PROGRAM_H
#define HMMBENCH_PROGRAM_H

#include <stdint.h>

#include "accesses.h"

/*
 * PROGRAM: one program.  The engine forks a fresh process 0 and runs the
 * operations; others come to life by `spawn` (fresh, no shared memory but
 * files) or `fork`.  Each process has actors (threads), created when first
 * needed; actor 0 is the main thread and the only one that may fork or exit.
 *
 * Order: every operation has a phase; phases are not decreasing along the
 * list.  An operation starts when all operations of lower phases have ended.
 * Operations of one phase run at the same time if their (process, actor)
 * differs, else in list order.  GPU operations are issued by their actor and
 * waited for by it, unless HB_F_NOWAIT.
 *
 * Memory: a region is a slot of address space, HB_REGION_SIZE bytes at
 * HB_REGION_BASE + region * HB_REGION_SIZE in every process (STACK and GLOBAL
 * regions lie where they must; the engine knows).  Offsets are relative to it.
 */
#define HB_PROTOCOL_VERSION	1	/* of programs, and of the messages around them */
#define HB_BUSY_TIMES		6	/* limits are so much longer for what is seen to work */
#define HB_TIMEOUT_STILL	1	/* and did no work any more */
#define HB_TIMEOUT_BUSY		2	/* though it worked */
#define HB_MAX_PROCS		4
#define HB_MAX_ACTORS		4
#define HB_MAX_REGIONS		16
#define HB_MAX_FILES		4
#define HB_MAX_OPS		4096
#define HB_MAX_ACCESSES		0x10000
#define HB_REGION_BASE		0x200000000000
#define HB_REGION_SIZE		0x4000000
#define HB_STACK_PAGES		32	/* size of a STACK region */
#define HB_GLOBAL_PAGES		32	/* size of the GLOBAL region: .bss */

struct hb_program {		/* 64 bytes; then ops, then accesses */
	uint32_t version;
	uint32_t nops;
	uint32_t naccesses;
	uint32_t flags;		/* HB_PF_* */
	uint32_t timeout_ms;	/* of the whole program, HB_BUSY_TIMES that while it does work; then every process is killed and `timeout` set */
	uint32_t settle_ms;	/* how long live counters may take to return to zero; likewise */
	/* files, created zeroed before process 0: in tmpfs, unless an operation says where */
	uint32_t file_pages[HB_MAX_FILES];
	uint64_t seed;
	/*
	 * run so many times more, at most 16, and see what each leaves: "looks" and "left" lines
	 * (census.h) behind the counters after
	 */
	uint64_t again;
	uint64_t pad;
};
#define HB_PF_COUNTERS		1	/* append the driver's counters (text) before and after */

struct hb_op {			/* 64 bytes */
	uint16_t op;		/* number of its kind: the tables of ops/ */
	uint8_t proc;
	uint8_t actor;
	uint32_t phase;
	uint16_t region;
	uint16_t flags;		/* HB_F_* */
	uint32_t access_first;	/* index in the access table */
	uint32_t access_count;
	uint32_t arg;		/* per operation */
	uint64_t off;		/* bytes in region */
	uint64_t len;		/* bytes */
	uint64_t a;
	uint64_t b;
	uint64_t c;
};

/* op flags */
#define HB_F_CTX1		0x1	/* use the process's second GPU context */
#define HB_F_NOWAIT		0x2	/* do not wait for the GPU job (only before exit, kill, close_gpu or wait_gpu) */
#define HB_F_WRITE_BACK		0x4
#define HB_F_THREAD		0x8	/* the GPU job is of a thread that ends before it is waited for */

/* arg of mmap */
#define HB_MAP_ANON_PRIVATE	0
#define HB_MAP_ANON_SHARED	1
#define HB_MAP_FILE_PRIVATE	2
#define HB_MAP_FILE_SHARED	3
#define HB_MAP_HUGETLB_PRIVATE	4
#define HB_MAP_HUGETLB_SHARED	5
#define HB_MAP_STACK		6	/* the main thread's stack, no mmap */
#define HB_MAP_GLOBAL		7	/* .bss, no mmap */

struct hb_access {		/* 32 bytes */
	uint16_t kind;		/* HB_ACC_* */
	uint16_t region;
	uint32_t lane;		/* GPU thread number in the launch (block = lane / threads a block) */
	uint64_t off;		/* naturally aligned */
	uint64_t value;
	uint64_t expect;	/* CAS */
};
/*
 * Answer: result header, op results, access results, data bytes (query), then
 * the two counter texts.  An op that did not run (its process is gone or the
 * program timed out) has HB_RES_SKIPPED.
 */
#define HB_LIVE_LEFT		1	/* some did not */
#define HB_LIVE_UNREAD		2	/* there were counters, and they cannot be read any more */

struct hb_result {		/* 64 bytes */
	uint32_t version;
	uint32_t nops;
	uint32_t naccesses;
	uint32_t data_len;
	uint32_t counters_before_len;
	uint32_t counters_after_len;
	uint32_t timeout;	/* the program did not end in time: HB_TIMEOUT_*, 0 if it did */
	uint32_t live_nonzero;	/* HB_LIVE_*: whether live counters returned to zero in settle_ms */
	uint64_t elapsed_ns;
	uint32_t died;		/* bit p: process p died from a signal that the program did not ask for */
	uint32_t died_signal;	/* of the first of them; 0x100 | code: the engine's own failure in that process */
	uint64_t stuck;		/* processes that even SIGKILL did not end in time */
	uint64_t strays;	/* words of memory that no program has and that were changed */
};

struct hb_op_result {		/* 64 bytes */
	int32_t status;		/* 0, -errno of the call or of the job, or HB_RES_* */
	uint32_t gpu_status;	/* HG_ERR_* of the job */
	uint32_t reason;	/* HG_REASON_* */
	uint32_t data_off;
	uint32_t data_len;
	uint32_t start_lo;	/* CLOCK_MONOTONIC when it began, ns; 0 with start_hi: not known */
	uint64_t aux0;		/* of a failed job: block << 32 | thread, else see the operation */
	uint64_t aux1;		/* of a failed job: pc */
	uint64_t fault_addr;	/* of a failed job: offset in region if region_of_fault >= 0, else the address */
	int32_t fault_region;
	uint32_t start_hi;
	uint64_t time_ns;	/* how long the operation took */
};
#define HB_RES_SKIPPED		1
#define HB_RES_KILLED		2	/* the process ended while in the operation, as the program asked */

#endif
