// SPDX-License-Identifier: GPL-2.0
/*
 * hmm_gpu: driver of the emulated GPU "hmm-gpu".  PCI and DRM glue: bringing
 * the device up and down, opening and closing files.  What the driver consists
 * of stands in overview.h.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_managed.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/regs.h"
#include "base/stats.h"
#include "drm/bo.h"
#include "drm/fdinfo.h"
#include "drm/ioctl.h"
#include "drm/query.h"
#include "hmm_gpu_drm.h"
#include "hw/ce.h"
#include "hw/fault_unit.h"
#include "hw/hw.h"
#include "jobs/file.h"
#include "jobs/jobs.h"
#include "mem/evict.h"
#include "mem/fault.h"
#include "mem/pagemap.h"
#include "mem/svm.h"
#include "mem/vram.h"
#include "mmu/audit.h"
#include "mmu/mmu.h"
#include "pci/irq.h"
#include "pci/reset.h"
#include "test/debugfs.h"
#include "test/dmirror.h"

/* A removed device whose VRAM pages could not be moved is looked at so often. */
#define HG_REAP_INTERVAL	HZ

/*
 * Works that do so, of all devices there have been; the module's exit waits for each.
 * The queue is the module's, for they outlive their devices.
 */
static atomic_t hg_reapers;
static DECLARE_WAIT_QUEUE_HEAD(hg_reaped);
static struct workqueue_struct *hg_reap_wq;

static int hg_open(struct drm_device *drm, struct drm_file *file)
{
	struct hg_file *hf = hg_file_create(to_hg(drm));

	if (IS_ERR(hf))
		return PTR_ERR(hf);
	file->driver_priv = hf;
	return 0;
}

static void hg_postclose(struct drm_device *drm, struct drm_file *file)
{
	hg_file_destroy(file->driver_priv);
}

/* The core's calls are anybody's who has the file, but this one takes memory from the GPU. */
static int hg_may(struct file *filp, unsigned int cmd)
{
	struct drm_file *file = filp->private_data;

	return DRM_IOCTL_NR(cmd) == DRM_IOCTL_NR(DRM_IOCTL_GEM_CLOSE) ?
		hg_check_mm(file->driver_priv) : 0;
}

static long hg_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	int ret = hg_may(filp, cmd);

	return ret ? ret : drm_ioctl(filp, cmd, arg);
}

#ifdef CONFIG_COMPAT
/* the structures are the same on 32 and 64 bit */
static long hg_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	unsigned int nr = DRM_IOCTL_NR(cmd);
	int ret = hg_may(filp, cmd);

	if (ret)
		return ret;
	if (nr < DRM_COMMAND_BASE || nr >= DRM_COMMAND_END)
		return drm_compat_ioctl(filp, cmd, arg);
	return drm_ioctl(filp, cmd, (unsigned long)compat_ptr(arg));
}
#endif

/*
 * The removal of the device waits for who is in one of our calls, but not for the
 * memory that the core takes its arguments from and puts the answer to, which may
 * never come (FUSE, userfaultfd): so the device is entered in between.
 */
static int hg_entered(struct drm_device *drm, void *data, struct drm_file *file,
		      drm_ioctl_t *call)
{
	struct hg_device *hdev = to_hg(drm);
	int ret, idx;

	if (!hg_enter(hdev, &idx))
		return -ENODEV;
	ret = call(drm, data, file);
	hg_exit(hdev, idx);
	return ret;
}

#define HG_ENTERED(name)							\
static int entered_##name(struct drm_device *drm, void *data, struct drm_file *file)	\
{										\
	return hg_entered(drm, data, file, name);				\
}

HG_ENTERED(hg_get_param_ioctl)
HG_ENTERED(hg_policy_ioctl)
HG_ENTERED(hg_ctx_create_ioctl)
HG_ENTERED(hg_ctx_destroy_ioctl)
HG_ENTERED(hg_launch_ioctl)
HG_ENTERED(hg_copy_ioctl)
HG_ENTERED(hg_wait_ioctl)
HG_ENTERED(hg_bo_create_ioctl)

/* MIGRATE and QUERY wait for the mmap lock or write to memory: they enter where they need it. */
static const struct drm_ioctl_desc hg_ioctls[] = {
	DRM_IOCTL_DEF_DRV(HMM_GPU_GET_PARAM, entered_hg_get_param_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_POLICY, entered_hg_policy_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_CTX_CREATE, entered_hg_ctx_create_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_CTX_DESTROY, entered_hg_ctx_destroy_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_LAUNCH, entered_hg_launch_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_COPY, entered_hg_copy_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_WAIT, entered_hg_wait_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_MIGRATE, hg_migrate_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_QUERY, hg_query_ioctl, DRM_RENDER_ALLOW),
	DRM_IOCTL_DEF_DRV(HMM_GPU_BO_CREATE, entered_hg_bo_create_ioctl, DRM_RENDER_ALLOW),
};

static const struct file_operations hg_fops = {
	.owner = THIS_MODULE,
	.open = drm_open,
	.release = drm_release,
	.unlocked_ioctl = hg_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = hg_compat_ioctl,
#endif
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.show_fdinfo = drm_show_fdinfo,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

static void hg_release(struct drm_device *drm)
{
	struct hg_device *hdev = to_hg(drm);

	hg_fault_fini(hdev);
	xa_destroy(&hdev->svms);
	ida_destroy(&hdev->ctx_ida);
}

static const struct drm_driver hg_drm_driver = {
	.driver_features = DRIVER_RENDER | DRIVER_SYNCOBJ | DRIVER_GEM,
	.open = hg_open,
	.postclose = hg_postclose,
	.release = hg_release,
	.debugfs_init = hg_debugfs_init,
	.show_fdinfo = hg_show_fdinfo,
	.ioctls = hg_ioctls,
	.num_ioctls = ARRAY_SIZE(hg_ioctls),
	.fops = &hg_fops,
	.name = "hmm_gpu",
	.desc = "emulated GPU with shared virtual memory",
	HG_DRM_DATE
	.major = 1,
	.minor = 0,
};

/*
 * The device is gone and took VRAM pages with it that some process still has:
 * their struct pages must stay until the last of them is unmapped.  (A CPU that
 * touches one gets SIGBUS.)
 */
static void hg_reap(struct work_struct *work)
{
	struct hg_device *hdev = container_of(to_delayed_work(work), struct hg_device, reap_work);

	if (READ_ONCE(hdev->vram.used)) {
		queue_delayed_work(hg_reap_wq, &hdev->reap_work, HG_REAP_INTERVAL);
		return;
	}
	hg_pagemap_fini(hdev);
	drm_dev_put(&hdev->drm);
	if (atomic_dec_and_test(&hg_reapers))
		wake_up(&hg_reaped);
	/* the module's exit waits for the end of this, too */
	module_put(THIS_MODULE);
}

/*
 * After an unbind the reference keeps rmmod away.  The module's exit, which may be who
 * removes the device, asks for no references any more: it waits itself, and cannot fail.
 * Nor can this: whoever removes the device may have been killed by now, and nothing that
 * would have to be made first could be, such as a thread.
 */
static void hg_start_reaper(struct hg_device *hdev)
{
	atomic_inc(&hg_reapers);
	__module_get(THIS_MODULE);
	drm_dev_get(&hdev->drm);
	queue_delayed_work(hg_reap_wq, &hdev->reap_work, 0);
}

/* Takes the device out of use; the software stays for those who have it open. */
static void hg_quiesce(struct hg_device *hdev)
{
	struct hg_svm *svm;
	unsigned long asid;

	/* also those that somebody else is about to end */
	wait_var_event(&hdev->ctx_mem, !atomic_read(&hdev->ctx_mem));
	/* no context comes any more: it does not begin again */
	cancel_delayed_work_sync(&hdev->watch);
	xa_for_each(&hdev->svms, asid, svm) {
		svm = hg_svm_get(hdev, asid);
		if (!svm)
			continue;
		hg_mmu_fini(&svm->vm);
		hg_svm_put(svm);
	}
	hg_irq_fini(hdev);
	hg_fault_stop(hdev);
	cancel_work_sync(&hdev->error_work);
	down_write(&hdev->hw_sem);
	if (hdev->hw_live) {
		hg_write(hdev, HG_REG_INTR_ENABLE, 0);
		hg_write(hdev, HG_REG_CTRL, HG_CTRL_RESET);
	}
	hdev->hw_live = false;
	up_write(&hdev->hw_sem);
	hg_delay_forget(hdev);
	pci_clear_master(hdev->pdev);
	hg_vram_hide(hdev);
}

static void hg_free_hw(struct hg_device *hdev)
{
	hg_ce_fini(hdev);
	hg_fault_unit_fini(hdev);
	destroy_workqueue(hdev->wq);
}

static void hg_end_users(struct drm_device *drm, void *data)
{
	struct hg_device *hdev = data;

	cleanup_srcu_struct(&hdev->users);
}

static int hg_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct hg_device *hdev;
	int ret;

	hdev = devm_drm_dev_alloc(&pdev->dev, &hg_drm_driver, struct hg_device, drm);
	if (IS_ERR(hdev))
		return PTR_ERR(hdev);
	hdev->pdev = pdev;
	init_rwsem(&hdev->hw_sem);
	init_waitqueue_head(&hdev->reset_wait);
	INIT_DELAYED_WORK(&hdev->watch, hg_sched_watch_work);
	spin_lock_init(&hdev->inval_lock);
	spin_lock_init(&hdev->ctx_lock);
	spin_lock_init(&hdev->user_lock);
	INIT_LIST_HEAD(&hdev->user_list);
	mutex_init(&hdev->bo_lock);
	mutex_init(&hdev->out_lock);
	INIT_LIST_HEAD(&hdev->outs);
	INIT_WORK(&hdev->out_work, hg_job_out_work);
	INIT_LIST_HEAD(&hdev->bos);
	xa_init_flags(&hdev->svms, XA_FLAGS_ALLOC);
	ida_init(&hdev->ctx_ida);
	INIT_WORK(&hdev->error_work, hg_sched_error_work);
	INIT_DELAYED_WORK(&hdev->reap_work, hg_reap);
	pci_set_drvdata(pdev, hdev);
	ret = init_srcu_struct(&hdev->users);
	if (ret)
		return ret;
	ret = drmm_add_action_or_reset(&hdev->drm, hg_end_users, hdev);
	if (ret)
		return ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(52));
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "no usable DMA mask\n");
	ret = hg_hw_check_dma(hdev);
	if (ret)
		return dev_err_probe(&pdev->dev, ret,
				     "DMA does not reach memory where it is (swiotlb=force?)\n");
	if (pci_resource_len(pdev, HG_BAR_REGS) < HG_BAR0_SIZE)
		return dev_err_probe(&pdev->dev, -ENODEV, "BAR %d too small\n", HG_BAR_REGS);
	hdev->regs = pcim_iomap(pdev, HG_BAR_REGS, HG_BAR0_SIZE);
	if (!hdev->regs)
		return -ENOMEM;
	ret = hg_hw_init(hdev);
	if (ret)
		return ret;

	hdev->wq = alloc_workqueue("hmm_gpu", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!hdev->wq)
		return -ENOMEM;
	ret = hg_fault_unit_init(hdev);
	if (ret)
		goto err_hw;
	ret = hg_fault_init(hdev);
	if (ret)
		goto err_hw;
	ret = hg_ce_init(hdev);
	if (ret)
		goto err_hw;
	pci_set_master(pdev);
	ret = hg_irq_init(hdev);
	if (ret)
		goto err_master;
	hg_write(hdev, HG_REG_CTRL, HG_CTRL_RESET);
	hdev->hw_live = true;
	hg_hw_program(hdev);
	ret = hg_pagemap_init(hdev);
	if (ret) {
		dev_err(&pdev->dev, "no device-private memory: %d\n", ret);
		goto err_quiesce;
	}
	hg_audit_hw_program(hdev);
	ret = drm_dev_register(&hdev->drm, 0);
	if (ret)
		goto err_vram;
	hg_dmirror_add(hdev);
	dev_info(&pdev->dev, "%u SMs of %u warps, %u copy engines, %llu MiB %sVRAM, %lu pages used\n",
		 hdev->sms, hdev->warps, hdev->ces, hdev->vram_size >> 20,
		 hdev->coherent ? "coherent " : "", hdev->vram.limit);
	return 0;

err_vram:
	hg_pagemap_fini(hdev);
err_quiesce:
	hg_quiesce(hdev);
	goto err_hw;
err_master:
	pci_clear_master(pdev);
err_hw:
	hg_free_hw(hdev);
	return ret;
}

static void hg_remove(struct pci_dev *pdev)
{
	struct hg_device *hdev = pci_get_drvdata(pdev);
	unsigned long left;

	hg_reset_end(hdev, false);
	WRITE_ONCE(hdev->stopping, true);
	/* a context that was made meanwhile is in the table, and no other comes */
	down_write(&hdev->hw_sem);
	up_write(&hdev->hw_sem);
	hg_dmirror_remove(hdev);
	if (!pci_device_is_present(pdev))
		hg_wedge(hdev, "removed");
	hg_sched_stop_all(hdev, -ENODEV);
	hg_bo_drop_all(hdev);
	left = hg_vram_stop(hdev);
	WRITE_ONCE(hdev->gone, true);
	drm_dev_unplug(&hdev->drm);
	synchronize_srcu(&hdev->users);
	/* from here on none of our calls is at the device */
	hg_sched_stop_all(hdev, -ENODEV);
	hg_bo_drop_all(hdev);
	if (left)
		left = hg_vram_stop(hdev);
	hg_quiesce(hdev);
	hg_free_hw(hdev);
	if (!left) {
		hg_pagemap_fini(hdev);
		return;
	}
	dev_err(&pdev->dev, "%lu pages of VRAM lost\n", left);
	hg_start_reaper(hdev);
}

static const struct pci_device_id hg_ids[] = {
	{ PCI_DEVICE(HG_PCI_VENDOR_ID, HG_PCI_DEVICE_ID) },
	{}
};
MODULE_DEVICE_TABLE(pci, hg_ids);

static struct pci_driver hg_pci_driver = {
	.name = "hmm_gpu",
	.id_table = hg_ids,
	.probe = hg_probe,
	.remove = hg_remove,
	.err_handler = &hg_err_handlers,
};

static int __init hg_module_init(void)
{
	int ret = hg_fault_module_init();

	if (ret)
		return ret;
	ret = -ENOMEM;
	hg_reap_wq = alloc_workqueue("hmm_gpu-reap", WQ_UNBOUND, 0);
	if (!hg_reap_wq)
		goto err_fault;
	ret = pci_register_driver(&hg_pci_driver);
	if (ret)
		goto err_reap;
	return 0;

err_reap:
	destroy_workqueue(hg_reap_wq);
err_fault:
	hg_fault_module_exit();
	return ret;
}
module_init(hg_module_init);

static void __exit hg_module_exit(void)
{
	pci_unregister_driver(&hg_pci_driver);
	/* no device, no new ones; processes keep their pages as long as they like, so idle */
	wait_event_idle(hg_reaped, !atomic_read(&hg_reapers));
	destroy_workqueue(hg_reap_wq);
	hg_fault_module_exit();
}
module_exit(hg_module_exit);

MODULE_DESCRIPTION("hmm-gpu: emulated GPU with shared virtual memory");
MODULE_LICENSE("GPL");
