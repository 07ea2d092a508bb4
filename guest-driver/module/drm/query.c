// SPDX-License-Identifier: GPL-2.0
/*
 * What is where, for programs: the CPU's and the GPU's page tables in one look.
 */
#include <linux/hmm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <drm/drm_file.h>

#include "drm/query.h"
#include "jobs/file.h"
#include "mem/map.h"
#include "mem/snapshot.h"
#include "mmu/mmu.h"

/*
 * The CPU's device-exclusive entry of a page, which hmm_range_fault() shows as
 * nothing: the CPU has what it had before as soon as it asks for it.
 */
static bool is_exclusive(struct hg_svm *svm, u64 pte, unsigned long pfn)
{
	return svm->vm.exclusive && !pfn && hg_pte_is_sys_atomic(pte);
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
		if (hg_pfn_is_device(svm->vm.hdev, pfn))
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
	int ret, idx;
	u32 *q;

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

		if (signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		next = min(end, ALIGN(addr + 1, HG_WINDOW_PAGES << PAGE_SHIFT));
		n = (next - addr) >> PAGE_SHIFT;
		ret = hg_snapshot_lock(svm, addr, next, pfns);
		if (ret)
			break;
		if (hg_enter(to_hg(drm), &idx)) {
			for (i = 0; i < n; i++)
				q[i] = describe(svm, hg_mmu_lookup(&svm->vm,
								   addr + (i << PAGE_SHIFT)),
						pfns[i]);
			hg_exit(to_hg(drm), idx);
		} else {
			ret = -ENODEV;
		}
		mutex_unlock(&svm->vm.pt_lock);
		if (ret)
			break;
		/* may fault, and so not under pt_lock; the device is left */
		if (copy_to_user(out, q, n * sizeof(*q))) {
			ret = -EFAULT;
			break;
		}
		out += n;
	}
	kvfree(pfns);
	return ret;
}
