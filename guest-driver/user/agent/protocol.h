/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Messages between the bench and the guest agent, over the virtio-serial port
 * "org.hmmbench.agent", or through the memory of an hmm-mailbox
 * (hmm_mailbox_hw.h).  Little endian; Python (hmmbench.guest.protocol) reads
 * the "#define NAME number-expression" lines of this file and mirrors the
 * structs with a size check at HELLO.
 *
 * A message is a header and a payload.  The bench sends one request at a time;
 * the agent answers each with the same id.  Whatever is wrong with a request
 * is answered by HB_MSG_ERROR with a text.
 */
#ifndef HMMBENCH_PROTOCOL_H
#define HMMBENCH_PROTOCOL_H

#include <stdint.h>

#define HB_PROTOCOL_VERSION	1
#define HB_MAGIC		0x424d4d48	/* "HMMB" */
#define HB_MAX_PAYLOAD		0x2000000

struct hb_header {		/* 16 bytes */
	uint32_t magic;
	uint16_t type;
	uint16_t id;
	uint32_t len;		/* of the payload */
	uint32_t pad;
};

/* Requests, and their answers (type | HB_MSG_REPLY) */
#define HB_MSG_HELLO		1	/* - -> JSON text: protocol, sizes of the structs below, kernel release, page size, driver loaded, GPU parameters */
#define HB_MSG_PROGRAM		2	/* struct hb_program ... -> struct hb_result ... */
#define HB_MSG_EXEC		3	/* u32 timeout_ms, shell command -> s32 exit status (-n: ended by signal n, -110: time limit), output (stdout and stderr) */
#define HB_MSG_READ_FILE	4	/* path -> content */
#define HB_MSG_WRITE_FILE	5	/* u32 mode (octal bits; 0 = write into what exists), u32 path length, path, content -> - */
#define HB_MSG_START		6	/* as EXEC, but not waited for -> u32 pid (its process group) */
#define HB_MSG_KILL		7	/* u32 pid, u32 signal; to the whole group, reaps on SIGKILL -> - */
#define HB_MSG_BENCH		8	/* JSON text naming a measurement (agent/bench.c) -> JSON text */
#define HB_MSG_OPEN		9	/* as START; the program's standard input and output are for PIPE -> u32 pid (its process group) */
#define HB_MSG_PIPE		10	/* u32 pid of OPEN, u32 timeout_ms, bytes for its input -> what it then writes: u32 length (not passed on) and so many bytes. ERROR quotes its standard error if it has ended; after a time limit, or another request meanwhile, only KILL is of use */
#define HB_MSG_PRINTED		11	/* - -> u32 number of the mark that stands in the kernel's log behind all that it printed until now, 0 if it printed nothing since the last */
#define HB_MSG_EXAMPLE		12	/* struct hb_example, delays' text, a PROGRAM's payload -> struct hb_example_result ... */
#define HB_MSG_REPLY		0x100
#define HB_MSG_ERROR		0x1ff	/* text */

/* PRINTED: a mark is a line of the console, and ends with this and its number. */
#define HB_MARK			"hmmbench: mark "
#define HB_CONSOLE_LEVEL	4	/* messages of this level and below are shown (loglevel=) */

/*
 * EXAMPLE: a program and all that surrounds it, in one request, so that it is
 * all a chain of them depends on.  In this order: the delays and the limit are
 * set, the program runs, everything settles, the counters and then the points
 * are read, and the mark is put into the kernel's log.
 *
 * With HB_EF_STAND, over a channel for which the machine can stand, it stands
 * once within: when all operations have ended or the program's time is over,
 * and nobody has been let go or killed yet (HM_STAND_ENDED).  What processes
 * are left still have their memory and GPU contexts, and each of their threads
 * that did its part waits to be let go.
 */
struct hb_example {		/* 32 bytes; then delays, then the program */
	uint32_t flags;		/* HB_EF_* */
	uint32_t delays_len;
	uint32_t program_len;
	uint32_t pad;
	uint64_t vram_limit;	/* pages */
	uint64_t pad2;
};
#define HB_EF_DELAYS		1	/* write the delays' text into the driver's file `delays` */
#define HB_EF_VRAM		2	/* write vram_limit into the driver's file `vram_limit` */
#define HB_EF_POINTS		4	/* answer what the driver's file `delays` has afterwards */
#define HB_EF_STAND		8	/* stand when the operations have ended */

struct hb_example_result {	/* 16 bytes; then PROGRAM's answer, counters, points */
	uint32_t program_len;
	uint32_t counters_len;	/* the driver's counters when all has settled, without driver 0 */
	uint32_t points_len;
	uint32_t mark;		/* as PRINTED's answer */
};

/*
 * PROGRAM: one program.  The agent forks a fresh process 0 and runs the
 * operations; others come to life by HB_OP_SPAWN (fresh, no shared memory but
 * files) or HB_OP_FORK.  Each process has actors (threads), created when first
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
 * regions lie where they must; the agent knows).  Offsets are relative to it.
 */
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
#define HB_GLOBAL_PAGES		32	/* size of the GLOBAL region: .bss of the agent */

struct hb_program {		/* 64 bytes; then ops, then accesses */
	uint32_t version;
	uint32_t nops;
	uint32_t naccesses;
	uint32_t flags;		/* HB_PF_* */
	uint32_t timeout_ms;	/* of the whole program, HB_BUSY_TIMES that while it does work; then every process is killed and `timeout` set */
	uint32_t settle_ms;	/* how long live counters may take to return to zero; likewise */
	uint32_t file_pages[HB_MAX_FILES];	/* tmpfs files (memfd), created zeroed before process 0 */
	uint64_t seed;
	uint64_t pad[2];
};
#define HB_PF_COUNTERS		1	/* append the driver's counters (text) before and after */

struct hb_op {			/* 64 bytes */
	uint16_t op;		/* HB_OP_* */
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
#define HB_F_NOWAIT		0x2	/* do not wait for the GPU job (only before EXIT, KILL, CLOSE_GPU or WAIT_GPU) */
#define HB_F_WRITE_BACK		0x4

#define HB_OP_NOP		0
#define HB_OP_MMAP		1	/* region off len; arg = HB_MAP_*; a = PROT_*; b = file number; c = file offset */
#define HB_OP_MUNMAP		2	/* region off len */
#define HB_OP_MPROTECT		3	/* region off len; a = PROT_* */
#define HB_OP_MREMAP		4	/* region off len -> region arg, offset a, new length b; c = 1: DONTUNMAP */
#define HB_OP_MADVISE		5	/* region off len; a = MADV_* of Linux */
#define HB_OP_CPU_ACCESS	6	/* accesses in order by this actor (lane ignored); arg = repeat gap in ns between accesses (0 none) */
#define HB_OP_GPU_ACCESS	7	/* one launch; accesses of a lane in order, lanes at the same time; arg = threads a block (0: 32); a = budget */
#define HB_OP_GPU_COPY		8	/* region off len -> region arg, offset a; copy engine, virtual addresses */
#define HB_OP_GPU_FILL		9	/* region off len; a = 64-bit pattern */
#define HB_OP_MIGRATE		10	/* region off len; arg = HMM_GPU_MIGRATE_SYSTEM/DEVICE; a = flags. aux0 = migrated, aux1 = failed */
#define HB_OP_POLICY		11	/* arg = HMM_GPU_POLICY_* for this process */
#define HB_OP_EVICT		12	/* a = pages to evict from VRAM, 0 = all (debugfs) */
#define HB_OP_QUERY		13	/* region off len -> data: u32 a page */
#define HB_OP_FORK		14	/* arg = number of the child process; the child has no GPU file of its own yet */
#define HB_OP_SPAWN		15	/* arg = number of the new process */
#define HB_OP_EXIT		16	/* the process ends (_exit) */
#define HB_OP_KILL		17	/* kill -9 process arg (not itself), waits until it is gone */
#define HB_OP_WAIT_GPU		18	/* waits for the NOWAIT jobs of the process but the newest a; their results go to the results of their own operations */
#define HB_OP_SLEEP		19	/* a = microseconds */
#define HB_OP_GPU_SPIN		20	/* NOWAIT launch that runs until killed or budget a is used up */
#define HB_OP_CLOSE_GPU		21	/* closes contexts and the device file of the process; opened again when next needed */
#define HB_OP_KSM		22	/* a = 1: run ksmd now for a moment, 0: stop it */

/* HB_OP_MMAP arg */
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
#define HB_ACC_READ		0	/* 64 bit; result: what was read */
#define HB_ACC_WRITE		1
#define HB_ACC_ADD		2	/* result: old value */
#define HB_ACC_XCHG		3
#define HB_ACC_CAS		4
#define HB_ACC_READ32		5
#define HB_ACC_WRITE32		6
#define HB_ACC_DELAY		7	/* value = spins; no memory touched */

/*
 * Answer: result header, op results, access results, data bytes (QUERY), then
 * the two counter texts.  An op that did not run (its process is gone or the
 * program timed out) has HB_RES_SKIPPED.
 */
struct hb_result {		/* 64 bytes */
	uint32_t version;
	uint32_t nops;
	uint32_t naccesses;
	uint32_t data_len;
	uint32_t counters_before_len;
	uint32_t counters_after_len;
	uint32_t timeout;	/* the program did not end in time: HB_TIMEOUT_*, 0 if it did */
	uint32_t live_nonzero;	/* 1: live counters did not return to zero in settle_ms */
	uint64_t elapsed_ns;
	uint32_t died;		/* bit p: process p died from a signal that the program did not ask for */
	uint32_t died_signal;	/* of the first of them; 0x100 | code: the agent's own failure in that process */
	uint64_t stuck;		/* processes that even SIGKILL did not end in time */
	uint64_t pad;
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

struct hb_access_result {	/* 16 bytes */
	uint64_t value;		/* what was read, or the old value; 0 for WRITE and DELAY */
	uint32_t status;	/* HB_AST_* */
	uint32_t order;		/* CPU only: position in the actor's program, for reading traces */
};
#define HB_AST_NOT_DONE		0	/* not reached; the first such access of a lane may or may not have taken effect */
#define HB_AST_DONE		1
#define HB_AST_SIGSEGV		2	/* CPU access, caught */
#define HB_AST_SIGBUS		3

#endif
