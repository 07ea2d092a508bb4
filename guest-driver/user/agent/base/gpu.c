// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The GPU of a process: see gpu.h.
 *
 * gpu.lock guards the struct against the actors of the process; it is not held
 * while a job is waited for.  gpu_close() is, by contract with the bench, not
 * concurrent with other GPU operations of its process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "gpu.h"
#include "state.h"

static struct {
	pthread_mutex_t lock;
	struct hmmgpu *dev[2];	/* the second only if split */
	struct hmmgpu_ctx *ctx[2];
	/* of file and context: sh->taken when it was opened; NOT_KNOWN: that changed meanwhile */
	uint32_t made[2][2];
	bool split;
	uint32_t closed;	/* how often all was */
	unsigned npending;	/* jobs of NOWAIT operations, oldest first */
	struct {
		uint16_t op;
		uint8_t ctx;
		uint64_t job;
	} pending[HB_MAX_OPS];
} gpu = { .lock = PTHREAD_MUTEX_INITIALIZER };

#define NOT_KNOWN	UINT32_MAX

enum { THE_FILE, THE_CONTEXT };

/* Something was opened, after sh->taken had been @before. */
static void note_made(unsigned number, unsigned what, uint32_t before)
{
	gpu.made[number][what] = atomic_load(&sh->taken) == before ? before : NOT_KNOWN;
}

/* Whether it is certain that it was opened before the device was taken away. */
static bool is_old(unsigned number, unsigned what)
{
	uint32_t made = gpu.made[number][what];

	return made != NOT_KNOWN && made < atomic_load(&sh->taken);
}

/* The first error. */
static int forget_contexts(void)
{
	int ret = 0, err;

	for (unsigned i = 0; i < ARRAY_SIZE(gpu.ctx); i++) {
		err = hmmgpu_ctx_destroy(gpu.ctx[i]);
		ret = ret ? ret : err;
		gpu.ctx[i] = NULL;
	}
	gpu.npending = 0;
	return ret;
}

static int forget(void)
{
	int ret = forget_contexts(), err;

	gpu.closed++;
	for (unsigned i = 0; i < ARRAY_SIZE(gpu.dev); i++) {
		err = hmmgpu_close(gpu.dev[i]);
		ret = ret ? ret : err;
		gpu.dev[i] = NULL;
	}
	return ret;
}

void gpu_after_fork(void)
{
	/* Another actor of the parent may have held it; that thread does not exist here. */
	pthread_mutex_init(&gpu.lock, NULL);
	forget();
}

int gpu_close(void)
{
	int ret;

	pthread_mutex_lock(&gpu.lock);
	under_way(process_number(), -(int)gpu.npending);
	ret = forget();
	pthread_mutex_unlock(&gpu.lock);
	return ret;
}

int gpu_split(bool split)
{
	int ret = gpu_close();

	pthread_mutex_lock(&gpu.lock);
	gpu.split = split;
	pthread_mutex_unlock(&gpu.lock);
	return ret;
}

int gpu_get(struct hmmgpu **dev, unsigned number, struct hmmgpu_ctx **ctx)
{
	unsigned which;
	uint32_t taken;
	int ret = 0;

	pthread_mutex_lock(&gpu.lock);
	which = gpu.split ? number : 0;
	taken = atomic_load(&sh->taken);
	if (!gpu.dev[which]) {
		ret = hmmgpu_open(&gpu.dev[which], NULL);
		note_made(which, THE_FILE, taken);
	}
	if (ret == 0 && ctx && !gpu.ctx[number]) {
		ret = hmmgpu_ctx_create(gpu.dev[which], 0, &gpu.ctx[number]);
		note_made(number, THE_CONTEXT, taken);
	}
	*dev = gpu.dev[which];
	if (ctx)
		*ctx = gpu.ctx[number];
	pthread_mutex_unlock(&gpu.lock);
	return ret;
}

uint32_t gpu_opened(void)
{
	uint32_t closed;

	pthread_mutex_lock(&gpu.lock);
	closed = gpu.closed;
	pthread_mutex_unlock(&gpu.lock);
	return closed;
}

/* A file of a device that is gone answers so; 0 if it does, or is not there. */
static int ask_file(unsigned number)
{
	uint64_t value;
	int ret;

	if (!gpu.dev[number] || !is_old(number, THE_FILE))
		return 0;
	ret = hmmgpu_get_param(gpu.dev[number], HMM_GPU_PARAM_SMS, &value);
	return ret == -ENODEV ? 0 : ret ? ret : -EBADE;
}

/* A context that a reset has ended takes no job. */
static int ask_context(unsigned number)
{
	static uint64_t from, to;
	uint64_t job;
	int ret;

	if (!gpu.ctx[number] || !is_old(number, THE_CONTEXT))
		return 0;
	ret = hmmgpu_copy(gpu.ctx[number], &to, &from, sizeof(to), 0, 0, &job);
	return ret == -EIO ? 0 : ret ? ret : -EBADE;
}

int gpu_reopen(bool gone, bool reset, uint64_t *where)
{
	struct hmmgpu_ctx *ctx;
	struct hmmgpu *dev;
	int ret = 0;

	pthread_mutex_lock(&gpu.lock);
	under_way(process_number(), -(int)gpu.npending);
	for (unsigned i = 0; i < 2 && !ret; i++) {
		*where = gone ? 1 : 2;
		ret = gone ? ask_file(i) : reset ? ask_context(i) : 0;
	}
	if (!ret) {
		*where = 3;
		/* The mirror outlives a reset. */
		ret = reset ? forget_contexts() : forget();
		/* It is not told of contexts that go, if it is not there any more. */
		if (gone && ret == -ENODEV)
			ret = 0;
	} else {
		forget();
	}
	pthread_mutex_unlock(&gpu.lock);
	if (ret)
		return ret;
	*where = 0;
	return gpu_get(&dev, 0, &ctx);
}

static int set_result(struct hb_op_result *r, const struct hmmgpu_result *job)
{
	r->gpu_status = job->status;
	r->reason = job->reason;
	r->fault_addr = job->addr;
	r->fault_region = -1;
	if (job->error) {
		r->aux0 = (uint64_t)job->block << 32 | job->thread;
		r->aux1 = job->pc;
		for (int i = 0; i < HB_MAX_REGIONS; i++) {
			if (job->addr - sh->region_base[i] < sh->region_size[i]) {
				r->fault_region = i;
				r->fault_addr = job->addr - sh->region_base[i];
			}
		}
	}
	return job->error;
}

void gpu_note_job(unsigned index, unsigned number, uint64_t job)
{
	pthread_mutex_lock(&gpu.lock);
	gpu.pending[gpu.npending].op = index;
	gpu.pending[gpu.npending].ctx = number;
	gpu.pending[gpu.npending].job = job;
	gpu.npending++;
	under_way(process_number(), 1);
	pthread_mutex_unlock(&gpu.lock);
}

int gpu_wait_job(struct hmmgpu_ctx *ctx, uint64_t job, struct hb_op_result *r)
{
	struct hmmgpu_result result;
	int ret = hmmgpu_wait(ctx, job, -1, &result);

	return ret ? ret : set_result(r, &result);
}

int gpu_wait_noted(uint64_t leave)
{
	int ret = 0;

	pthread_mutex_lock(&gpu.lock);
	while (gpu.npending > leave) {
		struct hmmgpu_result result;
		unsigned n = gpu.npending - leave - 1;
		unsigned index = gpu.pending[n].op;
		struct hmmgpu_ctx *ctx = gpu.ctx[gpu.pending[n].ctx];
		uint64_t job = gpu.pending[n].job;
		int err;

		gpu.npending--;
		under_way(process_number(), -1);
		memmove(&gpu.pending[n], &gpu.pending[n + 1],
			(gpu.npending - n) * sizeof(gpu.pending[0]));
		pthread_mutex_unlock(&gpu.lock);
		err = hmmgpu_wait(ctx, job, -1, &result);
		if (err == 0)
			sh->op_results[index].status = set_result(&sh->op_results[index], &result);
		else if (ret == 0)
			ret = err;
		pthread_mutex_lock(&gpu.lock);
	}
	pthread_mutex_unlock(&gpu.lock);
	return ret;
}
