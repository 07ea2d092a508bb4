// SPDX-License-Identifier: GPL-2.0
/*
 * What the device has, TLB invalidation, and what happens when the device does
 * not answer.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/regs.h"
#include "base/stats.h"
#include "hw/hw.h"

/* A device that has not answered for so long never will. */
#define HG_ANSWER_MS	10000

unsigned int hg_watch_ms;
module_param_named(watch_ms, hg_watch_ms, uint, 0644);
MODULE_PARM_DESC(watch_ms, "look for lost interrupts, doorbells and replays so often (0: never)");

int hg_hw_init(struct hg_device *hdev)
{
	u32 caps, caps2;

	if (hg_read(hdev, HG_REG_ID) != HG_ID_MAGIC ||
	    hg_read(hdev, HG_REG_VERSION) != HG_VERSION) {
		dev_err(hdev->drm.dev, "not an hmm-gpu of version %u: id %#x version %#x\n",
			HG_VERSION, hg_read(hdev, HG_REG_ID), hg_read(hdev, HG_REG_VERSION));
		return -ENODEV;
	}
	caps = hg_read(hdev, HG_REG_CAPS);
	caps2 = hg_read(hdev, HG_REG_CAPS2);
	hdev->sms = caps & 0xff;
	hdev->warps = (caps >> 8) & 0xff;
	hdev->ces = caps >> 24;
	hdev->num_asids = min_t(u32, caps2 & 0xffff, HG_NUM_ASIDS);
	hdev->num_ctxs = min_t(u32, caps2 >> 16, HG_NUM_CTXS);
	hdev->vram_size = hg_read64(hdev, HG_REG_VRAM_SIZE);
	hdev->coherent = hg_read(hdev, HG_REG_FEATURES) & HG_FEATURE_COHERENT;
	hdev->reset_loses_vram = hg_read(hdev, HG_REG_FEATURES) & HG_FEATURE_RESET_LOSES_VRAM;
	hdev->data_cache = hg_read(hdev, HG_REG_FEATURES) & HG_FEATURE_DATA_CACHE;
	hdev->ce_faults = hg_read(hdev, HG_REG_FEATURES) & HG_FEATURE_CE_FAULTS;
	hdev->big_pages = hg_read(hdev, HG_REG_FEATURES) & HG_FEATURE_BIG_PAGES;
	hdev->audits_bus = hg_read(hdev, HG_REG_FEATURES) & HG_FEATURE_AUDIT_BUS;
	if (hdev->coherent && pci_resource_len(hdev->pdev, HG_BAR_VRAM) < hdev->vram_size) {
		dev_err(hdev->drm.dev, "BAR %d smaller than VRAM\n", HG_BAR_VRAM);
		return -ENODEV;
	}
	if (!hdev->sms || !hdev->warps || hdev->num_asids < 2 || hdev->num_ctxs < 2) {
		dev_err(hdev->drm.dev, "unusable device: caps %#x %#x\n", caps, caps2);
		return -ENODEV;
	}
	return 0;
}

/**
 * hg_hw_translated() - whether an IOMMU is between device and memory
 * @hdev: device
 */
bool hg_hw_translated(struct hg_device *hdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&hdev->pdev->dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY;
}

/**
 * hg_hw_check_dma() - whether the device reaches pages where they are
 * @hdev: device
 *
 * CPU and GPU use a page at the same time, so what is written has to be there for
 * both without anybody's help: a copy of the page (swiotlb: its buffers below 4 GiB, or
 * those of a guest whose memory is encrypted) is never brought in line, and neither
 * are caches that the bus passes by.
 *
 * Return: 0, -EOPNOTSUPP, -ENOMEM.
 */
int hg_hw_check_dma(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct page *page = alloc_page(GFP_KERNEL);
	dma_addr_t dma;
	int ret = 0;

	if (!page)
		return -ENOMEM;
	dma = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev, dma)) {
		__free_page(page);
		return -ENOMEM;
	}
	/* behind an IOMMU it is always said to be needed: there, nothing bounces whole pages */
	if (!hg_hw_translated(hdev) && dma_need_sync(dev, dma))
		ret = -EOPNOTSUPP;
	dma_unmap_page(dev, dma, PAGE_SIZE, DMA_BIDIRECTIONAL);
	__free_page(page);
	return ret;
}

/**
 * hg_wedge() - give up on a device that does not answer
 * @hdev: device
 * @what: that it was asked for
 *
 * The one thing that must not happen is a DMA through a translation that was
 * taken away, so bus mastering goes off first.  A reset of the device may bring it
 * back.  Any context; hw_sem is held for reading, or the device's lock of the driver
 * core, which keeps a reset away.
 */
void hg_wedge(struct hg_device *hdev, const char *what)
{
	if (!READ_ONCE(hdev->hw_live))
		return;
	/* before anybody reads that there is nothing to invalidate any more */
	pci_clear_master(hdev->pdev);
	if (!xchg(&hdev->hw_live, false))
		return;
	dev_err(hdev->drm.dev, "device does not answer (%s): disabled\n", what);
	queue_work(hdev->wq, &hdev->error_work);
}

/**
 * hg_hw_lock() - take hw_sem for reading, with a device that answers
 * @hdev: device
 *
 * Waits for the end of a reset.  Nothing may be held that memory reclaim needs.
 *
 * Return: false: the device is gone or given up, and hw_sem is not held.
 */
bool hg_hw_lock(struct hg_device *hdev)
{
	for (;;) {
		down_read(&hdev->hw_sem);
		if (READ_ONCE(hdev->hw_live))
			return true;
		if (!hdev->in_reset) {
			up_read(&hdev->hw_sem);
			return false;
		}
		up_read(&hdev->hw_sem);
		wait_event(hdev->reset_wait, !READ_ONCE(hdev->in_reset));
	}
}

static void hg_tlb_wait(struct hg_device *hdev, u64 seq, bool may_sleep)
{
	unsigned long end = jiffies + msecs_to_jiffies(HG_ANSWER_MS);
	unsigned int spins = 0;

	while (hg_read64(hdev, HG_REG_INVAL_DONE) < seq) {
		if (time_after(jiffies, end)) {
			hg_wedge(hdev, "TLB invalidation");
			return;
		}
		if (spins++ < 40)
			cpu_relax();
		else if (may_sleep)
			usleep_range(20, 50);
		else
			udelay(5);
	}
}

/**
 * hg_tlb_invalidate() - remove translations from all TLBs
 * @hdev: device
 * @asid: address space
 * @start: first address
 * @last: last address, ULONG_MAX for the whole address space
 * @may_sleep: false in a non-blockable notifier
 *
 * On return no access of the device uses a translation of the range that was
 * read before the call, none is in flight, and what was stored by one is there.
 * The caller holds hw_sem for reading and has written the page-table entries.
 */
void hg_tlb_invalidate(struct hg_device *hdev, u32 asid, unsigned long start,
		       unsigned long last, bool may_sleep)
{
	/*
	 * What the GPU stored by a translation may be on its way when the translation is
	 * in use no more.  Whoever invalidates is about to let the page go, read it or let
	 * others write it, so it has to be there: the store would hit who has the page then,
	 * or be missing in what is copied.
	 */
	u32 membar = hdev->data_cache ? HG_INVAL_MEMBAR : 0;
	u64 seq;

	lockdep_assert_held_read(&hdev->hw_sem);
	if (!READ_ONCE(hdev->hw_live))
		return;
	trace_hmm_gpu_tlb_invalidate(asid, start, last);
	hg_inc(hdev, tlb_invalidates);

	spin_lock(&hdev->inval_lock);
	hg_write(hdev, HG_REG_INVAL_ASID, asid);
	if (last >> HG_VA_BITS) {
		hg_write(hdev, HG_REG_INVAL_CMD, HG_INVAL_ASID | membar);
	} else {
		hg_write64(hdev, HG_REG_INVAL_START, start);
		hg_write64(hdev, HG_REG_INVAL_LEN, last - start + 1);
		hg_write(hdev, HG_REG_INVAL_CMD, HG_INVAL_RANGE | membar);
	}
	seq = ++hdev->inval_seq;
	spin_unlock(&hdev->inval_lock);

	hg_delay_nosleep(mmu_before_inval_wait, may_sleep);
	hg_tlb_wait(hdev, seq, may_sleep);
	hg_delay_nosleep(mmu_after_inval_wait, may_sleep);
}
