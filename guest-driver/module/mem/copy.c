// SPDX-License-Identifier: GPL-2.0
/*
 * Copies of pages between system memory and VRAM by the kernel's copy engine.
 */
#include <linux/dma-mapping.h>
#include <linux/migrate.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/stats.h"
#include "hw/ce.h"
#include "mem/copy.h"
#include "mem/vram.h"

#define TO_VRAM		((HG_SPACE_SYS << HG_COPY_SRC_SHIFT) | (HG_SPACE_VRAM << HG_COPY_DST_SHIFT))
#define FROM_VRAM	((HG_SPACE_VRAM << HG_COPY_SRC_SHIFT) | (HG_SPACE_SYS << HG_COPY_DST_SHIFT))
#define CLEAR_VRAM	(HG_COPY_FILL | (HG_SPACE_VRAM << HG_COPY_DST_SHIFT))

struct hg_migrate_buf *hg_migrate_buf_alloc(unsigned long max, gfp_t gfp)
{
	struct hg_migrate_buf *buf;

	/* src must start as 0: migrate_vma_setup() clears it only up to the end it accepts */
	buf = kvzalloc(struct_size(buf, ops, max) +
		       max * (2 * sizeof(*buf->src) + sizeof(*buf->pages)), gfp);
	if (!buf)
		return NULL;
	buf->max = max;
	buf->src = (unsigned long *)&buf->ops[max];
	buf->dst = buf->src + max;
	buf->pages = (struct page **)(buf->dst + max);
	return buf;
}

/**
 * hg_migrate_buf_moved() - what moved
 * @buf: after migrate_vma_pages()
 * @n: entries
 * @huge: out: 2 MiB folios that moved whole
 *
 * Return: pages.
 */
unsigned long hg_migrate_buf_moved(const struct hg_migrate_buf *buf, unsigned long n,
				   unsigned long *huge)
{
	unsigned long i, moved = 0;

	*huge = 0;
	for (i = 0; i < n; i++) {
		if (!(buf->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		if (buf->dst[i] & HG_PFN_COMPOUND) {
			moved += HG_CHUNK_PAGES;
			(*huge)++;
		} else {
			moved++;
		}
	}
	return moved;
}

void hg_migrate_buf_free(struct hg_migrate_buf *buf)
{
	kvfree(buf);
}

static size_t op_size(const struct hg_copy_op *op)
{
	return op->huge ? 1UL << HG_HUGE_SHIFT : PAGE_SIZE;
}

static void add_op(struct hg_ce_slot *slot, const struct hg_copy_op *op, bool to_device)
{
	if (!op->sys)
		hg_ce_add(slot, 0, op->vram, op_size(op), CLEAR_VRAM);
	else if (to_device)
		hg_ce_add(slot, op->dma, op->vram, op_size(op), TO_VRAM);
	else
		hg_ce_add(slot, op->vram, op->dma, op_size(op), FROM_VRAM);
}

static void copy_batch(struct hg_device *hdev, struct hg_copy_op *ops, unsigned int n,
		       bool to_device)
{
	struct device *dev = &hdev->pdev->dev;
	enum dma_data_direction dir = to_device ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	struct hg_ce_slot *slot = hg_ce_get(hdev);
	unsigned int i;

	if (!slot) {
		for (i = 0; i < n; i++)
			ops[i].error = -EIO;
		return;
	}
	for (i = 0; i < n; i++) {
		ops[i].error = 0;
		if (ops[i].sys) {
			ops[i].dma = dma_map_page(dev, ops[i].sys, 0, op_size(&ops[i]), dir);
			if (dma_mapping_error(dev, ops[i].dma)) {
				ops[i].error = -ENOMEM;
				continue;
			}
		}
		add_op(slot, &ops[i], to_device);
	}
	if (slot->n && hg_ce_run(hdev, slot)) {
		/* The list failed somewhere: do it piece by piece and see which. */
		for (i = 0; i < n; i++) {
			if (ops[i].error)
				continue;
			slot->n = 0;
			add_op(slot, &ops[i], to_device);
			if (hg_ce_run(hdev, slot)) {
				hg_inc(hdev, copy_errors);
				if (ops[i].sys)
					dma_unmap_page(dev, ops[i].dma, op_size(&ops[i]), dir);
				ops[i].error = -EIO;
			}
		}
	}
	hg_ce_put(hdev, slot);
	for (i = 0; i < n; i++) {
		if (ops[i].sys && !ops[i].error)
			dma_unmap_page(dev, ops[i].dma, op_size(&ops[i]), dir);
		/* the copy may have waited for the end of a reset: it is of what was left */
		if (hg_vram_frames_lost(hdev, ops[i].vram >> PAGE_SHIFT,
					op_size(&ops[i]) >> PAGE_SHIFT))
			ops[i].error = -EIO;
	}
}

/**
 * hg_copy_pages() - copy or clear pages and wait until that is done
 * @hdev: device
 * @ops: pieces; the result is in each one's error
 * @n: number
 * @to_device: direction
 *
 * A system page that failed to be written has undefined content.
 */
void hg_copy_pages(struct hg_device *hdev, struct hg_copy_op *ops, unsigned int n,
		   bool to_device)
{
	while (n) {
		unsigned int m = min_t(unsigned int, n, HG_CE_LIST_MAX);

		copy_batch(hdev, ops, m, to_device);
		ops += m;
		n -= m;
	}
}
