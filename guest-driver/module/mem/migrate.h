/* SPDX-License-Identifier: GPL-2.0 */
/* Migration to VRAM, and back on request. */
#ifndef HMM_GPU_MEM_MIGRATE_H
#define HMM_GPU_MEM_MIGRATE_H

#include <linux/mm.h>

#include "mem/svm.h"

/* migrate.c */
struct hg_migrate_result {
	unsigned long migrated;
	unsigned long failed;
	bool unreadable;	/* a page's content could not be had from VRAM */
};

bool hg_use_thp(void);
bool hg_vma_may_migrate(struct vm_area_struct *vma);
int hg_migrate_chunk(struct hg_svm *svm, struct vm_area_struct *vma,
		     unsigned long start, unsigned long end, bool to_device,
		     struct hg_migrate_result *res);
int hg_migrate_range(struct hg_svm *svm, unsigned long start, unsigned long end,
		     bool to_device, bool map, struct hg_migrate_result *res);

#endif
