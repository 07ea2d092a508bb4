/* SPDX-License-Identifier: GPL-2.0 */
/* The registers. */
#ifndef HMM_GPU_BASE_REGS_H
#define HMM_GPU_BASE_REGS_H

#include <linux/io.h>

#include "base/device.h"

static inline u32 hg_read(struct hg_device *hdev, u32 reg)
{
	return readl(hdev->regs + reg);
}

static inline void hg_write(struct hg_device *hdev, u32 reg, u32 v)
{
	writel(v, hdev->regs + reg);
}

static inline u64 hg_read64(struct hg_device *hdev, u32 reg)
{
	return readq(hdev->regs + reg);
}

static inline void hg_write64(struct hg_device *hdev, u32 reg, u64 v)
{
	writeq(v, hdev->regs + reg);
}

#endif
