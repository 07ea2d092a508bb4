/* SPDX-License-Identifier: GPL-2.0 */
/* The struct pages of VRAM. */
#ifndef HMM_GPU_MEM_PAGEMAP_H
#define HMM_GPU_MEM_PAGEMAP_H

#include "base/device.h"

int hg_pagemap_init(struct hg_device *hdev);
void hg_pagemap_fini(struct hg_device *hdev);

#endif
