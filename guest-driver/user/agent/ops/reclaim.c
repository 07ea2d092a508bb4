// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory is taken from a process by others: what it is told to give, and what its group may not
 * have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "op.h"

#ifndef SYS_process_madvise
#define SYS_process_madvise	440
#endif

#define ROOT	"/sys/fs/cgroup/"
#define GROUP	ROOT "hmmbench"

enum how { HOW_JOIN, HOW_RECLAIM, HOW_HIGH };

static int op_process_madvise(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	struct iovec v = { op_range(op), op->len };
	ssize_t done;
	int fd, err;

	if (!v.iov_base || op->b >= HB_MAX_PROCS)
		return -EINVAL;
	fd = syscall(SYS_pidfd_open, atomic_load(&sh->slot[op->b].pid), 0);
	if (fd < 0)
		return -errno;
	done = syscall(SYS_process_madvise, fd, &v, 1, (int)op->a, 0);
	err = errno;
	close(fd);
	if (done < 0)
		return err == ENOSYS ? -EOPNOTSUPP : -err;
	call->result->aux0 = done;
	return 0;
}

static int join(void)
{
	char text[32];
	int ret;

	if (mkdir(GROUP, 0755) && errno != EEXIST)
		return errno == ENOENT || errno == EROFS || errno == EPERM ? -EOPNOTSUPP : -errno;
	write_text(ROOT "cgroup.subtree_control", "+memory");
	if (access(GROUP "/memory.high", F_OK))
		return -EOPNOTSUPP;
	snprintf(text, sizeof(text), "%d", getpid());
	ret = write_text(GROUP "/cgroup.procs", text);
	return ret == -ENOENT ? -EOPNOTSUPP : ret;
}

/* The processes are gone, but the kernel may still be about it. */
static void disband(void)
{
	for (int i = 0; i < 20 && rmdir(GROUP) && errno == EBUSY; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/*
 * What is above goes while this is written; afterwards nobody is made to wait who does not
 * wait already.  We as a rule are not: opened in between, the file would be charged for, and
 * whoever is charged then waits for seconds.
 */
static int press(const char *text)
{
	int fd = open(GROUP "/memory.high", O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0 || write(fd, "max", 3) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int op_memcg(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	char text[32];
	int ret;

	snprintf(text, sizeof(text), "%lluK", (unsigned long long)op->a);
	switch (op->arg) {
	case HOW_JOIN:
		return join();
	case HOW_RECLAIM:
		ret = write_text(GROUP "/memory.reclaim", text);
		break;
	case HOW_HIGH:
		ret = press(text);
		break;
	default:
		return -EINVAL;
	}
	/* There was not as much to take. */
	if (ret == -EAGAIN || ret == -EINTR)
		return 0;
	return ret == -ENOENT ? -EOPNOTSUPP : ret;
}

static const struct op_kind reclaims[] = {
	/* region off len of process b; a = MADV_* of Linux.  aux0 = bytes */
	{ 87, "process_madvise", op_process_madvise, 0, NULL },
	/*
	 * arg = HOW_*; a = KiB: to take, or to leave.  What is charged is what comes after the
	 * process has joined
	 */
	{ 88, "memcg", op_memcg, 0, disband },
};
OP_FAMILY(reclaims);
