// SPDX-License-Identifier: GPL-2.0-or-later
/* Pages that nobody may touch, without an area of their own; areas that stay as they are. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "op.h"

/* Of Linux 6.13. */
#define GUARD_INSTALL	102
#define GUARD_REMOVE	103

#ifndef SYS_mseal
#define SYS_mseal	462
#endif

/* On memory that there is nothing to object to. */
static bool has_guards(void)
{
	void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	bool has = page == MAP_FAILED || madvise(page, PAGE_SIZE, GUARD_INSTALL) == 0;

	if (page != MAP_FAILED)
		munmap(page, PAGE_SIZE);
	return has;
}

static int op_guard(const struct op_call *call)
{
	void *addr = op_range(call->op);

	if (!addr || call->op->arg > 1)
		return -EINVAL;
	if (madvise(addr, call->op->len, call->op->arg ? GUARD_REMOVE : GUARD_INSTALL) == 0)
		return 0;
	if (errno == EINVAL && !has_guards())
		return -EOPNOTSUPP;
	return -errno;
}

static int op_seal(const struct op_call *call)
{
	void *addr = op_range(call->op);

	if (!addr)
		return -EINVAL;
	return syscall(SYS_mseal, addr, call->op->len, 0) ? -errno : 0;
}

static const struct op_kind guards[] = {
	/* region off len; arg = 0: nobody may touch it, 1: as its area says */
	{ 82, "guard", op_guard, 0, NULL },
	/* region off len: its areas stay as they are */
	{ 83, "seal", op_seal, 0, NULL },
};
OP_FAMILY(guards);
