/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_DRM_IOCTL_H
#define HMM_GPU_DRM_IOCTL_H

struct drm_device;
struct drm_file;

int hg_get_param_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_policy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_migrate_ioctl(struct drm_device *drm, void *data, struct drm_file *file);

#endif
