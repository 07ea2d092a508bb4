/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_PCI_IRQ_H
#define HMM_GPU_PCI_IRQ_H

struct hg_device;

int hg_irq_init(struct hg_device *hdev);
void hg_irq_fini(struct hg_device *hdev);

#endif
