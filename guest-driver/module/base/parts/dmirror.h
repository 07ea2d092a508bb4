/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/hmm_dmirrorN: what of it a device has.  The code: test/dmirror.c. */
#ifndef HMM_GPU_BASE_PARTS_DMIRROR_H
#define HMM_GPU_BASE_PARTS_DMIRROR_H

#include <linux/miscdevice.h>

/**
 * struct hg_dmirror_node - the device node of the kernel's HMM tests
 * @misc: it; registered while @id is positive
 * @id: N + 1, or 0: there is no node
 * @name: of the node
 */
struct hg_dmirror_node {
	struct miscdevice misc;
	int id;
	char name[24];
};

#endif
