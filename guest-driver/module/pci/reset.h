/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HMM_GPU_PCI_RESET_H
#define HMM_GPU_PCI_RESET_H

#include <linux/pci.h>

struct hg_device;

void hg_hw_program(struct hg_device *hdev);
void hg_reset_end(struct hg_device *hdev, bool alive);
extern const struct pci_error_handlers hg_err_handlers;

#endif
