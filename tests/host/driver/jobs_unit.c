// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * jobs/: whose contexts they are, what a syncobj is before and after its job, and a
 * second look at what was lost.
 */
#include "jobs/sched.c"
#include "jobs/job.c"

static struct hg_device hdev;
static struct pci_dev pdev;
static struct hg_svm svm;
static struct hg_file hf = { .svm = &svm };
static struct drm_file file = { .driver_priv = &hf };
static u32 id;

bool hg_hw_lock(struct hg_device *h) { down_read(&h->hw_sem); return true; }
u32 hg_user_timeslice(u32 us) { return us; }

static int looks;	/* at the fault ring */

void hg_fault_look_again(struct hg_device *h) { looks++; }

static int wait_for(u64 job)
{
	struct drm_hmm_gpu_wait args = { .ctx_id = id, .job = job };

	return hg_wait_ioctl(&hdev.drm, &args, &file);
}

static int destroy(void)
{
	struct drm_hmm_gpu_ctx_destroy args = { .ctx_id = id };

	return hg_ctx_destroy_ioctl(&hdev.drm, &args, &file);
}

static int copy(u32 in, u32 out)
{
	struct drm_hmm_gpu_copy args = {
		.ctx_id = id, .len = 4096, .in_syncobj = in, .out_syncobj = out,
	};

	return hg_copy_ioctl(&hdev.drm, &args, &file);
}

/* The device is through with all up to this job, and its interrupt is lost. */
static void done_unseen(u64 job)
{
	struct hg_ctx *ctx = hf.ctxs.entry[id];

	for (u64 i = 1; i <= job; i++)
		*(u64 *)(ctx->mem + HG_CTX_REPORTS + (i % HG_REPORTS) * HG_REPORT_SIZE +
			 HG_RPT_DONE) = HG_RPT_DONE_MAGIC;
	*(u64 *)(ctx->mem + HG_CTX_FENCE) = job;
}

static void done(u64 job)
{
	struct hg_ctx *ctx = hf.ctxs.entry[id];

	done_unseen(job);
	hg_ctx_retire(ctx);
	mutex_lock(&ctx->submit_lock);
	hg_ctx_pump(ctx);
	mutex_unlock(&ctx->submit_lock);
	hg_job_out_work(&hdev.out_work);
}

static unsigned int running(void)
{
	return ((struct hg_ctx *)hf.ctxs.entry[id])->nrunning;
}

/* What is lost on the way: doorbell, interrupt of the fence, what comes of faults. */
static int second_look(void)
{
	u32 *doorbell = (u32 *)(hdev.regs + HG_REG_DOORBELL + id * HG_DOORBELL_STRIDE);
	u32 put;

	hg_sched_watch_work(&hdev.watch.work);
	CHECK(!looks);
	CHECK(copy(0, 0) == 0 && copy(0, 0) == 0);
	put = *doorbell;
	*doorbell = 0;
	hg_sched_watch_work(&hdev.watch.work);
	CHECK(*doorbell == put && looks == 1);
	/* something was done since: nothing is lost, as far as one can tell */
	done_unseen(1);
	*doorbell = 0;
	hg_sched_watch_work(&hdev.watch.work);
	CHECK(running() == 1 && wait_for(1) == 0);
	CHECK(!*doorbell && looks == 1);
	hg_sched_watch_work(&hdev.watch.work);
	CHECK(*doorbell == put && looks == 2);
	done_unseen(2);
	hg_sched_watch_work(&hdev.watch.work);
	CHECK(!running() && wait_for(2) == 0 && looks == 2);
	/* a device that does not answer is asked for nothing */
	CHECK(copy(0, 0) == 0);
	hdev.hw_live = false;
	*doorbell = 0;
	hg_sched_watch_work(&hdev.watch.work);
	hg_sched_watch_work(&hdev.watch.work);
	CHECK(!*doorbell && looks == 2);
	hdev.hw_live = true;
	CHECK(destroy() == 0);
	hg_sched_watch_work(&hdev.watch.work);
	CHECK(looks == 2);
	return 0;
}

int main(int argc, char **argv)
{
	struct mm_struct childs;

	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	hdev.pdev = &pdev;
	hdev.hw_live = true;
	hdev.num_ctxs = HG_NUM_CTXS;
	INIT_LIST_HEAD(&hdev.outs);
	svm.vm.hdev = &hdev;
	svm.vm.mm = &a_mm;
	CHECK(hg_ctx_create(&hf, 0, false, &id) == 0);

	if (!strcmp(argv[argc - 1], "child")) {
		CHECK(copy(0, 0) == 0);
		done(1);
		CHECK(wait_for(1) == 0);
		current->mm = &childs;
		CHECK(wait_for(1) == -EPERM);
		CHECK(copy(0, 0) == -EPERM);
		CHECK(destroy() == -EPERM);
		current->mm = &a_mm;
		CHECK(wait_for(1) == 0);
		CHECK(destroy() == 0);
		return 0;
	}
	if (!strcmp(argv[argc - 1], "watch"))
		return second_look();
	/* what nobody made yet cannot be waited for */
	CHECK(copy(1, 2) == -EINVAL);
	CHECK(copy(0, 1) == 0);
	/* a job that may fault for as long as it likes has no fence for others */
	CHECK(!syncobjs[1].fence);
	/* but ours may wait for it, and for what it has waited for */
	CHECK(copy(1, 2) == 0);
	CHECK(running() == 1 && !syncobjs[2].fence);
	done(1);
	CHECK(syncobjs[1].fence == &the_stub && !syncobjs[2].fence);
	CHECK(running() == 1);
	/* the next one's, before the last one is over */
	CHECK(copy(2, 2) == 0 && !syncobjs[2].fence);
	done(2);
	CHECK(!syncobjs[2].fence);
	done(3);
	CHECK(syncobjs[2].fence == &the_stub);
	/* one that ends with its context is over as well */
	CHECK(copy(0, 3) == 0 && !syncobjs[3].fence);
	CHECK(destroy() == 0);
	hg_job_out_work(&hdev.out_work);
	CHECK(syncobjs[3].fence == &the_stub);
	CHECK(!atomic_long_read(&hg_live_fences) && list_empty(&hdev.outs));
	return 0;
}
