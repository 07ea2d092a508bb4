/* SPDX-License-Identifier: GPL-2.0 */
/* Copies of pages between system memory and VRAM, and what a migration needs for them. */
#ifndef HMM_GPU_MEM_COPY_H
#define HMM_GPU_MEM_COPY_H

#include "base/device.h"

/**
 * struct hg_copy_op - one piece to copy between system memory and VRAM
 * @vram: offset in VRAM
 * @sys: system page; NULL: clear the VRAM piece
 * @dma: bus address of @sys during the copy
 * @index: for the caller
 * @huge: 2 MiB instead of one page
 * @error: out: 0; -EIO: the data did not arrive; -ENOMEM: there is no bus address for @sys
 *	now, and nobody tried
 */
struct hg_copy_op {
	u64 vram;
	struct page *sys;
	dma_addr_t dma;
	u32 index;
	bool huge;
	int error;
};

/* What a migration of up to @max pages needs, in one allocation. */
struct hg_migrate_buf {
	unsigned long max;
	bool fail_huge;		/* no 2 MiB of system memory */
	unsigned long *src;
	unsigned long *dst;
	struct page **pages;
	struct hg_copy_op ops[];
};

struct hg_migrate_buf *hg_migrate_buf_alloc(unsigned long max, gfp_t gfp);
unsigned long hg_migrate_buf_moved(const struct hg_migrate_buf *buf, unsigned long n,
				   unsigned long *huge);
void hg_migrate_buf_free(struct hg_migrate_buf *buf);
void hg_copy_pages(struct hg_device *hdev, struct hg_copy_op *ops, unsigned int n,
		   bool to_device);

#endif
