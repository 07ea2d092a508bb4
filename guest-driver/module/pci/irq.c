// SPDX-License-Identifier: GPL-2.0
/* Interrupts: whom each of them concerns. */
#include <linux/interrupt.h>
#include <linux/pci.h>

#include "base/regs.h"
#include "hw/ce.h"
#include "jobs/jobs.h"
#include "mem/fault.h"
#include "pci/irq.h"

static irqreturn_t hg_irq_fault(int irq, void *arg)
{
	struct hg_device *hdev = arg;

	/* before the ring is looked at: what comes later raises it again */
	hg_write(hdev, HG_REG_INTR_STATUS, BIT(HG_VEC_FAULT));
	hg_fault_irq(hdev);
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
