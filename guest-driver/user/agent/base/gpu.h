/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The GPU of a process: its device file and two contexts, opened when first
 * needed, and the jobs that nobody waits for yet.  The second context may have an
 * open file of its own, which is another mirror of the same memory.
 */
#ifndef HMMBENCH_GPU_H
#define HMMBENCH_GPU_H

#include <stdbool.h>

#include "hmmgpu.h"
#include "program.h"

/* The device, and context `number` unless ctx is NULL; 0 or -errno. */
int gpu_get(struct hmmgpu **dev, unsigned number, struct hmmgpu_ctx **ctx);
/* Closes it, jobs that run being cancelled; opened again when next needed. */
int gpu_close(void);
/* Closes it; whether the second context has a file of its own from now on. */
int gpu_split(bool split);
/*
 * After the device was taken away: asks what was opened before that whether it says
 * so, a file (@gone: the device is another one) or a context (@reset); closes all, or
 * the contexts alone, and opens it anew.  The first wrong answer, 0 if there is none,
 * -EBADE for a success that is wrong; *@where: of 0 opening, 1 the file, 2 the context, 3 closing.
 */
int gpu_reopen(bool gone, bool reset, uint64_t *where);
/* Another number whenever all was closed: what belonged to a file before is gone. */
uint32_t gpu_opened(void);
/* In a child of fork(): forgets the parent's. */
void gpu_after_fork(void);

/* Waits for a job; its status, and what else there is to it in *r. */
int gpu_wait_job(struct hmmgpu_ctx *ctx, uint64_t job, struct hb_op_result *r);
/* A job of operation `index` that is not waited for. */
void gpu_note_job(unsigned index, unsigned number, uint64_t job);
/*
 * The results of all noted jobs but the newest @leave go to their operations; the
 * first error of waiting itself is returned.
 */
int gpu_wait_noted(uint64_t leave);

#endif
