// SPDX-License-Identifier: GPL-2.0
/*
 * What is where: a look at the CPU's page table that belongs together with the
 * GPU's, without faulting anything in.
 */
#include <linux/hmm.h>
#include <linux/sched/signal.h>

#include "base/delay.h"
#include "mem/snapshot.h"
#include "mmu/mmu.h"

#define HG_QUERY_TRIES	1000

/* What an entry lets the GPU do; pt_lock is held. */
static u8 rights(struct hg_svm *svm, unsigned long va)
{
	u64 pte = hg_mmu_lookup(&svm->vm, va);

	BUILD_BUG_ON((HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC) > U8_MAX);
	return pte & HG_PTE_VALID ? pte & (HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC) : 0;
}

/* Takes note of what the GPU may do; returns whether that is more than was noted. */
static bool note_rights(struct hg_svm *svm, const struct hmm_range *range, u8 *noted)
{
	unsigned long i, n = (range->end - range->start) >> PAGE_SHIFT;
	bool more = false;

	lockdep_assert_held(&svm->vm.pt_lock);
	for (i = 0; i < n; i++) {
		u8 now = rights(svm, range->start + (i << PAGE_SHIFT));

		more |= now & ~noted[i];
		noted[i] = now;
	}
	return more;
}

/**
 * hg_snapshot_lock() - read CPU entries, and keep them true
 * @svm: mirror; its mm has users
 * @start: first address
 * @end: end, in the same 2 MiB as @start
 * @pfns: out: what hmm_range_fault() says, faulting nothing in
 *
 * A page that is faulted in or made writable for the GPU does not move the sequence.  So
 * where the GPU may do more than before the look, the look may be too old, and is taken
 * again.  It cannot be taken under pt_lock: in hugetlb areas it takes a lock under which
 * notifiers are called.
 *
 * Return: 0 with pt_lock held: until it is released the entries do not lose anything, and
 * the GPU may do no more than before the CPU's were read, but to a page that is its own
 * by now: the look shows nothing of one that the CPU may not use; -EINTR, -EBUSY.
 */
int hg_snapshot_lock(struct hg_svm *svm, unsigned long start, unsigned long end,
		     unsigned long *pfns)
{
	struct hmm_range range = {
		.notifier = &svm->notifier,
		.start = start,
		.end = end,
		.hmm_pfns = pfns,
		.dev_private_owner = svm->vm.hdev,
	};
	u8 had[HG_WINDOW_PAGES] = {};
	unsigned int tries;
	int ret;

	for (tries = 0; tries < HG_QUERY_TRIES; tries++) {
		memset(pfns, 0, ((end - start) >> PAGE_SHIFT) * sizeof(*pfns));
		range.notifier_seq = mmu_interval_read_begin(&svm->notifier);
		mutex_lock(&svm->vm.pt_lock);
		note_rights(svm, &range, had);
		mutex_unlock(&svm->vm.pt_lock);
		hg_delay(query_before_walk);
		ret = mmap_read_lock_killable(svm->vm.mm);
		if (ret)
			return ret;
		ret = hmm_range_fault(&range);
		mmap_read_unlock(svm->vm.mm);
		if (ret && ret != -EBUSY)
			return ret;
		hg_delay(query_after_walk);
		if (!ret) {
			mutex_lock(&svm->vm.pt_lock);
			if (!mmu_interval_read_retry(&svm->notifier, range.notifier_seq) &&
			    !note_rights(svm, &range, had))
				return 0;
			mutex_unlock(&svm->vm.pt_lock);
		}
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return -EBUSY;
}

/**
 * hg_pfn_is_device() - whether a page is in VRAM
 * @hdev: device
 * @pfn: what hmm_range_fault() says of it
 */
bool hg_pfn_is_device(struct hg_device *hdev, unsigned long pfn)
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
		*device += hg_pfn_is_device(svm->vm.hdev, pfns[i]);
	mutex_unlock(&svm->vm.pt_lock);
	return 0;
}
