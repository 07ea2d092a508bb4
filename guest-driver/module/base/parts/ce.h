/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's own context: what of it a device has.  The code: hw/ce.c. */
#ifndef HMM_GPU_BASE_PARTS_CE_H
#define HMM_GPU_BASE_PARTS_CE_H

#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/wait.h>

#define HG_CE_RING		64
#define HG_CE_SLOTS		8
#define HG_CE_LIST_MAX		1024

/* One entry of a COPY_LIST, as the device reads it. */
struct hg_ce_entry {
	__le64 src, dst, bytes, flags;
};

/**
 * struct hg_ce_slot - a copy list being built or executed
 * @list: HG_CE_LIST_MAX entries, coherent; owned by whoever holds the slot
 * @list_dma: bus address of @list
 * @n: entries filled
 * @index: number of the slot, and of its report
 * @at: ring index of the descriptor that runs the list, or -1; under hg_ce.lock
 * @bad: the context stopped at this very list; under hg_ce.lock
 */
struct hg_ce_slot {
	struct hg_ce_entry *list;
	dma_addr_t list_dma;
	unsigned int n;
	unsigned int index;
	int at;
	bool bad;
};

/**
 * struct hg_ce - the kernel's own context 0
 * @lock: mutex: ring, put, next
 * @mem: coherent: ring, then one report a slot, then the fence word
 * @dma: bus address of @mem
 * @put: ring index
 * @next: last fence value given
 * @restarts: times the context was restarted; lists from before that had not been
 *	done are lost, and whose it was that stopped it, hg_ce_slot.bad says
 * @slots: lists
 * @free_mask: slots nobody holds; changed atomically
 * @wait: for a slot, and for the fence interrupt
 * @ready: set up
 */
struct hg_ce {
	struct mutex lock;
	void *mem;
	dma_addr_t dma;
	u32 put;
	u64 next;
	unsigned int restarts;
	struct hg_ce_slot slots[HG_CE_SLOTS];
	unsigned long free_mask;
	wait_queue_head_t wait;
	bool ready;
};

#endif
