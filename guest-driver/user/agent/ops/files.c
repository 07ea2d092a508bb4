// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on the program's files, by descriptor, and msync.
 *
 * All processes share a file's open description; nothing here uses its position.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "op.h"

/* The descriptor of file b; -1: there is none, or it would become larger than a region. */
static int file_of(const struct hb_op *op)
{
	if (op->b >= HB_MAX_FILES || op->c > HB_REGION_SIZE || op->len > HB_REGION_SIZE - op->c)
		return -1;
	return sh->file_fd[op->b];
}

static int op_truncate(const struct op_call *call)
{
	int fd = file_of(call->op);

	if (fd < 0)
		return -EBADF;
	return ftruncate(fd, call->op->c) ? -errno : 0;
}

static int op_punch(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	int fd = file_of(op);

	if (fd < 0)
		return -EBADF;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, op->c, op->len) ? -errno : 0;
}

static int op_file_read(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	int fd = file_of(op);
	ssize_t n;
	uint32_t at;

	if (fd < 0)
		return -EBADF;
	if (op->len > MAX_DATA)
		return -ENOSPC;
	at = atomic_fetch_add(&sh->data_used, (op->len + 7) & ~7ull);
	if (at > MAX_DATA || op->len > MAX_DATA - at)
		return -ENOSPC;
	n = pread(fd, sh->data + at, op->len, op->c);
	if (n < 0)
		return -errno;
	call->result->data_off = at;
	call->result->data_len = n;
	return 0;
}

static int op_file_write(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	uint64_t words[512];
	int fd = file_of(op);

	if (fd < 0)
		return -EBADF;
	for (unsigned k = 0; k < ARRAY_SIZE(words); k++)
		words[k] = op->a;
	for (uint64_t done = 0; done < op->len;) {
		uint64_t left = op->len - done;
		ssize_t n = pwrite(fd, words, left < sizeof(words) ? left : sizeof(words),
				   op->c + done);

		if (n < 0)
			return -errno;
		/* less than asked for: the next call says why */
		done += n;
	}
	return 0;
}

static int op_msync(const struct op_call *call)
{
	void *addr = op_range(call->op);

	if (!addr)
		return -EINVAL;
	return msync(addr, call->op->len, MS_SYNC) ? -errno : 0;
}

static const struct op_kind files[] = {
	/* b = file, c = its new size */
	{ 40, "truncate", op_truncate, 0, NULL },
	/* b = file, c = offset in it, len */
	{ 41, "punch", op_punch, 0, NULL },
	/* b = file, c = offset in it, len -> data */
	{ 42, "file_read", op_file_read, 0, NULL },
	/* b = file, c = offset in it, len; a = 64-bit pattern */
	{ 43, "file_write", op_file_write, 0, NULL },
	/* region off len */
	{ 44, "msync", op_msync, 0, NULL },
};
OP_FAMILY(files);
