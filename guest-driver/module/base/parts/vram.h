/* SPDX-License-Identifier: GPL-2.0 */
/* VRAM: what of it a device has.  The code: mem/vram.c, mem/evict.c, mem/pagemap.c. */
#ifndef HMM_GPU_BASE_PARTS_VRAM_H
#define HMM_GPU_BASE_PARTS_VRAM_H

#include <linux/bitmap.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

#define HG_CHUNK_PAGES		512
#define HG_CHUNK_ORDER		9
#define HG_HUGE_SIZE		BIT(HG_HUGE_SHIFT)

/**
 * struct hg_chunk - 2 MiB of VRAM
 * @lru: in hg_vram.lru, oldest allocation first
 * @used: pages in use
 * @pinned: of these, pages of buffers
 * @map: bit set: page in use; a part of hg_vram.map
 * @left: bit set: what was in the page has moved to system memory, and only
 *	references that are about to go keep it; see hg_vram_leave()
 * @lost: bit set: a reset has taken the page's content away; see hg_vram_lose()
 *
 * All fields under hg_vram.lock; @lost is read without it, where the page is locked or
 * is looked at again.
 */
struct hg_chunk {
	struct list_head lru;
	unsigned int used;
	unsigned int pinned;
	unsigned long *map;
	DECLARE_BITMAP(left, HG_CHUNK_PAGES);
	DECLARE_BITMAP(lost, HG_CHUNK_PAGES);
};

/**
 * struct hg_vram - allocator of the device's pages
 * @lock: spinlock; taken under page-table locks (a page is freed when the last
 *	CPU entry goes away), so nothing is done under it but bookkeeping
 * @pagemap: the struct pages; frame of page p is (pfn(p) - base_pfn)
 * @res: physical address range of the pages: see get_range() of mem/pagemap.c
 * @base_pfn: first pfn of @res
 * @nr_chunks: number of @chunks
 * @chunks: array
 * @map: a bit a page; the device reads it too, for its checks alone
 * @map_dma: bus address of @map, 0 while the device must not read it
 * @lru: chunks, least recently allocated from first
 * @used: pages in use
 * @pinned: of these, pages of buffers (drm/bo.c): no struct page stands for them, and
 *	nothing evicts them
 * @limit: pages that may be in use; more of them stay until evicted
 * @evict_lock: one eviction at a time; outside of everything else
 * @closed: no allocation any more (the device goes away)
 * @ready: @pagemap is there
 */
struct hg_vram {
	spinlock_t lock;
	struct dev_pagemap pagemap;
	struct resource *res;
	unsigned long base_pfn;
	unsigned int nr_chunks;
	struct hg_chunk *chunks;
	unsigned long *map;
	dma_addr_t map_dma;
	struct list_head lru;
	unsigned long used;
	unsigned long pinned;
	unsigned long limit;
	struct mutex evict_lock;
	bool closed;
	bool ready;
};

#endif
