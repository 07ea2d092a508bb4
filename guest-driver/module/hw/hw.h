/* SPDX-License-Identifier: GPL-2.0 */
/* The device as a whole: what it has, when it does not answer, and its TLBs. */
#ifndef HMM_GPU_HW_HW_H
#define HMM_GPU_HW_HW_H

#include "base/device.h"

/* Milliseconds between two looks for what was lost on the way, 0: none; see hg_sched_watch(). */
extern unsigned int hg_watch_ms;

int hg_hw_init(struct hg_device *hdev);
bool hg_hw_translated(struct hg_device *hdev);
int hg_hw_check_dma(struct hg_device *hdev);
bool hg_hw_lock(struct hg_device *hdev);
void hg_wedge(struct hg_device *hdev, const char *what);
void hg_tlb_invalidate(struct hg_device *hdev, u32 asid, unsigned long start,
		       unsigned long last, bool may_sleep);

#endif
