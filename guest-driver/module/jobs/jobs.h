/* SPDX-License-Identifier: GPL-2.0 */
/* Contexts and jobs, for others. */
#ifndef HMM_GPU_JOBS_JOBS_H
#define HMM_GPU_JOBS_JOBS_H

#include "base/device.h"
#include "jobs/file.h"

struct drm_device;
struct drm_file;
struct work_struct;

/* Also live, as the gauges are, but of all devices: a job may wait for another one's. */
extern atomic_long_t hg_live_fences;

int hg_ctx_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_ctx_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_launch_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_copy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_wait_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void hg_job_out_work(struct work_struct *work);
void hg_sched_irq(struct hg_device *hdev);
void hg_sched_error_work(struct work_struct *work);
void hg_sched_watch(struct hg_device *hdev);
void hg_sched_watch_work(struct work_struct *work);
void hg_sched_stop_all(struct hg_device *hdev, int error);
int hg_ctx_create(struct hg_file *hf, u32 timeslice, bool priv, u32 *ctx_id);
int hg_ctx_destroy(struct hg_file *hf, u32 ctx_id);
void hg_ctx_destroy_all(struct hg_file *hf);
int hg_job_copy(struct hg_file *hf, u32 ctx_id, u64 src, u64 dst, u64 len, u64 flags);

#endif
