/* SPDX-License-Identifier: GPL-2.0 */
/* The mirror of an address space. */
#ifndef HMM_GPU_MEM_SVM_H
#define HMM_GPU_MEM_SVM_H

#include <linux/mmu_notifier.h>
#include <linux/refcount.h>

#include <drm/drm_mm.h>

#include "mmu/mmu.h"

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
 * @fault_error, @fault_addr: why the last page was refused, and which; likewise
 * @starved: batches since @starved_since (jiffies) that there was not memory enough
 *	for; likewise
 * @starves: this is one; likewise
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
	int fault_error;
	u64 fault_addr;
	unsigned int starved;
	unsigned long starved_since;
	bool starves;
	struct hg_user *user;
	struct drm_mm bo_va;
};

struct hg_svm *hg_svm_create(struct hg_device *hdev);
void hg_svm_destroy(struct hg_svm *svm);
struct hg_svm *hg_svm_get(struct hg_device *hdev, u32 asid);
void hg_svm_put(struct hg_svm *svm);

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
	int error = READ_ONCE(svm->fault_error);

	return (error == -ENOMEM || error == -EIO) &&
	       READ_ONCE(svm->fault_addr) == (addr & PAGE_MASK) ? error : -EFAULT;
}

#endif
