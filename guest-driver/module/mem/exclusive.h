/* SPDX-License-Identifier: GPL-2.0 */
/* Device-exclusive access. */
#ifndef HMM_GPU_MEM_EXCLUSIVE_H
#define HMM_GPU_MEM_EXCLUSIVE_H

#include "mem/svm.h"

void hg_svm_use_exclusive(struct hg_svm *svm, bool on);
int hg_svm_ask_exclusive(struct hg_svm *svm, unsigned long addr);
int hg_svm_map_exclusive(struct hg_svm *svm, unsigned long start, unsigned long end);
bool hg_svm_any_exclusive(struct hg_svm *svm, unsigned long start, unsigned long end);

#endif
