/* SPDX-License-Identifier: GPL-2.0 */
/* The device. */
#ifndef HMM_GPU_BASE_DEVICE_H
#define HMM_GPU_BASE_DEVICE_H

#include <linux/bitmap.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <drm/drm_device.h>

#include "base/parts/ce.h"
#include "base/parts/dmirror.h"
#include "base/parts/fault.h"
#include "base/parts/stats.h"
#include "base/parts/vram.h"
#include "hmm_gpu_hw.h"

struct hg_ctx;
struct pci_dev;

#define HG_HOMING_BITS		8

/**
 * struct hg_device - one GPU
 * @drm: lives as long as an open file or a VRAM page needs it
 * @hw_sem: read: the registers may be used if @hw_live; write: reset, removal.
 *	Taken inside pt_lock, so nothing under it may allocate or fault
 * @hw_live: the device answers; false when it stopped to (hg_wedge()), in a reset and
 *	after the removal.  Set with @hw_sem held for writing
 * @reset_loses_vram: a reset of the function takes VRAM's content away
 * @data_cache: the GPU's accesses to VRAM go through a cache that the kernel's copies
 *	go past, and its stores to system memory are posted
 * @ce_faults: copies of jobs report what they miss to the non-replayable ring, and wait
 *	for an answer of their context's own
 * @big_pages: HG_PTE_BIG has a meaning
 * @audits_bus: the device's mirror audit knows where bus addresses lead to
 * @coherent: VRAM is memory of the CPU too: its pages are device-coherent instead
 *	of device-private
 * @in_reset: between the two callbacks of a PCI reset; changes with @hw_sem held for
 *	writing.  The device is stopped then, its TLBs are empty, and @hw_live is false
 * @reset_wait: who cannot go on without the device waits here until @in_reset ends
 * @users: read: a call of user space that the removal of the device waits for
 * @gone: no such call begins any more
 * @stopping: no new work: the device is being unbound
 * @inval_lock: the invalidation registers and @inval_seq
 * @inval_seq: number of the last invalidation given
 * @svms: by ASID; fault service's way from a fault entry to the mirror.
 *	Entries change under its own lock together with hg_svm.ref
 * @bo_lock: @bos, hg_svm.bo_va
 * @bos: buffers that have VRAM
 * @ctx_lock: hard-irq safe; @ctxs
 * @ctxs: by hardware context number; the interrupt handler walks it
 * @ctx_mem: contexts that have memory the device may use; removal waits for 0
 * @ctx_ida: hardware context numbers, 0 is the kernel's
 * @user_lock: @user_list and what is in it
 * @user_list: users who have files open
 * @out_lock: mutex: @outs, hg_job.out
 * @outs: jobs whose syncobj is to be told of their end, in the order of submission
 * @out_work: tells them
 * @error_work: restarts halted contexts, drains the non-replayable ring
 * @watch: looks again for what was lost on the way, if asked for: see hg_sched_watch()
 * @reap_work: after the removal: waits for the pages that could not leave VRAM
 * @wq: work of contexts, errors
 * @homing: bit locks, one for the folios of a hash value: held by the CPU fault
 *	that moves one home.  Only ever tried; nobody waits for one
 * @homing_fails: faults in a row that could not move a folio of that hash value home.
 *	Written without a lock where the kernel locks the fault's page: a lost count
 *	means a fault more until hg_drain_batches()
 * @fail_tables: so many times more there is no memory for page tables: for tests
 * @fail_exclusive: errno that exclusive access is refused with; EOPNOTSUPP once; likewise
 */
struct hg_device {
	struct drm_device drm;
	struct pci_dev *pdev;
	void __iomem *regs;
	u64 vram_size;
	bool coherent;
	bool reset_loses_vram;
	bool data_cache;
	bool ce_faults;
	bool big_pages;
	bool audits_bus;
	u32 sms, warps, ces;
	unsigned int num_ctxs, num_asids;

	struct rw_semaphore hw_sem;
	bool hw_live;
	bool in_reset;
	wait_queue_head_t reset_wait;
	struct srcu_struct users;
	bool gone;
	bool stopping;

	spinlock_t inval_lock;
	u64 inval_seq;

	struct xarray svms;

	struct mutex bo_lock;
	struct list_head bos;

	spinlock_t ctx_lock;
	struct hg_ctx *ctxs[HG_NUM_CTXS];
	atomic_t ctx_mem;
	struct ida ctx_ida;
	struct mutex out_lock;
	struct list_head outs;
	struct work_struct out_work;
	spinlock_t user_lock;
	struct list_head user_list;
	struct work_struct error_work;
	struct delayed_work watch;
	struct delayed_work reap_work;
	struct workqueue_struct *wq;
	DECLARE_BITMAP(homing, 1 << HG_HOMING_BITS);
	u8 homing_fails[1 << HG_HOMING_BITS];

	struct hg_ce ce;
	struct hg_fault_unit fault;
	struct hg_fault_service service;
	struct hg_vram vram;
	struct hg_stats stats;
	atomic_t fail_tables;
	atomic_t fail_exclusive;
	struct hg_dmirror_node dmirror;
};

#define to_hg(d)	container_of(d, struct hg_device, drm)

/**
 * hg_enter() - a call of user space is at the device from here on
 * @hdev: device
 * @idx: out: for hg_exit()
 *
 * What drm_dev_enter() is for, but of this device alone: that one's readers are those
 * of all DRM devices, and our calls wait for programs, which nobody else should have
 * to wait for who unplugs another.  Who has entered waits for no memory of a process,
 * nor for its mmap lock: those may not come for as long as somebody likes.
 *
 * Return: false: the device is gone.
 */
static inline bool hg_enter(struct hg_device *hdev, int *idx)
{
	*idx = srcu_read_lock(&hdev->users);
	if (!READ_ONCE(hdev->gone))
		return true;
	srcu_read_unlock(&hdev->users, *idx);
	return false;
}

static inline void hg_exit(struct hg_device *hdev, int idx)
{
	srcu_read_unlock(&hdev->users, idx);
}

#endif
