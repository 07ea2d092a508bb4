// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts: their life, and what happens when the device stops one.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include <drm/drm_file.h>

#include "base/regs.h"
#include "base/stats.h"
#include "hw/fault_unit.h"
#include "hw/hw.h"
#include "jobs/jobs.h"
#include "jobs/sched.h"
#include "mem/fault.h"

/* Time a context has to come to rest after it was disabled. */
#define HG_QUIESCE_MS	10000

static u32 ctx_reg(struct hg_ctx *ctx, u32 reg)
{
	return HG_REG_CTX + ctx->id * HG_CTX_STRIDE + reg;
}

static void ctx_free(struct kref *ref)
{
	struct hg_ctx *ctx = container_of(ref, struct hg_ctx, ref);

	kvfree(ctx->history);
	kfree(ctx);
}

struct hg_ctx *hg_ctx_get(struct hg_file *hf, u32 id)
{
	struct hg_ctx *ctx;

	xa_lock(&hf->ctxs);
	ctx = xa_load(&hf->ctxs, id);
	if (ctx)
		kref_get(&ctx->ref);
	xa_unlock(&hf->ctxs);
	return ctx;
}

void hg_ctx_put(struct hg_ctx *ctx)
{
	kref_put(&ctx->ref, ctx_free);
}

/* Tells the device about the context, empty.  hw_sem is held. */
void hg_ctx_program(struct hg_ctx *ctx)
{
	struct hg_device *hdev = ctx->hdev;

	ctx->put = 0;
	hg_write(hdev, ctx_reg(ctx, HG_CTX_CTRL), 0);
	hg_write64(hdev, ctx_reg(ctx, HG_CTX_RING_BASE), ctx->dma);
	hg_write(hdev, ctx_reg(ctx, HG_CTX_RING_SIZE), HG_CTX_RING);
	/* coherent memory is aligned to its size */
	hg_write64(hdev, ctx_reg(ctx, HG_CTX_SYNC),
		   ctx->dma | (PAGE_SHIFT + get_order(HG_CTX_MEM)));
	hg_write(hdev, ctx_reg(ctx, HG_CTX_ASID), ctx->hf->svm->vm.asid);
	hg_write(hdev, ctx_reg(ctx, HG_CTX_TIMESLICE), ctx->timeslice);
	hg_write(hdev, ctx_reg(ctx, HG_CTX_CTRL), HG_CTX_ENABLE | (ctx->priv ? HG_CTX_PRIV : 0) |
		 (hdev->ce_faults ? HG_CTX_STALL : 0));
}

/*
 * Disables the context and waits until no engine has anything to do with it.
 * Accesses that are stalled on a fault are dropped by the device, so this does
 * not depend on fault service.  hw_sem is held for reading.
 */
static void ctx_quiesce(struct hg_ctx *ctx)
{
	unsigned long end = jiffies + msecs_to_jiffies(HG_QUIESCE_MS);
	struct hg_device *hdev = ctx->hdev;
	unsigned int spins = 0;

	if (!READ_ONCE(hdev->hw_live))
		return;
	hg_write(hdev, ctx_reg(ctx, HG_CTX_CTRL), 0);
	for (;;) {
		u32 status = hg_read(hdev, ctx_reg(ctx, HG_CTX_STATUS));

		/* all ones: nobody is there (any more) */
		if (!(status & HG_CTX_ACTIVE) || status == ~0u || !READ_ONCE(hdev->hw_live)) {
			hg_fault_jobs_ended(hdev, ctx->id);
			return;
		}
		if (time_after(jiffies, end)) {
			hg_wedge(hdev, "disable context");
			return;
		}
		if (spins++ < 20)
			cpu_relax();
		else
			usleep_range(50, 100);
	}
}

static void ctx_free_mem(struct hg_ctx *ctx)
{
	struct hg_device *hdev = ctx->hdev;

	dma_free_coherent(&hdev->pdev->dev, HG_CTX_MEM, ctx->mem, ctx->dma);
	ctx->mem = NULL;
	if (atomic_dec_and_test(&hdev->ctx_mem))
		wake_up_var(&hdev->ctx_mem);
}

static void ctx_pump_work(struct work_struct *work)
{
	struct hg_ctx *ctx = container_of(work, struct hg_ctx, pump);

	mutex_lock(&ctx->submit_lock);
	hg_ctx_pump(ctx);
	mutex_unlock(&ctx->submit_lock);
}

/**
 * hg_ctx_create() - make a context
 * @hf: file it belongs to
 * @timeslice: microseconds, 0: the device's default; see hg_user_timeslice()
 * @priv: its copies may use physical addresses: only for jobs that the kernel makes
 * @ctx_id: out: number
 *
 * Return: 0, -EPERM, -ENODEV, -ENOMEM, -ENOSPC, -EDQUOT.
 */
int hg_ctx_create(struct hg_file *hf, u32 timeslice, bool priv, u32 *ctx_id)
{
	struct hg_device *hdev = hf->svm->vm.hdev;
	struct hg_ctx *ctx;
	int ret, id;

	ret = hg_check_mm(hf);
	if (ret)
		return ret;
	if (READ_ONCE(hdev->stopping))
		return -ENODEV;
	ret = hg_user_charge(hdev, hf->user, HG_USER_CTXS, 1);
	if (ret)
		return ret;
	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	if (!ctx) {
		hg_user_uncharge(hdev, hf->user, HG_USER_CTXS, 1);
		return -ENOMEM;
	}
	kref_init(&ctx->ref);
	ctx->hdev = hdev;
	ctx->hf = hf;
	ctx->timeslice = hg_user_timeslice(timeslice);
	ctx->priv = priv;
	mutex_init(&ctx->submit_lock);
	spin_lock_init(&ctx->lock);
	INIT_LIST_HEAD(&ctx->pending);
	INIT_LIST_HEAD(&ctx->running);
	INIT_WORK(&ctx->pump, ctx_pump_work);
	init_waitqueue_head(&ctx->wait);
	ctx->fence_context = dma_fence_context_alloc(1);
	ctx->history = kvcalloc(HG_HISTORY, sizeof(*ctx->history), GFP_KERNEL_ACCOUNT);
	ctx->mem = dma_alloc_coherent(&hdev->pdev->dev, HG_CTX_MEM, &ctx->dma,
				      GFP_KERNEL_ACCOUNT);
	if (ctx->mem)
		atomic_inc(&hdev->ctx_mem);
	if (!ctx->history || !ctx->mem) {
		ret = -ENOMEM;
		goto err_free;
	}
	id = ida_alloc_range(&hdev->ctx_ida, 1, hdev->num_ctxs - 1, GFP_KERNEL);
	if (id < 0) {
		ret = id;
		goto err_free;
	}
	ctx->id = id;

	mutex_lock(&hf->lock);
	ret = xa_reserve(&hf->ctxs, id, GFP_KERNEL);
	if (ret)
		goto err_id;
	ret = -ENODEV;
	if (hg_hw_lock(hdev)) {
		if (!READ_ONCE(hdev->stopping)) {
			hg_ctx_program(ctx);
			spin_lock_irq(&hdev->ctx_lock);
			hdev->ctxs[id] = ctx;
			spin_unlock_irq(&hdev->ctx_lock);
			ret = 0;
		}
		up_read(&hdev->hw_sem);
	}
	if (ret) {
		xa_release(&hf->ctxs, id);
		goto err_id;
	}
	hg_live_add(hdev, contexts, 1);
	hg_sched_watch(hdev);
	*ctx_id = id;
	xa_store(&hf->ctxs, id, ctx, GFP_KERNEL);
	mutex_unlock(&hf->lock);
	return 0;

err_id:
	mutex_unlock(&hf->lock);
	ida_free(&hdev->ctx_ida, id);
err_free:
	if (ctx->mem)
		ctx_free_mem(ctx);
	ctx_free(&ctx->ref);
	hg_user_uncharge(hdev, hf->user, HG_USER_CTXS, 1);
	return ret;
}

int hg_ctx_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_ctx_create *args = data;

	if (args->flags || args->pad)
		return -EINVAL;
	return hg_ctx_create(file->driver_priv, args->timeslice_us, false, &args->ctx_id);
}

/*
 * Ends a context: the device stops to know it, its jobs get @error.  Again is
 * harmless: a reset or the removal of the device, and later the close of the
 * file end here.  Ioctls may hold references; they find it dead.
 */
static void ctx_kill(struct hg_ctx *ctx, int error)
{
	struct hg_device *hdev = ctx->hdev;

	mutex_lock(&ctx->submit_lock);
	if (!ctx->mem) {
		mutex_unlock(&ctx->submit_lock);
		return;
	}
	spin_lock_irq(&ctx->lock);
	ctx->dead = true;
	ctx->dead_error = error;
	spin_unlock_irq(&ctx->lock);
	down_read(&hdev->hw_sem);
	ctx_quiesce(ctx);
	up_read(&hdev->hw_sem);

	/* the interrupt handler does not look at it from here on */
	spin_lock_irq(&hdev->ctx_lock);
	hdev->ctxs[ctx->id] = NULL;
	spin_unlock_irq(&hdev->ctx_lock);
	hg_ctx_retire(ctx);
	hg_jobs_fail(ctx, true, error);
	ctx_free_mem(ctx);
	mutex_unlock(&ctx->submit_lock);
}

/* The file does not have the context any more.  The number may be used again. */
static void ctx_destroy(struct hg_ctx *ctx)
{
	struct hg_device *hdev = ctx->hdev;

	ctx_kill(ctx, -ECANCELED);
	cancel_work_sync(&ctx->pump);
	ida_free(&hdev->ctx_ida, ctx->id);
	hg_live_add(hdev, contexts, -1);
	hg_user_uncharge(hdev, ctx->hf->user, HG_USER_CTXS, 1);
	hg_ctx_put(ctx);
}

/**
 * hg_ctx_destroy() - end a context; its jobs get -ECANCELED
 * @hf: file
 * @ctx_id: number
 *
 * When it returns the device does not touch what the jobs used.
 *
 * Return: 0 or -ENOENT.
 */
int hg_ctx_destroy(struct hg_file *hf, u32 ctx_id)
{
	struct hg_ctx *ctx;

	mutex_lock(&hf->lock);
	ctx = xa_erase(&hf->ctxs, ctx_id);
	if (ctx)
		ctx_destroy(ctx);
	mutex_unlock(&hf->lock);
	return ctx ? 0 : -ENOENT;
}

int hg_ctx_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_ctx_destroy *args = data;
	int ret;

	if (args->pad)
		return -EINVAL;
	ret = hg_check_mm(file->driver_priv);
	return ret ? ret : hg_ctx_destroy(file->driver_priv, args->ctx_id);
}

/**
 * hg_ctx_destroy_all() - the file is closed
 * @hf: file
 */
void hg_ctx_destroy_all(struct hg_file *hf)
{
	struct hg_ctx *ctx;
	unsigned long id;

	mutex_lock(&hf->lock);
	xa_for_each(&hf->ctxs, id, ctx) {
		xa_erase(&hf->ctxs, id);
		ctx_destroy(ctx);
	}
	mutex_unlock(&hf->lock);
}

/* Fence interrupt; any context. */
void hg_sched_irq(struct hg_device *hdev)
{
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&hdev->ctx_lock, flags);
	for (i = 1; i < hdev->num_ctxs; i++)
		if (hdev->ctxs[i])
			hg_ctx_retire(hdev->ctxs[i]);
	spin_unlock_irqrestore(&hdev->ctx_lock, flags);
}

static struct hg_ctx *ctx_by_number(struct hg_device *hdev, unsigned int i)
{
	struct hg_ctx *ctx;

	spin_lock_irq(&hdev->ctx_lock);
	ctx = hdev->ctxs[i];
	if (ctx)
		kref_get(&ctx->ref);
	spin_unlock_irq(&hdev->ctx_lock);
	return ctx;
}

/* A context that the device stopped: its jobs fail, it starts again empty. */
static void ctx_check_halted(struct hg_ctx *ctx)
{
	struct hg_device *hdev = ctx->hdev;

	mutex_lock(&ctx->submit_lock);
	down_read(&hdev->hw_sem);
	if (!ctx->dead && READ_ONCE(hdev->hw_live) &&
	    hg_read(hdev, ctx_reg(ctx, HG_CTX_STATUS)) & HG_CTX_HALTED) {
		dev_warn_ratelimited(hdev->drm.dev, "context %u stopped, error %u at %#llx\n",
				     ctx->id, hg_read(hdev, ctx_reg(ctx, HG_CTX_ERROR)),
				     hg_read64(hdev, ctx_reg(ctx, HG_CTX_ERROR_ADDR)));
		ctx_quiesce(ctx);
		hg_ctx_retire(ctx);
		hg_jobs_fail(ctx, false, -EIO);
		hg_ctx_program(ctx);
		hg_inc(hdev, ctx_restarts);
	}
	up_read(&hdev->hw_sem);
	hg_ctx_pump(ctx);
	mutex_unlock(&ctx->submit_lock);
}

/**
 * hg_sched_stop_all() - end all contexts: reset, removal, device given up
 * @hdev: device
 * @error: -errno for their jobs, and for new ones
 *
 * The contexts stay, dead, until their files close.
 */
void hg_sched_stop_all(struct hg_device *hdev, int error)
{
	unsigned int i;

	for (i = 1; i < hdev->num_ctxs; i++) {
		struct hg_ctx *ctx = ctx_by_number(hdev, i);

		if (ctx) {
			ctx_kill(ctx, error);
			hg_ctx_put(ctx);
		}
	}
}

void hg_sched_error_work(struct work_struct *work)
{
	struct hg_device *hdev = container_of(work, struct hg_device, error_work);
	unsigned int i;

	if (!READ_ONCE(hdev->hw_live)) {
		wake_up_all(&hdev->ce.wait);
		hg_sched_stop_all(hdev, -EIO);
		return;
	}
	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live))
		hg_fault_error(hdev);
	up_read(&hdev->hw_sem);
	for (i = 1; i < hdev->num_ctxs; i++) {
		struct hg_ctx *ctx = ctx_by_number(hdev, i);

		if (ctx) {
			ctx_check_halted(ctx);
			hg_ctx_put(ctx);
		}
	}
}

/**
 * hg_sched_watch() - have somebody look again for what was lost on the way
 * @hdev: device; a context was made
 *
 * An interrupt, a doorbell or a replay that was lost is not told of by anybody: so
 * drivers look again by themselves where jobs do not get on (a fence's fallback timer,
 * a ring that is polled).  This one does so if it is asked to (watch_ms), as long as
 * there is a context.  It is off otherwise, for it would also bring back what this
 * driver has lost itself, and hide the mistake.
 *
 * Who makes a context has entered the device, and the removal waits for that before it
 * ends the work.
 */
void hg_sched_watch(struct hg_device *hdev)
{
	unsigned int ms = READ_ONCE(hg_watch_ms);

	if (ms)
		queue_delayed_work(hdev->wq, &hdev->watch, msecs_to_jiffies(ms));
}

/*
 * Takes in what is done, and rings again if nothing was since the last time.  With
 * submit_lock: nobody writes descriptors, restarts the context or frees its memory.
 * Returns whether it has jobs that do not get on.
 */
static bool ctx_watch(struct hg_ctx *ctx)
{
	struct hg_device *hdev = ctx->hdev;
	bool stuck = false;

	mutex_lock(&ctx->submit_lock);
	if (!ctx->mem)
		goto out;
	hg_ctx_retire(ctx);
	spin_lock_irq(&ctx->lock);
	stuck = ctx->nrunning && ctx->done == ctx->watched;
	ctx->watched = ctx->done;
	spin_unlock_irq(&ctx->lock);
	if (!stuck)
		goto out;
	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live))
		hg_write(hdev, HG_REG_DOORBELL + ctx->id * HG_DOORBELL_STRIDE, ctx->put);
	up_read(&hdev->hw_sem);
out:
	mutex_unlock(&ctx->submit_lock);
	return stuck;
}

/*
 * Works of others are queued as a reader of hw_sem who has seen hw_live: so a reset,
 * which ends the error work after it has been the writer, finds it, and what is left
 * of the ring's finds the device not live.  The removal has ended all contexts before
 * it waits for this work, and ends the others after it.
 */
void hg_sched_watch_work(struct work_struct *work)
{
	struct hg_device *hdev = container_of(to_delayed_work(work), struct hg_device, watch);
	bool any = false, stuck = false;
	unsigned int i;

	for (i = 1; i < hdev->num_ctxs; i++) {
		struct hg_ctx *ctx = ctx_by_number(hdev, i);

		if (!ctx)
			continue;
		any = true;
		stuck |= ctx_watch(ctx);
		hg_ctx_put(ctx);
	}
	if (stuck) {
		down_read(&hdev->hw_sem);
		if (READ_ONCE(hdev->hw_live)) {
			hg_fault_look_again(hdev);
			queue_work(hdev->wq, &hdev->error_work);
		}
		up_read(&hdev->hw_sem);
	}
	if (any)
		hg_sched_watch(hdev);
}
