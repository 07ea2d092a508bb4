/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hmm_gpu: everything the driver's files share.
 *
 * Lock order, outermost first:
 *
 *   hg_file.lock > mmap_lock (read) > folio locks > hg_ctx.submit_lock
 *     > hg_device.bo_lock > hg_svm.pt_lock > hg_device.hw_sem (read) > hg_device.inval_lock,
 *       hg_ce.lock > hg_device.ctx_lock > hg_ctx.lock > hg_job.lock
 *
 * pt_lock and everything to its right is taken from MMU notifiers, thus from
 * memory reclaim: nothing may allocate with __GFP_RECLAIM under them, and
 * nothing may be waited for under them that needs the fault worker.
 */
#ifndef HMM_GPU_H
#define HMM_GPU_H

#include <linux/bitmap.h>
#include <linux/completion.h>
#include <linux/dma-fence.h>
#include <linux/dmapool.h>
#include <linux/idr.h>
#include <linux/io.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <drm/drm_device.h>
#include <drm/drm_file.h>
#include <drm/drm_mm.h>

#include "compat.h"
#include "delay.h"
#include "hmm_gpu_hw.h"
#include "hmm_gpu_drm.h"

struct hg_ctx;
struct hg_svm;

/* ---- counters (stats.c) ---- */

/* Cumulative: only ever grow. */
#define HG_COUNTERS(X)			\
	X(fault_batches)		\
	X(faults)			\
	X(faults_duplicate)		\
	X(faults_stale)			\
	X(faults_thrashing)		\
	X(faults_served)		\
	X(fault_retries)		\
	X(fault_overflows)		\
	X(nonreplay_faults)		\
	X(replays)			\
	X(cancels)			\
	X(invalidations)		\
	X(invalidations_mapped)		\
	X(tlb_invalidates)		\
	X(maps)				\
	X(maps_huge)			\
	X(maps_exclusive)		\
	X(unmaps)			\
	X(pages_to_device)		\
	X(pages_to_device_failed)	\
	X(pages_to_system)		\
	X(pages_to_system_failed)	\
	X(cpu_faults)			\
	X(cpu_fault_retries)		\
	X(huge_to_device)		\
	X(huge_to_system)		\
	X(evictions)			\
	X(pages_evicted)		\
	X(copies)			\
	X(copy_bytes)			\
	X(copy_errors)			\
	X(jobs_submitted)		\
	X(jobs_done)			\
	X(jobs_failed)			\
	X(ctx_restarts)			\
	X(resets)			\
	X(device_errors)

/* Live: 0 when no file is open and no VRAM page is in use. */
#define HG_GAUGES(X)			\
	X(contexts)			\
	X(svms)				\
	X(asids)			\
	X(vram_pages)			\
	X(buffers)			\
	X(buffer_pages)			\
	X(pt_pages)			\
	X(jobs)				\
	X(sys_pages_held)		\
	X(mm_refs)

enum hg_counter {
#define X(n) HG_STAT_##n,
	HG_COUNTERS(X)
	HG_NUM_STATS,
#undef X
};

enum hg_gauge {
#define X(n) HG_LIVE_##n,
	HG_GAUGES(X)
	HG_NUM_LIVE,
#undef X
};

/* Also live, but of the module: see job.c. */
extern atomic_long_t hg_live_fences;

struct hg_stats {
	atomic64_t count[HG_NUM_STATS];
	atomic_long_t live[HG_NUM_LIVE];
};

/* ---- VRAM pages (vram.c) ---- */

#define HG_CHUNK_PAGES		512
#define HG_CHUNK_ORDER		9
#define HG_HUGE_SIZE		BIT(HG_HUGE_SHIFT)

/**
 * struct hg_chunk - 2 MiB of VRAM
 * @lru: in hg_vram.lru, oldest allocation first
 * @used: pages in use
 * @pinned: of these, pages of buffers
 * @map: bit set: page in use; a part of hg_vram.map
 * @left: bit set: what was in the page has moved to system memory, and only
 *	references that are about to go keep it; see hg_vram_leave()
 *
 * All fields under hg_vram.lock.
 */
struct hg_chunk {
	struct list_head lru;
	unsigned int used;
	unsigned int pinned;
	unsigned long *map;
	DECLARE_BITMAP(left, HG_CHUNK_PAGES);
};

/**
 * struct hg_vram - allocator of the device's pages
 * @lock: spinlock; taken under page-table locks (a page is freed when the last
 *	CPU entry goes away), so nothing is done under it but bookkeeping
 * @pagemap: the struct pages; frame of page p is (pfn(p) - base_pfn)
 * @res: physical address range of the pages: see get_range()
 * @base_pfn: first pfn of @res
 * @nr_chunks: number of @chunks
 * @chunks: array
 * @map: a bit a page; the device reads it too, for its checks alone
 * @map_dma: bus address of @map, 0 while the device must not read it
 * @lru: chunks, least recently allocated from first
 * @used: pages in use
 * @pinned: of these, pages of buffers (bo.c): no struct page stands for them, and
 *	nothing evicts them
 * @limit: pages that may be in use; more of them stay until evicted
 * @evict_lock: one eviction at a time; outside of everything else
 * @closed: no allocation any more (the device goes away)
 * @ready: @pagemap is there
 */
struct hg_vram {
	spinlock_t lock;
	struct dev_pagemap pagemap;
	struct resource *res;
	unsigned long base_pfn;
	unsigned int nr_chunks;
	struct hg_chunk *chunks;
	unsigned long *map;
	dma_addr_t map_dma;
	struct list_head lru;
	unsigned long used;
	unsigned long pinned;
	unsigned long limit;
	struct mutex evict_lock;
	bool closed;
	bool ready;
};

/* ---- kernel copies (ce.c) ---- */

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
 */
struct hg_ce_slot {
	struct hg_ce_entry *list;
	dma_addr_t list_dma;
	unsigned int n;
	unsigned int index;
};

/**
 * struct hg_ce - the kernel's own context 0
 * @lock: mutex: ring, put, next
 * @mem: coherent: ring, then one report a slot, then the fence word
 * @dma: bus address of @mem
 * @put: ring index
 * @next: last fence value given
 * @restarts: times the context was restarted; lists from before are lost
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

/* ---- faults (fault.c) ---- */

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
	bool stays;		/* not to be moved: see leave_thrashing() */
};

/**
 * struct hg_fault_unit - the replayable ring and its worker
 * @work: drains the ring; ordered queue, so the fields below have one user if
 *	nothing else is said
 * @wq: its queue
 * @ring: coherent memory the device writes
 * @nrring: same, non-replayable
 * @get, @nrget: software's index
 * @taken: entries taken out of the ring since the start, or lost with a reset
 * @lock: @get and @taken, of which others read the sum
 * @replayed: number of the first entry that was not in the ring at the last replay
 * @batch: HG_FAULT_BATCH_MAX entries
 * @want, @pfns: a window's requests and answers
 * @batches: since the start
 * @moved: hash of the pages that a fault has moved while VRAM was short, in the
 *	last up to HG_THRASH_BATCHES batches
 */
struct hg_fault_unit {
	struct work_struct work;
	struct workqueue_struct *wq;
	__le32 *ring;
	dma_addr_t ring_dma;
	__le32 *nrring;
	dma_addr_t nrring_dma;
	u32 get;
	u32 nrget;
	u64 taken;
	spinlock_t lock;
	u64 replayed;
	struct hg_fault *batch;
	unsigned long *want;
	unsigned long *pfns;
	unsigned int batches;
	DECLARE_BITMAP(moved, 1 << HG_THRASH_BITS);
};

/* ---- /dev/hmm_dmirrorN (dmirror.c) ---- */

/**
 * struct hg_dmirror_node - the device node of the kernel's HMM tests
 * @misc: it; registered while @id is positive
 * @id: N + 1, or 0: there is no node
 * @name: of the node
 */
struct hg_dmirror_node {
	struct miscdevice misc;
	int id;
	char name[24];
};

/* ---- the device ---- */

#define HG_HOMING_BITS		8

/**
 * struct hg_device - one GPU
 * @drm: lives as long as an open file or a VRAM page needs it
 * @hw_sem: read: the registers may be used if @hw_live; write: reset, removal.
 *	Taken inside pt_lock, so nothing under it may allocate or fault
 * @hw_live: the device answers; cleared at removal and when it stops answering
 * @coherent: VRAM is memory of the CPU too: its pages are device-coherent instead
 *	of device-private
 * @in_reset: between the two callbacks of a PCI reset, @hw_sem held for writing
 * @stopping: no new work: the device is being unbound
 * @inval_lock: the invalidation registers and @inval_seq
 * @inval_seq: number of the last invalidation given
 * @svms: by ASID; the fault worker's way from a fault entry to the mirror.
 *	Entries change under its own lock together with hg_svm.ref
 * @bo_lock: @bos, hg_svm.bo_va
 * @bos: buffers that have VRAM
 * @ctx_lock: hard-irq safe; @ctxs
 * @ctxs: by hardware context number; the interrupt handler walks it
 * @ctx_mem: contexts that have memory the device may use; removal waits for 0
 * @ctx_ida: hardware context numbers, 0 is the kernel's
 * @error_work: restarts halted contexts, drains the non-replayable ring
 * @wq: work of contexts, errors
 * @homing: bit locks, one for the folios of a hash value: held by the CPU fault
 *	that moves one home.  Only ever tried; nobody waits for one
 * @reaper: retries eviction of pages of a device that was removed
 */
struct hg_device {
	struct drm_device drm;
	struct pci_dev *pdev;
	void __iomem *regs;
	u64 vram_size;
	bool coherent;
	u32 sms, warps, ces;
	unsigned int num_ctxs, num_asids;

	struct rw_semaphore hw_sem;
	bool hw_live;
	bool in_reset;
	bool stopping;

	spinlock_t inval_lock;
	u64 inval_seq;

	struct xarray svms;
	struct dma_pool *pt_pool;

	struct mutex bo_lock;
	struct list_head bos;

	spinlock_t ctx_lock;
	struct hg_ctx *ctxs[HG_NUM_CTXS];
	atomic_t ctx_mem;
	struct ida ctx_ida;
	struct work_struct error_work;
	struct workqueue_struct *wq;
	DECLARE_BITMAP(homing, 1 << HG_HOMING_BITS);

	struct hg_ce ce;
	struct hg_fault_unit fault;
	struct hg_vram vram;
	struct hg_stats stats;
	struct delayed_work reaper;
	struct hg_dmirror_node dmirror;
};

#define to_hg(d)	container_of(d, struct hg_device, drm)

static inline void hg_count(struct hg_device *hdev, enum hg_counter c, s64 n)
{
	atomic64_add(n, &hdev->stats.count[c]);
}

static inline void hg_live(struct hg_device *hdev, enum hg_gauge g, long n)
{
	atomic_long_add(n, &hdev->stats.live[g]);
}

#define hg_inc(hdev, name)		hg_count(hdev, HG_STAT_##name, 1)
#define hg_add(hdev, name, n)		hg_count(hdev, HG_STAT_##name, n)
#define hg_live_add(hdev, name, n)	hg_live(hdev, HG_LIVE_##name, n)

/* ---- page tables (mmu.c) ---- */

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

/* ---- the mirror (svm.c) ---- */

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

/* One open file. */
struct hg_file {
	struct hg_svm *svm;
	struct mutex lock;		/* creation and removal in @ctxs */
	struct xarray ctxs;		/* by id; lookup takes a reference under its lock */
	atomic64_t engine_ns[2];	/* launches, copies */
};

/* hw.c */
int hg_hw_init(struct hg_device *hdev);
void hg_hw_program(struct hg_device *hdev);
int hg_irq_init(struct hg_device *hdev);
void hg_irq_fini(struct hg_device *hdev);
void hg_wedge(struct hg_device *hdev, const char *what);
void hg_tlb_invalidate(struct hg_device *hdev, u32 asid, unsigned long start,
		       unsigned long last, bool may_sleep);

static inline u32 hg_read(struct hg_device *hdev, u32 reg)
{
	return readl(hdev->regs + reg);
}

static inline void hg_write(struct hg_device *hdev, u32 reg, u32 v)
{
	writel(v, hdev->regs + reg);
}

static inline u64 hg_read64(struct hg_device *hdev, u32 reg)
{
	return readq(hdev->regs + reg);
}

static inline void hg_write64(struct hg_device *hdev, u32 reg, u64 v)
{
	writeq(v, hdev->regs + reg);
}

/* audit.c */
void hg_audit_hw_program(struct hg_device *hdev);
void hg_audit_program(struct hg_svm *svm);
void hg_audit_end(struct hg_svm *svm);
void hg_audit_not_physical(struct hg_svm *svm);

/* mmu.c */
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

/* svm.c */
struct hg_svm *hg_svm_create(struct hg_device *hdev);
void hg_svm_destroy(struct hg_svm *svm);
struct hg_svm *hg_svm_get(struct hg_device *hdev, u32 asid);
void hg_svm_put(struct hg_svm *svm);
int hg_range_fault(struct hg_svm *svm, struct hmm_range *range, unsigned long want);
int hg_svm_map_window(struct hg_svm *svm, unsigned long start, unsigned long end,
		      const unsigned long *want, unsigned long *pfns, bool atomic);

/* exclusive.c */
void hg_svm_use_exclusive(struct hg_svm *svm, bool on);
int hg_svm_map_exclusive(struct hg_svm *svm, unsigned long start, unsigned long end);
bool hg_svm_any_exclusive(struct hg_svm *svm, unsigned long start, unsigned long end);

/* Pages that one hg_svm_map_window() may cover: one level 0 table. */
#define HG_WINDOW_PAGES		HG_PT_ENTRIES

/* query.c */
int hg_query_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_snapshot_lock(struct hg_svm *svm, unsigned long start, unsigned long end,
		     unsigned long *pfns);
int hg_svm_count_device(struct hg_svm *svm, unsigned long start, unsigned long end,
			unsigned long *pfns, unsigned long *device);

/* copy.c */

/**
 * struct hg_copy_op - one piece to copy between system memory and VRAM
 * @vram: offset in VRAM
 * @sys: system page; NULL: clear the VRAM piece
 * @dma: bus address of @sys during the copy
 * @index: for the caller
 * @huge: 2 MiB instead of one page
 * @failed: out: the data did not arrive
 */
struct hg_copy_op {
	u64 vram;
	struct page *sys;
	dma_addr_t dma;
	u32 index;
	bool huge;
	bool failed;
};

/* What a migration of up to @max pages needs, in one allocation. */
struct hg_migrate_buf {
	unsigned long max;
	bool fail_huge;		/* no 2 MiB of system memory */
	unsigned long *src;
	unsigned long *dst;
	struct page **pages;
	struct hg_copy_op ops[];
};

struct hg_migrate_buf *hg_migrate_buf_alloc(unsigned long max);
unsigned long hg_migrate_buf_moved(const struct hg_migrate_buf *buf, unsigned long n,
				   unsigned long *huge);
void hg_migrate_buf_free(struct hg_migrate_buf *buf);
void hg_copy_pages(struct hg_device *hdev, struct hg_copy_op *ops, unsigned int n,
		   bool to_device);

/* migrate.c */
struct hg_migrate_result {
	unsigned long migrated;
	unsigned long failed;
};

bool hg_vma_may_migrate(struct vm_area_struct *vma);
int hg_migrate_chunk(struct hg_svm *svm, struct vm_area_struct *vma,
		     unsigned long start, unsigned long end, bool to_device,
		     struct hg_migrate_result *res);
int hg_migrate_range(struct hg_svm *svm, unsigned long start, unsigned long end,
		     bool to_device, bool map, struct hg_migrate_result *res);
int hg_migrate_ioctl(struct drm_device *drm, void *data, struct drm_file *file);

/* to_ram.c */
vm_fault_t hg_migrate_to_ram(struct vm_fault *vmf);
int hg_copy_to_system(struct hg_device *hdev, struct vm_area_struct *vma,
		      unsigned long addr, struct hg_migrate_buf *buf,
		      unsigned long npages, unsigned long must);
unsigned long hg_evict_range(struct hg_device *hdev, unsigned long pfn,
			     unsigned long npages);

/* vram.c */
int hg_vram_init(struct hg_device *hdev);
unsigned long hg_vram_stop(struct hg_device *hdev);
void hg_vram_restart(struct hg_device *hdev);
void hg_vram_program(struct hg_device *hdev);
void hg_vram_hide(struct hg_device *hdev);
void hg_vram_fini(struct hg_device *hdev);
unsigned long hg_vram_alloc(struct hg_device *hdev, unsigned long n, struct page **pages);
struct page *hg_vram_alloc_huge(struct hg_device *hdev);
void hg_vram_reserve(struct hg_device *hdev, unsigned long n);
bool hg_vram_short(struct hg_device *hdev, unsigned long n);
unsigned long hg_vram_evict(struct hg_device *hdev, unsigned long n);
struct hg_migrate_buf;
void hg_vram_leave(struct hg_device *hdev, const struct hg_migrate_buf *buf, unsigned long n);
void hg_vram_skip_left(struct hg_device *hdev, struct hg_migrate_buf *buf, unsigned long n);
bool hg_vram_pin(struct hg_device *hdev, unsigned long n, u32 *frames);
void hg_vram_unpin(struct hg_device *hdev, unsigned long n, const u32 *frames);

/* bo.c */

/*
 * First address that is a buffer's if it is anything.  Nothing of the process is
 * mapped from here on: hg_mmu_zap() would not take it away.  Only on x86 is it
 * above all addresses that the kernel gives to who does not ask for more (LA57).
 */
static inline unsigned long hg_bo_start(void)
{
	return IS_ENABLED(CONFIG_X86_64) ? HMM_GPU_BO_START : HMM_GPU_BO_END;
}

int hg_bo_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void hg_bo_drop_all(struct hg_device *hdev);
unsigned long hg_bo_pages(struct hg_svm *svm);

/* A page of this device's VRAM; private ones of other devices are never seen. */
static inline bool hg_is_vram(struct hg_device *hdev, struct page *page)
{
	return is_device_private_page(page) ||
	       (is_device_coherent_page(page) && hg_page_pgmap(page)->owner == hdev);
}

/* What migrate_vma has to select to find such pages. */
static inline unsigned int hg_select_vram(struct hg_device *hdev)
{
	return hdev->coherent ? MIGRATE_VMA_SELECT_DEVICE_COHERENT :
				MIGRATE_VMA_SELECT_DEVICE_PRIVATE;
}

static inline u64 hg_page_vram(struct hg_device *hdev, struct page *page)
{
	return (u64)(page_to_pfn(page) - hdev->vram.base_pfn) << PAGE_SHIFT;
}

/* ce.c */
int hg_ce_init(struct hg_device *hdev);
void hg_ce_fini(struct hg_device *hdev);
void hg_ce_program(struct hg_device *hdev);
void hg_ce_irq(struct hg_device *hdev);
struct hg_ce_slot *hg_ce_get(struct hg_device *hdev);
void hg_ce_put(struct hg_device *hdev, struct hg_ce_slot *slot);
void hg_ce_add(struct hg_ce_slot *slot, u64 src, u64 dst, u64 bytes, u64 flags);
int hg_ce_run(struct hg_device *hdev, struct hg_ce_slot *slot);

/* fault.c */
int hg_fault_init(struct hg_device *hdev);
void hg_fault_fini(struct hg_device *hdev);
void hg_fault_program(struct hg_device *hdev);
u64 hg_fault_count(struct hg_device *hdev);
void hg_fault_kick(struct hg_device *hdev);
void hg_fault_drain_nonreplay(struct hg_device *hdev);

/* sched.c, job.c */
int hg_ctx_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_ctx_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_launch_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_copy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int hg_wait_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void hg_sched_irq(struct hg_device *hdev);
void hg_sched_error_work(struct work_struct *work);
void hg_sched_stop_all(struct hg_device *hdev, int error);
int hg_ctx_create(struct hg_file *hf, u32 timeslice, bool priv, u32 *ctx_id);
int hg_ctx_destroy(struct hg_file *hf, u32 ctx_id);
void hg_ctx_destroy_all(struct hg_file *hf);
int hg_job_copy(struct hg_file *hf, u32 ctx_id, u64 src, u64 dst, u64 len, u64 flags);

/* drv.c */
struct hg_file *hg_file_create(struct hg_device *hdev);
void hg_file_destroy(struct hg_file *hf);
int hg_check_mm(struct hg_file *hf);
extern unsigned int hg_fault_batch;
extern unsigned int hg_faultaround_pages;
bool hg_use_thp(void);

/* dmirror.c */
void hg_dmirror_add(struct hg_device *hdev);
void hg_dmirror_remove(struct hg_device *hdev);

/* stats.c */
extern const char *const hg_counter_names[HG_NUM_STATS];
extern const char *const hg_gauge_names[HG_NUM_LIVE];
extern const char *const hg_device_counter_names[HG_NUM_COUNTERS];
void hg_show_fdinfo(struct drm_printer *p, struct drm_file *file);

/* debugfs.c */
void hg_debugfs_init(struct drm_minor *minor);

#endif
