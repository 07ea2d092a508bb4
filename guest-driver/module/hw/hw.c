// SPDX-License-Identifier: GPL-2.0
/*
 * Registers, interrupts, TLB invalidation, and what happens when the device
 * does not answer.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>

#include "hmm_gpu.h"
#include "hmm_gpu_trace.h"

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
 * hg_hw_program() - bring a device that was just reset into use
 * @hdev: device
 *
 * Called before anybody else can reach the registers, or with hw_sem held for
 * writing.
 */
void hg_hw_program(struct hg_device *hdev)
{
	hdev->inval_seq = hg_read64(hdev, HG_REG_INVAL_SEQ);
	hg_fault_program(hdev);
	hg_ce_program(hdev);
	hg_vram_program(hdev);
	hg_write(hdev, HG_REG_TABLE_CTRL, HG_TABLE_CTRL_SHOWN);
	hg_write(hdev, HG_REG_INTR_STATUS, ~0u);
	hg_write(hdev, HG_REG_INTR_ENABLE,
		 BIT(HG_VEC_FAULT) | BIT(HG_VEC_FENCE) | BIT(HG_VEC_ERROR));
	hg_write(hdev, HG_REG_CTRL, HG_CTRL_ENABLE);
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

static irqreturn_t hg_irq_fault(int irq, void *arg)
{
	struct hg_device *hdev = arg;

	hg_write(hdev, HG_REG_INTR_STATUS, BIT(HG_VEC_FAULT));
	hg_fault_kick(hdev);
	return IRQ_HANDLED;
}

static irqreturn_t hg_irq_fence(int irq, void *arg)
{
	struct hg_device *hdev = arg;

	/* before the fences are read: one that comes later raises it again */
	hg_write(hdev, HG_REG_INTR_STATUS, BIT(HG_VEC_FENCE));
	hg_ce_irq(hdev);
	hg_sched_irq(hdev);
	return IRQ_HANDLED;
}

static irqreturn_t hg_irq_error(int irq, void *arg)
{
	struct hg_device *hdev = arg;

	hg_write(hdev, HG_REG_INTR_STATUS, BIT(HG_VEC_ERROR));
	queue_work(hdev->wq, &hdev->error_work);
	return IRQ_HANDLED;
}

static const struct {
	irq_handler_t fn;
	const char *name;
} hg_vectors[] = {
	[HG_VEC_FAULT] = { hg_irq_fault, "hmm_gpu-fault" },
	[HG_VEC_FENCE] = { hg_irq_fence, "hmm_gpu-fence" },
	[HG_VEC_ERROR] = { hg_irq_error, "hmm_gpu-error" },
};

int hg_irq_init(struct hg_device *hdev)
{
	int ret, i;

	ret = pci_alloc_irq_vectors(hdev->pdev, HG_NUM_VECTORS, HG_NUM_VECTORS, PCI_IRQ_MSIX);
	if (ret < 0)
		return dev_err_probe(hdev->drm.dev, ret, "no MSI-X vectors\n");
	for (i = 0; i < ARRAY_SIZE(hg_vectors); i++) {
		ret = pci_request_irq(hdev->pdev, i, hg_vectors[i].fn, NULL, hdev, "%s",
				      hg_vectors[i].name);
		if (ret)
			goto err;
	}
	return 0;
err:
	while (--i >= 0)
		pci_free_irq(hdev->pdev, i, hdev);
	pci_free_irq_vectors(hdev->pdev);
	return ret;
}

void hg_irq_fini(struct hg_device *hdev)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hg_vectors); i++)
		pci_free_irq(hdev->pdev, i, hdev);
	pci_free_irq_vectors(hdev->pdev);
}
