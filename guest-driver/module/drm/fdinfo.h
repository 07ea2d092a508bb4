/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_DRM_FDINFO_H
#define HMM_GPU_DRM_FDINFO_H

struct drm_file;
struct drm_printer;

void hg_show_fdinfo(struct drm_printer *p, struct drm_file *file);

#endif
