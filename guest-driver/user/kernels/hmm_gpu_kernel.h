/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For programs that run on the hmm-gpu.  Plain C, compiled for RISC-V by a
 * stock clang:
 *
 *	clang --target=riscv64 -march=rv64ima -mabi=lp64 -mcmodel=medany -fPIE
 *	      -ffreestanding -O2 -g -c sum.c
 *	ld.lld -pie --no-dynamic-linker -e 0 -o sum.elf sum.o
 *
 *	#include "hmm_gpu_kernel.h"
 *	struct args { const uint32_t *in; uint32_t *out; uint32_t n; };
 *
 *	HMM_KERNEL(twice, struct args)
 *	{
 *		for (uint32_t i = hmm_thread(); i < args->n; i += hmm_threads())
 *			args->out[i] = 2 * args->in[i];
 *	}
 *
 * Every thread runs the function once with `args`, the pointer of the launch.
 * Pointers are those of the process.  There is no C library; the stack is the
 * size the launch asked for, and so is the memory that the threads of a block
 * share (hmm_shared()).  For float and double compile with -march=rv64imafd
 * -mabi=lp64d.  With -g the report of a failed job names the source line
 * (hmmgpu_result_report()).
 *
 * Memory order is RISC-V's (RVWMO): use hmm_fence() or the __atomic built-ins
 * between threads, and between GPU and CPU.  Atomics work on any memory.
 *
 * With HMM_GPU_NATIVE defined (tests), the same source compiles for the host:
 * the test sets hmm_native_ids and calls NAME(args) once a thread; kernels with
 * hmm_barrier(), and what needs a warp or a block, cannot be run that way.
 */
#ifndef HMM_GPU_KERNEL_H
#define HMM_GPU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "hmm_gpu_hw.h"

#ifdef HMM_GPU_NATIVE

struct hmm_native_ids {
	uint32_t tid, bid, ntid, nbid, lane, warp, sm;
	uint64_t time;
};
extern _Thread_local struct hmm_native_ids hmm_native_ids;

#define HMM_ID_(name, field, csr)						\
	static inline uint32_t name(void) { return hmm_native_ids.field; }
static inline uint64_t hmm_time(void) { return hmm_native_ids.time++; }
static inline uint64_t hmm_cycle(void) { return 0; }
static inline void hmm_barrier(void) { __builtin_trap(); }
static inline void hmm_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void hmm_compiler_barrier(void) { __asm__ volatile("" ::: "memory"); }

#define HMM_KERNEL(name, type)							\
	void name(type *args);							\
	void name(type *args)

#else

/* By number and .insn: assemblers differ in whether rv64ima includes the CSR instructions. */
#define HMM_CSR_READ_(csr) __extension__ ({					\
	uint64_t hmm_v_;							\
	__asm__ volatile(".insn i 0x73, 2, %0, x0, %1"				\
			 : "=r"(hmm_v_) : "i"((csr) - 4096));			\
	hmm_v_; })
#define HMM_ID_(name, field, csr)						\
	static inline uint32_t name(void) { return (uint32_t)HMM_CSR_READ_(csr); }

/* Virtual nanoseconds of the device; instructions taken by this thread. */
static inline uint64_t hmm_time(void) { return HMM_CSR_READ_(HG_CSR_TIME); }
static inline uint64_t hmm_cycle(void) { return HMM_CSR_READ_(HG_CSR_CYCLE); }

/* Ends this thread. */
static inline __attribute__((noreturn)) void hmm_exit(void)
{
	__asm__ volatile(".word %0" :: "i"(HG_INSN_EXIT) : "memory");
	__builtin_unreachable();
}

/* Waits for all threads of the block that have not ended; orders memory among them. */
static inline void hmm_barrier(void)
{
	__asm__ volatile("fence rw, rw\n\t.word %0" :: "i"(HG_INSN_BARRIER) : "memory");
}

static inline void hmm_fence(void) { __asm__ volatile("fence rw, rw" ::: "memory"); }
static inline void hmm_compiler_barrier(void) { __asm__ volatile("" ::: "memory"); }

/* The block's own memory, and how much the launch gave it; zero at the block's start. */
static inline void *hmm_shared(void) { return (void *)HG_SHARED_BASE; }
static inline uint32_t hmm_shared_size(void) { return (uint32_t)HMM_CSR_READ_(HG_CSR_SHARED); }

/*
 * Among the lanes of a warp.  Each of these first waits until all lanes that
 * have not ended do the same, so all of them must come here, and none may wait
 * for the block meanwhile.  One copy of the code, never inlined: the compiler
 * may not give lanes that branched copies of their own, at other addresses.
 * (Not noduplicate: clang then forgets noinline, and inlines it at every call.)
 */
#define HMM_WARP_ static __attribute__((noinline, convergent, unused))
#define HMM_SHUFFLE_(name, how)							\
	HMM_WARP_ uint64_t name(uint64_t value, uint32_t by)			\
	{									\
		__asm__ volatile(".word %2\n\t.insn r 0x0b, 2, %3, %0, %0, %1"	\
				 : "+r"(value)					\
				 : "r"((uint64_t)by), "i"(HG_INSN_WARP_SYNC), "i"(how) : "memory"); \
		return value;							\
	}
#define HMM_VOTE_(name, what)							\
	HMM_WARP_ uint32_t name(uint32_t flag)					\
	{									\
		uint64_t v_ = flag;						\
		__asm__ volatile(".word %1\n\t.insn r 0x0b, 3, %2, %0, %0, x0"	\
				 : "+r"(v_) : "i"(HG_INSN_WARP_SYNC), "i"(what) : "memory"); \
		return (uint32_t)v_;						\
	}
/* `value` of lane `by` modulo 32, own - by, own + by, own ^ by; the own one if there is none. */
HMM_SHUFFLE_(hmm_shuffle, HG_SHUFFLE_IDX)
HMM_SHUFFLE_(hmm_shuffle_up, HG_SHUFFLE_UP)
HMM_SHUFFLE_(hmm_shuffle_down, HG_SHUFFLE_DOWN)
HMM_SHUFFLE_(hmm_shuffle_xor, HG_SHUFFLE_XOR)
/* Mask of the lanes whose flag is not 0; is there one; are all. */
HMM_VOTE_(hmm_ballot, HG_VOTE_BALLOT)
HMM_VOTE_(hmm_any, HG_VOTE_ANY)
HMM_VOTE_(hmm_all, HG_VOTE_ALL)

/* A thread has no caller to return to, so the entry ends it after the body. */
#define HMM_KERNEL(name, type)							\
	static inline __attribute__((always_inline)) void name##_body(type *args); \
	__attribute__((noreturn, used)) void name(type *args);			\
	void name(type *args)							\
	{									\
		name##_body(args);						\
		hmm_exit();							\
	}									\
	static inline __attribute__((always_inline)) void name##_body(type *args)

#endif

HMM_ID_(hmm_tid, tid, HG_CSR_TID)	/* thread in its block */
HMM_ID_(hmm_bid, bid, HG_CSR_BID)	/* block in the grid */
HMM_ID_(hmm_ntid, ntid, HG_CSR_NTID)	/* threads a block */
HMM_ID_(hmm_nbid, nbid, HG_CSR_NBID)	/* blocks in the grid */
HMM_ID_(hmm_lane, lane, HG_CSR_LANE)
HMM_ID_(hmm_warp, warp, HG_CSR_WARP)
HMM_ID_(hmm_sm, sm, HG_CSR_SM)

/* Thread in the whole launch, and how many there are. */
static inline uint32_t hmm_thread(void) { return hmm_bid() * hmm_ntid() + hmm_tid(); }
static inline uint32_t hmm_threads(void) { return hmm_nbid() * hmm_ntid(); }

/* hmm_printf() */
#include "hmm_gpu_print.h"

#endif
