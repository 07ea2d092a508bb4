/* SPDX-License-Identifier: GPL-2.0 */
/* Buffers. */
#ifndef HMM_GPU_DRM_BO_H
#define HMM_GPU_DRM_BO_H

#include "base/device.h"

struct drm_file;
struct hg_svm;

int hg_bo_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void hg_bo_drop_all(struct hg_device *hdev);
unsigned long hg_bo_pages(struct hg_svm *svm);

#endif
