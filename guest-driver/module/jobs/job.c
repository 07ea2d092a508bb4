// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs: from the ioctl through the ring to the result.
 *
 * A job is pending until its dependency is signalled, all before it are in the
 * ring and there is room; then running until the context's fence word reaches
 * its number; then its result is in the history and its fence is signalled.
 *
 * That fence orders our jobs and is shown to nobody.  Others may wait for a dma_fence
 * where memory has to be had, and a job here may wait for memory: it faults, and what
 * it faults on may be a program's to give.  So what the outside has are user fences:
 * the number of a job, to WAIT for; and a syncobj, which has no fence at all as long as
 * the job is not over and then one that is signalled already.  Programs can wait for
 * that one to appear (DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT), other drivers cannot
 * wait for it, nor can it become a sync file.  The other way round is allowed: a job
 * may wait for any fence.
 */
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include <drm/drm_file.h>
#include <drm/drm_syncobj.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/regs.h"
#include "base/stats.h"
#include "jobs/jobs.h"
#include "jobs/sched.h"

/* Fences that exist; none outlives the last open file. */
atomic_long_t hg_live_fences = ATOMIC_LONG_INIT(0);

static const char *job_driver_name(struct dma_fence *fence)
{
	return "hmm_gpu";
}

static const char *job_timeline_name(struct dma_fence *fence)
{
	return "hmm_gpu-context";
}

static void job_release(struct dma_fence *fence)
{
	/* the fence is the first member; its memory goes after an RCU period */
	BUILD_BUG_ON(offsetof(struct hg_job, fence));
	atomic_long_dec(&hg_live_fences);
	dma_fence_free(fence);
}

static const struct dma_fence_ops job_fence_ops = {
	.get_driver_name = job_driver_name,
	.get_timeline_name = job_timeline_name,
	.release = job_release,
};

static u64 ctx_fence_value(struct hg_ctx *ctx)
{
	return le64_to_cpu(READ_ONCE(*(__le64 *)(ctx->mem + HG_CTX_FENCE)));
}

static void *job_report(struct hg_ctx *ctx, struct hg_job *job)
{
	return ctx->mem + HG_CTX_REPORTS + (job->num % HG_REPORTS) * HG_REPORT_SIZE;
}

static int status_to_errno(u32 status)
{
	switch (status) {
	case HG_ERR_NONE:
		return 0;
	case HG_ERR_FAULT:
		return -EFAULT;
	case HG_ERR_ILLEGAL:
	case HG_ERR_MISALIGNED:
	case HG_ERR_BREAK:
		return -EILSEQ;
	case HG_ERR_BUDGET:
		return -ETIME;
	case HG_ERR_ABORTED:
		return -ECANCELED;
	default:
		return -EIO;
	}
}

static u32 report32(void *report, unsigned int off)
{
	return le32_to_cpu(READ_ONCE(*(__le32 *)(report + off)));
}

static u64 report64(void *report, unsigned int off)
{
	return le64_to_cpu(READ_ONCE(*(__le64 *)(report + off)));
}

/**
 * hg_job_finish() - a job is over
 * @ctx: context, its lock held
 * @job: job, already unlinked; its reference is dropped
 * @lost: 0: it ran and left a report; else the error it gets
 */
void hg_job_finish(struct hg_ctx *ctx, struct hg_job *job, int lost)
{
	struct hg_result *res = &ctx->history[job->num % HG_HISTORY];
	struct hg_device *hdev = ctx->hdev;
	void *report = job_report(ctx, job);

	lockdep_assert_held(&ctx->lock);
	memset(res, 0, sizeof(*res));
	if (!lost && report64(report, HG_RPT_DONE) != HG_RPT_DONE_MAGIC)
		lost = -EIO;
	if (lost) {
		res->error = lost;
		res->status = lost == -ECANCELED ? HG_ERR_ABORTED : HG_ERR_BUS;
	} else {
		res->status = report32(report, HG_RPT_STATUS);
		res->error = status_to_errno(res->status);
		res->reason = report32(report, HG_RPT_REASON);
		res->block = report32(report, HG_RPT_BLOCK);
		res->thread = report32(report, HG_RPT_THREAD);
		res->addr = report64(report, HG_RPT_ADDR);
		if (res->status == HG_ERR_FAULT)
			res->error = hg_svm_fault_error(ctx->hf->svm, res->addr);
		res->pc = report64(report, HG_RPT_PC);
		res->instrs = report64(report, HG_RPT_INSTRS);
		atomic64_add(report64(report, HG_RPT_TIME), &ctx->hf->engine_ns[job->copy]);
	}
	if (res->error) {
		hg_inc(hdev, jobs_failed);
		dma_fence_set_error(&job->fence, res->error);
	}
	hg_inc(hdev, jobs_done);
	hg_live_add(hdev, jobs, -1);
	trace_hmm_gpu_job_done(ctx->id, job->num, res->status, res->error);
	WRITE_ONCE(ctx->done, job->num);
	dma_fence_signal(&job->fence);
	if (READ_ONCE(job->out))
		queue_work(hdev->wq, &hdev->out_work);
	dma_fence_put(&job->fence);
}

/**
 * hg_ctx_retire() - finish the jobs that the device has passed
 * @ctx: context
 *
 * Any context, also hard interrupt.
 */
void hg_ctx_retire(struct hg_ctx *ctx)
{
	struct hg_job *job, *tmp;
	unsigned long flags;
	bool more = false;
	u64 value;

	spin_lock_irqsave(&ctx->lock, flags);
	value = ctx_fence_value(ctx);
	dma_rmb();	/* the reports after the fence that follows them */
	list_for_each_entry_safe(job, tmp, &ctx->running, link) {
		if (job->num > value)
			break;
		list_del(&job->link);
		ctx->nrunning--;
		hg_job_finish(ctx, job, 0);
		more = true;
	}
	/* under the lock: whoever unlists the context waits for us */
	if (more) {
		wake_up_all(&ctx->wait);
		if (!list_empty(&ctx->pending) && !ctx->dead)
			queue_work(ctx->hdev->wq, &ctx->pump);
	}
	spin_unlock_irqrestore(&ctx->lock, flags);
}

/* Lets go of a dependency; afterwards its callback does not run any more. */
static void job_drop_dep(struct hg_job *job)
{
	if (!job->dep)
		return;
	dma_fence_remove_callback(job->dep, &job->dep_cb);
	dma_fence_put(job->dep);
	job->dep = NULL;
}

/**
 * hg_jobs_fail() - end all jobs of a context with an error
 * @ctx: context, its submit_lock held; the device does not execute it
 * @pending: also those not yet in the ring
 * @error: -errno
 */
void hg_jobs_fail(struct hg_ctx *ctx, bool pending, int error)
{
	struct hg_job *job, *tmp;
	LIST_HEAD(drop);

	spin_lock_irq(&ctx->lock);
	list_for_each_entry_safe(job, tmp, &ctx->running, link) {
		list_del(&job->link);
		ctx->nrunning--;
		hg_job_finish(ctx, job, error);
	}
	if (pending)
		list_splice_init(&ctx->pending, &drop);
	spin_unlock_irq(&ctx->lock);

	/* removing a callback takes the other fence's lock: not under ours */
	list_for_each_entry(job, &drop, link)
		job_drop_dep(job);

	spin_lock_irq(&ctx->lock);
	list_for_each_entry_safe(job, tmp, &drop, link) {
		list_del(&job->link);
		ctx->npending--;
		hg_job_finish(ctx, job, error);
	}
	spin_unlock_irq(&ctx->lock);
	wake_up_all(&ctx->wait);
}

static void job_dep_signalled(struct dma_fence *fence, struct dma_fence_cb *cb)
{
	struct hg_job *job = container_of(cb, struct hg_job, dep_cb);

	queue_work(job->hdev->wq, &job->ctx->pump);
}

static void write_desc(struct hg_ctx *ctx, const u64 *desc)
{
	__le64 *d = ctx->mem + ctx->put * HG_DESC_SIZE;
	unsigned int i;

	for (i = 0; i < HG_DESC_SIZE / 8; i++)
		d[i] = cpu_to_le64(desc[i]);
	ctx->put = (ctx->put + 1) % HG_CTX_RING;
}

static void emit(struct hg_ctx *ctx, struct hg_job *job)
{
	/* with what the job stored to system memory: whoever waits for it reads that next */
	u64 membar = ctx->hdev->data_cache ? HG_FENCE_MEMBAR : 0;
	u64 fence[HG_DESC_SIZE / 8] = {
		HG_OP_FENCE | HG_FENCE_IRQ | membar, ctx->dma + HG_CTX_FENCE, job->num,
	};
	void *report = job_report(ctx, job);

	memset(report, 0, HG_REPORT_SIZE);
	job->desc[7] = ctx->dma + HG_CTX_REPORTS + (job->num % HG_REPORTS) * HG_REPORT_SIZE;
	write_desc(ctx, job->desc);
	write_desc(ctx, fence);
}

/**
 * hg_ctx_pump() - put what is ready into the ring
 * @ctx: context, its submit_lock held
 */
void hg_ctx_pump(struct hg_ctx *ctx)
{
	struct hg_device *hdev = ctx->hdev;
	unsigned int n = 0;

	lockdep_assert_held(&ctx->submit_lock);
	for (;;) {
		struct hg_job *job = NULL;

		spin_lock_irq(&ctx->lock);
		if (!ctx->dead && ctx->nrunning < HG_JOBS_MAX)
			job = list_first_entry_or_null(&ctx->pending, struct hg_job, link);
		spin_unlock_irq(&ctx->lock);
		/* only a holder of submit_lock takes from pending: job stays */
		if (!job || (job->dep && !dma_fence_is_signaled(job->dep)))
			break;
		job_drop_dep(job);
		emit(ctx, job);
		spin_lock_irq(&ctx->lock);
		list_move_tail(&job->link, &ctx->running);
		ctx->npending--;
		ctx->nrunning++;
		spin_unlock_irq(&ctx->lock);
		n++;
	}
	if (!n)
		return;
	hg_delay(sched_before_doorbell);
	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live) && !READ_ONCE(ctx->dead))
		hg_write(hdev, HG_REG_DOORBELL + ctx->id * HG_DOORBELL_STRIDE, ctx->put);
	up_read(&hdev->hw_sem);
	wake_up_all(&ctx->wait);
}

/* A job's syncobj is another's now, or told; out_lock is held. */
static void drop_out(struct hg_job *job)
{
	drm_syncobj_put(job->out);
	WRITE_ONCE(job->out, NULL);
	list_del(&job->out_link);
	dma_fence_put(&job->fence);
}

/* From here on @out is over when @job is. */
static void take_out(struct hg_device *hdev, struct hg_job *job, struct drm_syncobj *out)
{
	struct hg_job *other, *next;

	mutex_lock(&hdev->out_lock);
	list_for_each_entry_safe(other, next, &hdev->outs, out_link)
		if (other->out == out)
			drop_out(other);
	drm_syncobj_replace_fence(out, NULL);
	WRITE_ONCE(job->out, out);
	dma_fence_get(&job->fence);
	list_add_tail(&job->out_link, &hdev->outs);
	mutex_unlock(&hdev->out_lock);
}

/* Tells the syncobjs of jobs that are over. */
void hg_job_out_work(struct work_struct *work)
{
	struct hg_device *hdev = container_of(work, struct hg_device, out_work);
	struct dma_fence *over = dma_fence_get_stub();
	struct hg_job *job, *next;

	mutex_lock(&hdev->out_lock);
	list_for_each_entry_safe(job, next, &hdev->outs, out_link) {
		if (!dma_fence_is_signaled(&job->fence))
			continue;
		drm_syncobj_replace_fence(job->out, over);
		drop_out(job);
	}
	mutex_unlock(&hdev->out_lock);
	dma_fence_put(over);
}

/* What to wait for: the end of our job that is to tell @in, or the fence it has. */
static struct dma_fence *in_fence(struct hg_device *hdev, struct drm_syncobj *in)
{
	struct dma_fence *fence = NULL;
	struct hg_job *job;

	mutex_lock(&hdev->out_lock);
	list_for_each_entry(job, &hdev->outs, out_link)
		if (job->out == in)
			fence = dma_fence_get(&job->fence);
	if (!fence)
		fence = drm_syncobj_fence_get(in);
	mutex_unlock(&hdev->out_lock);
	return fence;
}

/* Looks up in_syncobj's fence and takes out_syncobj. */
static int job_syncobjs(struct drm_file *file, struct hg_device *hdev, struct hg_job *job,
			u32 in, u32 out, struct drm_syncobj **out_obj)
{
	*out_obj = NULL;
	if (in) {
		struct drm_syncobj *in_obj = drm_syncobj_find(file, in);

		if (!in_obj)
			return -ENOENT;
		job->dep = in_fence(hdev, in_obj);
		drm_syncobj_put(in_obj);
		if (!job->dep)
			return -EINVAL;
	}
	if (out) {
		*out_obj = drm_syncobj_find(file, out);
		if (!*out_obj) {
			dma_fence_put(job->dep);
			job->dep = NULL;
			return -ENOENT;
		}
	}
	return 0;
}

/* Waits until few enough jobs wait.  The caller may then queue one. */
static int wait_for_room(struct hg_ctx *ctx)
{
	return wait_event_interruptible(ctx->wait,
					READ_ONCE(ctx->npending) < HG_PENDING_MAX ||
					READ_ONCE(ctx->dead));
}

/* Takes over @desc as the next job; *@num is its number.  @file is for @in and @out alone. */
static int submit(struct hg_file *hf, struct drm_file *file, u32 ctx_id, const u64 *desc,
		  int copy, u32 in, u32 out, u64 *num)
{
	struct drm_syncobj *out_obj;
	struct hg_job *job;
	struct hg_ctx *ctx;
	int ret;

	ret = hg_check_mm(hf);
	if (ret)
		return ret;
	ctx = hg_ctx_get(hf, ctx_id);
	if (!ctx)
		return -ENOENT;
	job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	if (!job) {
		ret = -ENOMEM;
		goto out_ctx;
	}
	ret = job_syncobjs(file, ctx->hdev, job, in, out, &out_obj);
	if (ret)
		goto out_free;
	ret = wait_for_room(ctx);
	if (ret)
		goto out_sync;

	job->hdev = ctx->hdev;
	job->ctx = ctx;
	job->copy = copy;
	memcpy(job->desc, desc, sizeof(job->desc));
	spin_lock_init(&job->lock);

	mutex_lock(&ctx->submit_lock);
	if (ctx->dead) {
		ret = ctx->dead_error;
		mutex_unlock(&ctx->submit_lock);
		goto out_sync;
	}
	job->num = ++ctx->next;
	*num = job->num;
	dma_fence_init(&job->fence, &job_fence_ops, &job->lock, ctx->fence_context, job->num);
	atomic_long_inc(&hg_live_fences);
	hg_live_add(ctx->hdev, jobs, 1);
	hg_inc(ctx->hdev, jobs_submitted);
	trace_hmm_gpu_job(ctx->id, job->num, (u32)desc[0]);

	if (out_obj)
		take_out(ctx->hdev, job, out_obj);
	/* after this the job may be over at any time; its first reference goes with it */
	spin_lock_irq(&ctx->lock);
	list_add_tail(&job->link, &ctx->pending);
	ctx->npending++;
	spin_unlock_irq(&ctx->lock);
	/* -ENOENT: signalled already; the pump sees that */
	if (job->dep)
		dma_fence_add_callback(job->dep, &job->dep_cb, job_dep_signalled);
	hg_ctx_pump(ctx);
	mutex_unlock(&ctx->submit_lock);
	hg_ctx_put(ctx);
	return 0;

out_sync:
	if (out_obj)
		drm_syncobj_put(out_obj);
	dma_fence_put(job->dep);
out_free:
	kfree(job);
out_ctx:
	hg_ctx_put(ctx);
	return ret;
}

int hg_launch_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct hg_device *hdev = to_hg(drm);
	struct drm_hmm_gpu_launch *args = data;
	u64 desc[HG_DESC_SIZE / 8] = {
		HG_OP_LAUNCH, args->entry, args->args,
		args->grid | (u64)args->block << 32,
		args->local_base, args->local_size | (u64)args->shared_size << 32, args->budget,
	};

	/* What the device would stop the context for is refused here. */
	if (args->flags || args->shared_size > HG_SHARED_MAX || !args->grid || !args->block ||
	    args->block > min_t(u32, HG_MAX_BLOCK, hdev->warps * HG_LANES) ||
	    args->entry & 3 || args->local_size & 15)
		return -EINVAL;
	return submit(file->driver_priv, file, args->ctx_id, desc, 0, args->in_syncobj,
		      args->out_syncobj, &args->job);
}

int hg_copy_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_copy *args = data;
	bool fill = args->flags & HMM_GPU_COPY_FILL;
	u64 desc[HG_DESC_SIZE / 8] = {
		HG_OP_COPY | (fill ? HG_COPY_FILL : 0), args->src, args->dst, args->len,
	};

	if (args->flags & ~HMM_GPU_COPY_FILL || !args->len || args->len > HG_COPY_MAX_BYTES ||
	    (fill && (args->len | args->dst) & 7))
		return -EINVAL;
	return submit(file->driver_priv, file, args->ctx_id, desc, 1, args->in_syncobj,
		      args->out_syncobj, &args->job);
}

/**
 * hg_job_copy() - a COPY job of the kernel in a file's address space, waited for
 * @hf: file
 * @ctx_id: context of the file
 * @src: source in the space that @flags says
 * @dst: destination
 * @len: bytes
 * @flags: spaces; other than virtual ones need a privileged context
 *
 * Return: 0; the job's error; what submitting gives; -ERESTARTSYS: the process
 * was killed, and the job still runs: its memory is free after hg_ctx_destroy().
 */
int hg_job_copy(struct hg_file *hf, u32 ctx_id, u64 src, u64 dst, u64 len, u64 flags)
{
	u64 desc[HG_DESC_SIZE / 8] = { HG_OP_COPY | flags, src, dst, len };
	struct hg_ctx *ctx = hg_ctx_get(hf, ctx_id);
	u64 job;
	int ret;

	if (!ctx)
		return -ENOENT;
	ret = submit(hf, NULL, ctx_id, desc, 1, 0, 0, &job);
	if (!ret)
		ret = wait_event_killable(ctx->wait, READ_ONCE(ctx->done) >= job);
	if (!ret) {
		spin_lock_irq(&ctx->lock);
		ret = ctx->history[job % HG_HISTORY].error;
		spin_unlock_irq(&ctx->lock);
	}
	hg_ctx_put(ctx);
	return ret;
}

int hg_wait_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_wait *args = data;
	struct hg_result *res;
	struct hg_ctx *ctx;
	int ret = 0;
	u64 job;

	if (args->pad)
		return -EINVAL;
	ret = hg_check_mm(file->driver_priv);
	if (ret)
		return ret;
	job = args->job;
	ctx = hg_ctx_get(file->driver_priv, args->ctx_id);
	if (!ctx)
		return -ENOENT;
	if (!job || job > READ_ONCE(ctx->next)) {
		ret = -EINVAL;
		goto out;
	}
	if (args->timeout_ns < 0) {
		ret = wait_event_interruptible(ctx->wait, READ_ONCE(ctx->done) >= job);
	} else if (READ_ONCE(ctx->done) < job) {
		u64 ticks = args->timeout_ns ? nsecs_to_jiffies64(args->timeout_ns) + 1 : 0;
		long left = 0;

		if (ticks)
			left = wait_event_interruptible_timeout(ctx->wait,
								READ_ONCE(ctx->done) >= job,
								min(ticks, MAX_JIFFY_OFFSET));
		if (left <= 0)
			ret = left ? left : -ETIME;
	}
	if (ret)
		goto out;

	spin_lock_irq(&ctx->lock);
	if (ctx->done - job >= HG_HISTORY) {
		ret = -ENODATA;
	} else {
		res = &ctx->history[job % HG_HISTORY];
		args->error = res->error;
		args->status = res->status;
		args->reason = res->reason;
		args->block = res->block;
		args->thread = res->thread;
		args->addr = res->addr;
		args->pc = res->pc;
		args->instrs = res->instrs;
	}
	spin_unlock_irq(&ctx->lock);
	/*
	 * Its syncobj, if it has one, says the same.  (Behind the lock: the work is
	 * queued under it, after the job is said to be done.)
	 */
	flush_work(&ctx->hdev->out_work);
out:
	hg_ctx_put(ctx);
	return ret;
}
