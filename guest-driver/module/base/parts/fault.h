/* SPDX-License-Identifier: GPL-2.0 */
/* Faults: what of them a device has.  The code: hw/fault_unit.c, mem/fault.c. */
#ifndef HMM_GPU_BASE_PARTS_FAULT_H
#define HMM_GPU_BASE_PARTS_FAULT_H

#include <linux/bitmap.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "hmm_gpu_hw.h"

#define HG_FAULT_RING		4096
#define HG_FAULT_QUEUE		512
#define HG_THRASH_BATCHES	256
#define HG_THRASH_BITS		12

struct hg_device;

/* One page that the GPU wants, after sorting and deduplication. */
struct hg_fault {
	u64 addr;
	u64 num;		/* of its ring's entries: see hg_fault_count() */
	u16 asid;
	u8 ctx;
	u8 access;		/* the strongest: HG_ACCESS_* */
	u32 source, info;	/* for the trace */
	bool waits;		/* a copy's, of the non-replayable ring */
	bool reader;		/* others only want to read */
	bool done;
	bool stays;		/* not to be moved: see leave_thrashing() of mem/fault.c */
};

/**
 * struct hg_fault_unit - the fault rings
 * @ring: coherent memory the device writes: the replayable faults
 * @nrring: same, non-replayable
 * @get: software's index in @ring
 * @nrget: same for @nrring; written by the error work alone
 * @taken: entries taken out of the ring since the start, or lost with a reset
 * @nrtaken: same for @nrring; written by the error work alone
 * @replayed: number of the first entry that was not in the ring at the last replay
 * @owed: somebody may wait whose fault nobody has: entries were lost, or never
 *	written.  Until the next replay
 * @patient: entries before this number, and not valid yet, are given up at @until
 * @until: jiffies
 * @waiting: contexts whose copies have reported a fault since the last answer, a bit each
 * @ended: of each context the number of the first entry that is not of an ended job
 * @nrended: same for @nrring
 * @lock: hard-irq safe: all but the memory
 */
struct hg_fault_unit {
	__le32 *ring;
	dma_addr_t ring_dma;
	__le32 *nrring;
	dma_addr_t nrring_dma;
	u32 get;
	u32 nrget;
	u64 taken;
	u64 nrtaken;
	u64 replayed;
	bool owed;
	u64 patient;
	unsigned long until;
	u64 waiting;
	u64 ended[HG_NUM_CTXS];
	u64 nrended[HG_NUM_CTXS];
	spinlock_t lock;
};

/**
 * struct hg_fault_buf - memory to serve an address space's faults with
 * @queue: faults taken out of the ring, not yet looked at; hg_fault_service.lock.
 *	What follows has one user, the work
 * @batch: those that are served now
 * @want, @pfns: a window's requests and answers
 * @batches: since the start
 * @moved: hash of the pages that a fault has moved while VRAM was short, in the
 *	last up to HG_THRASH_BATCHES batches
 */
struct hg_fault_buf {
	struct hg_fault queue[HG_FAULT_QUEUE];
	struct hg_fault batch[HG_FAULT_QUEUE];
	unsigned long want[HG_PT_ENTRIES];
	unsigned long pfns[HG_PT_ENTRIES];
	unsigned int batches;
	DECLARE_BITMAP(moved, 1 << HG_THRASH_BITS);
};

/**
 * struct hg_fault_queue - faults of an address space number, and who serves them
 * @work: serves them; holds the device and the module from when it is queued
 * @hdev: device
 * @buf: from the number's first owner on; hg_fault_service.lock
 * @n: how many are in @buf->queue; likewise
 * @last: number after the newest that was put there or had no room; likewise
 */
struct hg_fault_queue {
	struct work_struct work;
	struct hg_device *hdev;
	struct hg_fault_buf *buf;
	unsigned int n;
	u64 last;
};

/**
 * struct hg_fault_service - who serves the replayable ring
 * @lock: hard-irq safe: the queues.  Taken under hg_fault_unit.lock
 * @queue: by address space number
 * @late: what the interrupt handler cannot do: waits for entries that are not valid
 *	yet, and sends the replay that is owed
 */
struct hg_fault_service {
	spinlock_t lock;
	struct hg_fault_queue *queue;
	struct delayed_work late;
};

#endif
