/* SPDX-License-Identifier: GPL-2.0 */
/* The mirror audit. */
#ifndef HMM_GPU_MMU_AUDIT_H
#define HMM_GPU_MMU_AUDIT_H

struct hg_device;
struct hg_vm;

void hg_audit_hw_program(struct hg_device *hdev);
void hg_audit_program(struct hg_vm *vm);
void hg_audit_end(struct hg_vm *vm);
void hg_audit_not_physical(struct hg_vm *vm);

#endif
