// SPDX-License-Identifier: GPL-2.0
/*
 * What is where: a look at the CPU's and the GPU's page tables that belong
 * together, without faulting anything in.
 */
#include <linux/hmm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "hmm_gpu.h"

#define HG_QUERY_TRIES	1000

/**
 * hg_snapshot_lock() - read CPU entries, and keep them true
 * @svm: mirror; its mm has users
 * @start: first address
 * @end: end
 * @pfns: out: what hmm_range_fault() says, faulting nothing in
 *
 * Return: 0 with pt_lock held: until it is released the entries do not lose
 * anything; -EINTR, -EBUSY.
 */
int hg_snapshot_lock(struct hg_svm *svm, unsigned long start, unsigned long end,
		     unsigned long *pfns)
{
	struct hmm_range range = {
		.notifier = &svm->notifier,
		.start = start,
		.end = end,
		.hmm_pfns = pfns,
		.dev_private_owner = svm->hdev,
	};
	unsigned int tries;
	int ret;

	for (tries = 0; tries < HG_QUERY_TRIES; tries++) {
		memset(pfns, 0, ((end - start) >> PAGE_SHIFT) * sizeof(*pfns));
		range.notifier_seq = mmu_interval_read_begin(&svm->notifier);
		hg_delay(query_before_walk);
		mmap_read_lock(svm->mm);
		ret = hmm_range_fault(&range);
		mmap_read_unlock(svm->mm);
		if (ret && ret != -EBUSY)
			return ret;
		hg_delay(query_after_walk);
		if (!ret) {
			mutex_lock(&svm->pt_lock);
			if (!mmu_interval_read_retry(&svm->notifier, range.notifier_seq))
				return 0;
			mutex_unlock(&svm->pt_lock);
		}
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return -EBUSY;
}

static bool pfn_is_device(struct hg_device *hdev, unsigned long pfn)
{
	return pfn & HMM_PFN_VALID && hg_is_vram(hdev, hmm_pfn_to_page(pfn));
}

/**
 * hg_svm_count_device() - count the pages of a range that are in VRAM
 * @svm: mirror; its mm has users
 * @start: first address
 * @end: end
 * @pfns: room for the pages
 * @device: out
 *
 * Return: 0, -EINTR, -EBUSY.
 */
int hg_svm_count_device(struct hg_svm *svm, unsigned long start, unsigned long end,
			unsigned long *pfns, unsigned long *device)
{
	unsigned long i, n = (end - start) >> PAGE_SHIFT;
	int ret;

	*device = 0;
	ret = hg_snapshot_lock(svm, start, end, pfns);
	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		*device += pfn_is_device(svm->hdev, pfns[i]);
	mutex_unlock(&svm->pt_lock);
	return 0;
}

/*
 * The CPU's device-exclusive entry of a page, which hmm_range_fault() shows as
 * nothing: the CPU has what it had before as soon as it asks for it.
 */
static bool is_exclusive(struct hg_svm *svm, u64 pte, unsigned long pfn)
{
	return svm->exclusive && !pfn && hg_pte_is_sys_atomic(pte);
}

static u32 describe(struct hg_svm *svm, u64 pte, unsigned long pfn)
{
	u32 q = HMM_GPU_Q_CPU_NONE;

	if (is_exclusive(svm, pte, pfn))
		q |= HMM_GPU_Q_GPU_EXCLUSIVE | HMM_GPU_Q_CPU_READ | HMM_GPU_Q_CPU_WRITE;

	if (pfn & HMM_PFN_ERROR) {
		q |= HMM_GPU_Q_CPU_ERROR;
	} else if (pfn & HMM_PFN_VALID) {
		q |= HMM_GPU_Q_CPU_READ;
		if (pfn & HMM_PFN_WRITE)
			q |= HMM_GPU_Q_CPU_WRITE;
		if (pfn_is_device(svm->hdev, pfn))
			q |= HMM_GPU_Q_CPU_DEVICE;
	}
	if (!(pte & HG_PTE_VALID))
		return q;
	q |= HMM_GPU_Q_GPU_VALID;
	if (pte & HG_PTE_WRITE)
		q |= HMM_GPU_Q_GPU_WRITE;
	if (pte & HG_PTE_ATOMIC)
		q |= HMM_GPU_Q_GPU_ATOMIC;
	if (pte & HG_PTE_HUGE)
		q |= HMM_GPU_Q_GPU_HUGE;
	if ((pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM)
		q |= HMM_GPU_Q_GPU_VRAM;
	return q;
}

int hg_query_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_query *args = data;
	struct hg_file *hf = file->driver_priv;
	struct hg_svm *svm = hf->svm;
	u32 __user *out = u64_to_user_ptr(args->ptr);
	unsigned long addr, end, next, *pfns;
	u32 *q;
	int ret;

	ret = hg_check_mm(hf);
	if (ret)
		return ret;
	if (!PAGE_ALIGNED(args->addr) || !args->npages ||
	    args->npages > TASK_SIZE >> PAGE_SHIFT ||
	    args->addr > TASK_SIZE - (args->npages << PAGE_SHIFT))
		return -EINVAL;
	pfns = kvmalloc_array(HG_WINDOW_PAGES, sizeof(*pfns) + sizeof(*q), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;
	q = (u32 *)(pfns + HG_WINDOW_PAGES);

	end = args->addr + (args->npages << PAGE_SHIFT);
	for (addr = args->addr; addr < end; addr = next) {
		unsigned long i, n;

		next = min(end, ALIGN(addr + 1, HG_WINDOW_PAGES << PAGE_SHIFT));
		n = (next - addr) >> PAGE_SHIFT;
		ret = hg_snapshot_lock(svm, addr, next, pfns);
		if (ret)
			break;
		for (i = 0; i < n; i++)
			q[i] = describe(svm, hg_mmu_lookup(svm, addr + (i << PAGE_SHIFT)), pfns[i]);
		mutex_unlock(&svm->pt_lock);
		/* may fault, and so not under pt_lock */
		if (copy_to_user(out, q, n * sizeof(*q))) {
			ret = -EFAULT;
			break;
		}
		out += n;
	}
	kvfree(pfns);
	return ret;
}
