/* SPDX-License-Identifier: GPL-2.0 */
/* Copies of the kernel. */
#ifndef HMM_GPU_HW_CE_H
#define HMM_GPU_HW_CE_H

#include "base/device.h"

int hg_ce_init(struct hg_device *hdev);
void hg_ce_fini(struct hg_device *hdev);
void hg_ce_program(struct hg_device *hdev);
void hg_ce_irq(struct hg_device *hdev);
struct hg_ce_slot *hg_ce_get(struct hg_device *hdev);
void hg_ce_put(struct hg_device *hdev, struct hg_ce_slot *slot);
void hg_ce_add(struct hg_ce_slot *slot, u64 src, u64 dst, u64 bytes, u64 flags);
int hg_ce_run(struct hg_device *hdev, struct hg_ce_slot *slot);
u64 hg_ce_fence(struct hg_device *hdev, bool irq);
bool hg_ce_passed(struct hg_device *hdev, u64 value);

#endif
