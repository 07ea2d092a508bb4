/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernels of bench.c, one a build (-DHASH, -DSAXPY, -DSTRIDED, -DMATMUL);
 * with -DBENCH_USER the same loops as a program for qemu-riscv64.
 *
 * STRIDED is SAXPY whose blocks take turns at the elements.  Two SMs then write
 * neighbouring cache lines of the host at the same time, and its cores prefetch
 * what the other one writes: how much is gained by the second one is a matter of
 * the host's caches more than of the engine.
 */
#ifdef BENCH_USER
#include "bench_user.h"
#else
#include "hmm_gpu_kernel.h"
#endif

struct args {
	void *x, *y, *z;
	uint64_t n, rounds;
};

HMM_KERNEL(start, struct args)
{
	uint64_t me = hmm_thread(), all = hmm_threads(), n = args->n;

#if defined(HASH)
	/* a multiply-xorshift hash of consecutive numbers; 12 instructions an element */
	const uint64_t c1 = 0xff51afd7ed558ccdull, c2 = 0xc4ceb9fe1a85ec53ull;
	uint64_t sum = 0, k = me;

#pragma clang loop unroll(disable)
	for (uint64_t i = 0; i < n; i++) {
		uint64_t h = k;

		h ^= h >> 33;
		h *= c1;
		h ^= h >> 29;
		h *= c2;
		h ^= h >> 32;
		sum += h;
		k += all;
	}
	((uint64_t *)args->x)[me] = sum;
#elif defined(SAXPY) || defined(STRIDED)
	const float *x = args->x;
	float *y = args->y, a = 0.3f;
#ifdef SAXPY
	uint64_t part = n / hmm_nbid(), first = hmm_bid() * part;
	uint64_t from = first + hmm_tid(), to = first + part, step = hmm_ntid();
#else
	uint64_t from = me, to = n, step = all;
#endif

	for (uint64_t r = 0; r < args->rounds; r++) {
#pragma clang loop unroll(disable)
		for (uint64_t i = from; i < to; i += step)
			y[i] = a * x[i] + y[i];
		hmm_compiler_barrier();
	}
#elif defined(MATMUL)
	/* z = x * y, 256 by 256; a thread computes one element at a time */
	enum { N = 256 };
	const double *x = args->x, *y = args->y;
	double *z = args->z;

	(void)n;
	for (uint64_t r = 0; r < args->rounds; r++) {
		for (uint64_t e = me; e < N * N; e += all) {
			uint64_t i = e / N, j = e % N;
			double sum = 0;

#pragma clang loop unroll(disable)
			for (uint64_t k = 0; k < N; k++)
				sum += x[i * N + k] * y[k * N + j];
			z[e] = sum;
		}
		hmm_compiler_barrier();
	}
#endif
}

#ifdef BENCH_USER
static void bench_run(void *x, void *y, void *z, uint64_t n, uint64_t rounds)
{
	struct args args = { x, y, z, n, rounds };

	start(&args);
}
#endif
