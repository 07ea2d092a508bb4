// SPDX-License-Identifier: GPL-2.0
/*
 * Device-exclusive access: system pages that the CPU cannot reach while the GPU
 * does atomics on them.
 *
 * For GPUs whose atomics the CPU's are not atomic to.  In a mirror that uses it
 * a page of anonymous memory has HG_PTE_ATOMIC only while the CPU's entry is the
 * device-exclusive entry of that page (for other memory see serve_atomics()).  A
 * CPU that touches the page is stopped by that entry; the kernel then announces
 * the change (MMU_NOTIFY_EXCLUSIVE up to 6.14, MMU_NOTIFY_CLEAR since), and so
 * svm_invalidate() takes the GPU's entry away before the CPU gets its own back.
 *
 * The owner of an exclusive access is the mirror.  The kernel also announces
 * the way there, with that owner, and that one event svm_invalidate() leaves
 * alone: the CPU's entry changes from a page to the exclusive entry of the same
 * page, so what the GPU has mapped stays right.  If it advanced the sequence,
 * the check below could never succeed.
 *
 * VRAM that the CPU reaches (coherent) can be made exclusive too, if a page was
 * migrated since somebody looked.  The GPU needs no such right to its own memory,
 * and eviction would fail: the entry has a reference that migration does not
 * expect.  Up to 6.14 the kernel then even takes the entry for one of its migration
 * entries, and keeps a reference for ever (remove_migration_pte(), check_pte()).
 * So the entry is made an ordinary one within the same hold of the mmap lock, and
 * the page mapped as all of VRAM is.
 *
 * The check is needed although the folio is locked, which keeps a CPU fault
 * from revoking: MADV_DONTNEED and reclaim need no folio lock to take the entry
 * away.  An entry that is exclusive already is first made an ordinary one, for
 * its revocation advances the sequence.
 */
#include <linux/hmm.h>
#include <linux/rmap.h>
#include <linux/sched/signal.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/stats.h"
#include "mem/exclusive.h"
#include "mem/map.h"

#define HG_EXCLUSIVE_TRIES	100

/**
 * hg_svm_use_exclusive() - whether atomics on system pages need exclusive access
 * @svm: mirror
 * @on: from now on
 */
void hg_svm_use_exclusive(struct hg_svm *svm, bool on)
{
	struct hg_device *hdev = svm->vm.hdev;

	mutex_lock(&svm->vm.pt_lock);
	if (svm->vm.exclusive != on) {
		WRITE_ONCE(svm->vm.exclusive, on);
		/* what was mapped before may permit them */
		down_read(&hdev->hw_sem);
		hg_mmu_zap(&svm->vm, 0, ULONG_MAX, false, true);
		hg_mmu_flush(&svm->vm, true);
		up_read(&hdev->hw_sem);
	}
	mutex_unlock(&svm->vm.pt_lock);
}

/* Makes the page an ordinary one that this process may write. */
static int fault_in(struct hg_svm *svm, unsigned long addr)
{
	unsigned long pfn = 0;
	struct hmm_range range = {
		.notifier = &svm->notifier,
		.start = addr,
		.end = addr + PAGE_SIZE,
		.hmm_pfns = &pfn,
		.default_flags = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE,
	};
	int ret;

	range.notifier_seq = mmu_interval_read_begin(&svm->notifier);
	mmap_read_lock(svm->vm.mm);
	ret = hg_range_fault(svm, &range, range.default_flags);
	mmap_read_unlock(svm->vm.mm);
	return ret == -EBUSY ? 0 : ret;
}

/* The ordinary way: VRAM with atomics, a page of system memory without. */
static int map_ordinary(struct hg_svm *svm, unsigned long addr)
{
	unsigned long want = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE, pfn;

	return hg_svm_map_window(svm, addr, addr + PAGE_SIZE, &want, &pfn, false);
}

/* As hg_make_exclusive(), unless a test wants something else. */
static struct page *make_exclusive(struct hg_svm *svm, unsigned long addr)
{
	int error = atomic_read(&svm->vm.hdev->fail_exclusive);

	if (!error)
		return hg_make_exclusive(svm->vm.mm, addr, svm);
	if (error == EOPNOTSUPP)
		atomic_set(&svm->vm.hdev->fail_exclusive, 0);
	return ERR_PTR(-error);
}

/* 0; -EBUSY: the address space changed meanwhile; other errors. */
static int map_page(struct hg_svm *svm, unsigned long addr)
{
	struct hg_device *hdev = svm->vm.hdev;
	struct hg_pt_cache none = {};
	unsigned long seq;
	struct page *page;
	int ret = 0;
	bool vram;

	hg_delay(exclusive_before_entry);
	seq = mmu_interval_read_begin(&svm->notifier);
	mmap_read_lock(svm->vm.mm);
	page = make_exclusive(svm, addr);
	vram = !IS_ERR(page) && hg_is_vram(hdev, page);
	if (vram) {
		unlock_page(page);
		put_page(page);
		/* if that fails, the address has just gone, and the mapping fails too */
		fixup_user_fault(svm->vm.mm, addr, FAULT_FLAG_WRITE, NULL);
	}
	mmap_read_unlock(svm->vm.mm);
	if (IS_ERR(page))
		return PTR_ERR(page);
	if (vram)
		return map_ordinary(svm, addr);
	hg_delay(exclusive_before_map);

	mutex_lock(&svm->vm.pt_lock);
	if (mmu_interval_read_retry(&svm->notifier, seq))
		ret = -EBUSY;
	else if (svm->vm.dead)
		ret = -ESRCH;
	if (!ret) {
		down_read(&hdev->hw_sem);
		ret = hg_mmu_map_atomic(&svm->vm, &none, addr, page);
		up_read(&hdev->hw_sem);
	}
	if (!ret)
		hg_inc(hdev, maps_exclusive);
	mutex_unlock(&svm->vm.pt_lock);
	/* from here on a CPU may revoke it */
	unlock_page(page);
	put_page(page);
	/* a table is missing: not held while one waits for the process, so added here */
	if (ret == -EAGAIN)
		ret = map_ordinary(svm, addr) ?: -EAGAIN;
	return ret;
}

/**
 * hg_svm_map_exclusive() - map pages for atomics of the GPU
 * @svm: mirror that uses exclusive access; its mm has users
 * @start: first address
 * @end: end
 *
 * Return: 0; -EBUSY: the address space changes too fast; -EPERM, -EFAULT: no
 * such access; -EOPNOTSUPP: only anonymous memory of small pages can be had so;
 * -EINTR, -ENOMEM, -ESRCH.
 */
int hg_svm_map_exclusive(struct hg_svm *svm, unsigned long start, unsigned long end)
{
	unsigned long addr;
	int ret = 0, tries;

	if (end > hg_bo_start())
		return -EFAULT;
	for (addr = start; addr < end && !ret; addr += PAGE_SIZE) {
		for (tries = 0; tries < HG_EXCLUSIVE_TRIES; tries++) {
			if (fatal_signal_pending(current)) {
				ret = -EINTR;
				break;
			}
			ret = tries ? fault_in(svm, addr) : 0;
			if (!ret)
				ret = map_page(svm, addr);
			if (ret != -EBUSY && ret != -EAGAIN)
				break;
			cond_resched();
		}
	}
	return ret == -EAGAIN ? -EBUSY : ret;
}

/**
 * hg_svm_ask_exclusive() - whether the kernel gives exclusive access
 * @svm: mirror; its mmap lock is held
 * @addr: page
 *
 * Return: 0: it does, or not for now; or why not: never -EOPNOTSUPP, for then the
 * ordinary way is open.
 */
int hg_svm_ask_exclusive(struct hg_svm *svm, unsigned long addr)
{
	struct page *page = make_exclusive(svm, addr);
	int ret = PTR_ERR_OR_ZERO(page);

	if (!ret) {
		unlock_page(page);
		put_page(page);
		/* nobody's: an ordinary one again, as it has to be in VRAM */
		fixup_user_fault(svm->vm.mm, addr, FAULT_FLAG_WRITE, NULL);
	}
	return ret == -EBUSY || ret == -EOPNOTSUPP || ret == -ENOMEM || ret == -EINTR ? 0 : ret;
}

/**
 * hg_svm_any_exclusive() - whether the GPU has exclusive access to a page
 * @svm: mirror
 * @start: first address
 * @end: end
 */
bool hg_svm_any_exclusive(struct hg_svm *svm, unsigned long start, unsigned long end)
{
	unsigned long addr = start;
	bool found = false;

	end = min(end, hg_bo_start());
	/* what is mapped may be much, and a notifier waits for the lock */
	while (addr < end && !found && !fatal_signal_pending(current)) {
		mutex_lock(&svm->vm.pt_lock);
		found = hg_pte_is_sys_atomic(hg_mmu_lookup(&svm->vm, addr));
		addr = hg_mmu_next(&svm->vm, addr);
		mutex_unlock(&svm->vm.pt_lock);
		cond_resched();
	}
	return found;
}
