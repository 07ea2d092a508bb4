/* SPDX-License-Identifier: GPL-2.0 */
/* The mirror of an address space. */
#ifndef HMM_GPU_MEM_SVM_H
#define HMM_GPU_MEM_SVM_H

#include "mmu/mmu.h"

struct hg_svm *hg_svm_create(struct hg_device *hdev);
void hg_svm_destroy(struct hg_svm *svm);
struct hg_svm *hg_svm_get(struct hg_device *hdev, u32 asid);
void hg_svm_put(struct hg_svm *svm);

#endif
