// SPDX-License-Identifier: GPL-2.0
/*
 * VRAM's pages: which are free, which are a buffer's, and which have left.  What
 * the kernel sees of them is in pagemap.c, who has to go in evict.c.  See struct
 * hg_vram for the locking.
 */
#include <linux/dma-mapping.h>
#include <linux/migrate.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/regs.h"
#include "base/stats.h"
#include "mem/copy.h"
#include "mem/vram.h"
#include "mmu/mmu.h"

static unsigned int vram_limit_mb;
module_param(vram_limit_mb, uint, 0444);
MODULE_PARM_DESC(vram_limit_mb, "VRAM to use for migration, in MiB (0: all of it)");

/**
 * hg_vram_free_page() - the last reference of a page is gone
 * @page: page, or first page of a folio
 * @order: of the folio
 *
 * Any context.
 */
void hg_vram_free_page(struct page *page, unsigned int order)
{
	struct hg_device *hdev = hg_page_pgmap(page)->owner;
	struct hg_vram *vram = &hdev->vram;
	unsigned long frame = page_to_pfn(page) - vram->base_pfn;
	struct hg_chunk *chunk = &vram->chunks[frame / HG_CHUNK_PAGES];
	unsigned long flags;

	spin_lock_irqsave(&vram->lock, flags);
	bitmap_clear(chunk->map, frame % HG_CHUNK_PAGES, 1U << order);
	bitmap_clear(chunk->left, frame % HG_CHUNK_PAGES, 1U << order);
	chunk->used -= 1U << order;
	vram->used -= 1U << order;
	spin_unlock_irqrestore(&vram->lock, flags);
	hg_live_add(hdev, vram_pages, -(1L << order));
	/* others may be given it by now: the core must have done with it before */
	hg_delay_nosleep(vram_after_free, false);
}

/* The chunk to allocate from: the last one used, else an empty one, else any. */
static struct hg_chunk *pick_chunk(struct hg_vram *vram, bool whole)
{
	struct hg_chunk *chunk, *any = NULL;

	list_for_each_entry_reverse(chunk, &vram->lru, lru) {
		if (!chunk->used)
			return chunk;
		if (whole || chunk->used == HG_CHUNK_PAGES)
			continue;
		if (chunk == list_last_entry(&vram->lru, struct hg_chunk, lru))
			return chunk;
		if (!any)
			any = chunk;
	}
	return any;
}

/*
 * The kernel adds to a page's flags what the page that moves here had, and clears
 * none: what is dirty or has to go to swap because of who was here before would
 * come home so, and never be given up.
 */
static void start_page(struct hg_vram *vram, struct page *page, unsigned int order)
{
	hg_zone_page_init(page, &vram->pagemap, order);
	folio_clear_dirty(page_folio(page));
	folio_clear_swapbacked(page_folio(page));
}

/* The next free page of a chunk from *bit on is in use now. */
static bool take_free(struct hg_vram *vram, struct hg_chunk *chunk, unsigned long *bit)
{
	lockdep_assert_held(&vram->lock);
	*bit = find_next_zero_bit(chunk->map, HG_CHUNK_PAGES, *bit);
	if (*bit == HG_CHUNK_PAGES)
		return false;
	__set_bit(*bit, chunk->map);
	__clear_bit(*bit, chunk->lost);
	chunk->used++;
	return true;
}

/*
 * Where to begin in a chunk, so that a series of pages lies in VRAM as leaves of 64 KiB
 * want them if its addresses do: where all of it fits in line, else anywhere.
 */
static unsigned long first_bit(struct hg_device *hdev, const struct hg_chunk *chunk,
			       unsigned long n)
{
	unsigned long bit;

	if (!hdev->big_pages || n < HG_BIG_PAGES)
		return 0;
	bit = bitmap_find_next_zero_area(chunk->map, HG_CHUNK_PAGES, 0, n, HG_BIG_PAGES - 1);
	return bit < HG_CHUNK_PAGES ? bit : 0;
}

/**
 * hg_vram_alloc() - allocate pages, as many as there are
 * @hdev: device
 * @n: pages wanted
 * @pages: out; each locked and with one reference, as migrate_vma wants it
 *
 * Their content is what was there before: the caller overwrites all of it
 * before anybody can see it.
 *
 * Return: pages allocated, 0..@n.
 */
unsigned long hg_vram_alloc(struct hg_device *hdev, unsigned long n, struct page **pages)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long got = 0, i;

	spin_lock_irq(&vram->lock);
	if (vram->closed || vram->used >= vram->limit)
		n = 0;
	else
		n = min(n, vram->limit - vram->used);
	while (got < n) {
		struct hg_chunk *chunk = pick_chunk(vram, false);
		unsigned long base, bit;

		if (!chunk)
			break;
		bit = got ? 0 : first_bit(hdev, chunk, n);
		list_move_tail(&chunk->lru, &vram->lru);
		base = vram->base_pfn + (chunk - vram->chunks) * HG_CHUNK_PAGES;
		while (got < n && take_free(vram, chunk, &bit))
			pages[got++] = pfn_to_page(base + bit);
	}
	vram->used += got;
	spin_unlock_irq(&vram->lock);

	hg_live_add(hdev, vram_pages, got);
	for (i = 0; i < got; i++)
		start_page(vram, pages[i], 0);
	return got;
}

/**
 * hg_vram_alloc_huge() - allocate a whole chunk
 * @hdev: device
 *
 * Return: first page of a locked 2 MiB folio, or NULL.
 */
struct page *hg_vram_alloc_huge(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;
	struct hg_chunk *chunk = NULL;
	struct page *page;

	spin_lock_irq(&vram->lock);
	if (!vram->closed && vram->used + HG_CHUNK_PAGES <= vram->limit)
		chunk = pick_chunk(vram, true);
	if (!chunk) {
		spin_unlock_irq(&vram->lock);
		return NULL;
	}
	list_move_tail(&chunk->lru, &vram->lru);
	bitmap_fill(chunk->map, HG_CHUNK_PAGES);
	bitmap_zero(chunk->lost, HG_CHUNK_PAGES);
	chunk->used = HG_CHUNK_PAGES;
	vram->used += HG_CHUNK_PAGES;
	spin_unlock_irq(&vram->lock);

	page = pfn_to_page(vram->base_pfn + (chunk - vram->chunks) * HG_CHUNK_PAGES);
	hg_live_add(hdev, vram_pages, HG_CHUNK_PAGES);
	start_page(vram, page, HG_CHUNK_ORDER);
	return page;
}

/**
 * hg_vram_pin() - take frames for a buffer, all or none
 * @hdev: device
 * @n: frames, not 0
 * @frames: out: numbers of pages of VRAM; 2 MiB together as far as that is to be had
 *
 * No struct page is involved: to the kernel these stay free pages, of which
 * nobody can get a reference, and so what evicts or scans passes over them.  Their
 * content is what was there before.
 *
 * Return: whether there were so many.
 */
bool hg_vram_pin(struct hg_device *hdev, unsigned long n, u32 *frames)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long got = 0;

	spin_lock_irq(&vram->lock);
	if (vram->closed || vram->used + n > vram->limit) {
		spin_unlock_irq(&vram->lock);
		return false;
	}
	while (got < n) {
		struct hg_chunk *chunk = NULL;
		unsigned long base, bit = 0;

		if (n - got >= HG_CHUNK_PAGES)
			chunk = pick_chunk(vram, true);
		if (!chunk)
			chunk = pick_chunk(vram, false);
		/* used is what is used: as many as the limit says are there */
		if (WARN_ON_ONCE(!chunk))
			break;
		list_move_tail(&chunk->lru, &vram->lru);
		base = (chunk - vram->chunks) * HG_CHUNK_PAGES;
		while (got < n && take_free(vram, chunk, &bit)) {
			chunk->pinned++;
			frames[got++] = base + bit;
		}
	}
	vram->used += got;
	vram->pinned += got;
	spin_unlock_irq(&vram->lock);
	hg_live_add(hdev, vram_pages, got);
	hg_live_add(hdev, buffer_pages, got);
	if (got < n) {
		hg_vram_unpin(hdev, got, frames);
		return false;
	}
	return true;
}

/**
 * hg_vram_unpin() - give frames back
 * @hdev: device; does not use them any more
 * @n: frames
 * @frames: as hg_vram_pin() gave them
 */
void hg_vram_unpin(struct hg_device *hdev, unsigned long n, const u32 *frames)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long i, end;

	for (i = 0; i < n; i = end) {
		end = min(n, i + HG_CHUNK_PAGES);
		spin_lock_irq(&vram->lock);
		vram->used -= end - i;
		vram->pinned -= end - i;
		for (; i < end; i++) {
			struct hg_chunk *chunk = &vram->chunks[frames[i] / HG_CHUNK_PAGES];

			__clear_bit(frames[i] % HG_CHUNK_PAGES, chunk->map);
			chunk->used--;
			chunk->pinned--;
		}
		spin_unlock_irq(&vram->lock);
	}
	hg_live_add(hdev, vram_pages, -(long)n);
	hg_live_add(hdev, buffer_pages, -(long)n);
}

/* The bit of a page, or of a folio's first one; with the lock held. */
static unsigned long *left_bit(struct hg_vram *vram, struct page *page, unsigned int *bit)
{
	unsigned long frame = page_to_pfn(page) - vram->base_pfn;

	*bit = frame % HG_CHUNK_PAGES;
	return vram->chunks[frame / HG_CHUNK_PAGES].left;
}

/**
 * hg_vram_leave() - remember which pages a migration has moved out of VRAM
 * @hdev: device
 * @buf: after migrate_vma_pages() or migrate_device_pages() and before the end of
 *	that migration: the pages are still locked
 * @n: entries
 *
 * A CPU fault gives the lock of its page back before its reference.  In between,
 * an eviction gets both, and cannot see that nobody has the page any more: it would
 * move it a second time, to a page that no memory cgroup is charged for.  The bit is
 * set under the page's lock, read under it by hg_vram_skip_left(), and goes with the
 * last reference.
 */
void hg_vram_leave(struct hg_device *hdev, const struct hg_migrate_buf *buf, unsigned long n)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long i, *left;
	unsigned int bit;

	spin_lock_irq(&vram->lock);
	for (i = 0; i < n; i++) {
		if (!(buf->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		left = left_bit(vram, migrate_pfn_to_page(buf->src[i]), &bit);
		__set_bit(bit, left);
	}
	spin_unlock_irq(&vram->lock);
}

/**
 * hg_vram_skip_left() - leave alone what has left VRAM already
 * @hdev: device
 * @buf: its src is what migrate_device_range() left: locked pages of VRAM
 * @n: entries
 */
void hg_vram_skip_left(struct hg_device *hdev, struct hg_migrate_buf *buf, unsigned long n)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long i, *left;
	unsigned int bit;

	spin_lock_irq(&vram->lock);
	for (i = 0; i < n; i++) {
		if (!(buf->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		left = left_bit(vram, migrate_pfn_to_page(buf->src[i]), &bit);
		if (test_bit(bit, left))
			buf->src[i] &= ~MIGRATE_PFN_MIGRATE;
	}
	spin_unlock_irq(&vram->lock);
}

/* Whether @n pages more would need an eviction; a hint. */
bool hg_vram_short(struct hg_device *hdev, unsigned long n)
{
	return READ_ONCE(hdev->vram.used) + n > READ_ONCE(hdev->vram.limit);
}

static size_t map_bytes(struct hg_vram *vram)
{
	return PAGE_ALIGN(vram->nr_chunks * (HG_CHUNK_PAGES / BITS_PER_BYTE));
}

/**
 * hg_vram_show() - let the device read which pages are in use
 * @hdev: device
 *
 * For its checks alone; nothing else depends on it.
 */
void hg_vram_show(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;
	dma_addr_t dma;

	dma = dma_map_single(&hdev->pdev->dev, vram->map, map_bytes(vram), DMA_TO_DEVICE);
	if (dma_mapping_error(&hdev->pdev->dev, dma))
		return;
	vram->map_dma = dma;
	hg_vram_program(hdev);
}

/**
 * hg_vram_program() - tell a device that was just reset of the map
 * @hdev: device
 */
void hg_vram_program(struct hg_device *hdev)
{
	if (hdev->vram.map_dma)
		hg_write64(hdev, HG_REG_VRAM_MAP, hdev->vram.map_dma | HG_VRAM_MAP_ENABLE);
}

/**
 * hg_vram_hide() - the device reads the map no more
 * @hdev: device; stopped for good
 */
void hg_vram_hide(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;

	if (vram->map_dma)
		dma_unmap_single(&hdev->pdev->dev, vram->map_dma, map_bytes(vram), DMA_TO_DEVICE);
	vram->map_dma = 0;
}

/**
 * hg_vram_close() - no page may be allocated any more
 * @hdev: device
 */
void hg_vram_close(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;

	spin_lock_irq(&vram->lock);
	vram->closed = true;
	spin_unlock_irq(&vram->lock);
}

/**
 * hg_vram_restart() - pages may be allocated again: the end of hg_vram_stop()
 * @hdev: device
 */
void hg_vram_restart(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;

	spin_lock_irq(&vram->lock);
	vram->closed = false;
	spin_unlock_irq(&vram->lock);
}

/**
 * hg_vram_lose() - a reset has taken the content of VRAM away
 * @hdev: device
 *
 * Who is still there has lost it, as with memory that cannot be corrected: a CPU
 * that touches such a page gets SIGBUS, a job of the GPU's ends.  Buffers are not
 * promised to keep anything over a reset.
 */
void hg_vram_lose(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned int i;

	spin_lock_irq(&vram->lock);
	for (i = 0; i < vram->nr_chunks; i++)
		bitmap_copy(vram->chunks[i].lost, vram->chunks[i].map, HG_CHUNK_PAGES);
	spin_unlock_irq(&vram->lock);
}

/**
 * hg_vram_lost() - whether a page was in use when VRAM's content was lost
 * @hdev: device
 * @page: page of its VRAM
 * @n: how many from there on, of one chunk: any of them
 *
 * A page that is in use stays as it is; it begins anew when it is allocated.
 *
 * Return: whether.
 */
bool hg_vram_lost(struct hg_device *hdev, struct page *page, unsigned long n)
{
	return hg_vram_frames_lost(hdev, page_to_pfn(page) - hdev->vram.base_pfn, n);
}

/* The same by the number of the first page in VRAM. */
bool hg_vram_frames_lost(struct hg_device *hdev, unsigned long frame, unsigned long n)
{
	unsigned long first = frame % HG_CHUNK_PAGES;
	struct hg_chunk *chunk = &hdev->vram.chunks[frame / HG_CHUNK_PAGES];

	if (!hdev->reset_loses_vram)
		return false;
	return find_next_bit(chunk->lost, first + n, first) < first + n;
}

/**
 * hg_vram_init() - the tables of the allocator; all pages are free
 * @hdev: device
 *
 * Return: 0, -ENODEV: there is too little VRAM; -ENOMEM.
 */
int hg_vram_init(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned int i;

	spin_lock_init(&vram->lock);
	mutex_init(&vram->evict_lock);
	INIT_LIST_HEAD(&vram->lru);
	vram->nr_chunks = hdev->vram_size >> HG_HUGE_SHIFT;
	if (!vram->nr_chunks)
		return -ENODEV;
	vram->chunks = kvcalloc(vram->nr_chunks, sizeof(*vram->chunks), GFP_KERNEL);
	if (!vram->chunks)
		return -ENOMEM;
	vram->map = alloc_pages_exact(map_bytes(vram), GFP_KERNEL | __GFP_ZERO);
	if (!vram->map) {
		kvfree(vram->chunks);
		return -ENOMEM;
	}
	for (i = 0; i < vram->nr_chunks; i++) {
		vram->chunks[i].map = vram->map + i * BITS_TO_LONGS(HG_CHUNK_PAGES);
		list_add_tail(&vram->chunks[i].lru, &vram->lru);
	}
	vram->limit = (unsigned long)vram->nr_chunks * HG_CHUNK_PAGES;
	if (vram_limit_mb)
		vram->limit = min(vram->limit, (unsigned long)vram_limit_mb << (20 - PAGE_SHIFT));
	return 0;
}

/**
 * hg_vram_fini() - give the tables back
 * @hdev: device; no VRAM page is in use
 */
void hg_vram_fini(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;

	free_pages_exact(vram->map, map_bytes(vram));
	kvfree(vram->chunks);
}
