// SPDX-License-Identifier: GPL-2.0
/* The calls of a render node that need no more than a few lines. */
#include <drm/drm_file.h>

#include "drm/ioctl.h"
#include "jobs/file.h"
#include "mem/exclusive.h"
#include "mem/migrate.h"

/**
 * hg_get_param_ioctl() - a property of the device
 * @drm: device
 * @data: struct drm_hmm_gpu_get_param
 * @file: open file
 *
 * Return: 0 or -errno.
 */
int hg_get_param_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_get_param *args = data;
	struct hg_device *hdev = to_hg(drm);
	unsigned long limit, used;

	if (args->pad)
		return -EINVAL;
	limit = READ_ONCE(hdev->vram.limit);
	used = READ_ONCE(hdev->vram.used);
	switch (args->param) {
	case HMM_GPU_PARAM_VERSION:
		args->value = 1;
		break;
	case HMM_GPU_PARAM_SMS:
		args->value = hdev->sms;
		break;
	case HMM_GPU_PARAM_WARPS:
		args->value = hdev->warps;
		break;
	case HMM_GPU_PARAM_LANES:
		args->value = HG_LANES;
		break;
	case HMM_GPU_PARAM_VRAM_PAGES:
		args->value = limit;
		break;
	case HMM_GPU_PARAM_VRAM_FREE:
		args->value = limit > used ? limit - used : 0;
		break;
	case HMM_GPU_PARAM_THREAD_SLOTS:
		args->value = (u64)hdev->sms * hdev->warps * HG_LANES;
		break;
	case HMM_GPU_PARAM_THP_MIGRATION:
		args->value = hg_use_thp();
		break;
	case HMM_GPU_PARAM_COHERENT:
		args->value = hdev->coherent;
		break;
	default:
		return -EINVAL;
	}
	return 0;
}

/**
 * hg_policy_ioctl() - what a fault of the GPU does besides mapping
 * @drm: device
 * @data: struct drm_hmm_gpu_policy
 * @file: open file
 *
 * Return: 0 or -errno.
 */
int hg_policy_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_policy *args = data;
	struct hg_file *hf = file->driver_priv;
	int ret;

	if (args->pad || args->policy > (HMM_GPU_POLICY_MIGRATE | HMM_GPU_POLICY_EXCLUSIVE))
		return -EINVAL;
	ret = hg_check_mm(hf);
	if (ret)
		return ret;
	WRITE_ONCE(hf->svm->policy, args->policy & ~HMM_GPU_POLICY_EXCLUSIVE);
	hg_svm_use_exclusive(hf->svm, args->policy & HMM_GPU_POLICY_EXCLUSIVE);
	return 0;
}

/**
 * hg_migrate_ioctl() - move pages to VRAM or back
 * @drm: device
 * @data: struct drm_hmm_gpu_migrate
 * @file: open file
 *
 * Return: 0 or -errno.
 */
int hg_migrate_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_migrate *args = data;
	struct hg_file *hf = file->driver_priv;
	struct hg_migrate_result res = {};
	int ret;

	ret = hg_check_mm(hf);
	if (ret)
		return ret;
	if (args->dst > HMM_GPU_MIGRATE_DEVICE || args->flags & ~HMM_GPU_MIGRATE_MAP)
		return -EINVAL;
	if (!PAGE_ALIGNED(args->addr) || !PAGE_ALIGNED(args->len) || !args->len ||
	    args->addr + args->len < args->addr || args->addr + args->len > TASK_SIZE)
		return -EINVAL;
	ret = hg_migrate_range(hf->svm, args->addr, args->addr + args->len,
			       args->dst == HMM_GPU_MIGRATE_DEVICE,
			       args->flags & HMM_GPU_MIGRATE_MAP, &res);
	args->migrated = res.migrated;
	args->failed = res.failed;
	return ret;
}
