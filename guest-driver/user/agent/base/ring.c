// SPDX-License-Identifier: GPL-2.0-or-later
/* io_uring, by its system calls alone: see ring.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ring.h"

#define ENTRIES	2

void ring_forget(struct ring *r)
{
	if (r->rings != MAP_FAILED)
		munmap(r->rings, r->rings_size);
	if (r->sqes != MAP_FAILED)
		munmap(r->sqes, r->sqes_size);
	close(r->fd);
	r->fd = -1;
}

static bool map(struct ring *r, const struct io_uring_params *p)
{
	size_t sq = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
	size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	uint8_t *at;

	r->rings_size = sq > cq ? sq : cq;
	r->sqes_size = p->sq_entries * sizeof(struct io_uring_sqe);
	r->rings = mmap(NULL, r->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
			IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		       IORING_OFF_SQES);
	if (r->rings == MAP_FAILED || r->sqes == MAP_FAILED)
		return false;
	at = r->rings;
	r->sq_tail = (uint32_t *)(at + p->sq_off.tail);
	r->sq_mask = (uint32_t *)(at + p->sq_off.ring_mask);
	r->sq_array = (uint32_t *)(at + p->sq_off.array);
	r->cq_head = (uint32_t *)(at + p->cq_off.head);
	r->cq_tail = (uint32_t *)(at + p->cq_off.tail);
	r->cq_mask = (uint32_t *)(at + p->cq_off.ring_mask);
	r->cqes = at + p->cq_off.cqes;
	return true;
}

int ring_open(struct ring *r, void *buffer, size_t len)
{
	struct io_uring_params p = { 0 };
	struct iovec whole = { buffer, len };
	int ret;

	r->rings = r->sqes = MAP_FAILED;
	/* (It closes on exec by itself.) */
	r->fd = syscall(SYS_io_uring_setup, ENTRIES, &p);
	if (r->fd < 0)
		return -EOPNOTSUPP;
	if (!(p.features & IORING_FEAT_SINGLE_MMAP) || !map(r, &p)) {
		ring_forget(r);
		return -EOPNOTSUPP;
	}
	if (syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_BUFFERS, &whole, 1)) {
		ret = -errno;
		ring_forget(r);
		return ret;
	}
	return 0;
}

ssize_t ring_io(struct ring *r, bool to_file, int file, void *buffer, size_t len, off_t at)
{
	uint32_t tail = *r->sq_tail, slot = tail & *r->sq_mask, head;
	struct io_uring_sqe *sqe = (struct io_uring_sqe *)r->sqes + slot;
	ssize_t ret;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = to_file ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
	sqe->fd = file;
	sqe->addr = (uintptr_t)buffer;
	sqe->len = len;
	sqe->off = at;
	r->sq_array[slot] = slot;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 0, 0, NULL, 0) < 0)
		return -errno;
	head = *r->cq_head;
	while (__atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) == head)
		if (syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 &&
		    errno != EINTR)
			return -errno;
	ret = ((struct io_uring_cqe *)r->cqes)[head & *r->cq_mask].res;
	__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	return ret;
}

int ring_close(struct ring *r)
{
	int ret = syscall(SYS_io_uring_register, r->fd, IORING_UNREGISTER_BUFFERS, NULL, 0) ?
		  -errno : 0;

	ring_forget(r);
	return ret;
}
