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
	bool split;
	unsigned npending;	/* jobs of NOWAIT operations, oldest first */
	struct {
		uint16_t op;
		uint8_t ctx;
		uint64_t job;
	} pending[HB_MAX_OPS];
} gpu = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The first error. */
static int forget(void)
{
	int ret = 0, err;

	for (unsigned i = 0; i < ARRAY_SIZE(gpu.ctx); i++) {
		err = hmmgpu_ctx_destroy(gpu.ctx[i]);
		ret = ret ? ret : err;
		gpu.ctx[i] = NULL;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(gpu.dev); i++) {
		err = hmmgpu_close(gpu.dev[i]);
		ret = ret ? ret : err;
		gpu.dev[i] = NULL;
	}
	gpu.npending = 0;
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
	struct hmmgpu **file;
	int ret = 0;

	pthread_mutex_lock(&gpu.lock);
	file = &gpu.dev[gpu.split ? number : 0];
	if (!*file)
		ret = hmmgpu_open(file, NULL);
	if (ret == 0 && ctx && !gpu.ctx[number])
		ret = hmmgpu_ctx_create(*file, 0, &gpu.ctx[number]);
	*dev = *file;
	if (ctx)
		*ctx = gpu.ctx[number];
	pthread_mutex_unlock(&gpu.lock);
	return ret;
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
