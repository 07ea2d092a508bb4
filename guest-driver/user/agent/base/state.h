/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * State of the program that runs, shared between its supervisor (the agent, or a
 * reproducer) and the program's processes.
 *
 * It is one MAP_SHARED mapping, made when the engine starts, at the same address
 * in every process, far from the regions, so that no operation of a program can
 * reach it; results in it survive whoever wrote them.  GPU kernels read their
 * tables and write their results there too.
 *
 * Who writes what, and when:
 *  - "constant": the supervisor, before process 0 is forked; then nobody.
 *  - results of an operation or access: its executing actor (or GPU thread)
 *    only, until its state is DONE; afterwards nobody, but for the job results
 *    that wait_gpu adds to NOWAIT operations of the same process.
 *  - state[i]: PENDING -> RUNNING -> DONE by the executing actor; by the
 *    supervisor after the process is dead, so never by two at a time.
 *  - first: see advance() of engine/proc.c.
 * All counters and states are accessed with sequentially consistent atomics.
 */
#ifndef HMMBENCH_STATE_H
#define HMMBENCH_STATE_H

#include <stdatomic.h>

#include "accesses.h"
#include "base.h"
#include "program.h"

struct op_kind;

#define SHARED_BASE	0x100000000000ull
#define MAX_LANES	0x100000	/* of all launches of a program */
#define MAX_DATA	0x1000000	/* bytes of query's results */
#define GPU_AREA	(HB_MAX_OPS * sizeof(struct acc_args) + MAX_LANES * sizeof(struct acc_lane) + \
			 HB_MAX_ACCESSES * (sizeof(struct acc_entry) + sizeof(struct hb_access_result)))

enum { PENDING, RUNNING, DONE };

enum slot_state {
	SLOT_NONE,		/* not born */
	SLOT_ALIVE,
	SLOT_GONE,		/* dead, or will never be born */
};

struct slot {
	_Atomic uint32_t state;		/* NONE -> ALIVE by the creator, the child or the supervisor, whoever is first; -> GONE by the supervisor, or by a creator that failed */
	_Atomic int32_t pid;		/* valid from ALIVE on; not reaped, so not used again, until the program ends */
	_Atomic uint32_t asked;		/* its end was asked for: exit or kill */
	_Atomic int32_t spawn;		/* futex: 0, SPAWN_ASKED, SPAWN_MADE, or -errno */
	_Atomic uint32_t held;		/* threads that wait because of `hold` */
};
/* One bit an actor of a process, for waking just those who are wanted. */
#define ACTOR_BIT(proc, actor)	(1u << ((proc) * HB_MAX_ACTORS + (actor)))
#define ALL_ACTORS		0xffffu

#define SPAWN_ASKED	1
#define SPAWN_MADE	2

struct shared {
	/* constant */
	struct hb_program prog;
	uint64_t region_base[HB_MAX_REGIONS];
	uint64_t region_size[HB_MAX_REGIONS];
	uint8_t region_kind[HB_MAX_REGIONS];	/* HB_MAP_STACK, HB_MAP_GLOBAL, or 0 for an ordinary one */
	uint8_t actors[HB_MAX_PROCS];		/* bit a: process has operations for actor a */
	int32_t file_fd[HB_MAX_FILES];
	/* STORE_*: where each is, which may be elsewhere than was asked for */
	uint8_t file_store[HB_MAX_FILES];
	int32_t kick_fd;			/* eventfd: wakes the supervisor */
	uint32_t phase_start[HB_MAX_OPS];	/* by operation: first operation of its phase */
	uint8_t phase_width[HB_MAX_OPS];	/* by first operation of a phase: (process, actor) pairs in it */
	uint16_t phase_actors[HB_MAX_OPS];	/* the same as bits, ACTOR_BIT() */
	/* in gpu_area */
	struct acc_args *gpu_args;		/* [nops]; all 0 for gpu_spin: nothing to touch, no stop word */
	struct acc_lane *gpu_lanes;
	struct acc_entry *gpu_entries;		/* [naccesses] */
	struct hb_access_result *results;	/* [naccesses]; not constant, of course */

	/* changing */
	_Atomic uint32_t first;			/* futex: number of leading operations that are DONE */
	_Atomic uint32_t waiters;		/* about how many sleep on it; too high after a kill */
	_Atomic uint32_t data_used;
	_Atomic uint8_t arrived[HB_MAX_OPS];	/* by first operation of a phase */
	_Atomic uint8_t state[HB_MAX_OPS];
	struct slot slot[HB_MAX_PROCS];
	/* times that the device was taken away, counted before it is */
	_Atomic uint32_t taken;
	_Atomic uint32_t hold;			/* futex: who has done its part waits; set before process 0 is forked, cleared by the supervisor */

	struct hb_op ops[HB_MAX_OPS];				/* constant */
	const struct op_kind *kind[HB_MAX_OPS];			/* constant; of each of them */
	struct hb_access accesses[HB_MAX_ACCESSES] __attribute__((aligned(4096)));	/* constant */
	struct hb_op_result op_results[HB_MAX_OPS];
	uint8_t data[MAX_DATA] __attribute__((aligned(4096)));
	/*
	 * What GPU kernels read and write, packed as the program needs it, so that
	 * a small one is a single page for the GPU to fault in.
	 */
	uint8_t gpu_area[GPU_AREA] __attribute__((aligned(4096)));
};

extern struct shared *const sh;

/* What others see while a program runs; processes of the program write it, too. */
struct told {
	_Atomic uint32_t under_way[HB_MAX_PROCS];	/* operations of each process that have begun and not ended, GPU jobs that nobody waits for among them; one count, lest a process dies between two */
	_Atomic uint32_t phase;		/* that has begun last, or the last one and 1, or HM_NO_PHASE */
};
/* Where it is; constant from when the engine has started. */
extern struct told *told;

/* Address of [off, off + len) in a region, or 0 if it does not lie in it. */
uint64_t region_addr(unsigned region, uint64_t off, uint64_t len);

/* Of this process; in the supervisor that of none. */
unsigned process_number(void);
/* From here on this process is that one; before it has threads. */
void process_is(unsigned number);
/* So many more of its operations are under way (fewer: < 0). */
void under_way(unsigned number, int more);

/* The supervisor has something to look at. */
void kick(void);
/* Makes a new process known; false if the program has already counted it as gone. */
bool announce(unsigned number, pid_t pid);

/* Sleeps while *word is value, or waits for one of these bits to be woken (0: any). */
void futex_wait(void *word, uint32_t value, uint32_t bits);
/* Wakes all who wait for one of these bits. */
void futex_wake_bits(void *word, uint32_t bits);
void futex_wake_all(void *word);

#endif
