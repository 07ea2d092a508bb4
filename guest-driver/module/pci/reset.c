// SPDX-License-Identifier: GPL-2.0
/* A device that was just reset is brought into use, at probe and in a PCI reset. */
#include <linux/interrupt.h>
#include <linux/pci.h>

#include "base/regs.h"
#include "base/stats.h"
#include "hw/ce.h"
#include "hw/fault_unit.h"
#include "hw/hw.h"
#include "jobs/jobs.h"
#include "mem/evict.h"
#include "mem/fault.h"
#include "mem/svm.h"
#include "mem/vram.h"
#include "mmu/audit.h"
#include "mmu/mmu.h"
#include "pci/reset.h"

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

/*
 * Reset of the function (FLR, AER recovery, sysfs).  Jobs end with an error and
 * contexts are lost; the mirrors stay.  So does VRAM's content, or the device says
 * that it does not: then all pages go home first, and what cannot is lost.  A device
 * that was given up is in use again afterwards if it answers.
 */
static void hg_reset_prepare(struct pci_dev *pdev)
{
	struct hg_device *hdev = pci_get_drvdata(pdev);
	int i;

	/* an error's recovery and somebody's reset at once: the first to end ends both */
	if (hdev->in_reset)
		return;
	hg_sched_stop_all(hdev, -EIO);
	/* or a CPU cannot reach the aperture during the reset: nobody may live there */
	if ((hdev->coherent || hdev->reset_loses_vram) && hg_vram_stop(hdev))
		dev_err(&pdev->dev, "pages of VRAM stay in use during a reset\n");
	for (i = 0; i <= HG_VEC_ERROR; i++)
		disable_irq(pci_irq_vector(pdev, i));
	hg_fault_stop(hdev);
	/*
	 * hw_sem is not held over the reset: the PCI core allocates, reclaim comes to
	 * our notifier, and that takes it.  A device that was stopped, and whose TLBs
	 * are empty, needs no invalidation; whoever needs more than that waits
	 * (hg_hw_lock()).
	 */
	down_write(&hdev->hw_sem);
	if (hdev->hw_live)
		hg_write(hdev, HG_REG_CTRL, HG_CTRL_RESET);
	pci_clear_master(pdev);
	hdev->hw_live = false;
	hdev->in_reset = true;
	up_write(&hdev->hw_sem);
	/*
	 * Who gave the device up until then queued it, as a reader of hw_sem; now nobody
	 * does.  Later it would end contexts of the device that has come back.
	 */
	cancel_work_sync(&hdev->error_work);
	/* those that came since */
	hg_sched_stop_all(hdev, -EIO);
	hg_inc(hdev, resets);
}

/*
 * What is still in VRAM is lost: no entry leads there any more, and none will.  (The
 * TLBs are empty, and who writes entries looks, under pt_lock.)
 */
static void hg_forget_vram(struct hg_device *hdev)
{
	struct hg_svm *svm;
	unsigned long asid;

	hg_vram_lose(hdev);
	xa_for_each(&hdev->svms, asid, svm) {
		svm = hg_svm_get(hdev, asid);
		if (!svm)
			continue;
		mutex_lock(&svm->vm.pt_lock);
		down_read(&hdev->hw_sem);
		hg_mmu_zap(&svm->vm, 0, hg_bo_start() - 1, false, true);
		hg_mmu_flush(&svm->vm, true);
		up_read(&hdev->hw_sem);
		mutex_unlock(&svm->vm.pt_lock);
		hg_svm_put(svm);
	}
}

/**
 * hg_reset_end() - the other end of hg_reset_prepare()
 * @hdev: device; not in a reset: nothing is done
 * @alive: it is to be used again
 */
void hg_reset_end(struct hg_device *hdev, bool alive)
{
	struct hg_svm *svm;
	unsigned long asid;
	int i;

	if (!hdev->in_reset)
		return;
	if (alive && hdev->reset_loses_vram)
		hg_forget_vram(hdev);
	down_write(&hdev->hw_sem);
	/* also one that was given up: it may be well now */
	if (alive && hg_read(hdev, HG_REG_ID) == HG_ID_MAGIC) {
		/* if the reset was none: what its TLBs hold may be somebody else's by now */
		hg_write(hdev, HG_REG_CTRL, HG_CTRL_RESET);
		pci_set_master(hdev->pdev);
		hg_hw_program(hdev);
		hg_audit_hw_program(hdev);
		xa_lock(&hdev->svms);
		xa_for_each(&hdev->svms, asid, svm)
			hg_mmu_program(&svm->vm);
		xa_unlock(&hdev->svms);
		if (!hdev->stopping)
			hg_vram_restart(hdev);
		hdev->hw_live = true;
	} else {
		dev_err(hdev->drm.dev, "device did not come back from a reset\n");
	}
	hdev->in_reset = false;
	up_write(&hdev->hw_sem);
	wake_up_all(&hdev->reset_wait);
	for (i = 0; i <= HG_VEC_ERROR; i++)
		enable_irq(pci_irq_vector(hdev->pdev, i));
}

static void hg_reset_done(struct pci_dev *pdev)
{
	hg_reset_end(pci_get_drvdata(pdev), true);
}

static pci_ers_result_t hg_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct hg_device *hdev = pci_get_drvdata(pdev);

	if (state == pci_channel_io_perm_failure) {
		hg_reset_end(hdev, false);
		hg_wedge(hdev, "PCI failure");
		return PCI_ERS_RESULT_DISCONNECT;
	}
	if (!hdev->in_reset)
		hg_reset_prepare(pdev);
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t hg_slot_reset(struct pci_dev *pdev)
{
	pci_restore_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

const struct pci_error_handlers hg_err_handlers = {
	.error_detected = hg_error_detected,
	.slot_reset = hg_slot_reset,
	.resume = hg_reset_done,
	.reset_prepare = hg_reset_prepare,
	.reset_done = hg_reset_done,
};
