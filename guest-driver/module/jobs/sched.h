/* SPDX-License-Identifier: GPL-2.0 */
/* Contexts and jobs: what sched.c and job.c share. */
#ifndef HMM_GPU_JOBS_SCHED_H
#define HMM_GPU_JOBS_SCHED_H

#include <linux/dma-fence.h>
#include <linux/kref.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "base/device.h"
#include "jobs/file.h"

/*
 * The ring: each job takes HG_JOB_DESCS entries, so with HG_JOBS_MAX jobs in it
 * the ring cannot be full and a job's report slot is free again.
 */
#define HG_CTX_RING		256
#define HG_JOB_DESCS		2
#define HG_JOBS_MAX		120
#define HG_REPORTS		128
#define HG_CTX_REPORTS		(HG_CTX_RING * HG_DESC_SIZE)
#define HG_CTX_FENCE		(HG_CTX_REPORTS + HG_REPORTS * HG_REPORT_SIZE)
#define HG_CTX_MEM		(HG_CTX_FENCE + 64)

/* Jobs that may wait for their turn; more make the caller wait. */
#define HG_PENDING_MAX		1024
/* Results are kept for so many of the last jobs. */
#define HG_HISTORY		1024

/* What WAIT returns of a job that is done. */
struct hg_result {
	s32 error;
	u32 status, reason, block, thread;
	u64 addr, pc, instrs;
};

/**
 * struct hg_job - a launch or copy
 * @fence: signalled when the job is done; owns this struct.  Never anybody's outside
 *	of the driver: see job.c
 * @lock: of @fence
 * @link: in hg_ctx.pending or hg_ctx.running, which hold a reference on @fence
 * @ctx: context; valid while linked
 * @num: number in the context
 * @copy: engine for the statistics: 1 copy, 0 launch
 * @desc: descriptor
 * @dep: fence it waits for, or NULL
 * @dep_cb: on @dep
 * @out: syncobj to be told of the end, or NULL; under hg_device.out_lock
 * @out_link: in hg_device.outs, which holds a reference on @fence and on @out
 */
struct hg_job {
	struct dma_fence fence;
	spinlock_t lock;
	struct list_head link;
	struct hg_ctx *ctx;
	struct hg_device *hdev;
	u64 num;
	int copy;
	u64 desc[HG_DESC_SIZE / 8];
	struct dma_fence *dep;
	struct dma_fence_cb dep_cb;
	struct drm_syncobj *out;
	struct list_head out_link;
};

/**
 * struct hg_ctx - a context of an open file
 * @ref: users: the file's table, ioctls
 * @id: hardware number, also the id of the ABI
 * @priv: its copies may use physical addresses; never for jobs of programs
 * @mem: coherent: ring, reports, fence word
 * @submit_lock: mutex: order of submission; @put, @next, doorbell, restart
 * @put: ring index
 * @next: number of the last job
 * @pump: moves jobs from @pending to the ring
 * @lock: hard-irq safe: everything below
 * @pending: jobs not yet in the ring, in order
 * @running: jobs in the ring, in order
 * @npending, @nrunning: their lengths
 * @done: number of the last job that is over
 * @dead: nothing runs here any more; @dead_error is what new jobs get
 * @history: results by number % HG_HISTORY
 * @watched: @done when hg_sched_watch_work() looked last; its own
 * @wait: for @done, for room in @pending
 */
struct hg_ctx {
	struct kref ref;
	struct hg_device *hdev;
	struct hg_file *hf;
	u32 id;
	u32 timeslice;
	bool priv;
	void *mem;
	dma_addr_t dma;
	u64 fence_context;

	struct mutex submit_lock;
	u32 put;
	u64 next;
	struct work_struct pump;

	spinlock_t lock;
	struct list_head pending;
	struct list_head running;
	unsigned int npending, nrunning;
	u64 done;
	bool dead;
	int dead_error;
	struct hg_result *history;
	u64 watched;
	wait_queue_head_t wait;
};

struct hg_ctx *hg_ctx_get(struct hg_file *hf, u32 id);
void hg_ctx_put(struct hg_ctx *ctx);
void hg_ctx_pump(struct hg_ctx *ctx);
void hg_ctx_retire(struct hg_ctx *ctx);
void hg_ctx_program(struct hg_ctx *ctx);
void hg_job_finish(struct hg_ctx *ctx, struct hg_job *job, int lost);
void hg_jobs_fail(struct hg_ctx *ctx, bool pending, int error);

#endif
