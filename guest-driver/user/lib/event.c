// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: events.
 *
 * A record is a job of one thread that notes the device's time, and a syncobj
 * with its fence.  Both are in a `struct stamp`, which the GPU may write to after the
 * event was recorded again or destroyed: so stamps belong to the device handle,
 * and one is used again only when its job is over and no call looks at it.
 * gpu->lock guards all of it but a stamp's args, which belong to the job until
 * its fence is signalled and are only read then.
 */
#include <errno.h>
#include <stdlib.h>

#include "accesses.h"
#include "internal.h"

#define LOOK	8	/* stamps that are asked whether their job is over */

struct stamp {
	struct stamp_args args;		/* what the GPU writes */
	struct stamp *next;
	uint32_t syncobj;
	unsigned int users;		/* calls that look at it */
	int launched;
};

struct event_pool {
	struct hmmgpu_kernel *kernel;
	uint64_t stamp, empty;		/* entries */
	struct stamp *idle, **tail;	/* of no event; oldest first; their jobs may run */
};

struct hmmgpu_event {
	struct hmmgpu *gpu;
	struct stamp *stamp;		/* of the last record */
};

/* At hmmgpu_close(): the contexts are gone, so no job writes any more; the fd takes the syncobjs. */
static void free_pool(struct event_pool *p)
{
	while (p->idle) {
		struct stamp *s = p->idle;

		p->idle = s->next;
		free(s);
	}
	hmmgpu_kernel_free(p->kernel);
	free(p);
}

int hmmgpu_event_create(struct hmmgpu *gpu, struct hmmgpu_event **event)
{
	struct hmmgpu_event *e = calloc(1, sizeof(*e));
	struct event_pool *p;
	int ret = 0;

	if (!e)
		return -ENOMEM;
	e->gpu = gpu;
	pthread_mutex_lock(&gpu->lock);
	if (!gpu->events) {
		p = calloc(1, sizeof(*p));
		ret = p ? hmmgpu_kernel_load_builtin(&p->kernel) : -ENOMEM;
		if (ret == 0)
			ret = hmmgpu_kernel_symbol(p->kernel, "stamp", &p->stamp);
		if (ret == 0)
			ret = hmmgpu_kernel_symbol(p->kernel, "empty", &p->empty);
		if (ret == 0) {
			p->tail = &p->idle;
			gpu->events = p;
			gpu->events_free = free_pool;
		} else if (p) {
			free_pool(p);
		}
	}
	pthread_mutex_unlock(&gpu->lock);
	if (ret)
		free(e);
	else
		*event = e;
	return ret;
}

/* Locked. */
static void give_back(struct event_pool *p, struct stamp *s)
{
	s->next = NULL;
	*p->tail = s;
	p->tail = &s->next;
}

void hmmgpu_event_destroy(struct hmmgpu_event *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->gpu->lock);
	if (e->stamp)
		give_back(e->gpu->events, e->stamp);
	pthread_mutex_unlock(&e->gpu->lock);
	free(e);
}

static int is_over(struct hmmgpu *gpu, const struct stamp *s)
{
	return !s->launched || hmmgpu_syncobj_wait(gpu, s->syncobj, 0) == 0;
}

/* A stamp that nobody uses; locked. */
static int take(struct hmmgpu *gpu, struct stamp **out)
{
	struct event_pool *p = gpu->events;
	struct stamp **at = &p->idle, *s;
	int ret;

	for (unsigned int i = 0; i < LOOK && *at; i++, at = &(*at)->next) {
		s = *at;
		if (s->users || !is_over(gpu, s))
			continue;
		*at = s->next;
		if (p->tail == &s->next)
			p->tail = at;
		*out = s;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	ret = hmmgpu_syncobj_create(gpu, 0, &s->syncobj);
	if (ret) {
		free(s);
		return ret;
	}
	*out = s;
	return 0;
}

int hmmgpu_event_record(struct hmmgpu_event *e, struct hmmgpu_ctx *ctx)
{
	struct hmmgpu *gpu = e->gpu;
	struct hmmgpu_launch l = { .grid = 1, .block = 1, .local_size = 16 };
	struct stamp *s, *old = NULL;
	int ret;

	if (ctx->gpu != gpu)
		return -EINVAL;
	pthread_mutex_lock(&gpu->lock);
	ret = take(gpu, &s);
	l.entry = gpu->events->stamp;
	pthread_mutex_unlock(&gpu->lock);
	if (ret)
		return ret;
	s->args = (struct stamp_args){ 0 };
	l.args = (uintptr_t)&s->args;
	l.out_syncobj = s->syncobj;
	ret = hmmgpu_launch(ctx, &l, NULL);

	pthread_mutex_lock(&gpu->lock);
	s->launched = ret == 0;
	if (ret == 0) {
		old = e->stamp;
		e->stamp = s;
	} else {
		old = s;
	}
	if (old)
		give_back(gpu->events, old);
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

/* The stamp of the last record, which stays what it is until put(); NULL: never recorded. */
static struct stamp *get(struct hmmgpu_event *e)
{
	struct stamp *s;

	pthread_mutex_lock(&e->gpu->lock);
	s = e->stamp;
	if (s)
		s->users++;
	pthread_mutex_unlock(&e->gpu->lock);
	return s;
}

static void put(struct hmmgpu_event *e, struct stamp *s)
{
	pthread_mutex_lock(&e->gpu->lock);
	s->users--;
	pthread_mutex_unlock(&e->gpu->lock);
}

/* Waits; then the time, or the error. */
static int wait_time(struct hmmgpu_event *e, int64_t timeout_ns, uint64_t *time)
{
	struct stamp *s = get(e);
	int ret;

	if (!s)
		return -EINVAL;
	ret = hmmgpu_syncobj_wait(e->gpu, s->syncobj, timeout_ns);
	if (ret == 0) {
		/* the fence is signalled without the job having run if it was cancelled */
		if (__atomic_load_n(&s->args.done, __ATOMIC_ACQUIRE))
			*time = s->args.time;
		else
			ret = -ECANCELED;
	}
	put(e, s);
	return ret;
}

int hmmgpu_event_sync(struct hmmgpu_event *e, int64_t timeout_ns)
{
	uint64_t time;
	int ret = wait_time(e, timeout_ns, &time);

	return ret == -EINVAL ? 0 : ret;
}

int hmmgpu_event_query(struct hmmgpu_event *e)
{
	return hmmgpu_event_sync(e, 0);
}

int hmmgpu_event_time(struct hmmgpu_event *e, uint64_t *ns)
{
	return wait_time(e, 0, ns);
}

int hmmgpu_event_elapsed(struct hmmgpu_event *start, struct hmmgpu_event *end, int64_t *ns)
{
	uint64_t a, b;
	int ret = wait_time(start, 0, &a);

	if (ret == 0)
		ret = wait_time(end, 0, &b);
	if (ret == 0)
		*ns = (int64_t)(b - a);
	return ret;
}

int hmmgpu_ctx_wait_event(struct hmmgpu_ctx *ctx, struct hmmgpu_event *e)
{
	struct hmmgpu_launch l = { .grid = 1, .block = 1, .local_size = 16 };
	struct stamp *s;
	int ret;

	if (ctx->gpu != e->gpu)
		return -EINVAL;
	s = get(e);
	if (!s)
		return 0;
	l.entry = e->gpu->events->empty;
	l.in_syncobj = s->syncobj;
	ret = hmmgpu_launch(ctx, &l, NULL);
	put(e, s);
	return ret;
}
