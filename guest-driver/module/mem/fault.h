/* SPDX-License-Identifier: GPL-2.0 */
/* Fault service. */
#ifndef HMM_GPU_MEM_FAULT_H
#define HMM_GPU_MEM_FAULT_H

#include "base/device.h"

int hg_fault_init(struct hg_device *hdev);
void hg_fault_fini(struct hg_device *hdev);
void hg_fault_kick(struct hg_device *hdev);

#endif
