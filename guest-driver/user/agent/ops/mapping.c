// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on mappings, by system call. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "op.h"

static int result(int ret)
{
	return ret < 0 ? -errno : 0;
}

static int op_mmap(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	int flags = MAP_FIXED, fd = -1;
	void *addr = op_range(op);

	if (!addr)
		return -EINVAL;
	switch (op->arg) {
	case HB_MAP_ANON_PRIVATE: flags |= MAP_PRIVATE | MAP_ANONYMOUS; break;
	case HB_MAP_ANON_SHARED: flags |= MAP_SHARED | MAP_ANONYMOUS; break;
	case HB_MAP_FILE_PRIVATE: flags |= MAP_PRIVATE; break;
	case HB_MAP_FILE_SHARED: flags |= MAP_SHARED; break;
	case HB_MAP_HUGETLB_PRIVATE: flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB; break;
	case HB_MAP_HUGETLB_SHARED: flags |= MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB; break;
	case HB_MAP_STACK:
	case HB_MAP_GLOBAL:
		/* They are there; make them what a fresh mapping would be: zero, with this protection. */
		if (mprotect(addr, op->len, op->a))
			return -errno;
		return result(madvise(addr, op->len, MADV_DONTNEED));
	default:
		return -EINVAL;
	}
	if (!(flags & MAP_ANONYMOUS)) {
		if (op->b >= HB_MAX_FILES || sh->file_fd[op->b] < 0)
			return -EBADF;
		fd = sh->file_fd[op->b];
	}
	if (mmap(addr, op->len, op->a, flags, fd, fd >= 0 ? op->c : 0) == MAP_FAILED)
		return -errno;
	return 0;
}

static int op_munmap(const struct op_call *call)
{
	void *addr = op_range(call->op);

	return addr ? result(munmap(addr, call->op->len)) : -EINVAL;
}

static int op_mprotect(const struct op_call *call)
{
	void *addr = op_range(call->op);

	return addr ? result(mprotect(addr, call->op->len, call->op->a)) : -EINVAL;
}

static int op_mremap(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	void *addr = op_range(op);
	void *to = (void *)(uintptr_t)region_addr(op->arg, op->a, op->b);
	int flags = 0;

	if (!addr || !to)
		return -EINVAL;
	/* To the same address means: grow or shrink in place. */
	if (to != addr)
		flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	if (op->c == 1)
		flags |= MREMAP_DONTUNMAP;
	else if (op->c)
		return -EINVAL;
	if (mremap(addr, op->len, op->b, flags, to) == MAP_FAILED)
		return -errno;
	return 0;
}

static const struct op_kind mapping[] = {
	/* region off len; arg = HB_MAP_*; a = PROT_*; b = file number; c = file offset */
	{ 1, "mmap", op_mmap, OP_MAPS, NULL },
	/* region off len */
	{ 2, "munmap", op_munmap, 0, NULL },
	/* region off len; a = PROT_* */
	{ 3, "mprotect", op_mprotect, 0, NULL },
	/* region off len -> region arg, offset a, new length b; c = 1: DONTUNMAP */
	{ 4, "mremap", op_mremap, 0, NULL },
	/* as mmap, over what is there */
	{ 25, "replace", op_mmap, OP_MAPS, NULL },
};
OP_FAMILY(mapping);
