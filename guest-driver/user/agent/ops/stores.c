// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on what lies behind the program's files: where they are, and write-back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "op.h"
#include "store.h"

enum how { HOW_FSYNC, HOW_RANGE, HOW_START, HOW_DROP, HOW_DROP_ALL, HOWS };

/* All is done before the program begins (engine/prepare.c); this says what came of it. */
static int op_store(const struct op_call *call)
{
	const struct hb_op *op = call->op;

	if (op->b >= HB_MAX_FILES || op->arg >= STORES)
		return -EINVAL;
	call->result->aux0 = sh->file_store[op->b];
	return sh->file_store[op->b] == op->arg ? 0 : -EOPNOTSUPP;
}

static int op_write_back(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	int fd = op->b < HB_MAX_FILES ? sh->file_fd[op->b] : -1, ret;

	if (fd < 0 || op->arg >= HOWS || op->c > HB_REGION_SIZE || op->len > HB_REGION_SIZE)
		return -EINVAL;
	switch ((enum how)op->arg) {
	case HOW_FSYNC:
		return fsync(fd) ? -errno : 0;
	case HOW_RANGE:
	case HOW_START:
		ret = sync_file_range(fd, op->c, op->len, op->arg == HOW_START ?
				      SYNC_FILE_RANGE_WRITE :
				      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				      SYNC_FILE_RANGE_WAIT_AFTER);
		return ret ? -errno : 0;
	case HOW_DROP:
		return -posix_fadvise(fd, op->c, op->len, POSIX_FADV_DONTNEED);
	default:
		/* of all file systems; who may not do that leaves it */
		ret = write_text("/proc/sys/vm/drop_caches", "1");
		return ret == -EACCES || ret == -EROFS || ret == -EPERM ? 0 : ret;
	}
}

static const struct op_kind stores[] = {
	/* b = file, arg = STORE_*. aux0 = where it is */
	{ 45, "store", op_store, OP_STORES, NULL },
	/* b = file, c = offset in it, len, arg = HOW_* */
	{ 46, "write_back", op_write_back, 0, NULL },
};
OP_FAMILY(stores);
