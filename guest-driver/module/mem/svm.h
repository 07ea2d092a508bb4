/* SPDX-License-Identifier: GPL-2.0 */
/* The mirror of an address space. */
#ifndef HMM_GPU_MEM_SVM_H
#define HMM_GPU_MEM_SVM_H

#include <linux/hash.h>
#include <linux/mmu_notifier.h>
#include <linux/refcount.h>

#include <drm/drm_mm.h>

#include "mmu/mmu.h"

/* A batch of faults, each of a page, is 256 entries. */
#define HG_REFUSED_BITS	8

/**
 * struct hg_svm - mirror of one process's address space
 * @vm: what the GPU has of it.  Its mm is held by mmgrab() so that the pointer stays
 *	valid; its users are taken by mmget_not_zero() for the time of each use.
 *	The invalidation callback holds vm.pt_lock while it advances the notifier's
 *	sequence and clears entries; whoever writes an entry holds it from the
 *	read_retry check to the last write.  So no entry can be written from data
 *	older than an invalidation
 * @notifier: covers the whole address space
 * @ref: the file, and who found it by its number: fault service, removal.  Taken
 *	under the lock of hg_device.svms.  The last one frees it, and the number
 * @first_fault: entries of the ring from this number on are of this mirror, and
 *	not of an earlier one with the same asid; set before anybody finds it
 * @policy: HMM_GPU_POLICY_*; read without lock, any value is right
 * @fail_huge: the next allocation of 2 MiB for a migration fails, once
 * @faults: pages asked for by faults; its fault service alone writes it
 * @refused: pages that were refused, each with the error in the bits below the page's, in
 *	a place by its hash; likewise, and whose job has ended reads it.  One word each: so
 *	whoever reads an entry has both of the same page.  Of two pages with the same place
 *	the later one has it, and a job that ended for the other one gets -EFAULT
 * @starved: batches since @starved_since (jiffies) that there was not memory enough
 *	for; likewise
 * @starves: this is one; likewise
 * @pauses: in this batch what a refusal stands on was somebody else's; likewise
 * @unheld: so often, one after the other, that was the mmap lock; likewise
 * @user: whose file it counts as until the last reference goes: a close while fault
 *	service has the mirror gives no number back
 * @bo_va: which addresses above the process's are a buffer's; hg_device.bo_lock
 */
struct hg_svm {
	struct hg_vm vm;
	struct mmu_interval_notifier notifier;
	refcount_t ref;
	u64 first_fault;
	u32 policy;
	bool fail_huge;
	unsigned long faults;
	u64 refused[1 << HG_REFUSED_BITS];
	unsigned int starved;
	unsigned long starved_since;
	bool starves;
	bool pauses;
	unsigned int unheld;
	struct hg_user *user;
	struct drm_mm bo_va;
};

struct hg_svm *hg_svm_create(struct hg_device *hdev);
void hg_svm_destroy(struct hg_svm *svm);
struct hg_svm *hg_svm_get(struct hg_device *hdev, u32 asid);
void hg_svm_put(struct hg_svm *svm);

/* Where the error of a page is. */
static inline u64 *hg_svm_refused_at(struct hg_svm *svm, u64 page)
{
	return &svm->refused[hash_64(page >> PAGE_SHIFT, HG_REFUSED_BITS)];
}

/**
 * hg_svm_refused() - why a page was refused the last time
 * @svm: mirror
 * @addr: an address in it
 *
 * Return: an error, or 0: it was not, or another page has its place since.
 */
static inline int hg_svm_refused(struct hg_svm *svm, u64 addr)
{
	u64 page = addr & PAGE_MASK, entry = READ_ONCE(*hg_svm_refused_at(svm, page));

	return (entry & PAGE_MASK) == page ? -(int)(entry & ~PAGE_MASK) : 0;
}

/**
 * hg_svm_fault_error() - what a job gets that ended with a fault
 * @svm: mirror
 * @addr: where
 *
 * Return: -EFAULT, or it may have the page, but there was no memory for it: -ENOMEM, or
 * its content could not be read from VRAM: -EIO.
 */
static inline int hg_svm_fault_error(struct hg_svm *svm, u64 addr)
{
	int error = hg_svm_refused(svm, addr);

	return error == -ENOMEM || error == -EIO ? error : -EFAULT;
}

#endif
