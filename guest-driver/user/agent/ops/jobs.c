// SPDX-License-Identifier: GPL-2.0-or-later
/* Accesses of CPU and GPU, copies, and the life of GPU jobs. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "access.h"
#include "gpu.h"
#include "gpu_kernels.h"
#include "op.h"

static int op_cpu_access(const struct op_call *call)
{
	const struct hb_op *op = call->op;

	for (uint32_t i = op->access_first; i < op->access_first + op->access_count; i++) {
		const struct hb_access *a = &sh->accesses[i];
		struct hb_access_result *r = &sh->results[i];
		uint64_t value = 0;
		void *addr = (void *)(uintptr_t)region_addr(a->region, a->off, 8);
		uint32_t status = cpu_access(a, addr, &value);

		r->value = value;
		r->order = (*call->order)++;
		__atomic_store_n(&r->status, status, __ATOMIC_RELEASE);
		if (op->arg) {
			uint64_t end = now_ns() + op->arg;

			while (now_ns() < end)
				__builtin_ia32_pause();
		}
	}
	return 0;
}

static unsigned number_of(const struct hb_op *op)
{
	return op->flags & HB_F_CTX1 ? 1 : 0;
}

/* Its context; the operation's memory is looked at when there is one. */
static int get_context(const struct op_call *call, struct hmmgpu_ctx **ctx)
{
	struct hmmgpu *dev;

	return gpu_get(&dev, number_of(call->op), ctx);
}

/* Waits for a job, or notes it for wait_gpu. */
static int finish(const struct op_call *call, struct hmmgpu_ctx *ctx, uint64_t job, bool wait)
{
	if (wait)
		return gpu_wait_job(ctx, job, call->result);
	gpu_note_job(call->index, number_of(call->op), job);
	return 0;
}

/* A launch, by whatever thread. */
struct submission {
	struct hmmgpu_ctx *ctx;
	const struct hmmgpu_launch *launch;
	uint64_t job;
	int ret;
};

static void *submit(void *arg)
{
	struct submission *s = arg;

	s->ret = hmmgpu_launch(s->ctx, s->launch, &s->job);
	return NULL;
}

/* The job outlives the thread that asked for it. */
static int submit_and_end(struct submission *s)
{
	pthread_t thread;
	int ret = -pthread_create(&thread, NULL, submit, s);

	if (ret)
		return ret;
	pthread_join(thread, NULL);
	return s->ret;
}

static int run_launch(const struct op_call *call, struct hmmgpu_launch *launch, bool wait)
{
	struct submission s = { .launch = launch };
	int ret = get_context(call, &s.ctx);

	launch->args = (uintptr_t)&sh->gpu_args[call->index];
	launch->budget = call->op->a;
	if (ret)
		return ret;
	if (call->op->flags & HB_F_THREAD) {
		ret = submit_and_end(&s);
	} else {
		submit(&s);
		ret = s.ret;
	}
	return ret ? ret : finish(call, s.ctx, s.job, wait);
}

static int op_gpu_access(const struct op_call *call)
{
	struct hmmgpu_launch launch = {
		.entry = kernel_accesses, .block = call->op->arg ? call->op->arg : 32,
	};

	launch.grid = (sh->gpu_args[call->index].nlanes + launch.block - 1) / launch.block;
	return run_launch(call, &launch, !(call->op->flags & HB_F_NOWAIT));
}

static int op_gpu_spin(const struct op_call *call)
{
	struct hmmgpu_launch launch = { .entry = kernel_spin, .block = 32, .grid = 1 };

	return run_launch(call, &launch, false);
}

static int op_gpu_copy(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	struct hmmgpu_ctx *ctx;
	void *from, *to;
	uint64_t job;
	int ret = get_context(call, &ctx);

	if (ret)
		return ret;
	from = op_range(op);
	to = (void *)(uintptr_t)region_addr(op->arg, op->a, op->len);
	if (!from || !to)
		return -EINVAL;
	ret = hmmgpu_copy(ctx, to, from, op->len, 0, 0, &job);
	return ret ? ret : finish(call, ctx, job, !(op->flags & HB_F_NOWAIT));
}

static int op_gpu_fill(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	struct hmmgpu_ctx *ctx;
	void *addr;
	uint64_t job;
	int ret = get_context(call, &ctx);

	if (ret)
		return ret;
	addr = op_range(op);
	if (!addr)
		return -EINVAL;
	ret = hmmgpu_fill(ctx, addr, op->a, op->len, 0, 0, &job);
	return ret ? ret : finish(call, ctx, job, !(op->flags & HB_F_NOWAIT));
}

static int op_wait_gpu(const struct op_call *call)
{
	return gpu_wait_noted(call->op->a);
}

static int op_close_gpu(const struct op_call *call)
{
	(void)call;
	return gpu_close();
}

static const struct op_kind jobs[] = {
	/* accesses in order by this actor (lane ignored); arg = repeat gap in ns between accesses (0 none) */
	{ 6, "cpu_access", op_cpu_access, OP_ACCESSES, NULL },
	/* one launch; accesses of a lane in order, lanes at the same time; arg = threads a block (0: 32); a = budget */
	{ 7, "gpu_access", op_gpu_access, OP_ACCESSES | OP_LANES | OP_GPU, NULL },
	/* region off len -> region arg, offset a; copy engine, virtual addresses */
	{ 8, "gpu_copy", op_gpu_copy, OP_GPU, NULL },
	/* region off len; a = 64-bit pattern */
	{ 9, "gpu_fill", op_gpu_fill, OP_GPU, NULL },
	/* waits for the NOWAIT jobs of the process but the newest a; their results go to the results of their own operations */
	{ 18, "wait_gpu", op_wait_gpu, 0, NULL },
	/* NOWAIT launch that runs until killed or budget a is used up */
	{ 20, "gpu_spin", op_gpu_spin, OP_GPU, NULL },
	/* closes contexts and the device file of the process; opened again when next needed */
	{ 21, "close_gpu", op_close_gpu, 0, NULL },
};
OP_FAMILY(jobs);
