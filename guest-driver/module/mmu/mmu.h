/* SPDX-License-Identifier: GPL-2.0 */
/* The GPU's page tables. */
#ifndef HMM_GPU_MMU_MMU_H
#define HMM_GPU_MMU_MMU_H

#include <linux/completion.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/refcount.h>

#include <drm/drm_mm.h>

#include "base/compat.h"
#include "base/device.h"
#include "hmm_gpu_drm.h"

#define HG_HUGE_SIZE		BIT(HG_HUGE_SHIFT)

/* Pages that one level 0 table maps: what is served, moved and mapped at a time. */
#define HG_WINDOW_PAGES		HG_PT_ENTRIES

/**
 * struct hg_pt - one table of 512 entries, in system memory
 * @cpu: the entries; the device reads each with one 64-bit load at any time,
 *	so each is written with one WRITE_ONCE()
 * @dma: bus address
 * @next: in a list of free or unlinked tables
 * @used: entries that are not 0
 * @level: 0 holds leaves
 * @linked: the device was told of it, by an entry that leads here or as a root
 * @child: level > 0: the software's pointers to the tables below
 *
 * All fields of a linked table under hg_svm.pt_lock.  A table is freed only
 * after an invalidation that covers it has completed.
 */
struct hg_pt {
	__le64 *cpu;
	dma_addr_t dma;
	struct hg_pt *next;
	unsigned int used;
	unsigned int level;
	bool linked;
	struct hg_pt *child[];
};

/**
 * hg_pte_is_sys_atomic() - whether atomics on a page of system memory are let through
 * @pte: a leaf entry, or 0
 *
 * In a mirror with hg_svm.exclusive such an entry of small anonymous memory is
 * one of exclusive access: see exclusive.c.
 */
static inline bool hg_pte_is_sys_atomic(u64 pte)
{
	return pte & HG_PTE_VALID && pte & HG_PTE_ATOMIC &&
	       (pte & HG_PTE_APER_MASK) == HG_PTE_APER_SYS;
}

/* Tables allocated before pt_lock is taken. */
struct hg_pt_cache {
	struct hg_pt *free[HG_PT_LEVELS - 1];	/* one of each level below the root */
};

#define HG_GATHER_MAX	512

/**
 * struct hg_gather - entries cleared but possibly still in a TLB
 * @start, @last: addresses covered
 * @n: entries in @dma
 * @dma: system pages to DMA-unmap when the invalidation is done, with HG_GATHER_*
 * @tables: tables to free then
 * @dirty: there is something to invalidate
 */
struct hg_gather {
	unsigned long start, last;
	unsigned int n;
	struct hg_pt *tables;
	bool dirty;
	dma_addr_t dma[HG_GATHER_MAX];
};

/**
 * struct hg_svm - mirror of one process's address space
 * @hdev: device
 * @mm: the process; held by mmgrab() so that the pointer stays valid; its
 *	users are taken by mmget_not_zero() for the time of each use
 * @notifier: covers the whole address space
 * @ref: users besides the file: the fault worker.  Taken under the lock of
 *	hg_device.svms
 * @idle: completed when @ref reaches 0
 * @asid: number in the device
 * @first_fault: entries of the ring from this number on are of this mirror, and
 *	not of an earlier one with the same @asid; set before anybody finds it
 * @policy: HMM_GPU_POLICY_*; read without lock, any value is right
 * @pt_lock: the page tables, @gather, @dead, @gpu_*.  The invalidation callback
 *	holds it while it advances the notifier's sequence and clears entries;
 *	whoever writes an entry holds it from the read_retry check to the last
 *	write.  So no entry can be written from data older than an invalidation.
 *	Taken in reclaim: no allocation under it
 * @root: level 3 table
 * @gather: see struct hg_gather
 * @dead: nothing may be mapped any more
 * @audit_over: the device must not look at the CPU's page table any more
 * @gpu_sys, @gpu_vram: pages mapped, for fdinfo
 * @exclusive: atomics on system pages need exclusive access; written under @pt_lock
 * @fail_huge: the next allocation of 2 MiB for a migration fails, once
 * @faults: pages asked for by faults; the fault worker alone writes it
 * @fault_error: why the last page was refused; likewise
 * @bo_va: which addresses above the process's are a buffer's; hg_device.bo_lock
 */
struct hg_svm {
	struct hg_device *hdev;
	struct mm_struct *mm;
	struct mmu_interval_notifier notifier;
	refcount_t ref;
	struct completion idle;
	u32 asid;
	u64 first_fault;
	u32 policy;

	struct mutex pt_lock;
	struct hg_pt *root;
	struct hg_gather gather;
	bool dead;
	bool audit_over;
	unsigned long gpu_sys, gpu_vram;
	bool exclusive;
	bool fail_huge;
	unsigned long faults;
	int fault_error;
	struct drm_mm bo_va;
};

/*
 * First address that is a buffer's if it is anything.  Nothing of the process is
 * mapped from here on: hg_mmu_zap() would not take it away.  Only on x86 is it
 * above all addresses that the kernel gives to who does not ask for more (LA57).
 */
static inline unsigned long hg_bo_start(void)
{
	return IS_ENABLED(CONFIG_X86_64) ? HMM_GPU_BO_START : HMM_GPU_BO_END;
}

/* A page of this device's VRAM; private ones of other devices are never seen. */
static inline bool hg_is_vram(struct hg_device *hdev, struct page *page)
{
	return is_device_private_page(page) ||
	       (is_device_coherent_page(page) && hg_page_pgmap(page)->owner == hdev);
}

static inline u64 hg_page_vram(struct hg_device *hdev, struct page *page)
{
	return (u64)(page_to_pfn(page) - hdev->vram.base_pfn) << PAGE_SHIFT;
}

int hg_mmu_init(struct hg_svm *svm);
void hg_mmu_fini(struct hg_svm *svm);
void hg_mmu_program(struct hg_svm *svm);
int hg_pt_cache_fill(struct hg_device *hdev, struct hg_pt_cache *cache);
void hg_pt_cache_drain(struct hg_device *hdev, struct hg_pt_cache *cache);
u64 hg_mmu_lookup(struct hg_svm *svm, unsigned long va);
int hg_mmu_map(struct hg_svm *svm, struct hg_pt_cache *cache, unsigned long va,
	       struct page *page, bool huge, bool write);
int hg_mmu_map_atomic(struct hg_svm *svm, struct hg_pt_cache *cache, unsigned long va,
		      struct page *page);
int hg_mmu_map_buffer(struct hg_svm *svm, struct hg_pt_cache *cache, unsigned long va,
		      u64 vram, bool huge);
bool hg_mmu_zap(struct hg_svm *svm, unsigned long start, unsigned long last,
		bool free_tables, bool may_sleep);
void hg_mmu_zap_buffer(struct hg_svm *svm, unsigned long start, unsigned long last);
void hg_mmu_flush(struct hg_svm *svm, bool may_sleep);

#endif
