// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: launches whose arguments are copied.
 *
 * The copies lie in chunks of a context, one after the other.  A chunk is used
 * again from its start when it is not the one in use, no launch from it is
 * between its copy and its job number (`launching`), and the last job that has
 * arguments in it is done; jobs of a context end in order, so all others are.
 * The chunk is guarded by ctx->lock; the copy in it belongs to its launch, then to
 * the job.  Chunks go with the context.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define CHUNK_BYTES	65536
#define ALIGN		64

struct args_chunk {
	struct args_chunk *next;	/* the one in use comes first */
	char *base;
	size_t used;
	unsigned int launching;
	uint64_t last;			/* job, 0: none */
};

static void free_chunks(struct args_chunk *c)
{
	while (c) {
		struct args_chunk *next = c->next;

		munmap(c->base, CHUNK_BYTES);
		free(c);
		c = next;
	}
}

static struct args_chunk *new_chunk(void)
{
	struct args_chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->base = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c->base == MAP_FAILED) {
		free(c);
		return NULL;
	}
	return c;
}

static int is_idle(struct hmmgpu_ctx *ctx, const struct args_chunk *c)
{
	int ret;

	if (c->launching)
		return 0;
	ret = c->last ? hg_wait(ctx, c->last, 0, NULL) : 0;
	return ret == 0 || ret == -ENODATA;	/* so old that its result is forgotten */
}

/* The chunk in use, with room for size bytes; ctx->lock is held. */
static struct args_chunk *get_chunk(struct hmmgpu_ctx *ctx, size_t size)
{
	struct args_chunk *c = ctx->args, **at;

	if (c && CHUNK_BYTES - c->used >= size)
		return c;
	/* all but the first are full: the one that was first the longest ago is last */
	for (at = &ctx->args; *at && (*at)->next; at = &(*at)->next)
		;
	if (*at && is_idle(ctx, *at)) {
		c = *at;
		*at = NULL;
		c->used = 0;
		c->last = 0;
	} else {
		c = new_chunk();
		if (!c)
			return NULL;
	}
	c->next = ctx->args;
	ctx->args = c;
	ctx->args_free = free_chunks;
	return c;
}

int hmmgpu_launch_args(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch,
		       const void *args, size_t size, uint64_t *job)
{
	struct hmmgpu_launch l = *launch;
	size_t room = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	struct args_chunk *c;
	uint64_t number;
	char *copy;
	int ret;

	if (l.args || !size || size > HMMGPU_MAX_ARGS)
		return -EINVAL;
	pthread_mutex_lock(&ctx->lock);
	c = get_chunk(ctx, room);
	if (!c) {
		pthread_mutex_unlock(&ctx->lock);
		return -ENOMEM;
	}
	copy = c->base + c->used;
	c->used += room;
	c->launching++;
	pthread_mutex_unlock(&ctx->lock);

	memcpy(copy, args, size);
	l.args = (uintptr_t)copy;
	ret = hmmgpu_launch(ctx, &l, &number);

	pthread_mutex_lock(&ctx->lock);
	c->launching--;
	if (ret == 0 && number > c->last)
		c->last = number;
	pthread_mutex_unlock(&ctx->lock);
	if (ret == 0 && job)
		*job = number;
	return ret;
}

int hmmgpu_run_args(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch,
		    const void *args, size_t size, struct hmmgpu_result *result)
{
	struct hmmgpu_result r = { 0 };
	uint64_t job;
	int ret;

	ret = hmmgpu_launch_args(ctx, launch, args, size, &job);
	if (ret == 0)
		ret = hmmgpu_wait(ctx, job, -1, &r);
	if (result)
		*result = r;
	return ret ? ret : r.error;
}
