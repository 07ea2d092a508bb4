/* SPDX-License-Identifier: GPL-2.0 */
/* Faults: what of them a device has.  The code: hw/fault_unit.c, mem/fault.c. */
#ifndef HMM_GPU_BASE_PARTS_FAULT_H
#define HMM_GPU_BASE_PARTS_FAULT_H

#include <linux/bitmap.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#define HG_FAULT_RING		4096
#define HG_FAULT_BATCH_MAX	1024
#define HG_THRASH_BATCHES	256
#define HG_THRASH_BITS		12

/* One page that the GPU wants, after sorting and deduplication. */
struct hg_fault {
	u64 addr;
	u64 num;		/* of the ring's entries: see hg_fault_count() */
	u32 asid;
	u8 access;		/* the strongest: HG_ACCESS_* */
	bool reader;		/* others only want to read */
	bool done;
	bool stays;		/* not to be moved: see leave_thrashing() of mem/fault.c */
};

/**
 * struct hg_fault_unit - the fault rings
 * @ring: coherent memory the device writes: the replayable faults
 * @nrring: same, non-replayable
 * @get, @nrget: software's index; one user each: the fault worker, the error work
 * @taken: entries taken out of the ring since the start, or lost with a reset
 * @lock: @get and @taken, of which others read the sum
 * @replayed: number of the first entry that was not in the ring at the last replay;
 *	of the fault worker alone
 */
struct hg_fault_unit {
	__le32 *ring;
	dma_addr_t ring_dma;
	__le32 *nrring;
	dma_addr_t nrring_dma;
	u32 get;
	u32 nrget;
	u64 taken;
	spinlock_t lock;
	u64 replayed;
};

/**
 * struct hg_fault_service - the worker that serves the replayable ring
 * @work: drains the ring; ordered queue, so the fields below have one user
 * @wq: its queue
 * @batch: HG_FAULT_BATCH_MAX entries
 * @want, @pfns: a window's requests and answers
 * @batches: since the start
 * @moved: hash of the pages that a fault has moved while VRAM was short, in the
 *	last up to HG_THRASH_BATCHES batches
 */
struct hg_fault_service {
	struct work_struct work;
	struct workqueue_struct *wq;
	struct hg_fault *batch;
	unsigned long *want;
	unsigned long *pfns;
	unsigned int batches;
	DECLARE_BITMAP(moved, 1 << HG_THRASH_BITS);
};

#endif
