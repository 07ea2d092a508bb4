// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Push-relabel on a grid, without locks.  A node belongs to one thread, and only
 * that thread takes from its excess and from what its arcs can still carry; others
 * only add.  So what the thread has seen is there, whatever happens meanwhile.
 */
#include <stdbool.h>

#include "hmm_gpu_kernel.h"

#define ARCS	4	/* left, right, up, down; arc a ^ 1 leads back */

struct args {
	int32_t *left;		/* [nodes][ARCS]: how much more an arc carries */
	int32_t *to_sink;	/* [nodes] */
	int32_t *excess;	/* [nodes] */
	int32_t *height;	/* [nodes]; of the sink: 0 */
	int64_t *arrived;	/* at the sink */
	uint64_t width;
	uint64_t nodes;		/* a multiple of width */
	uint64_t rounds;
};

static inline int32_t look(const int32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline void add(int32_t *p, int32_t by)
{
	__atomic_fetch_add(p, by, __ATOMIC_RELAXED);
}

/* Where arc a of u leads; out of the grid an arc carries nothing, so its end does not matter. */
static inline uint64_t end(const struct args *args, uint64_t u, uint32_t a)
{
	int64_t w = (int64_t)args->width;
	int64_t step = a == 0 ? -1 : a == 1 ? 1 : a == 2 ? -w : w;

	return u + (uint64_t)step;
}

static inline int32_t least(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

/* One push or relabel of a node that has too much; false if there is nothing to do for it. */
static inline bool discharge(const struct args *args, uint64_t u)
{
	int32_t have = look(&args->excess[u]), lowest = INT32_MAX, amount;
	uint32_t best = ARCS;

	if (have <= 0 || look(&args->height[u]) >= (int32_t)args->nodes)
		return false;
	amount = look(&args->to_sink[u]);
	if (amount > 0) {
		amount = least(amount, have);
		add(&args->to_sink[u], -amount);
		add(&args->excess[u], -amount);
		__atomic_fetch_add(args->arrived, amount, __ATOMIC_RELAXED);
		return true;
	}
	for (uint32_t a = 0; a < ARCS; a++) {
		int32_t height;

		if (look(&args->left[u * ARCS + a]) <= 0)
			continue;
		height = look(&args->height[end(args, u, a)]);
		if (height < lowest) {
			lowest = height;
			best = a;
		}
	}
	if (best == ARCS)
		lowest = (int32_t)args->nodes;
	if (look(&args->height[u]) <= lowest) {
		/* Nothing but this thread writes it. */
		__atomic_store_n(&args->height[u], least(lowest + 1, (int32_t)args->nodes),
				 __ATOMIC_RELAXED);
		return true;
	}
	amount = least(look(&args->left[u * ARCS + best]), have);
	add(&args->left[u * ARCS + best], -amount);
	add(&args->left[end(args, u, best) * ARCS + (best ^ 1)], amount);
	add(&args->excess[u], -amount);
	add(&args->excess[end(args, u, best)], amount);
	return true;
}

/*
 * A block has a band of the grid, whose threads go round by round, and leaves when a round
 * finds nothing to do.  What other blocks push into it later is for the next launch.
 */
HMM_KERNEL(push_relabel, struct args)
{
	uint64_t each = (args->nodes + hmm_nbid() - 1) / hmm_nbid();
	uint64_t first = hmm_bid() * each, last = first + each;
	/*
	 * Whether a round did something: written before its barrier, read after it, and cleared
	 * by the round before the next that uses it, two barriers later.
	 */
	uint32_t *busy = hmm_shared();

	if (last > args->nodes)
		last = args->nodes;
	for (uint64_t r = 0; r < args->rounds; r++) {
		if (hmm_tid() == 0)
			__atomic_store_n(&busy[(r + 1) % 3], 0, __ATOMIC_RELAXED);
		for (uint64_t u = first + hmm_tid(); u < last; u += hmm_ntid())
			if (discharge(args, u))
				__atomic_store_n(&busy[r % 3], 1, __ATOMIC_RELAXED);
		hmm_barrier();
		if (!__atomic_load_n(&busy[r % 3], __ATOMIC_RELAXED))
			break;
	}
}
