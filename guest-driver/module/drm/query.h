/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_DRM_QUERY_H
#define HMM_GPU_DRM_QUERY_H

struct drm_device;
struct drm_file;

int hg_query_ioctl(struct drm_device *drm, void *data, struct drm_file *file);

#endif
