// SPDX-License-Identifier: GPL-2.0
/*
 * What the device has, TLB invalidation, and what happens when the device does
 * not answer.
 */
#include <linux/delay.h>
#include <linux/pci.h>

#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/regs.h"
#include "base/stats.h"
#include "hw/hw.h"

/* A device that has not answered for so long never will. */
#define HG_ANSWER_MS	10000

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
 * hg_wedge() - give up on a device that does not answer
 * @hdev: device
 * @what: that it was asked for
 *
 * The one thing that must not happen is a DMA through a translation that was
 * taken away, so bus mastering goes off first.  Any context.
 */
void hg_wedge(struct hg_device *hdev, const char *what)
{
	if (!xchg(&hdev->hw_live, false))
		return;
	pci_clear_master(hdev->pdev);
	dev_err(hdev->drm.dev, "device does not answer (%s): disabled\n", what);
	queue_work(hdev->wq, &hdev->error_work);
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
 * read before the call, and none is in flight.  The caller holds hw_sem for
 * reading and has written the page-table entries.
 */
void hg_tlb_invalidate(struct hg_device *hdev, u32 asid, unsigned long start,
		       unsigned long last, bool may_sleep)
{
	u64 seq;

	lockdep_assert_held_read(&hdev->hw_sem);
	if (!READ_ONCE(hdev->hw_live))
		return;
	trace_hmm_gpu_tlb_invalidate(asid, start, last);
	hg_inc(hdev, tlb_invalidates);

	spin_lock(&hdev->inval_lock);
	hg_write(hdev, HG_REG_INVAL_ASID, asid);
	if (last >> HG_VA_BITS) {
		hg_write(hdev, HG_REG_INVAL_CMD, HG_INVAL_ASID);
	} else {
		hg_write64(hdev, HG_REG_INVAL_START, start);
		hg_write64(hdev, HG_REG_INVAL_LEN, last - start + 1);
		hg_write(hdev, HG_REG_INVAL_CMD, HG_INVAL_RANGE);
	}
	seq = ++hdev->inval_seq;
	spin_unlock(&hdev->inval_lock);

	hg_delay_nosleep(mmu_before_inval_wait, may_sleep);
	hg_tlb_wait(hdev, seq, may_sleep);
	hg_delay_nosleep(mmu_after_inval_wait, may_sleep);
}
