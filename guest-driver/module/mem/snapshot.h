/* SPDX-License-Identifier: GPL-2.0 */
/* What is where. */
#ifndef HMM_GPU_MEM_SNAPSHOT_H
#define HMM_GPU_MEM_SNAPSHOT_H

#include "mem/svm.h"

int hg_snapshot_lock(struct hg_svm *svm, unsigned long start, unsigned long end,
		     unsigned long *pfns);
bool hg_pfn_is_device(struct hg_device *hdev, unsigned long pfn);
int hg_svm_count_device(struct hg_svm *svm, unsigned long start, unsigned long end,
			unsigned long *pfns, unsigned long *device);

#endif
