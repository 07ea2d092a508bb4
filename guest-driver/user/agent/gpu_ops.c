// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on the GPU.
 *
 * gpu.lock guards the struct against the actors of the process; it is not held
 * while a job is waited for.  CLOSE_GPU is, by contract with the bench, not
 * concurrent with other GPU operations of its process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "hmmgpu.h"
#include "program.h"

static struct {
	pthread_mutex_t lock;
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx[2];
	unsigned npending;	/* jobs of NOWAIT operations */
	struct {
		uint16_t op;
		uint8_t ctx;
		uint64_t job;
	} pending[HB_MAX_OPS];
} gpu = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void close_gpu(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(gpu.ctx); i++) {
		hmmgpu_ctx_destroy(gpu.ctx[i]);
		gpu.ctx[i] = NULL;
	}
	hmmgpu_close(gpu.dev);
	gpu.dev = NULL;
	gpu.npending = 0;
}

void gpu_after_fork(void)
{
	/* Another actor of the parent may have held it; that thread does not exist here. */
	pthread_mutex_init(&gpu.lock, NULL);
	close_gpu();
}

/* The device, and a context if asked for, opened when first needed. */
static int get_gpu(struct hmmgpu **dev, unsigned number, struct hmmgpu_ctx **ctx)
{
	int ret = 0;

	pthread_mutex_lock(&gpu.lock);
	if (!gpu.dev)
		ret = hmmgpu_open(&gpu.dev, NULL);
	if (ret == 0 && ctx && !gpu.ctx[number])
		ret = hmmgpu_ctx_create(gpu.dev, 0, &gpu.ctx[number]);
	*dev = gpu.dev;
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

/* Waits for a job, or notes it for WAIT_GPU. */
static int finish(unsigned index, const struct hb_op *op, struct hb_op_result *r,
		  struct hmmgpu_ctx *ctx, uint64_t job)
{
	struct hmmgpu_result result;
	int ret;

	if (op->flags & HB_F_NOWAIT || op->op == HB_OP_GPU_SPIN) {
		pthread_mutex_lock(&gpu.lock);
		gpu.pending[gpu.npending].op = index;
		gpu.pending[gpu.npending].ctx = !!(op->flags & HB_F_CTX1);
		gpu.pending[gpu.npending].job = job;
		gpu.npending++;
		under_way(process_number(), 1);
		pthread_mutex_unlock(&gpu.lock);
		return 0;
	}
	ret = hmmgpu_wait(ctx, job, -1, &result);
	return ret ? ret : set_result(r, &result);
}

/*
 * The results of all noted jobs but the newest @leave go to their operations; the
 * first error of waiting itself is returned.
 */
static int wait_pending(uint64_t leave)
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

static int op_query(const struct hb_op *op, struct hb_op_result *r, struct hmmgpu *dev, void *addr)
{
	uint64_t npages = op->len / PAGE_SIZE;
	uint32_t at = atomic_fetch_add(&sh->data_used, npages * 4);
	int ret;

	if (at + npages * 4 > MAX_DATA)
		return -ENOSPC;
	ret = hmmgpu_query(dev, addr, npages, (uint32_t *)(sh->data + at));
	if (ret == 0) {
		r->data_off = at;
		r->data_len = npages * 4;
	}
	return ret;
}

int gpu_op(unsigned index, const struct hb_op *op, struct hb_op_result *r)
{
	unsigned number = op->flags & HB_F_CTX1 ? 1 : 0;
	struct hmmgpu_launch launch = { .args = (uintptr_t)&sh->gpu_args[index] };
	struct hmmgpu_ctx *ctx = NULL;
	struct hmmgpu *dev;
	void *addr, *to;
	uint64_t job;
	int ret;

	r->fault_region = -1;
	switch (op->op) {
	case HB_OP_CLOSE_GPU:
		pthread_mutex_lock(&gpu.lock);
		under_way(process_number(), -(int)gpu.npending);
		close_gpu();
		pthread_mutex_unlock(&gpu.lock);
		return 0;
	case HB_OP_WAIT_GPU:
		return wait_pending(op->a);
	case HB_OP_POLICY:
	case HB_OP_MIGRATE:
	case HB_OP_QUERY:
		ret = get_gpu(&dev, 0, NULL);
		break;
	default:
		ret = get_gpu(&dev, number, &ctx);
	}
	if (ret)
		return ret;

	switch (op->op) {
	case HB_OP_POLICY:
		return hmmgpu_set_policy(dev, op->arg);
	case HB_OP_GPU_ACCESS:
		launch.entry = kernel_accesses;
		launch.block = op->arg ? op->arg : 32;
		launch.grid = (sh->gpu_args[index].nlanes + launch.block - 1) / launch.block;
		launch.budget = op->a;
		ret = hmmgpu_launch(ctx, &launch, &job);
		return ret ? ret : finish(index, op, r, ctx, job);
	case HB_OP_GPU_SPIN:
		launch.entry = kernel_spin;
		launch.block = 32;
		launch.grid = 1;
		launch.budget = op->a;
		ret = hmmgpu_launch(ctx, &launch, &job);
		return ret ? ret : finish(index, op, r, ctx, job);
	}

	addr = (void *)(uintptr_t)region_addr(op->region, op->off, op->len);
	if (!addr)
		return -EINVAL;
	switch (op->op) {
	case HB_OP_GPU_COPY:
		to = (void *)(uintptr_t)region_addr(op->arg, op->a, op->len);
		if (!to)
			return -EINVAL;
		ret = hmmgpu_copy(ctx, to, addr, op->len, 0, 0, &job);
		return ret ? ret : finish(index, op, r, ctx, job);
	case HB_OP_GPU_FILL:
		ret = hmmgpu_fill(ctx, addr, op->a, op->len, 0, 0, &job);
		return ret ? ret : finish(index, op, r, ctx, job);
	case HB_OP_MIGRATE:
		if (op->a & HMM_GPU_MIGRATE_MAP)
			return hmmgpu_prefetch(dev, addr, op->len, op->arg, &r->aux0, &r->aux1);
		return hmmgpu_migrate(dev, addr, op->len, op->arg, &r->aux0, &r->aux1);
	case HB_OP_QUERY:
		return op_query(op, r, dev, addr);
	default:
		return -EINVAL;
	}
}
