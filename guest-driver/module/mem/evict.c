// SPDX-License-Identifier: GPL-2.0
/*
 * Eviction: who leaves VRAM when there is too little of it, or when the device
 * goes away.
 */
#include <linux/bitmap.h>
#include <linux/migrate.h>
#include <linux/sched.h>

#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/stats.h"
#include "mem/copy.h"
#include "mem/drain.h"
#include "mem/evict.h"
#include "mem/to_ram.h"
#include "mem/vram.h"

/* Moves pages, at most HG_CHUNK_PAGES, whoever has them; returns how many moved. */
static unsigned long evict_range(struct hg_device *hdev, unsigned long pfn,
				 unsigned long npages)
{
	/* room in VRAM is not worth an OOM kill */
	struct hg_migrate_buf *buf = hg_migrate_buf_alloc(npages, GFP_KERNEL | __GFP_RETRY_MAYFAIL);
	unsigned long moved, nhuge;

	if (!buf)
		return 0;
	migrate_device_range(buf->src, pfn, npages);
	hg_vram_skip_left(hdev, buf, npages);
	hg_delay(evict_after_setup);
	hg_copy_to_system(hdev, NULL, 0, buf, npages, ULONG_MAX);
	migrate_device_pages(buf->src, buf->dst, npages);
	moved = hg_migrate_buf_moved(buf, npages, &nhuge);
	hg_vram_leave(hdev, buf, npages);
	migrate_device_finalize(buf->src, buf->dst, npages);
	hg_migrate_buf_free(buf);
	hg_add(hdev, pages_to_system, moved);
	hg_add(hdev, huge_to_system, nhuge);
	return moved;
}

/* The chunk whose last allocation is the oldest, of those not tried yet. */
static struct hg_chunk *pick_victim(struct hg_vram *vram, unsigned long *tried)
{
	struct hg_chunk *chunk;

	list_for_each_entry(chunk, &vram->lru, lru)
		if (chunk->used > chunk->pinned && !test_bit(chunk - vram->chunks, tried))
			return chunk;
	return NULL;
}

/**
 * hg_vram_evict() - move pages out of VRAM, least recently allocated first
 * @hdev: device
 * @n: pages to free; whole chunks go, so it may be more
 *
 * Sleeps; not with an mmap lock held or a folio locked.
 *
 * Return: pages moved.
 */
unsigned long hg_vram_evict(struct hg_device *hdev, unsigned long n)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long done = 0, *tried;

	if (!n)
		return 0;
	tried = bitmap_zalloc(vram->nr_chunks,
			      GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	if (!tried)
		return 0;
	mutex_lock(&vram->evict_lock);
	while (done < n) {
		struct hg_chunk *chunk;
		unsigned long got;

		spin_lock_irq(&vram->lock);
		chunk = pick_victim(vram, tried);
		spin_unlock_irq(&vram->lock);
		if (!chunk)
			break;
		__set_bit(chunk - vram->chunks, tried);
		got = evict_range(hdev, vram->base_pfn +
				  (chunk - vram->chunks) * HG_CHUNK_PAGES, HG_CHUNK_PAGES);
		done += got;
		if (got)
			hg_inc(hdev, evictions);
		trace_hmm_gpu_evict(chunk - vram->chunks, got);
		cond_resched();
	}
	mutex_unlock(&vram->evict_lock);
	bitmap_free(tried);
	hg_add(hdev, pages_evicted, done);
	return done;
}

/**
 * hg_vram_reserve() - make it likely that @n pages can be allocated
 * @hdev: device
 * @n: pages
 *
 * No promise: others may take them first.
 */
void hg_vram_reserve(struct hg_device *hdev, unsigned long n)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned long missing = 0;

	spin_lock_irq(&vram->lock);
	n = min(n, vram->limit - min(vram->limit, vram->pinned));
	if (!vram->closed && vram->used + n > vram->limit)
		missing = vram->used + n - vram->limit;
	spin_unlock_irq(&vram->lock);
	hg_vram_evict(hdev, missing);
}

/* Pages that can go home; buffers cannot. */
static unsigned long can_leave(struct hg_vram *vram)
{
	unsigned long n;

	spin_lock_irq(&vram->lock);
	n = vram->used - vram->pinned;
	spin_unlock_irq(&vram->lock);
	return n;
}

/**
 * hg_vram_stop() - no page may be allocated any more, and all go home
 * @hdev: device
 *
 * Buffers stay: no CPU has a use for them, and most devices keep VRAM over a reset.
 *
 * Return: pages that could not be moved (now).
 */
unsigned long hg_vram_stop(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;
	unsigned int tries;
	unsigned long left;

	if (!vram->ready)
		return 0;
	hg_vram_close(hdev);
	/* a page that somebody else migrates at the moment moves next time */
	for (tries = 0; tries < 50; tries++) {
		left = can_leave(vram);
		if (!left || !READ_ONCE(hdev->hw_live))
			break;
		if (!hg_vram_evict(hdev, left)) {
			hg_drain_batches(hdev);
			schedule_timeout_uninterruptible(1 + tries);
		}
	}
	return can_leave(vram);
}
