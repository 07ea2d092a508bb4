// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations that get hold of pages of the process: for a call, or for long. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "op.h"
#include "ring.h"

#define MOST		(4 * PAGE_SIZE)

enum how { HOW_VM_READ, HOW_VM_WRITE, HOW_PEEK, HOW_POKE, HOW_PIPE, HOW_DIRECT_OUT,
	   HOW_DIRECT_IN, HOW_FIXED_OUT, HOW_FIXED_IN };

enum by { BY_TEST, BY_RING, BY_PIPE };

/* The disk for direct I/O: the guest's init makes it. */
static const char disk[] = "/dev/zram1";
#define DISK_SLOTS	32	/* of MOST bytes, so that few operations meet there */

/* The kernel's own test of pins, in debugfs (its numbers). */
#define GUP_TEST	"/sys/kernel/debug/gup_test"
struct longterm {
	uint64_t addr;
	uint64_t size;
	uint32_t flags;
};
#define LONGTERM_START	_IOW('g', 7, struct longterm)
#define LONGTERM_STOP	_IO('g', 8)
#define LONGTERM_READ	_IOW('g', 9, uint64_t)
#define LONGTERM_WRITE	1	/* flags: pin for writing */

/* Of this process: the pin is its file's.  Actors pin in phases of their own. */
static int pin_fd = -1;
static void *pin_addr;
static uint64_t pin_size;
/* Or the reading end of a pipe that has the pages. */
static bool pin_piped;
/* Or the ring's, if pin_fd is that. */
static struct ring pin_ring = { .fd = -1 };

/* A child of fork has pinned nothing. */
static void forget(void)
{
	if (pin_fd >= 0 && pin_fd == pin_ring.fd)
		ring_forget(&pin_ring);
	else if (pin_fd >= 0)
		close(pin_fd);
	pin_fd = -1;
	pin_piped = false;
}

static void watch_forks(void) __attribute__((constructor));

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget);
}

static void fill(uint64_t *words, uint64_t len, uint64_t pattern)
{
	for (uint64_t k = 0; k < len / sizeof(*words); k++)
		words[k] = pattern;
}

static ssize_t through_pipe(void *addr, uint64_t len, uint8_t *data)
{
	struct iovec from = { addr, len };
	ssize_t got, n, done = 0;
	int fd[2];

	if (pipe2(fd, O_CLOEXEC))
		return -errno;
	got = vmsplice(fd[1], &from, 1, SPLICE_F_NONBLOCK);
	if (got < 0)
		got = -errno;
	while (done < got && (n = read(fd[0], data + done, got - done)) > 0)
		done += n;
	close(fd[0]);
	close(fd[1]);
	return got < 0 ? got : done;
}

/* What a debugger does for us, and what came of it; both sides have it in their memory. */
struct peek {
	pid_t tid;
	char *addr;
	uint64_t *words;
	uint64_t len;
	bool write;
	ssize_t done;
};

/*
 * The debugger: another process in the same memory, so that no page of ours is
 * shared because of it.  Who asked for it waits; its errno may change.
 */
static int debugger(void *arg)
{
	struct peek *p = arg;
	int status;

	p->done = -EIO;
	if (ptrace(PTRACE_SEIZE, p->tid, NULL, NULL) ||
	    ptrace(PTRACE_INTERRUPT, p->tid, NULL, NULL) ||
	    waitpid(p->tid, &status, __WALL) != p->tid)
		return 1;
	for (uint64_t k = 0; k < p->len / 8; k++) {
		void *at = p->addr + 8 * k;
		/* the system call: glibc's gives back the word itself */
		long ret = p->write ?
			   syscall(SYS_ptrace, PTRACE_POKEDATA, p->tid, at, p->words[k]) :
			   syscall(SYS_ptrace, PTRACE_PEEKDATA, p->tid, at, &p->words[k]);

		if (ret)
			break;
		p->done = 8 * (k + 1);
	}
	ptrace(PTRACE_DETACH, p->tid, NULL, NULL);
	return 0;
}

static ssize_t through_debugger(void *addr, uint64_t len, void *data, bool write)
{
	static _Thread_local uint8_t stack[8192] __attribute__((aligned(16)));
	struct peek p = {
		.tid = syscall(SYS_gettid), .addr = addr, .words = data, .len = len, .write = write,
	};
	pid_t pid = clone(debugger, stack + sizeof(stack), CLONE_VM | SIGCHLD, &p);
	pid_t got;

	if (pid < 0)
		return -errno;
	do
		got = waitpid(pid, NULL, 0);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : p.done;
}

/* By the disk, from the memory (@out) or to it; @data is aligned as the disk wants it. */
static ssize_t through_disk(int fd, const struct op_call *call, void *addr, void *data, bool out)
{
	off_t slot = (call->index % DISK_SLOTS) * MOST;
	uint64_t len = call->op->len;
	ssize_t n = pwrite(fd, out ? addr : data, len, slot);

	if (n == (ssize_t)len)
		n = pread(fd, out ? data : addr, len, slot);
	return n < 0 ? -errno : n;
}

/* The same by a buffer that is registered meanwhile, and so pinned for writing. */
static ssize_t through_ring(int fd, const struct op_call *call, void *addr, void *data, bool out)
{
	off_t slot = (call->index % DISK_SLOTS) * MOST;
	uint64_t len = call->op->len;
	struct ring ring;
	ssize_t n = ring_open(&ring, addr, len);
	int ret;

	if (n < 0)
		return n;
	n = len;
	if (!out)
		n = pwrite(fd, data, len, slot) < 0 ? -errno : n;
	if (n == (ssize_t)len)
		n = ring_io(&ring, out, fd, addr, len, slot);
	if (out && n == (ssize_t)len)
		n = pread(fd, data, len, slot) < 0 ? -errno : n;
	ret = ring_close(&ring);
	return ret < 0 && n >= 0 ? ret : n;
}

/* The disk, or a file that any kernel has; each has room for all slots. */
static int open_disk(bool direct)
{
	int fd = open(disk, O_RDWR | O_DIRECT | O_CLOEXEC);

	return fd < 0 && !direct ? memfd_create("disk", MFD_CLOEXEC) : fd;
}

static int op_pin_io(const struct op_call *call)
{
	static _Thread_local uint8_t buffer[MOST] __attribute__((aligned(4096)));
	const struct hb_op *op = call->op;
	struct iovec local = { buffer, op->len }, remote = { op_range(op), op->len };
	bool writes = op->arg == HOW_VM_WRITE || op->arg == HOW_POKE ||
		      op->arg == HOW_DIRECT_IN || op->arg == HOW_FIXED_IN;
	enum how how = op->arg;
	pid_t pid = getpid();
	uint8_t *data;
	ssize_t n;
	int fd = -1;

	if (!remote.iov_base || op->len > MOST || op->arg > HOW_FIXED_IN || op->b > HB_MAX_PROCS)
		return -EINVAL;
	if (op->b)
		pid = atomic_load(&sh->slot[op->b - 1].pid);
	data = writes ? NULL : op_data(call, op->len);
	if (!writes && !data)
		return -ENOSPC;
	if (writes)
		fill((uint64_t *)buffer, MOST, op->a);
	if (how == HOW_DIRECT_OUT || how == HOW_DIRECT_IN)
		fd = open_disk(true);
	if (how == HOW_FIXED_OUT || how == HOW_FIXED_IN) {
		fd = open_disk(false);
		n = fd < 0 ? -errno : through_ring(fd, call, remote.iov_base, buffer, !writes);
		close(fd);
		if (n == -EOPNOTSUPP)
			how = writes ? HOW_VM_WRITE : HOW_VM_READ;
	}
	/* Without a disk or a ring, by a way that every kernel has. */
	if (how == HOW_DIRECT_OUT && fd < 0)
		how = HOW_VM_READ;
	if (how == HOW_DIRECT_IN && fd < 0)
		how = HOW_VM_WRITE;
	switch (how) {
	case HOW_VM_READ:
		n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
		n = n < 0 ? -errno : n;
		break;
	case HOW_VM_WRITE:
		n = process_vm_writev(pid, &local, 1, &remote, 1, 0);
		n = n < 0 ? -errno : n;
		break;
	case HOW_PEEK:
	case HOW_POKE:
		n = through_debugger(remote.iov_base, op->len, buffer, writes);
		break;
	case HOW_PIPE:
		n = through_pipe(remote.iov_base, op->len, buffer);
		break;
	case HOW_FIXED_OUT:
	case HOW_FIXED_IN:
		break;
	default:
		n = through_disk(fd, call, remote.iov_base, buffer, !writes);
		close(fd);
	}
	if (n < 0)
		return n;
	call->result->aux0 = n;
	call->result->aux1 = how != op->arg;
	if (!writes) {
		memcpy(data, buffer, n);
		call->result->data_len = n;
	}
	return 0;
}

/* A pipe has references to its pages, until it is read or closed. */
static int pin_by_pipe(void)
{
	struct iovec all = { pin_addr, pin_size };
	int end[2], ret = 0;
	ssize_t n = 0;

	if (pipe2(end, O_CLOEXEC))
		return -errno;
	if (fcntl(end[1], F_SETPIPE_SZ, (int)pin_size) < 0)
		n = -1;
	else
		n = vmsplice(end[1], &all, 1, 0);
	if (n != (ssize_t)pin_size)
		ret = n < 0 ? -errno : -EIO;
	close(end[1]);
	pin_fd = end[0];
	pin_piped = true;
	return ret;
}

static int op_pin(const struct op_call *call)
{
	struct longterm pin = {
		.addr = (uintptr_t)op_range(call->op), .size = call->op->len, .flags = LONGTERM_WRITE,
	};
	int ret = 0;

	if (!pin.addr || !pin.size || pin.size > MOST || call->op->arg > BY_PIPE)
		return -EINVAL;
	if (pin_fd >= 0)
		return -EBUSY;
	pin_addr = op_range(call->op);
	pin_size = pin.size;
	if (call->op->arg == BY_PIPE)
		return pin_by_pipe();
	if (call->op->arg == BY_RING) {
		ret = ring_open(&pin_ring, pin_addr, pin_size);
		pin_fd = pin_ring.fd;
		return ret;
	}
	pin_fd = open(GUP_TEST, O_RDWR | O_CLOEXEC);
	if (pin_fd < 0)
		return -EOPNOTSUPP;
	if (ioctl(pin_fd, LONGTERM_START, &pin)) {
		ret = -errno;
		close(pin_fd);
		pin_fd = -1;
		return ret;
	}
	return 0;
}

/* What is in the pages of the ring's buffer, by way of a file. */
static int unpin_ring(uint8_t *data)
{
	int file = memfd_create("pin", MFD_CLOEXEC), ret;
	ssize_t n = file < 0 ? -errno : !data ? -ENOSPC :
		    ring_io(&pin_ring, true, file, pin_addr, pin_size, 0);

	if (n >= 0 && (n != (ssize_t)pin_size || pread(file, data, pin_size, 0) != n))
		n = -EIO;
	close(file);
	ret = ring_close(&pin_ring);
	pin_fd = -1;
	return n < 0 ? (int)n : ret;
}

static int op_unpin(const struct op_call *call)
{
	uint64_t addr;
	uint8_t *data;
	int ret = 0;

	if (pin_fd < 0)
		return -EBADF;
	if (pin_piped) {
		close(pin_fd);
		pin_fd = -1;
		pin_piped = false;
		return 0;
	}
	data = op_data(call, pin_size);
	if (pin_fd == pin_ring.fd) {
		ret = unpin_ring(data);
		call->result->data_len = ret ? 0 : pin_size;
		return ret;
	}
	addr = (uintptr_t)data;
	if (!data)
		ret = -ENOSPC;
	else if (ioctl(pin_fd, LONGTERM_READ, &addr))
		ret = -errno;
	else
		call->result->data_len = pin_size;
	/* A child of fork has the file, too, until its forget(). */
	if (ioctl(pin_fd, LONGTERM_STOP) && !ret)
		ret = -errno;
	close(pin_fd);
	pin_fd = -1;
	return ret;
}

static const struct op_kind pins[] = {
	/*
	 * region off len; arg = HOW_*; a = 64-bit pattern; b = 1 + whose memory, 0 = own. aux0 =
	 * bytes, aux1 = 1: by another way, what this one needs is not there; what is read -> data
	 */
	{ 50, "pin_io", op_pin_io, 0, NULL },
	/* region off len; arg = BY_* */
	{ 51, "pin", op_pin, 0, NULL },
	/* -> data: what is in the pages */
	{ 52, "unpin", op_unpin, 0, NULL },
};
OP_FAMILY(pins);
