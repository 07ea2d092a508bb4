/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A reproducer: one C file with a table of operations, run by the engine that
 * the guest's agent has.  `hmmbench replay --export-c` writes them; the command
 * that compiles one is at its top.
 *
 *	#include "repro.h"
 *
 *	static const struct repro_op ops[] = {
 *		{ OP(0, 0, 0, "mmap"), .len = 0x4000, .a = PROT_READ | PROT_WRITE, WANT(0) },
 *		{ OP(1, 0, 0, "cpu_access"), ACCESSES({ WRITE(0, 0x1000, 7) }) },
 *		{ OP(2, 0, 0, "gpu_access"), ACCESSES(
 *			{ READ(0, 0x1000, 7, 8) },
 *			{ WRITE(0, 0x2000, 9), .lane = 3 }), WANT(0) },
 *		{ OP(2, 0, 1, "cpu_access"), ACCESSES({ WRITE(0, 0x1000, 8) }) },
 *	};
 *	REPRO_MAIN(ops)
 *
 *	./repro [TIMES]		exit status: 0 nothing found, 1 violation, 3 environment
 *
 * OP(phase, process, actor, name): operations of a phase run at the same time if
 * process or actor (thread) differ, else in order; a phase begins when the one
 * before has ended.  What region, off, len, arg, a, b and c are to an operation
 * is said in the tables of ../ops/, what they are at all in ../base/program.h.
 * A C file may have operations of its own (../base/op.h).
 */
#ifndef HMMBENCH_REPRO_H
#define HMMBENCH_REPRO_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#include "hmm_gpu_drm.h"
#include "program.h"

/* How long a run may take, HB_BUSY_TIMES that while it does work. */
#ifndef REPRO_TIMEOUT_S
#define REPRO_TIMEOUT_S	60
#endif

struct repro_access {
	uint16_t kind, region;
	uint32_t lane;		/* thread of the launch */
	uint64_t off, value, expect;
	int signal;		/* of the CPU: what it has to meet; 0: it is done, -1: any of them */
	unsigned nallowed;	/* values it may see; 0: any */
	const uint64_t *allowed;	/* from [1] on */
};

/* Of a query: what HMM_GPU_Q_* under a mask are, of so many pages from this one of its range on. */
struct repro_pages {
	unsigned page, count;
	uint32_t mask, want;
};

struct repro_op {
	uint32_t phase;
	uint8_t proc, actor;
	const char *name;
	uint16_t region, flags;		/* HB_F_* */
	uint32_t arg;
	uint64_t off, len, a, b, c;
	const struct repro_access *accesses;
	unsigned naccesses;
	const struct repro_pages *pages;
	unsigned npages;
	int checked, status;		/* what it has to end with: 0 or -errno */
};

struct repro {
	const struct repro_op *ops;
	unsigned nops;
	uint32_t file_pages[HB_MAX_FILES];	/* of the files that are mapped */
	unsigned timeout_s;
};

#define OP(phase_, proc_, actor_, name_)						\
	.phase = (phase_), .proc = (proc_), .actor = (actor_), .name = (name_)
#define WANT(status_)		.checked = 1, .status = (status_)
#define ACCESSES(...)									\
	.accesses = (const struct repro_access[]){ __VA_ARGS__ },			\
	.naccesses = sizeof((const struct repro_access[]){ __VA_ARGS__ }) /		\
		     sizeof(struct repro_access)
#define PAGES(...)									\
	.pages = (const struct repro_pages[]){ __VA_ARGS__ },				\
	.npages = sizeof((const struct repro_pages[]){ __VA_ARGS__ }) /			\
		  sizeof(struct repro_pages)

#define REPRO_NARGS_(...) (sizeof((uint64_t[]){ 0, ##__VA_ARGS__ }) / 8 - 1)
#define REPRO_READ_(k, r, o, v, e, ...)							\
	.kind = (k), .region = (r), .off = (o), .value = (v), .expect = (e),		\
	.nallowed = REPRO_NARGS_(__VA_ARGS__), .allowed = (const uint64_t[]){ 0, ##__VA_ARGS__ }
/*
 * Fields of an access: region, offset, then what may be seen.  Those that change
 * memory see the old value.  In braces: { READ(0, 0x1000, 7), .lane = 3 }.
 */
#define READ(r, o, ...)		REPRO_READ_(HB_ACC_READ, r, o, 0, 0, ##__VA_ARGS__)
#define READ32(r, o, ...)	REPRO_READ_(HB_ACC_READ32, r, o, 0, 0, ##__VA_ARGS__)
#define ADD(r, o, v, ...)	REPRO_READ_(HB_ACC_ADD, r, o, v, 0, ##__VA_ARGS__)
#define XCHG(r, o, v, ...)	REPRO_READ_(HB_ACC_XCHG, r, o, v, 0, ##__VA_ARGS__)
#define CAS(r, o, v, e, ...)	REPRO_READ_(HB_ACC_CAS, r, o, v, e, ##__VA_ARGS__)
#define WRITE(r, o, v)		.kind = HB_ACC_WRITE, .region = (r), .off = (o), .value = (v)
#define WRITE32(r, o, v)	.kind = HB_ACC_WRITE32, .region = (r), .off = (o), .value = (v)
#define DELAY(v)		.kind = HB_ACC_DELAY, .value = (v)

/* main()'s part: its exit status. */
int repro_main(int argc, char **argv, const struct repro *what);

/* Behind the list: .file_pages = { ... }, if it maps files. */
#define REPRO_MAIN(list, ...)								\
	int main(int argc, char **argv)							\
	{										\
		static const struct repro what = {					\
			.ops = list, .nops = sizeof(list) / sizeof((list)[0]),		\
			.timeout_s = REPRO_TIMEOUT_S, ##__VA_ARGS__			\
		};									\
											\
		return repro_main(argc, argv, &what);					\
	}

#endif
