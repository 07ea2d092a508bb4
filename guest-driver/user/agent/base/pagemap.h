/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the kernel says of this process's page table: /proc/self/pagemap. */
#ifndef HMMBENCH_PAGEMAP_H
#define HMMBENCH_PAGEMAP_H

#include <stdint.h>

#define PM_PRESENT	(1ull << 63)
#define PM_SWAP		(1ull << 62)	/* any entry that is not present: also of a page in VRAM */
#define PM_PROTECTED	(1ull << 57)	/* against writes, by userfaultfd */
#define PM_DIRTY	(1ull << 55)	/* written since the kernel was told to forget it */
#define PM_FRAME(entry)	((entry) & ((1ull << 55) - 1))	/* if present */

/* The entries of @n pages; 0 or -errno. */
int pagemap_read(const void *addr, uint64_t *to, uint64_t n);
/* The frame of the page of zeroes that is mapped where nothing was written; 0: not known. */
uint64_t pagemap_zero(void);

#endif
