/* SPDX-License-Identifier: GPL-2.0 */
/* Mapping pages of a process for the GPU. */
#ifndef HMM_GPU_MEM_MAP_H
#define HMM_GPU_MEM_MAP_H

#include "mem/svm.h"

struct hmm_range;

int hg_range_fault(struct hg_svm *svm, struct hmm_range *range, unsigned long want);
int hg_svm_is_device_private(struct hg_svm *svm, const struct hmm_range *range);
int hg_svm_map_window(struct hg_svm *svm, unsigned long start, unsigned long end,
		      const unsigned long *want, unsigned long *pfns, bool atomic);

#endif
