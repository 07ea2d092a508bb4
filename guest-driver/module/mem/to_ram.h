/* SPDX-License-Identifier: GPL-2.0 */
/* From VRAM to system memory. */
#ifndef HMM_GPU_MEM_TO_RAM_H
#define HMM_GPU_MEM_TO_RAM_H

#include <linux/mm.h>

#include "base/device.h"

struct hg_migrate_buf;

vm_fault_t hg_migrate_to_ram(struct vm_fault *vmf);
int hg_copy_to_system(struct hg_device *hdev, struct vm_area_struct *vma,
		      unsigned long addr, struct hg_migrate_buf *buf,
		      unsigned long npages, unsigned long must);

#endif
