/* SPDX-License-Identifier: GPL-2.0 */
/* The fault rings, and the answers to what is in them. */
#ifndef HMM_GPU_HW_FAULT_UNIT_H
#define HMM_GPU_HW_FAULT_UNIT_H

#include "base/device.h"

int hg_fault_unit_init(struct hg_device *hdev);
void hg_fault_unit_fini(struct hg_device *hdev);
void hg_fault_program(struct hg_device *hdev);
u64 hg_fault_count(struct hg_device *hdev);
void hg_fault_jobs_ended(struct hg_device *hdev, u32 ctx);
bool hg_fault_is_over(struct hg_device *hdev, const struct hg_fault *f);
int hg_fault_drain(struct hg_device *hdev,
		   void (*take)(struct hg_device *hdev, const struct hg_fault *f));
void hg_fault_drain_nonreplay(struct hg_device *hdev,
			      void (*take)(struct hg_device *hdev, const struct hg_fault *f));
void hg_fault_cancel(struct hg_device *hdev, u32 asid, u64 addr, u32 cmd);
void hg_fault_replay(struct hg_device *hdev, u64 last);

#endif
