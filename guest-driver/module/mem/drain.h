/* SPDX-License-Identifier: GPL-2.0 */
/* References of the LRU lists' batches. */
#ifndef HMM_GPU_MEM_DRAIN_H
#define HMM_GPU_MEM_DRAIN_H

#include "base/device.h"

void hg_drain_batches(struct hg_device *hdev);

#endif
