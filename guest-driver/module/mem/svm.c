// SPDX-License-Identifier: GPL-2.0
/*
 * The mirror of a process's address space.
 *
 * What makes it correct, in one place.  CPU entries are read by
 * hmm_range_fault() without any lock of ours.  Before, mmu_interval_read_begin()
 * gives a sequence number.  Every change of a CPU entry that takes something
 * away is announced to svm_invalidate(), which under pt_lock advances the
 * sequence, clears the GPU entries, and does not return before the device has
 * stopped to use them.  GPU entries are written under the same pt_lock, and
 * only if the sequence has not changed since the CPU entries were read.  So
 * either the writer sees the new sequence and starts again, or the
 * invalidation sees what was written and clears it.
 *
 * No event is ignored that takes something away, not even the driver's own
 * migrations: so a page is always out of the GPU's reach before it is copied.
 */
#include <linux/hmm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/stats.h"
#include "base/user.h"
#include "hw/fault_unit.h"
#include "mem/svm.h"
#include "mmu/audit.h"
#include "mmu/mmu.h"

static bool svm_invalidate(struct mmu_interval_notifier *ni,
			   const struct mmu_notifier_range *range,
			   unsigned long seq)
{
	struct hg_svm *svm = container_of(ni, struct hg_svm, notifier);
	struct hg_device *hdev = svm->vm.hdev;
	bool may_sleep = mmu_notifier_range_blockable(range);

	/* our own way to exclusive access: see exclusive.c */
	if (range->event == MMU_NOTIFY_EXCLUSIVE && range->owner == svm)
		return true;
	hg_delay_nosleep(svm_before_invalidate, may_sleep);
	if (may_sleep) {
		mutex_lock(&svm->vm.pt_lock);
		down_read(&hdev->hw_sem);
	} else {
		if (!mutex_trylock(&svm->vm.pt_lock))
			return false;
		if (!down_read_trylock(&hdev->hw_sem)) {
			mutex_unlock(&svm->vm.pt_lock);
			return false;
		}
	}
	mmu_interval_set_seq(ni, seq);
	if (range->event == MMU_NOTIFY_RELEASE)
		hg_audit_end(&svm->vm);
	hg_inc(hdev, invalidations);
	if (hg_mmu_zap(&svm->vm, range->start, range->end - 1,
		       range->event == MMU_NOTIFY_UNMAP || range->event == MMU_NOTIFY_RELEASE,
		       may_sleep)) {
		hg_inc(hdev, invalidations_mapped);
		trace_hmm_gpu_invalidate(svm->vm.asid, range->start, range->end, range->event);
		hg_delay_nosleep(svm_after_zap, may_sleep);
	}
	hg_mmu_flush(&svm->vm, may_sleep);
	up_read(&hdev->hw_sem);
	mutex_unlock(&svm->vm.pt_lock);
	return true;
}

/* A CPU wants back what is exclusively the GPU's.  (Since 6.15 it may be another change.) */
static bool revokes(struct hg_svm *svm, const struct mmu_notifier_range *range)
{
	return READ_ONCE(svm->vm.exclusive) && range->end - range->start == PAGE_SIZE &&
	       range->event == HG_NOTIFY_REVOKE && range->owner != svm;
}

/*
 * svm_invalidate() behind the delay points of what is rare: hg_svm_destroy() is
 * about to remove the notifier, which waits for us; a page's exclusive access ends.
 */
static bool svm_notify(struct mmu_interval_notifier *ni,
		       const struct mmu_notifier_range *range, unsigned long seq)
{
	struct hg_svm *svm = container_of(ni, struct hg_svm, notifier);
	bool may_sleep = mmu_notifier_range_blockable(range);

	if (READ_ONCE(svm->vm.dead))
		hg_delay_nosleep(svm_closing_invalidate, may_sleep);
	else if (revokes(svm, range))
		hg_delay_nosleep(exclusive_before_revoke, may_sleep);
	return svm_invalidate(ni, range, seq);
}

static const struct mmu_interval_notifier_ops svm_notifier_ops = {
	.invalidate = svm_notify,
};

/**
 * hg_svm_create() - mirror the calling process
 * @hdev: device
 *
 * Return: the mirror or ERR_PTR: -ENOSPC if the device has no address space
 * left, -ENOMEM, -EINTR.
 */
struct hg_svm *hg_svm_create(struct hg_device *hdev)
{
	struct hg_svm *svm;
	int ret;

	if (!current->mm)
		return ERR_PTR(-EINVAL);
	svm = kvzalloc(sizeof(*svm), GFP_KERNEL_ACCOUNT);
	if (!svm)
		return ERR_PTR(-ENOMEM);
	svm->vm.hdev = hdev;
	svm->vm.mm = current->mm;
	refcount_set(&svm->ref, 1);
	svm->starved_since = jiffies;
	mutex_init(&svm->vm.pt_lock);
	drm_mm_init(&svm->bo_va, HMM_GPU_BO_START, HMM_GPU_BO_END - HMM_GPU_BO_START);

	/* Reserve a number; nobody finds the mirror before it is complete. */
	ret = xa_alloc(&hdev->svms, &svm->vm.asid, XA_ZERO_ENTRY,
		       XA_LIMIT(1, hdev->num_asids - 1), GFP_KERNEL);
	if (ret) {
		if (ret == -EBUSY)
			ret = -ENOSPC;
		goto err_free;
	}
	ret = hg_mmu_init(&svm->vm);
	if (ret)
		goto err_asid;
	mmgrab(svm->vm.mm);
	ret = mmu_interval_notifier_insert(&svm->notifier, svm->vm.mm, 0, ULONG_MAX,
					   &svm_notifier_ops);
	if (ret)
		goto err_mm;
	hg_live_add(hdev, svms, 1);
	hg_live_add(hdev, asids, 1);
	hg_live_add(hdev, mm_refs, 1);
	svm->first_fault = hg_fault_count(hdev);
	xa_store(&hdev->svms, svm->vm.asid, svm, GFP_KERNEL);
	/* only now: a reset programs those that it finds */
	hg_mmu_enable(&svm->vm);
	return svm;

err_mm:
	mmdrop(svm->vm.mm);
	hg_mmu_fini(&svm->vm);
err_asid:
	xa_erase(&hdev->svms, svm->vm.asid);
err_free:
	kvfree(svm);
	return ERR_PTR(ret);
}

/**
 * hg_svm_get() - the mirror of an address space number
 * @hdev: device
 * @asid: number, from a fault entry and so not to be trusted
 *
 * Return: the mirror with a reference, or NULL.
 */
struct hg_svm *hg_svm_get(struct hg_device *hdev, u32 asid)
{
	struct hg_svm *svm;

	xa_lock(&hdev->svms);
	svm = xa_load(&hdev->svms, asid);
	if (svm)
		refcount_inc(&svm->ref);
	xa_unlock(&hdev->svms);
	return svm;
}

/* Nobody has the mirror any more, and nobody finds it. */
static void svm_free(struct hg_svm *svm)
{
	struct hg_device *hdev = svm->vm.hdev;
	u32 asid = svm->vm.asid;

	mmdrop(svm->vm.mm);
	hg_delay(release_before_asid_free);
	xa_erase(&hdev->svms, asid);
	hg_live_add(hdev, mm_refs, -1);
	hg_live_add(hdev, asids, -1);
	hg_live_add(hdev, svms, -1);
	drm_mm_takedown(&svm->bo_va);
	if (svm->user)
		hg_user_close(hdev, svm->user);
	kvfree(svm);
}

/**
 * hg_svm_put() - give a mirror back
 * @svm: mirror
 *
 * Sleeps.
 */
void hg_svm_put(struct hg_svm *svm)
{
	if (refcount_dec_and_test(&svm->ref))
		svm_free(svm);
}

/**
 * hg_svm_destroy() - end of the file that owned the mirror
 * @svm: mirror; no context uses it any more
 *
 * Fault service may have it, and sleep in a file system for as long as that likes:
 * it is not waited for, but finds a mirror that is dead and has no notifier.  The
 * number stays taken until it gives the mirror back.  Faults that came too late for
 * that are told by their place in the ring from those of the next owner: see
 * hg_fault_count().
 */
void hg_svm_destroy(struct hg_svm *svm)
{
	struct hg_device *hdev = svm->vm.hdev;

	/*
	 * No new mapping from here on ...  (First, so that the removal of the
	 * device either finds the mirror or finds its tables freed.)
	 */
	hg_mmu_fini(&svm->vm);
	/* ... no new user from here on ... */
	xa_cmpxchg(&hdev->svms, svm->vm.asid, svm, XA_ZERO_ENTRY, GFP_KERNEL);
	hg_delay(release_before_remove);
	/* ... and nobody to be told of anything: entries cannot be written any more */
	mmu_interval_notifier_remove(&svm->notifier);
	hg_svm_put(svm);
}
