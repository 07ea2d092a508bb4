/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_TEST_DEBUGFS_H
#define HMM_GPU_TEST_DEBUGFS_H

struct drm_minor;

void hg_debugfs_init(struct drm_minor *minor);

#endif
