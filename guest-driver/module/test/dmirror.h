/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_TEST_DMIRROR_H
#define HMM_GPU_TEST_DMIRROR_H

struct hg_device;

void hg_dmirror_add(struct hg_device *hdev);
void hg_dmirror_remove(struct hg_device *hdev);

#endif
