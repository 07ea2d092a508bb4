/* SPDX-License-Identifier: GPL-2.0 */
/* The GPU's page tables. */
#ifndef HMM_GPU_MMU_MMU_H
#define HMM_GPU_MMU_MMU_H

#include <linux/mm.h>
#include <linux/mutex.h>

#include "base/compat.h"
#include "base/device.h"
#include "hmm_gpu_drm.h"

#define HG_HUGE_SIZE		BIT(HG_HUGE_SHIFT)

/* A leaf of 64 KiB is 16 entries of level 0, aligned, that all say so. */
#define HG_BIG_PAGES		16U
#define HG_BIG_SIZE		(HG_BIG_PAGES * PAGE_SIZE)

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
 * All fields of a linked table under hg_vm.pt_lock.  A table is freed only
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
 * In an address space with hg_vm.exclusive such an entry of small anonymous memory is
 * one of exclusive access: see mem/exclusive.c.
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
 * struct hg_vm - an address space of the GPU
 * @hdev: device
 * @mm: the process that it mirrors, for the audit, and for whom tables are charged;
 *	its owner holds it
 * @asid: number in the device
 * @pt_lock: everything below.  Whoever mirrors a process takes it in the MMU
 *	notifier's callback, thus in reclaim: no allocation under it
 * @root: level 3 table
 * @gather: see struct hg_gather
 * @dead: nothing may be mapped any more
 * @audit_over: the device must not look at the CPU's page table any more
 * @gpu_sys, @gpu_vram: pages mapped, for fdinfo
 * @exclusive: atomics on system pages need exclusive access; also read without lock
 *
 * All that page tables and TLBs know of a process.  What is mapped, and why it may
 * be, is the business of who calls: struct hg_svm here, or another.
 */
struct hg_vm {
	struct hg_device *hdev;
	struct mm_struct *mm;
	u32 asid;

	struct mutex pt_lock;
	struct hg_pt *root;
	struct hg_gather gather;
	bool dead;
	bool audit_over;
	unsigned long gpu_sys, gpu_vram;
	bool exclusive;
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

int hg_mmu_init(struct hg_vm *vm);
void hg_mmu_enable(struct hg_vm *vm);
void hg_mmu_fini(struct hg_vm *vm);
void hg_mmu_program(struct hg_vm *vm);
int hg_pt_cache_fill(struct hg_vm *vm, struct hg_pt_cache *cache);
void hg_pt_cache_drain(struct hg_device *hdev, struct hg_pt_cache *cache);
u64 hg_mmu_lookup(struct hg_vm *vm, unsigned long va);
unsigned long hg_mmu_next(struct hg_vm *vm, unsigned long va);
int hg_mmu_map(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
	       struct page *page, bool huge, bool write);
int hg_mmu_map_big(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		   struct page *page, bool write);
int hg_mmu_map_atomic(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		      struct page *page);
int hg_mmu_map_buffer(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		      u64 vram, bool huge);
bool hg_mmu_zap(struct hg_vm *vm, unsigned long start, unsigned long last,
		bool free_tables, bool may_sleep);
void hg_mmu_zap_buffer(struct hg_vm *vm, unsigned long start, unsigned long last);
void hg_mmu_flush(struct hg_vm *vm, bool may_sleep);

#endif
