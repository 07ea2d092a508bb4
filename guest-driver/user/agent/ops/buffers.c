// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Buffers: memory that lives in VRAM (hmmgpu_malloc()), beside memory that moves.
 *
 * No address of them is in a region, so no other operation comes to them; what is in
 * one only these operations change.  A process keeps some from one operation to the
 * next, and what it had of them is looked at again.  What was seen is only told; the
 * bench judges (model/ops/buffers.py).
 *
 * A process's lock is held for a whole operation: its actors take turns, so that
 * whoever looks knows what it has to find.  Other processes do as they like, and a
 * child of fork() has a lock that nobody in its parent has held.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu.h"
#include "gpu_kernels.h"
#include "op.h"

#define MAX_KEPT	2
#define MAX_PAGES	1280
/* So much is compared word by word, at a beginning, an end, and around 2 MiB */
#define WINDOW		8
#define HUGE_PAGES	512

/* In this order numbers of the bench. */
enum buffer_word { BUFFER_MAKE, BUFFER_LOOK, BUFFER_FREE };

/* aux0 of the answer */
enum { BUFFER_TRIED, BUFFER_NO_ROOM, BUFFER_NONE };

enum step { STEP_ZERO, STEP_FILLED, STEP_KEPT, STEP_PAST, STEP_UNDER, STEP_FREED };

/* One look; an answer's data is some of these. */
struct look {
	uint32_t step;
	uint32_t pages;		/* of the buffer */
	uint32_t wrong;		/* words that are not what they ought to be */
	int32_t status;		/* of a job */
	uint64_t at;		/* of the first of them, or of a fault: bytes from the beginning */
	uint64_t got;
	uint64_t wanted;
};

struct kept {
	pthread_mutex_t lock;
	uint32_t opened;	/* gpu_opened() when they were made */
	unsigned n;
	struct buffer {
		uint8_t *addr;
		uint32_t pages;
		uint64_t pattern;
	} buffer[MAX_KEPT];	/* oldest first */
};

/* Of each process, touched by itself alone. */
static struct kept all_kept[HB_MAX_PROCS] = {
	[0 ... HB_MAX_PROCS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

/* An operation being executed. */
struct work {
	const struct op_call *call;
	struct kept *kept;
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx;
	uint64_t *window;	/* WINDOW pages of memory, and a page for a sum */
	struct look look[8];
	unsigned n;
};

static struct look *next_look(struct work *w, uint32_t step, const struct buffer *b)
{
	struct look *l = &w->look[w->n < ARRAY_SIZE(w->look) ? w->n++ : w->n - 1];

	*l = (struct look){ .step = step, .pages = b->pages };
	return l;
}

/* Waits for a job: 0 or -errno of waiting, or else the job's error. */
static int end_of(struct work *w, uint64_t job, struct hb_op_result *r)
{
	return gpu_wait_job(w->ctx, job, r);
}

/* For jobs that have to succeed: how they did not is the operation's answer. */
static int done(struct work *w, int ret, uint64_t job)
{
	return ret ? ret : end_of(w, job, w->call->result);
}

/* Word 0 of each page: set to value + page, or all added up. */
static int touch(struct work *w, const struct buffer *b, bool write, uint64_t *sum)
{
	struct touch_args a = {
		.base = (uintptr_t)b->addr, .npages = b->pages, .write = write,
		.value = b->pattern, .sum = (uintptr_t)sum,
	};
	struct hmmgpu_launch l = { .entry = kernel_touch, .grid = 1, .block = 32 };
	uint64_t job;
	int ret = hmmgpu_launch_args(w->ctx, &l, &a, sizeof(a), &job);

	return done(w, ret, job);
}

/* What a word is: all zero, or what set() has made it. */
static uint64_t word_of(const struct buffer *b, uint32_t page, uint32_t word, bool zero)
{
	return zero ? 0 : word ? b->pattern : b->pattern + page;
}

/* Some pages word by word. */
static int compare(struct work *w, const struct buffer *b, uint32_t page, bool zero,
		   struct look *l)
{
	uint32_t n = b->pages - page < WINDOW ? b->pages - page : WINDOW;
	uint64_t job;
	int ret;

	ret = hmmgpu_copy(w->ctx, w->window, b->addr + page * PAGE_SIZE, n * PAGE_SIZE, 0, 0, &job);
	ret = done(w, ret, job);
	for (uint32_t i = 0; !ret && i < n * PAGE_SIZE / 8; i++) {
		uint64_t wanted = word_of(b, page + i / 512, i % 512, zero);

		if (w->window[i] == wanted)
			continue;
		if (!l->wrong++) {
			l->at = page * PAGE_SIZE + i * 8;
			l->got = w->window[i];
			l->wanted = wanted;
		}
	}
	return ret;
}

static int look_at(struct work *w, const struct buffer *b, uint32_t step)
{
	bool zero = step == STEP_ZERO;
	struct look *l = next_look(w, step, b);
	uint64_t *sum = w->window + WINDOW * PAGE_SIZE / 8, n = b->pages;
	uint64_t wanted = zero ? 0 : n * b->pattern + n * (n - 1) / 2;
	int ret = compare(w, b, 0, zero, l);

	if (!ret && n > WINDOW)
		ret = compare(w, b, n - WINDOW, zero, l);
	if (!ret && n > HUGE_PAGES)
		ret = compare(w, b, HUGE_PAGES - WINDOW / 2, zero, l);
	*sum = 0;
	if (!ret)
		ret = touch(w, b, false, sum);
	if (!ret && !l->wrong && *sum != wanted) {
		/* somewhere: all of it is added up */
		l->wrong = 1;
		l->at = UINT64_MAX;
		l->got = *sum;
		l->wanted = wanted;
	}
	return ret;
}

static int set(struct work *w, struct buffer *b)
{
	uint64_t job;
	int ret;

	b->pattern = 0x6275666600000000ull + ((uint64_t)process_number() << 24) +
		     ((uint64_t)w->call->index << 8) + w->n;
	ret = hmmgpu_fill(w->ctx, b->addr, b->pattern, b->pages * PAGE_SIZE, 0, 0, &job);
	ret = done(w, ret, job);
	return ret ? ret : touch(w, b, true, NULL);
}

static void forget(struct kept *k, unsigned i)
{
	k->n--;
	memmove(&k->buffer[i], &k->buffer[i + 1], (k->n - i) * sizeof(k->buffer[0]));
}

/* All that are kept; then they are written anew. */
static int look(struct work *w)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < w->kept->n; i++) {
		ret = look_at(w, &w->kept->buffer[i], STEP_KEPT);
		if (!ret)
			ret = set(w, &w->kept->buffer[i]);
		if (ret) {
			hmmgpu_free(w->dev, w->kept->buffer[i].addr);
			forget(w->kept, i);
		}
	}
	return ret;
}

/* A job writes a word, at so many bytes from the beginning, where nothing is. */
static int write_at(struct work *w, const struct buffer *b, uint64_t off, uint32_t step)
{
	struct look *l = next_look(w, step, b);
	struct hb_op_result r = { 0 };
	uint64_t job;
	int ret;

	ret = hmmgpu_fill(w->ctx, b->addr + off, b->pattern, 8, 0, 0, &job);
	if (ret)
		return ret;
	l->status = end_of(w, job, &r);
	l->wanted = off;
	l->at = r.fault_addr - (uintptr_t)b->addr;
	return 0;
}

/* Behind each there is nothing. */
static int past(struct work *w)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < w->kept->n; i++) {
		struct buffer *b = &w->kept->buffer[i];

		ret = write_at(w, b, b->pages * PAGE_SIZE, STEP_PAST);
	}
	return ret;
}

static int make(struct work *w)
{
	struct buffer b = { .pages = w->call->op->len / PAGE_SIZE };
	void *addr;
	int ret;

	if (w->kept->n == MAX_KEPT) {
		ret = hmmgpu_free(w->dev, w->kept->buffer[0].addr);
		forget(w->kept, 0);
		if (ret)
			return ret;
	}
	ret = hmmgpu_malloc(w->dev, &addr, b.pages * PAGE_SIZE);
	if (ret == -ENOSPC || ret == -EDQUOT || ret == -ENOMEM) {
		w->call->result->aux0 = BUFFER_NO_ROOM;
		return 0;
	}
	if (ret)
		return ret;
	b.addr = addr;
	ret = look_at(w, &b, STEP_ZERO);
	if (!ret)
		ret = set(w, &b);
	if (!ret)
		ret = look_at(w, &b, STEP_FILLED);
	if (ret) {
		hmmgpu_free(w->dev, addr);
		return ret;
	}
	w->kept->buffer[w->kept->n++] = b;
	return past(w);
}

/* Under jobs that use it; then nothing is there any more. */
static int free_under(struct work *w)
{
	struct buffer b = w->kept->buffer[w->kept->n - 1];
	uint64_t job[2];
	unsigned n;
	int ret = 0, err;

	for (n = 0; !ret && n < 2; n++)
		ret = hmmgpu_fill(w->ctx, b.addr, b.pattern, b.pages * PAGE_SIZE, 0, 0, &job[n]);
	n -= !!ret;
	forget(w->kept, w->kept->n - 1);
	err = hmmgpu_free(w->dev, b.addr);
	ret = ret ? ret : err;
	for (unsigned i = 0; i < n; i++) {
		struct look *l = next_look(w, STEP_UNDER, &b);
		struct hb_op_result r = { 0 };

		l->status = end_of(w, job[i], &r);
		l->at = r.fault_addr - (uintptr_t)b.addr;
	}
	return ret ? ret : write_at(w, &b, 0, STEP_FREED);
}

static int try(struct work *w)
{
	switch (w->call->op->arg) {
	case BUFFER_MAKE:
		return make(w);
	case BUFFER_LOOK:
		return look(w);
	case BUFFER_FREE:
		return free_under(w);
	}
	return -EINVAL;
}

static int tell(struct work *w)
{
	uint32_t len = w->n * sizeof(w->look[0]);
	uint8_t *to = op_data(w->call, len);

	if (!to)
		return -ENOSPC;
	memcpy(to, w->look, len);
	w->call->result->data_len = len;
	return 0;
}

/* Its lock is held. */
static int op_locked(struct work *w)
{
	uint32_t opened = gpu_opened();
	int ret, err;

	if (w->kept->opened != opened)
		w->kept->n = 0;
	w->kept->opened = opened;
	if (w->call->op->arg != BUFFER_MAKE && !w->kept->n) {
		w->call->result->aux0 = BUFFER_NONE;
		return 0;
	}
	/* A queue of its own: what others have in theirs may not end for long. */
	ret = hmmgpu_ctx_create(w->dev, 0, &w->ctx);
	if (ret == -ENOSPC || ret == -EDQUOT) {
		w->call->result->aux0 = BUFFER_NO_ROOM;
		return 0;
	}
	if (ret)
		return ret;
	ret = try(w);
	err = hmmgpu_ctx_destroy(w->ctx);
	ret = ret ? ret : err;
	return ret ? ret : tell(w);
}

static int op_buffer(const struct op_call *call)
{
	const size_t size = (WINDOW + 1) * PAGE_SIZE;
	struct work w = { .call = call, .kept = &all_kept[process_number()] };
	int ret;

	if (call->op->arg > BUFFER_FREE || call->op->len % PAGE_SIZE ||
	    call->op->len > MAX_PAGES * PAGE_SIZE || (call->op->arg == BUFFER_MAKE && !call->op->len))
		return -EINVAL;
	ret = gpu_get(&w.dev, 0, NULL);
	if (ret)
		return ret;
	w.window = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w.window == MAP_FAILED)
		return -ENOMEM;
	pthread_mutex_lock(&w.kept->lock);
	ret = op_locked(&w);
	pthread_mutex_unlock(&w.kept->lock);
	munmap(w.window, size);
	return ret;
}

static const struct op_kind buffers[] = {
	/* arg = what, len = of how much memory (make) -> data: struct look each; aux0: why none */
	{ 96, "buffer", op_buffer, OP_GPU, NULL },
};
OP_FAMILY(buffers);
