/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libhmmgpu: what the files of the library know of each other's objects.
 *
 * Constant from creation to destruction, but for what a lock or an atomic is
 * named at.  No lock is held across a call that may wait for the GPU.  What
 * event.c, args.c and buffer.c add to an object they take away by its `free` hook, so that a
 * program that does not use them does not link them.
 */
#ifndef HMMGPU_INTERNAL_H
#define HMMGPU_INTERNAL_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "hmmgpu.h"

struct event_pool;
struct args_chunk;
struct buffer;

struct hmmgpu {
	int fd;
	pid_t owner;		/* the process whose address space the file mirrors */
	uint32_t thread_slots;
	pthread_mutex_t lock;	/* guards events and all that belongs to it, and buffers */
	struct event_pool *events;
	void (*events_free)(struct event_pool *events);
	struct buffer *buffers;
	void (*buffers_free)(struct buffer *buffers);
};

/*
 * Stacks of a context.  A larger request makes a new mapping; the older ones
 * stay until the context ends because jobs already queued use them.
 */
struct local_memory {
	struct local_memory *next;
	void *base;
	size_t len;
	uint32_t size;		/* bytes a thread slot */
};

struct hmmgpu_ctx {
	struct hmmgpu *gpu;
	uint32_t id;
	pthread_mutex_t lock;		/* guards local, args and collected */
	struct local_memory *local;	/* largest size first */
	struct args_chunk *args;
	void (*args_free)(struct args_chunk *args);
	/* atomic: what was submitted */
	uint64_t last;			/* highest job number */
	uint64_t launches, copies, copy_bytes;
	/* what is known of jobs 1 .. collected.job; the rest of hmmgpu_ctx_stats() */
	struct {
		uint64_t job, failed, unknown, instrs;
	} collected;
	struct hmmgpu_ctx *next;	/* print.c */
	unsigned int launching;		/* atomic: launches not yet in `last` */
};

/* ioctl() that signals do not end; 0 or -errno */
int hg_call(int fd, unsigned long request, void *arg);

/* As hmmgpu_wait(), but nothing is printed: for callers with a lock. */
int hg_wait(struct hmmgpu_ctx *ctx, uint64_t job, int64_t timeout_ns,
	    struct hmmgpu_result *result);

/* print.c */
int hg_print_is_on(void);	/* whether a program that prints was ever loaded */
void hg_print_add_ctx(struct hmmgpu_ctx *ctx);
void hg_print_remove_ctx(struct hmmgpu_ctx *ctx);	/* its jobs are over */
int hg_print_add_program(const void *base, uint64_t len, uint64_t *buffer);
void hg_print_remove_program(const void *base);		/* of any program */

#endif
