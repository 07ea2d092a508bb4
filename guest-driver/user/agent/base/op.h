/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an operation is to the engine.
 *
 * A family is one file of ops/ (or of somebody else, see the Makefile's MORE_OPS,
 * or a reproducer itself): the functions, and one table with an entry for each
 * operation.  Nothing else has to know of a new one; the engine finds the tables
 * of what is linked.  Numbers and names are those of the classes in the bench's
 * model/ops/, which tests/host/guest/test_protocol.py compares.
 */
#ifndef HMMBENCH_OP_H
#define HMMBENCH_OP_H

#include "base.h"
#include "state.h"

/* One operation, being executed. */
struct op_call {
	unsigned index;			/* of it in the program */
	const struct hb_op *op;
	struct hb_op_result *result;	/* but for status and times, which are not its own matter */
	uint32_t *order;		/* of its actor: how many CPU accesses it has made */
};

/* What else there is to know of it, for checking a program and for its end. */
#define OP_MAIN_ONLY	0x01	/* done by actor 0 alone */
#define OP_BEARS	0x02	/* makes process arg */
#define OP_KILLS	0x04	/* ends process arg, another one */
#define OP_EXITS	0x08	/* the end of its process is its success */
#define OP_ACCESSES	0x10	/* has a list of accesses */
#define OP_LANES	0x20	/* ... that lanes of the GPU make */
#define OP_MAPS		0x40	/* arg is HB_MAP_*, which says where its region lies */
#define OP_GPU		0x80	/* opens the GPU */
#define OP_STORES	0x100	/* says where file b is: arg is STORE_* */

/* A status of fork alone: this is the new process, which has its life before it. */
#define OP_CHILD	INT32_MIN

struct op_kind {
	uint16_t number;		/* on the wire */
	const char *name;		/* in recipes and reproducers */
	int (*run)(const struct op_call *call);	/* the status: 0, -errno, or OP_CHILD */
	unsigned flags;			/* OP_* */
	void (*after)(void);		/* when a program with it is over, in the supervisor; or NULL */
};

struct op_family {
	unsigned count;
	const struct op_kind *kinds;
};

/* Makes a table known to the engine: OP_FAMILY(table); at the end of its file. */
#define OP_FAMILY(table)								\
	static const struct op_family table##_family = { ARRAY_SIZE(table), table };	\
	static const struct op_family *const table##_known				\
		__attribute__((used, section("hb_families"))) = &table##_family

/* The memory that most operations are about: region, off and len; NULL if it is not in the region. */
static inline void *op_range(const struct hb_op *op)
{
	return (void *)(uintptr_t)region_addr(op->region, op->off, op->len);
}

/* Room for an answer, at data_off of the result; NULL: there is none. */
static inline uint8_t *op_data(const struct op_call *call, uint64_t len)
{
	uint32_t at;

	len = (len + 7) & ~7ull;
	at = len > MAX_DATA ? MAX_DATA : atomic_fetch_add(&sh->data_used, len);
	if (at > MAX_DATA || len > MAX_DATA - at)
		return NULL;
	call->result->data_off = at;
	return sh->data + at;
}

#endif
