/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An io_uring with one registered buffer: memory that is pinned for long, for writing,
 * from ring_open() to ring_close(), and that is read and written by that pin, whatever
 * the page table says.  Used by one thread at a time.
 */
#ifndef HMMBENCH_RING_H
#define HMMBENCH_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ring {
	int fd;
	void *rings, *sqes;
	size_t rings_size, sqes_size;
	uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	void *cqes;
};

/* Pins the buffer; -EOPNOTSUPP: the kernel has no io_uring, or not for us; or another -errno. */
int ring_open(struct ring *r, void *buffer, size_t len);
/* Bytes of the buffer that went to the file, or came from it; or -errno. */
ssize_t ring_io(struct ring *r, bool to_file, int file, void *buffer, size_t len, off_t at);
/* The pages are let go when it returns, also if others have the ring. */
int ring_close(struct ring *r);
/* In a child of fork: it has the ring no more, whoever else does. */
void ring_forget(struct ring *r);

#endif
