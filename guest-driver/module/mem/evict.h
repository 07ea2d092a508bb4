/* SPDX-License-Identifier: GPL-2.0 */
/* Making room in VRAM. */
#ifndef HMM_GPU_MEM_EVICT_H
#define HMM_GPU_MEM_EVICT_H

#include "base/device.h"

unsigned long hg_vram_evict(struct hg_device *hdev, unsigned long n);
void hg_vram_reserve(struct hg_device *hdev, unsigned long n);
unsigned long hg_vram_stop(struct hg_device *hdev);

#endif
