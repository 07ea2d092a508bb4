// SPDX-License-Identifier: GPL-2.0
/*
 * References of the LRU lists' batches, which keep pages from moving.
 */
#include <linux/gfp.h>
#include <linux/migrate.h>
#include <linux/mm.h>

#include "base/stats.h"
#include "mem/drain.h"

/**
 * hg_drain_batches() - have all CPUs let go of the pages in their batches for the LRU lists
 * @hdev: device
 *
 * munmap() of locked memory, MADV_FREE and others put a page into a batch of their
 * CPU, and the batch's reference keeps it from moving until the batch is full or
 * something on that CPU drains it: for ever if the CPU is idle.  Device pages are put
 * there too.  migrate_vma_setup() drains its own CPU's batches, and all CPUs' only when
 * it meets a page that is on no list; of a page of the device it does not ask.
 *
 * lru_add_drain_all() is not for modules.  migrate_device_range() calls it for a page
 * that was just allocated, as that is on no list, and then leaves the page alone.
 *
 * Sleeps until each CPU has run a work; folio locks, an area's lock or the mmap lock
 * may be held, as they are where the core does the same.
 */
void hg_drain_batches(struct hg_device *hdev)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	unsigned long src;

	if (!page)
		return;
	hg_inc(hdev, batch_drains);
	migrate_device_range(&src, page_to_pfn(page), 1);
	put_page(page);
}
