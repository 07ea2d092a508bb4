// SPDX-License-Identifier: GPL-2.0-or-later
/* What the agent does for populate.py. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "op.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int op_populate(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	void *addr = op_range(op);

	if (!addr)
		return -EINVAL;
	return madvise(addr, op->len, MADV_POPULATE_WRITE) ? -errno : 0;
}

static const struct op_kind populate[] = {
	/* region off len */
	{ 300, "populate", op_populate, 0, NULL },
};
OP_FAMILY(populate);
