/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_kernels.c as a program for one hart of riscv64 Linux without a C
 * library, to be run by qemu-riscv64: one thread does the work of all.
 *
 *   PROGRAM ROUNDS     prints CPU nanoseconds of the thread, and the sum
 */
#ifndef BENCH_USER_H
#define BENCH_USER_H

#include <stddef.h>
#include <stdint.h>

#include "bench_work.h"

#define HMM_KERNEL(name, type)                                                  \
	static __attribute__((noinline)) void name(type *args);                 \
	static __attribute__((noinline)) void name(type *args)

static inline uint64_t hmm_bid(void) { return 0; }
static inline uint64_t hmm_nbid(void) { return 1; }
static inline uint64_t hmm_tid(void) { return 0; }
static inline uint64_t hmm_ntid(void) { return 1; }
static inline uint64_t hmm_thread(void) { return 0; }
static inline uint64_t hmm_threads(void) { return 1; }
static inline void hmm_compiler_barrier(void) { __asm__ volatile("" ::: "memory"); }

static void bench_run(void *x, void *y, void *z, uint64_t n, uint64_t rounds);

#if defined(HASH)
#define BENCH_WORK WORK_HASH
#elif defined(SAXPY) || defined(STRIDED)
#define BENCH_WORK WORK_SAXPY
#else
#define BENCH_WORK WORK_MATMUL
#endif

/* System calls of riscv64 Linux (include/uapi/asm-generic/unistd.h). */
enum { BENCH_WRITE = 64, BENCH_EXIT = 93, BENCH_CLOCK_GETTIME = 113 };
enum { BENCH_THREAD_CPUTIME = 3 };	/* CLOCK_THREAD_CPUTIME_ID */

static long bench_call(long number, long a, long b, long c)
{
	register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
	register long a7 __asm__("a7") = number;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
	return a0;
}

static uint64_t bench_ns(void)
{
	int64_t t[2];			/* struct timespec */

	if (bench_call(BENCH_CLOCK_GETTIME, BENCH_THREAD_CPUTIME, (long)t, 0))
		bench_call(BENCH_EXIT, 3, 0, 0);
	return (uint64_t)t[0] * 1000000000u + (uint64_t)t[1];
}

static char *bench_put(char *end, uint64_t v, char after)
{
	*--end = after;
	do {
		*--end = (char)('0' + v % 10);
	} while (v /= 10);
	return end;
}

static double bench_x[CELLS], bench_y[CELLS], bench_z[CELLS];

/* sp as the kernel left it: argc, argv[0], argv[1] ... */
static __attribute__((used)) void bench_main(long *sp)
{
	uint64_t rounds = 0, began;
	char line[64], *at = line + sizeof(line);

	if (sp[0] != 2)
		bench_call(BENCH_EXIT, 2, 0, 0);
	for (const char *p = (const char *)sp[2]; *p; p++)
		rounds = rounds * 10 + (uint64_t)(*p - '0');
	work_fill(BENCH_WORK, bench_x, bench_y);
	began = bench_ns();
	bench_run(bench_x, bench_y, bench_z, work_n(BENCH_WORK, rounds, 1), rounds);
	began = bench_ns() - began;
	at = bench_put(at, work_sum(BENCH_WORK, bench_x, bench_y, bench_z, 1), '\n');
	at = bench_put(at, began, ' ');
	bench_call(BENCH_WRITE, 1, (long)at, line + sizeof(line) - at);
	bench_call(BENCH_EXIT, 0, 0, 0);
}

__asm__(".globl _start\n"
	"_start:\n"
	"	mv a0, sp\n"
	"	andi sp, sp, -16\n"
	"	call bench_main\n");

#endif /* BENCH_USER_H */
