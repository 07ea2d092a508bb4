// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lives of the GPU's file: opened twice by one process, or by another user; passed
 * on, so that it outlives the memory that it mirrors; kept over exec.
 *
 * A descriptor on its way is in a socket that all processes of a program have.
 * What came of it a process holds, and its children of fork() with it; actor 0 alone
 * does any of this, so that nothing here needs a lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "op.h"

/* What exec leaves behind is told what to do by these words: a descriptor and a time. */
#define LEFT		"HMMBENCH_LEFT"
#define MAX_HELD	2

/* Constant from the start of the program on: the two ends, which nobody closes. */
static int post[2] = { -1, -1 };

static struct {
	int fd[MAX_HELD];	/* oldest first */
	unsigned n;
} kept;

static int ask(int fd, unsigned long request, void *arg)
{
	int ret;

	do {
		ret = ioctl(fd, request, arg);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

static int ask_param(int fd)
{
	struct drm_hmm_gpu_get_param p = { .param = HMM_GPU_PARAM_VERSION };

	return ask(fd, DRM_IOCTL_HMM_GPU_GET_PARAM, &p);
}

static int ask_migrate(int fd, uint64_t addr, uint64_t len)
{
	struct drm_hmm_gpu_migrate m = {
		.addr = addr, .len = len, .dst = HMM_GPU_MIGRATE_DEVICE,
	};

	return ask(fd, DRM_IOCTL_HMM_GPU_MIGRATE, &m);
}

static int ask_query(int fd, uint64_t addr)
{
	uint32_t flags = 0;
	struct drm_hmm_gpu_query q = { .addr = addr, .npages = 1, .ptr = (uintptr_t)&flags };

	return ask(fd, DRM_IOCTL_HMM_GPU_QUERY, &q);
}

static int ask_context(int fd)
{
	struct drm_hmm_gpu_ctx_create c = { 0 };
	struct drm_hmm_gpu_ctx_destroy d = { 0 };
	int ret = ask(fd, DRM_IOCTL_HMM_GPU_CTX_CREATE, &c);

	if (ret)
		return ret;
	d.ctx_id = c.ctx_id;
	return ask(fd, DRM_IOCTL_HMM_GPU_CTX_DESTROY, &d);
}

/*
 * The life after exec: the file is there, the memory that it mirrors is not, and
 * what is at its addresses now is none of its business.
 */
static void live_on(const char *words)
{
	struct timespec ts = { 0 };
	unsigned usec;
	int fd;

	if (sscanf(words, "%d %u", &fd, &usec) != 2)
		_exit(1);
	if (ask_param(fd) || ask_migrate(fd, HB_REGION_BASE, PAGE_SIZE) != -EPERM ||
	    ask_query(fd, HB_REGION_BASE) != -EPERM || ask_context(fd) != -EPERM)
		_exit(1);
	ts.tv_nsec = usec % 1000000 * 1000;
	nanosleep(&ts, NULL);
	_exit(0);
}

/* Before main(), so that whatever this is linked to can be executed again. */
static void lives_begin(void) __attribute__((constructor));

static void lives_begin(void)
{
	const char *words = getenv(LEFT);

	if (words)
		live_on(words);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, post))
		post[0] = post[1] = -1;
}

/* The descriptor of the GPU of this process, which is opened if it is not. */
static int own_fd(void)
{
	struct hmmgpu *dev;
	int ret = gpu_get(&dev, 0, NULL);

	return ret ? ret : hmmgpu_fd(dev);
}

static int take_one(void)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	int fd;

	if (recvmsg(post[1], &m, MSG_CMSG_CLOEXEC) < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return -EBADMSG;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* What nobody took is closed when the program is over, by the last who can. */
static void empty_mail(void)
{
	int fd;

	while ((fd = take_one()) >= 0)
		close(fd);
}

static int op_send_gpu(const struct op_call *call)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { "", 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	int fd = own_fd();

	(void)call;
	if (fd < 0)
		return fd;
	control.align.cmsg_len = CMSG_LEN(sizeof(int));
	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
	return sendmsg(post[0], &m, 0) < 0 ? -errno : 0;
}

static int op_receive_gpu(const struct op_call *call)
{
	int fd;

	(void)call;
	if (kept.n == MAX_HELD)
		return -ENOSPC;
	fd = take_one();
	if (fd < 0)
		return fd;
	kept.fd[kept.n++] = fd;
	return 0;
}

static int op_use_held(const struct op_call *call)
{
	uint64_t addr = (uintptr_t)op_range(call->op);
	int fd;

	if (!kept.n)
		return -ENOENT;
	fd = kept.fd[kept.n - 1];
	switch (call->op->arg) {
	case 0:
		kept.n--;
		return close(fd) ? -errno : 0;
	case 1: return ask_param(fd);
	case 2: return ask_context(fd);
	case 3: return ask_migrate(fd, addr, call->op->len);
	case 4: return ask_query(fd, addr);
	}
	return -EINVAL;
}

static int op_exec(const struct op_call *call)
{
	char words[64];
	char *argv[] = { "left", NULL }, *envp[] = { words, NULL };
	int fd = own_fd();

	if (fd < 0)
		return fd;
	if (fcntl(fd, F_SETFD, 0))
		return -errno;
	snprintf(words, sizeof(words), LEFT "=%d %u", fd, (unsigned)call->op->a);
	/* Its end is not asked for otherwise: an exit status says what was wrong there. */
	execve("/proc/self/exe", argv, envp);
	return -errno;
}

static int op_split_gpu(const struct op_call *call)
{
	return gpu_split(call->op->a != 0);
}

/* Of this thread alone, as the kernel has it. */
static int be_user(uid_t uid)
{
	return syscall(SYS_setresuid, -1, uid, -1) ? -errno : 0;
}

/* Closes the GPU, and opens it as somebody who has no privileges. */
static int op_open_as(const struct op_call *call)
{
	char link[32], node[64];
	struct hmmgpu *dev;
	int fd = own_fd(), ret, back, sig = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, node, sizeof(node) - 1);
	if (n < 0)
		return -errno;
	node[n] = 0;
	if (chmod(node, 0666))
		return -errno;
	ret = gpu_close();
	if (ret)
		return ret;
	/* The kernel forgets it when the user changes. */
	prctl(PR_GET_PDEATHSIG, &sig);
	ret = be_user(call->op->arg);
	if (ret)
		return ret;
	ret = gpu_get(&dev, 0, NULL);
	back = be_user(0);
	prctl(PR_SET_PDEATHSIG, sig);
	return ret ? ret : back;
}

static const struct op_kind lives[] = {
	/* a = 1: from now on the second context is of a second open of the file; 0: of the same one.  Closes the GPU */
	{ 30, "split_gpu", op_split_gpu, OP_MAIN_ONLY | OP_GPU, NULL },
	/* the descriptor of the GPU, by SCM_RIGHTS, to whoever takes it */
	{ 31, "send_gpu", op_send_gpu, OP_MAIN_ONLY | OP_GPU, empty_mail },
	/* the oldest that was sent and not taken */
	{ 32, "receive_gpu", op_receive_gpu, OP_MAIN_ONLY, NULL },
	/* the newest that is held; arg = 0: close, 1: ask for a parameter, 2: for a context, 3: migrate region off len, 4: query */
	{ 33, "use_held", op_use_held, OP_MAIN_ONLY, NULL },
	/* the process becomes another program that has the GPU's file, and ends a microseconds later */
	{ 34, "exec", op_exec, OP_MAIN_ONLY | OP_EXITS | OP_GPU, NULL },
	/* arg = user; closes the GPU and opens it as that one */
	{ 35, "open_as", op_open_as, OP_MAIN_ONLY | OP_GPU, NULL },
};
OP_FAMILY(lives);
