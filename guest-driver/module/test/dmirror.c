// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/hmm_dmirrorN: what the kernel's HMM test program expects of a driver, on
 * top of what every user of this driver gets.
 *
 * The program is tools/testing/selftests/mm/hmm-tests.c; what it and the
 * kernel's own test driver agree upon stands in lib/test_hmm_uapi.h of the
 * kernel's source, in no header that a module can include.  The numbers below
 * are those of Linux 6.12 to 7.3.
 *
 * A node is a GPU: two nodes are two GPUs, each with its own pages and its own
 * mirrors.  An open file is a struct hg_file like that of a render node: one
 * mirror, faults, migration and jobs by the same code.  READ and WRITE are copy
 * jobs of the GPU between the range and a buffer of the kernel; only the range
 * is a virtual address, so every fault that is counted is one of the range.
 *
 * Differences from the kernel's test driver, none of which its program notices:
 * a process that inherited the file by fork() gets -EPERM, as on a render node;
 * READ and WRITE that fail half-way have done the first half.
 *
 * Off unless the module parameter asks for it: the interface is for tests, and
 * test_hmm.ko has nodes of the same names.
 */
#include <linux/dma-mapping.h>
#include <linux/hmm.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <drm/drm_drv.h>

#include "base/compat.h"
#include "base/device.h"
#include "jobs/file.h"
#include "jobs/jobs.h"
#include "mem/evict.h"
#include "mem/exclusive.h"
#include "mem/map.h"
#include "mem/migrate.h"
#include "mem/snapshot.h"
#include "test/dmirror.h"

static bool hg_dmirror;
module_param_named(dmirror, hg_dmirror, bool, 0444);
MODULE_PARM_DESC(dmirror, "make /dev/hmm_dmirrorN, the interface of the kernel's HMM tests");

/* The tests want private memory behind nodes 0 and 1, coherent memory behind 2 and 3. */
#define DM_PRIVATE		0
#define DM_COHERENT		2
#define DM_OF_A_KIND		2

struct dm_cmd {
	__u64 addr;		/* first address of the range */
	__u64 ptr;		/* the program's buffer */
	__u64 npages;
	__u64 cpages;		/* out: pages done */
	__u64 faults;		/* out: see dm_access() */
};

#define DM_READ			_IOWR('H', 0, struct dm_cmd)
#define DM_WRITE		_IOWR('H', 1, struct dm_cmd)
#define DM_MIGRATE_TO_DEV	_IOWR('H', 2, struct dm_cmd)
#define DM_MIGRATE_TO_SYS	_IOWR('H', 3, struct dm_cmd)
#define DM_SNAPSHOT		_IOWR('H', 4, struct dm_cmd)
#define DM_EXCLUSIVE		_IOWR('H', 5, struct dm_cmd)
#define DM_CHECK_EXCLUSIVE	_IOWR('H', 6, struct dm_cmd)
#define DM_RELEASE		_IOWR('H', 7, struct dm_cmd)
#define DM_FLAGS		_IOWR('H', 8, struct dm_cmd)
#define DM_READ_UNLOCKED	_IOWR('H', 9, struct dm_cmd)

/* of DM_FLAGS, in npages: the next allocation for a migration fails */
#define DM_FLAG_FAIL_ALLOC	1

/* A byte a page that SNAPSHOT writes. */
enum {
	DM_PROT_ERROR = 0xff,
	DM_PROT_NONE = 0,
	DM_PROT_READ = 0x01,
	DM_PROT_WRITE = 0x02,
	DM_PROT_PMD = 0x04,
	DM_PROT_PUD = 0x08,
	DM_PROT_ZERO = 0x10,
	DM_PROT_PRIVATE_LOCAL = 0x20,
	DM_PROT_PRIVATE_REMOTE = 0x30,
	DM_PROT_COHERENT_LOCAL = 0x40,
	DM_PROT_COHERENT_REMOTE = 0x50,
};

/* The buffer is as large as the copies that need no other: 2 MiB. */
#define DM_BUFFER_ORDER		9

/**
 * struct hg_dmirror - an open file
 * @hdev: GPU; a reference on its drm device keeps it
 * @hf: mirror and context
 * @lock: one ioctl at a time: everything below
 * @ctx: number of the context, 0 before the first job
 * @buffer: what the GPU copies from and to
 * @order: of @buffer
 */
struct hg_dmirror {
	struct hg_device *hdev;
	struct hg_file *hf;
	struct mutex lock;
	u32 ctx;
	struct page *buffer;
	unsigned int order;
};

/* Context and buffer, made by the first job: a GPU has fewer contexts than mirrors. */
static int dm_prepare(struct hg_dmirror *dm)
{
	int order;

	for (order = DM_BUFFER_ORDER; !dm->buffer && order >= 0; order--) {
		dm->buffer = alloc_pages(GFP_KERNEL | __GFP_NOWARN | (order ? __GFP_NORETRY : 0),
					 order);
		dm->order = order;
	}
	if (!dm->buffer)
		return -ENOMEM;
	return dm->ctx ? 0 : hg_ctx_create(dm->hf, 0, true, &dm->ctx);
}

/* One job between [va, va + len) and the buffer. */
static int dm_job(struct hg_dmirror *dm, unsigned long va, size_t len, bool write)
{
	enum dma_data_direction dir = write ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	struct device *dev = &dm->hdev->pdev->dev;
	struct hg_svm *svm = dm->hf->svm;
	dma_addr_t dma;
	unsigned long at;
	int ret;

	dma = dma_map_page(dev, dm->buffer, 0, len, dir);
	if (dma_mapping_error(dev, dma))
		return -ENOMEM;
	/* no job of the file runs; what was refused before is of others */
	memset(svm->refused, 0, sizeof(svm->refused));
	if (write)
		ret = hg_job_copy(dm->hf, dm->ctx, dma, va, len, HG_SPACE_SYS << HG_COPY_SRC_SHIFT);
	else
		ret = hg_job_copy(dm->hf, dm->ctx, va, dma, len, HG_SPACE_SYS << HG_COPY_DST_SHIFT);
	if (ret == -ERESTARTSYS) {
		/* killed: nobody may write to the buffer when this returns */
		hg_ctx_destroy(dm->hf, dm->ctx);
		dm->ctx = 0;
		ret = -EINTR;
	}
	dma_unmap_page(dev, dma, len, dir);
	/* the device knows that it was refused; the fault service knows why */
	for (at = va; ret == -EFAULT && at < va + len; at += PAGE_SIZE)
		ret = hg_svm_refused(svm, at) ?: ret;
	return ret;
}

/*
 * The GPU reads the range, or writes it.
 *
 * @faults: the kernel's test driver has the whole range faulted in when a page
 * is missing, and counts how often; 1 if the range does not change meanwhile.
 * A GPU that replays asks for each page that is missing when it gets there.
 * What both have in common, and what is returned, is whether anything was
 * missing: 1, or 0 if all was mapped.
 */
static int dm_access(struct hg_dmirror *dm, struct dm_cmd *cmd, bool write)
{
	u64 size = cmd->npages << PAGE_SHIFT, done = 0;
	char __user *user = u64_to_user_ptr(cmd->ptr);
	struct hg_svm *svm = dm->hf->svm;
	unsigned long before;
	int ret;

	ret = dm_prepare(dm);
	if (ret)
		return ret;
	before = READ_ONCE(svm->faults);
	while (done < size) {
		size_t len = min_t(u64, size - done, PAGE_SIZE << dm->order);
		void *buffer = page_address(dm->buffer);

		if (write && copy_from_user(buffer, user + done, len))
			return -EFAULT;
		ret = dm_job(dm, cmd->addr + done, len, write);
		if (ret)
			return ret;
		if (!write && copy_to_user(user + done, buffer, len))
			return -EFAULT;
		done += len;
	}
	cmd->cpages = cmd->npages;
	cmd->faults = READ_ONCE(svm->faults) != before;
	return 0;
}

/* Faults the range in with the help of whoever has to be waited for (userfaultfd). */
static int dm_fault_in(struct hg_dmirror *dm, struct dm_cmd *cmd)
{
#ifdef HG_HAVE_UNLOCKED_RANGE_FAULT
	unsigned long addr, end = cmd->addr + (cmd->npages << PAGE_SHIFT);
	struct hg_svm *svm = dm->hf->svm;
	unsigned long *pfns;
	int ret = 0;

	pfns = kvmalloc_array(HG_WINDOW_PAGES, sizeof(*pfns), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	for (addr = cmd->addr; addr < end && !ret; ) {
		struct hmm_range range = {
			.notifier = &svm->notifier,
			.start = addr,
			.end = min(end, addr + (HG_WINDOW_PAGES << PAGE_SHIFT)),
			.hmm_pfns = pfns,
			.default_flags = HMM_PFN_REQ_FAULT,
			.dev_private_owner = svm->vm.hdev,
		};

		ret = hmm_range_fault_unlocked_timeout(&range, 0);
		addr = range.end;
	}
	kvfree(pfns);
	return ret;
#else
	return -EINVAL;
#endif
}

/*
 * Fault service does not wait for a handler in user space: hmm_range_fault() cannot.
 * So the caller waits here, and then the GPU faults.
 */
static int dm_read_unlocked(struct hg_dmirror *dm, struct dm_cmd *cmd)
{
	int ret = dm_fault_in(dm, cmd);

	return ret ? ret : dm_access(dm, cmd, false);
}

/* What migration refuses as a whole: holes, and areas without read permission or normal pages. */
static int dm_check_areas(struct dm_cmd *cmd)
{
	unsigned long addr = cmd->addr, end = addr + (cmd->npages << PAGE_SHIFT);
	struct vm_area_struct *vma;
	int ret = 0;

	if (end > TASK_SIZE)
		return -EINVAL;
	mmap_read_lock(current->mm);
	while (addr < end && !ret) {
		vma = vma_lookup(current->mm, addr);
		if (!vma || !(vma->vm_flags & VM_READ) || vma->vm_flags & VM_SPECIAL ||
		    is_vm_hugetlb_page(vma))
			ret = -EINVAL;
		else
			addr = vma->vm_end;
	}
	mmap_read_unlock(current->mm);
	return ret;
}

static int dm_migrate(struct hg_dmirror *dm, struct dm_cmd *cmd, bool to_device)
{
	struct hg_migrate_result res = {};
	int ret;

	ret = dm_check_areas(cmd);
	if (!ret)
		ret = hg_migrate_range(dm->hf->svm, cmd->addr,
				       cmd->addr + (cmd->npages << PAGE_SHIFT), to_device,
				       to_device, &res);
	if (ret)
		return ret;
	if (!to_device) {
		cmd->cpages = res.migrated;
		return 0;
	}
	/* all of the range has to be there, and the caller gets what the GPU reads */
	if (res.failed)
		return -ENOENT;
	ret = dm_access(dm, cmd, false);
	cmd->faults = 0;
	return ret;
}

static u8 dm_describe(struct hg_device *hdev, unsigned long pfn)
{
	struct page *page;
	u8 prot;

	if (pfn & HMM_PFN_ERROR)
		return DM_PROT_ERROR;
	if (!(pfn & HMM_PFN_VALID))
		return DM_PROT_NONE;
	page = hmm_pfn_to_page(pfn);
	if (is_device_private_page(page))
		prot = hg_page_pgmap(page)->owner == hdev ? DM_PROT_PRIVATE_LOCAL :
							    DM_PROT_PRIVATE_REMOTE;
	else if (is_device_coherent_page(page))
		prot = hg_page_pgmap(page)->owner == hdev ? DM_PROT_COHERENT_LOCAL :
							    DM_PROT_COHERENT_REMOTE;
	else
		prot = is_zero_pfn(page_to_pfn(page)) ? DM_PROT_ZERO : DM_PROT_NONE;
	prot |= pfn & HMM_PFN_WRITE ? DM_PROT_WRITE : DM_PROT_READ;
	if (hmm_pfn_to_map_order(pfn) == PMD_SHIFT - PAGE_SHIFT)
		prot |= DM_PROT_PMD;
	else if (hmm_pfn_to_map_order(pfn) == PUD_SHIFT - PAGE_SHIFT)
		prot |= DM_PROT_PUD;
	return prot;
}

static int dm_snapshot(struct hg_dmirror *dm, struct dm_cmd *cmd)
{
	unsigned long addr, end = cmd->addr + (cmd->npages << PAGE_SHIFT), next, *pfns;
	u8 __user *user = u64_to_user_ptr(cmd->ptr);
	struct hg_svm *svm = dm->hf->svm;
	int ret = 0;
	u8 *prot;

	if (end > TASK_SIZE)
		return -EINVAL;
	pfns = kvmalloc_array(HG_WINDOW_PAGES, sizeof(*pfns) + sizeof(*prot), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	prot = (u8 *)(pfns + HG_WINDOW_PAGES);
	for (addr = cmd->addr; addr < end; addr = next) {
		unsigned long i, n;

		next = min(end, ALIGN(addr + 1, HG_WINDOW_PAGES << PAGE_SHIFT));
		n = (next - addr) >> PAGE_SHIFT;
		ret = hg_snapshot_lock(svm, addr, next, pfns);
		if (ret)
			break;
		for (i = 0; i < n; i++)
			prot[i] = dm_describe(svm->vm.hdev, pfns[i]);
		mutex_unlock(&svm->vm.pt_lock);
		if (copy_to_user(user, prot, n)) {
			ret = -EFAULT;
			break;
		}
		user += n;
		cmd->cpages += n;
	}
	kvfree(pfns);
	return ret;
}

static int dm_exclusive(struct hg_dmirror *dm, struct dm_cmd *cmd)
{
	unsigned long end = cmd->addr + (cmd->npages << PAGE_SHIFT);
	int ret;

	if (end > TASK_SIZE)
		return -EINVAL;
	ret = hg_svm_map_exclusive(dm->hf->svm, cmd->addr, end);
	if (ret)
		return ret;
	ret = dm_access(dm, cmd, false);
	cmd->faults = 0;
	return ret;
}

static int dm_run(struct hg_dmirror *dm, unsigned int nr, struct dm_cmd *cmd)
{
	switch (nr) {
	case DM_READ:
		return dm_access(dm, cmd, false);
	case DM_WRITE:
		return dm_access(dm, cmd, true);
	case DM_MIGRATE_TO_DEV:
		return dm_migrate(dm, cmd, true);
	case DM_MIGRATE_TO_SYS:
		return dm_migrate(dm, cmd, false);
	case DM_SNAPSHOT:
		return dm_snapshot(dm, cmd);
	case DM_EXCLUSIVE:
		return dm_exclusive(dm, cmd);
	case DM_CHECK_EXCLUSIVE:
		return hg_svm_any_exclusive(dm->hf->svm, cmd->addr,
					    cmd->addr + (cmd->npages << PAGE_SHIFT)) ? -EPERM : 0;
	case DM_RELEASE:
		hg_vram_evict(dm->hdev, ULONG_MAX);
		return 0;
	case DM_FLAGS:
		if (cmd->npages & ~DM_FLAG_FAIL_ALLOC)
			return -EINVAL;
		WRITE_ONCE(dm->hf->svm->fail_huge, cmd->npages & DM_FLAG_FAIL_ALLOC);
		return 0;
	case DM_READ_UNLOCKED:
		return dm_read_unlocked(dm, cmd);
	}
	return -EINVAL;
}

static long dm_ioctl(struct file *filp, unsigned int nr, unsigned long arg)
{
	struct hg_dmirror *dm = filp->private_data;
	void __user *user = (void __user *)arg;
	struct dm_cmd cmd;
	int ret, idx;

	if (copy_from_user(&cmd, user, sizeof(cmd)))
		return -EFAULT;
	if (!PAGE_ALIGNED(cmd.addr) || !cmd.npages || cmd.npages > TASK_SIZE >> PAGE_SHIFT ||
	    cmd.addr > TASK_SIZE - (cmd.npages << PAGE_SHIFT))
		return -EINVAL;
	ret = hg_check_mm(dm->hf);
	if (ret)
		return ret;
	cmd.cpages = 0;
	cmd.faults = 0;
	if (!hg_enter(dm->hdev, &idx))
		return -ENODEV;
	ret = mutex_lock_interruptible(&dm->lock);
	if (!ret) {
		ret = dm_run(dm, nr, &cmd);
		mutex_unlock(&dm->lock);
	}
	hg_exit(dm->hdev, idx);
	if (ret)
		return ret;
	return copy_to_user(user, &cmd, sizeof(cmd)) ? -EFAULT : 0;
}

/* Pages of the driver in a process: the tests look at how HMM reports those. */
static int dm_mmap(struct file *filp, struct vm_area_struct *vma)
{
	unsigned long addr;
	int ret = 0;

	for (addr = vma->vm_start; addr < vma->vm_end && !ret; addr += PAGE_SIZE) {
		struct page *page = alloc_page(GFP_USER | __GFP_ZERO);

		if (!page)
			return -ENOMEM;
		ret = vm_insert_page(vma, addr, page);
		/* the mapping has its own reference */
		put_page(page);
	}
	return ret;
}

/* misc_open() holds the lock that misc_deregister() takes: the node's device is there. */
static int dm_open(struct inode *inode, struct file *filp)
{
	struct miscdevice *misc = filp->private_data;
	struct hg_device *hdev = container_of(misc, struct hg_device, dmirror.misc);
	struct hg_dmirror *dm;

	dm = kzalloc(sizeof(*dm), GFP_KERNEL);
	if (!dm)
		return -ENOMEM;
	dm->hf = hg_file_create(hdev);
	if (IS_ERR(dm->hf)) {
		int ret = PTR_ERR(dm->hf);

		kfree(dm);
		return ret;
	}
	mutex_init(&dm->lock);
	drm_dev_get(&hdev->drm);
	dm->hdev = hdev;
	hg_svm_use_exclusive(dm->hf->svm, true);
	filp->private_data = dm;
	return 0;
}

static int dm_release(struct inode *inode, struct file *filp)
{
	struct hg_dmirror *dm = filp->private_data;

	hg_file_destroy(dm->hf);
	/* after the context: no job uses it any more */
	if (dm->buffer)
		__free_pages(dm->buffer, dm->order);
	drm_dev_put(&dm->hdev->drm);
	kfree(dm);
	return 0;
}

static const struct file_operations dm_fops = {
	.owner = THIS_MODULE,
	.open = dm_open,
	.release = dm_release,
	.unlocked_ioctl = dm_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = dm_mmap,
	.llseek = noop_llseek,
};

static DEFINE_IDA(dm_ids);

/**
 * hg_dmirror_add() - make the node of a device, if there shall be one
 * @hdev: device; complete
 *
 * Without the node the device is as good: a failure is told and no more.
 */
void hg_dmirror_add(struct hg_device *hdev)
{
	struct hg_dmirror_node *node = &hdev->dmirror;
	int first, id, ret;

	if (!hg_dmirror)
		return;
	first = hdev->coherent ? DM_COHERENT : DM_PRIVATE;
	id = ida_alloc_range(&dm_ids, first, first + DM_OF_A_KIND - 1, GFP_KERNEL);
	if (id < 0) {
		dev_info(hdev->drm.dev, "no number left for /dev/hmm_dmirrorN\n");
		return;
	}
	snprintf(node->name, sizeof(node->name), "hmm_dmirror%d", id);
	node->misc = (struct miscdevice) {
		.minor = MISC_DYNAMIC_MINOR,
		.name = node->name,
		.fops = &dm_fops,
		.parent = hdev->drm.dev,
		.mode = 0600,
	};
	ret = misc_register(&node->misc);
	if (ret) {
		dev_err(hdev->drm.dev, "no /dev/%s: %d\n", node->name, ret);
		ida_free(&dm_ids, id);
		return;
	}
	node->id = id + 1;
}

/**
 * hg_dmirror_remove() - no more opens; open files stay
 * @hdev: device
 */
void hg_dmirror_remove(struct hg_device *hdev)
{
	struct hg_dmirror_node *node = &hdev->dmirror;

	if (!node->id)
		return;
	misc_deregister(&node->misc);
	ida_free(&dm_ids, node->id - 1);
	node->id = 0;
}
