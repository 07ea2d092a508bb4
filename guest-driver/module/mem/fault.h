/* SPDX-License-Identifier: GPL-2.0 */
/* Fault service. */
#ifndef HMM_GPU_MEM_FAULT_H
#define HMM_GPU_MEM_FAULT_H

#include "base/device.h"

int hg_fault_init(struct hg_device *hdev);
void hg_fault_fini(struct hg_device *hdev);
void hg_fault_look_again(struct hg_device *hdev);
void hg_fault_stop(struct hg_device *hdev);
int hg_fault_attach(struct hg_device *hdev, u32 asid);
void hg_fault_irq(struct hg_device *hdev);
void hg_fault_error(struct hg_device *hdev);
int hg_fault_module_init(void);
void hg_fault_module_exit(void);

#endif
