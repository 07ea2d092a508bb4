// SPDX-License-Identifier: GPL-2.0
/*
 * GPU page tables.
 *
 * They live in system memory.  The device may walk them at any time; it reads
 * an entry with one 64-bit load.  An entry goes from 0 to valid without further
 * ado (TLBs do not hold what is not there).  An entry that was valid is cleared
 * in three steps: write 0; invalidate the TLBs and wait; give the page back.
 * struct hg_gather holds what waits for the third step.
 *
 * A leaf of 64 KiB is written where nothing was, and goes as a whole: a walk reads one
 * of its 16 entries alone, and any that is left would bring back what was invalidated.
 *
 * Everything here runs under hg_vm.pt_lock.
 */
#include <linux/backing-dev.h>
#include <linux/dma-mapping.h>
#include <linux/memcontrol.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "base/hmm_gpu_trace.h"
#include "base/regs.h"
#include "base/stats.h"
#include "hw/hw.h"
#include "mmu/audit.h"
#include "mmu/mmu.h"

/*
 * In hg_gather.dma, beside the address of a page.  A mapping is given back the
 * way it was made.
 */
#define HG_GATHER_HUGE	BIT(0)
#define HG_GATHER_WRITE	BIT(1)
#define HG_GATHER_BIG	BIT(2)

/*
 * A page of a process is never handed over to the device: the CPU goes on to use it,
 * and other address spaces may map it as well.  So there is no moment at which caches
 * could be brought in line, and the bus has to be coherent.
 */
#define HG_MIRROR_ATTRS	DMA_ATTR_SKIP_CPU_SYNC

/* A table is freed in a notifier that may not sleep: no vmap() of it behind an IOMMU. */
#define HG_TABLE_ATTRS	DMA_ATTR_FORCE_CONTIGUOUS

static enum dma_data_direction mirror_dir(bool write)
{
	return write ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
}

static unsigned int pt_index(unsigned long va, unsigned int level)
{
	return (va >> (HG_PAGE_SHIFT + 9 * level)) & (HG_PT_ENTRIES - 1);
}

/* bytes that a leaf maps */
static unsigned long leaf_size(u64 pte)
{
	return pte & HG_PTE_HUGE ? HG_HUGE_SIZE : pte & HG_PTE_BIG ? HG_BIG_SIZE : PAGE_SIZE;
}

/* bytes of address space that one entry of a level covers */
static unsigned long pt_span(unsigned int level)
{
	return 1UL << (HG_PAGE_SHIFT + 9 * level);
}

/* With whom to charge as the active memory cgroup; no pool: its pages have no owner. */
static struct hg_pt *pt_alloc(struct hg_device *hdev, unsigned int level)
{
	struct hg_pt *pt;

	pt = kzalloc(struct_size(pt, child, level ? HG_PT_ENTRIES : 0), GFP_KERNEL_ACCOUNT);
	if (!pt)
		return NULL;
	pt->cpu = dma_alloc_attrs(&hdev->pdev->dev, PAGE_SIZE, &pt->dma, GFP_KERNEL_ACCOUNT,
				  HG_TABLE_ATTRS);
	if (!pt->cpu) {
		kfree(pt);
		return NULL;
	}
	pt->level = level;
	hg_live_add(hdev, pt_pages, 1);
	return pt;
}

/*
 * A table that was linked is shown to the device before its page can be somebody
 * else's: a check knows whether a walk may still come by (docs/checks.md).  Under
 * hw_sem (read) then.
 */
static void pt_free(struct hg_device *hdev, struct hg_pt *pt)
{
	if (pt->linked) {
		lockdep_assert_held_read(&hdev->hw_sem);
		if (READ_ONCE(hdev->hw_live))
			hg_write64(hdev, HG_REG_TABLE_FREE, pt->dma);
	}
	dma_free_attrs(&hdev->pdev->dev, PAGE_SIZE, pt->cpu, pt->dma, HG_TABLE_ATTRS);
	kfree(pt);
	hg_live_add(hdev, pt_pages, -1);
}

/**
 * hg_pt_cache_fill() - have a table of each level ready
 * @vm: address space that they are for
 * @cache: zeroed by the caller before its first use
 *
 * The process pays, also when a worker serves its faults.
 *
 * Return: 0 or -ENOMEM.  Sleeps; not under pt_lock.
 */
int hg_pt_cache_fill(struct hg_vm *vm, struct hg_pt_cache *cache)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(vm->mm), *old = set_active_memcg(memcg);
	unsigned int level;
	int ret = 0;

	if (atomic_read(&vm->hdev->fail_tables) &&
	    atomic_dec_if_positive(&vm->hdev->fail_tables) >= 0)
		ret = -ENOMEM;
	for (level = 0; level < HG_PT_LEVELS - 1 && !ret; level++) {
		if (!cache->free[level])
			cache->free[level] = pt_alloc(vm->hdev, level);
		if (!cache->free[level])
			ret = -ENOMEM;
	}
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return ret;
}

void hg_pt_cache_drain(struct hg_device *hdev, struct hg_pt_cache *cache)
{
	unsigned int level;

	for (level = 0; level < HG_PT_LEVELS - 1; level++) {
		if (cache->free[level])
			pt_free(hdev, cache->free[level]);
		cache->free[level] = NULL;
	}
}

static void pt_write(struct hg_pt *pt, unsigned int i, u64 pte)
{
	WRITE_ONCE(pt->cpu[i], cpu_to_le64(pte));
}

static u64 pt_read(struct hg_pt *pt, unsigned int i)
{
	return le64_to_cpu(READ_ONCE(pt->cpu[i]));
}

/* The table of @level that covers @va, or NULL. */
static struct hg_pt *pt_find(struct hg_vm *vm, unsigned long va, unsigned int level)
{
	struct hg_pt *pt = vm->root;

	while (pt && pt->level > level)
		pt = pt->child[pt_index(va, pt->level)];
	return pt;
}

/* Same, adding tables from the cache; NULL: the cache does not have it. */
static struct hg_pt *pt_find_or_add(struct hg_vm *vm, struct hg_pt_cache *cache,
				    unsigned long va, unsigned int level)
{
	struct hg_pt *pt = vm->root;

	while (pt->level > level) {
		unsigned int i = pt_index(va, pt->level);
		struct hg_pt *next = pt->child[i];

		if (!next) {
			next = cache->free[pt->level - 1];
			if (!next)
				return NULL;
			cache->free[pt->level - 1] = NULL;
			pt->child[i] = next;
			pt->used++;
			next->linked = true;
			/* the zeroes of the table before the pointer to it */
			dma_wmb();
			pt_write(pt, i, next->dma | HG_PTE_VALID | HG_PTE_APER_SYS);
		}
		pt = next;
	}
	return pt;
}

/**
 * hg_mmu_lookup() - the leaf that maps an address
 * @vm: address space; its pt_lock is held
 * @va: address
 *
 * Return: the entry, with HG_PTE_HUGE for a 2 MiB leaf; of a 64 KiB leaf the one of this
 * page, with HG_PTE_BIG; 0: not mapped.
 */
u64 hg_mmu_lookup(struct hg_vm *vm, unsigned long va)
{
	struct hg_pt *pt;

	lockdep_assert_held(&vm->pt_lock);
	pt = pt_find(vm, va, 1);
	if (!pt)
		return 0;
	if (pt->child[pt_index(va, 1)])
		return pt_read(pt->child[pt_index(va, 1)], pt_index(va, 0));
	return pt_read(pt, pt_index(va, 1));
}

/**
 * hg_mmu_next() - where to look after an address
 * @vm: address space; its pt_lock is held
 * @va: address
 *
 * Return: the next page, or the end of the hole around @va that has no table.
 */
unsigned long hg_mmu_next(struct hg_vm *vm, unsigned long va)
{
	struct hg_pt *pt = vm->root;
	unsigned long span;

	lockdep_assert_held(&vm->pt_lock);
	while (pt && pt->level && pt->child[pt_index(va, pt->level)])
		pt = pt->child[pt_index(va, pt->level)];
	span = pt ? pt_span(pt->level) : pt_span(HG_PT_LEVELS);
	return (va | (span - 1)) + 1;
}

static void gather_range(struct hg_gather *g, unsigned long start, unsigned long last)
{
	if (!g->dirty) {
		g->start = start;
		g->last = last;
		g->dirty = true;
		return;
	}
	g->start = min(g->start, start);
	g->last = max(g->last, last);
}

static void gather_table(struct hg_gather *g, struct hg_pt *pt, unsigned long va)
{
	unsigned long span = pt_span(pt->level + 1);

	pt->next = g->tables;
	g->tables = pt;
	gather_range(g, va & ~(span - 1), va | (span - 1));
}

/**
 * hg_mmu_flush() - finish what was cleared
 * @vm: address space; pt_lock and hw_sem (read) are held
 * @may_sleep: false in a non-blockable notifier
 *
 * When it returns the device does not use the cleared entries any more.
 */
void hg_mmu_flush(struct hg_vm *vm, bool may_sleep)
{
	struct hg_device *hdev = vm->hdev;
	struct hg_gather *g = &vm->gather;
	unsigned long pages = 0;
	unsigned int i;

	lockdep_assert_held(&vm->pt_lock);
	if (!g->dirty)
		return;
	hg_tlb_invalidate(hdev, vm->asid, g->start, g->last, may_sleep);
	for (i = 0; i < g->n; i++) {
		size_t size = g->dma[i] & HG_GATHER_HUGE ? HG_HUGE_SIZE :
			      g->dma[i] & HG_GATHER_BIG ? HG_BIG_SIZE : PAGE_SIZE;

		dma_unmap_page_attrs(&hdev->pdev->dev, g->dma[i] & HG_PTE_FRAME_MASK, size,
				     mirror_dir(g->dma[i] & HG_GATHER_WRITE), HG_MIRROR_ATTRS);
		pages += size >> PAGE_SHIFT;
	}
	hg_live_add(hdev, sys_pages_held, -(long)pages);
	while (g->tables) {
		struct hg_pt *pt = g->tables;

		g->tables = pt->next;
		pt_free(hdev, pt);
	}
	g->n = 0;
	g->dirty = false;
}

/* Takes note of a leaf that was just cleared. */
static void gather_leaf(struct hg_vm *vm, u64 pte, unsigned long va, bool may_sleep)
{
	struct hg_gather *g = &vm->gather;
	unsigned long size = leaf_size(pte);

	va &= ~(size - 1);
	gather_range(g, va, va + size - 1);
	if ((pte & HG_PTE_APER_MASK) == HG_PTE_APER_SYS) {
		vm->gpu_sys -= size >> PAGE_SHIFT;
		g->dma[g->n++] = (pte & HG_PTE_FRAME_MASK & ~((u64)size - 1)) |
				 (pte & HG_PTE_HUGE ? HG_GATHER_HUGE : 0) |
				 (pte & HG_PTE_BIG ? HG_GATHER_BIG : 0) |
				 (pte & HG_PTE_WRITE ? HG_GATHER_WRITE : 0);
		if (g->n == HG_GATHER_MAX)
			hg_mmu_flush(vm, may_sleep);
	} else {
		vm->gpu_vram -= size >> PAGE_SHIFT;
	}
}

/* Clears the leaf that entry @i, which maps @va, is or is a part of; returns its bytes. */
static unsigned long clear_leaf(struct hg_vm *vm, struct hg_pt *pt, unsigned int i,
				unsigned long va, bool may_sleep)
{
	u64 pte = pt_read(pt, i);
	unsigned int n = pte & HG_PTE_BIG ? HG_BIG_PAGES : 1, k;

	for (k = 0; k < n; k++)
		pt_write(pt, (i & ~(n - 1)) + k, 0);
	pt->used -= n;
	gather_leaf(vm, pte, va, may_sleep);
	return leaf_size(pte);
}

struct zap {
	struct hg_vm *vm;
	unsigned long start, last;
	unsigned long cleared;
	bool free_tables;
	bool may_sleep;
};

/* Clears what overlaps [start, last] below @pt, which covers from @base. */
static void zap_table(struct zap *z, struct hg_pt *pt, unsigned long base)
{
	unsigned long span = pt_span(pt->level);
	unsigned long va = max(z->start, base);
	unsigned long end = min(z->last, base + (span << 9) - 1);
	unsigned int i = pt_index(va, pt->level);
	unsigned int to = pt_index(end, pt->level);

	for (; i <= to && pt->used; i++) {
		struct hg_pt *child = pt->level ? pt->child[i] : NULL;
		unsigned long at = base + i * span;

		if (child) {
			zap_table(z, child, at);
			if (z->free_tables && !child->used) {
				pt->child[i] = NULL;
				pt->used--;
				pt_write(pt, i, 0);
				gather_table(&z->vm->gather, child, at);
			}
			continue;
		}
		if (pt_read(pt, i))
			z->cleared += clear_leaf(z->vm, pt, i, at, z->may_sleep) >> PAGE_SHIFT;
	}
}

static bool zap_range(struct zap *z)
{
	struct hg_vm *vm = z->vm;

	lockdep_assert_held(&vm->pt_lock);
	if (z->start > z->last || !vm->root)
		return false;
	zap_table(z, vm->root, 0);
	if (z->cleared) {
		hg_add(vm->hdev, unmaps, z->cleared);
		trace_hmm_gpu_unmap(vm->asid, z->start, z->last, z->cleared);
	}
	return z->cleared;
}

/**
 * hg_mmu_zap() - clear all entries of a range and wait until none is in use
 * @vm: address space; pt_lock and hw_sem (read) are held
 * @start: first address
 * @last: last address
 * @free_tables: the address space is gone, give empty tables back too
 * @may_sleep: false in a non-blockable notifier
 *
 * A larger leaf that overlaps goes as a whole; the GPU faults again where it
 * still may.  Buffers are no memory of the process and stay, whatever the range:
 * clear_refs, for one, names all addresses.  The caller ends with hg_mmu_flush().
 *
 * Return: whether anything was mapped.
 */
bool hg_mmu_zap(struct hg_vm *vm, unsigned long start, unsigned long last,
		bool free_tables, bool may_sleep)
{
	struct zap z = {
		.vm = vm,
		.start = start,
		.last = min(last, hg_bo_start() - 1),
		.free_tables = free_tables,
		.may_sleep = may_sleep,
	};

	return zap_range(&z);
}

/**
 * hg_mmu_zap_buffer() - clear all entries of a buffer
 * @vm: address space; pt_lock and hw_sem (read) are held
 * @start: first address
 * @last: last address; no other buffer is in the 2 MiB of either
 *
 * The caller ends with hg_mmu_flush().
 */
void hg_mmu_zap_buffer(struct hg_vm *vm, unsigned long start, unsigned long last)
{
	struct zap z = {
		.vm = vm,
		.start = start,
		.last = last,
		.free_tables = true,
		.may_sleep = true,
	};

	zap_range(&z);
}

/*
 * A 2 MiB leaf may replace a level 0 table only if that is empty; then the
 * table is taken out, and freed after the invalidation.
 */
static bool make_room_for_huge(struct hg_vm *vm, struct hg_pt *pt, unsigned long va)
{
	unsigned int i = pt_index(va, 1);
	struct hg_pt *child = pt->child[i];

	if (!child)
		return true;
	if (child->used)
		return false;
	pt_write(pt, i, 0);
	pt->child[i] = NULL;
	pt->used--;
	gather_table(&vm->gather, child, va);
	hg_mmu_flush(vm, true);
	return true;
}

/*
 * What VRAM's leaves have: through the data cache, for no CPU reaches these pages, and the
 * kernel's copies flush.  System memory never is: CPU and GPU use a page at the same time.
 */
static u64 vram_bits(struct hg_device *hdev)
{
	return HG_PTE_APER_VRAM | (hdev->data_cache ? HG_PTE_CACHED : 0);
}

/*
 * The entry's value for @page; DMA-maps a system page.  0 on failure.
 * @atomic: permit atomics even if the address space needs exclusive access for them.
 */
static u64 make_pte(struct hg_vm *vm, struct page *page, size_t size, bool write,
		    bool atomic)
{
	struct hg_device *hdev = vm->hdev;
	u64 pte = HG_PTE_VALID;
	dma_addr_t dma;

	if (write)
		pte |= HG_PTE_WRITE | HG_PTE_ATOMIC;
	if (size == HG_HUGE_SIZE)
		pte |= HG_PTE_HUGE;
	if (size == HG_BIG_SIZE)
		pte |= HG_PTE_BIG;
	if (hg_is_vram(hdev, page)) {
		vm->gpu_vram += size >> PAGE_SHIFT;
		return pte | vram_bits(hdev) | hg_page_vram(hdev, page);
	}
	if (vm->exclusive && !atomic)
		pte &= ~HG_PTE_ATOMIC;
	dma = dma_map_page_attrs(&hdev->pdev->dev, page, 0, size, mirror_dir(write),
				 HG_MIRROR_ATTRS);
	if (dma_mapping_error(&hdev->pdev->dev, dma))
		return 0;
	if (dma & (size - 1) || dma & ~HG_PTE_FRAME_MASK) {
		dma_unmap_page_attrs(&hdev->pdev->dev, dma, size, mirror_dir(write),
				     HG_MIRROR_ATTRS);
		return 0;
	}
	if (dma != page_to_phys(page))
		hg_audit_not_physical(vm);
	vm->gpu_sys += size >> PAGE_SHIFT;
	hg_live_add(hdev, sys_pages_held, size >> PAGE_SHIFT);
	return pte | HG_PTE_APER_SYS | dma;
}

/*
 * The CPU may reach a page by a writable but clean entry (shared memory, or
 * MADV_FREE): reclaim would drop what the GPU writes there.  So a page becomes
 * dirty when it becomes writable for the GPU.  Not for file systems that track
 * dirty pages: there a writable CPU entry means that it is known, and cleaning
 * takes the CPU entry's write permission, and through the notifier ours.
 * The page cannot go away meanwhile: that needs an invalidation, hence pt_lock.
 */
static void mark_dirty(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (folio_test_dirty(folio) || folio_is_zone_device(folio))
		return;
	if (!folio_test_anon(folio)) {
		struct address_space *mapping = READ_ONCE(folio->mapping);

		if (!mapping || mapping_can_writeback(mapping))
			return;
	}
	folio_mark_dirty(folio);
}

/* Whether an entry gives all that is wanted. */
static bool enough(u64 pte, bool write, bool atomic)
{
	return (!write || pte & HG_PTE_WRITE) && (!atomic || pte & HG_PTE_ATOMIC);
}

static int map_leaf(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		    struct page *page, bool huge, bool write, bool atomic)
{
	struct hg_device *hdev = vm->hdev;
	unsigned int level = huge ? 1 : 0;
	struct hg_pt *pt;
	unsigned int i;
	u64 old, pte;

	lockdep_assert_held(&vm->pt_lock);
	if (!huge) {
		/* under a 2 MiB leaf the page is there, perhaps without write */
		struct hg_pt *l1 = pt_find(vm, va, 1);

		if (l1 && !l1->child[pt_index(va, 1)]) {
			old = pt_read(l1, pt_index(va, 1));
			if (old & HG_PTE_VALID) {
				if (enough(old, write, atomic))
					return 0;
				hg_mmu_zap(vm, va, va, false, true);
				hg_mmu_flush(vm, true);
			}
		}
	}
	pt = pt_find_or_add(vm, cache, va, level);
	if (!pt)
		return -EAGAIN;
	if (huge && !make_room_for_huge(vm, pt, va))
		return -E2BIG;
	i = pt_index(va, level);
	old = pt_read(pt, i);
	if (old) {
		/*
		 * Something else cannot be here: it would have been invalidated.
		 * So this only adds or keeps permissions.
		 */
		if (enough(old, write, atomic))
			return 0;
		clear_leaf(vm, pt, i, va, true);
		hg_mmu_flush(vm, true);
	}
	pte = make_pte(vm, page, huge ? HG_HUGE_SIZE : PAGE_SIZE, write, atomic);
	if (!pte)
		return huge ? -E2BIG : -ENOMEM;
	if (write)
		mark_dirty(page);
	pt->used++;
	pt_write(pt, i, pte);
	hg_inc(hdev, maps);
	if (huge)
		hg_inc(hdev, maps_huge);
	trace_hmm_gpu_map(vm->asid, va, pte);
	return 0;
}

/**
 * hg_mmu_map() - write one leaf
 * @vm: address space; pt_lock and hw_sem (read) are held
 * @cache: tables
 * @va: page or 2 MiB aligned address
 * @page: first page, of system memory, of this device's VRAM, or of the coherent
 *	VRAM of another, which is memory on the bus
 * @huge: 2 MiB
 * @write: also permits writes, and atomics except on system pages if the
 *	address space needs exclusive access for them
 *
 * Return: 0; -EAGAIN: @cache must be filled; -E2BIG: not possible as one 2 MiB
 * entry; -ENOMEM: the page cannot be DMA-mapped.
 */
int hg_mmu_map(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
	       struct page *page, bool huge, bool write)
{
	return map_leaf(vm, cache, va, page, huge, write, false);
}

/**
 * hg_mmu_map_big() - write a leaf of 64 KiB, where nothing is or one with fewer rights
 * @vm: address space; pt_lock and hw_sem (read) are held
 * @cache: tables
 * @va: 64 KiB aligned address
 * @page: the first of 16 pages, one after the other, of one folio or of this device's VRAM
 * @write: as for hg_mmu_map()
 *
 * Return: 0; -EAGAIN: @cache must be filled; -E2BIG: not possible as one entry.
 */
int hg_mmu_map_big(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		   struct page *page, bool write)
{
	struct hg_pt *pt = pt_find(vm, va, 1);
	unsigned int i = pt_index(va, 0), k;
	u64 old, pte;

	lockdep_assert_held(&vm->pt_lock);
	if (pt && !pt->child[pt_index(va, 1)] && pt_read(pt, pt_index(va, 1)))
		return -E2BIG;
	pt = pt_find_or_add(vm, cache, va, 0);
	if (!pt)
		return -EAGAIN;
	old = pt_read(pt, i);
	if (old & HG_PTE_BIG) {
		if (enough(old, write, false))
			return 0;
		clear_leaf(vm, pt, i, va, true);
		hg_mmu_flush(vm, true);
	}
	/* what was mapped page by page stays so */
	for (k = 0; k < HG_BIG_PAGES; k++) {
		if (pt_read(pt, i + k))
			return -E2BIG;
	}
	pte = make_pte(vm, page, HG_BIG_SIZE, write, false);
	if (!pte)
		return -E2BIG;
	for (k = 0; write && k < HG_BIG_PAGES; k++)
		mark_dirty(page + k);
	pt->used += HG_BIG_PAGES;
	for (k = 0; k < HG_BIG_PAGES; k++)
		pt_write(pt, i + k, pte + (k << PAGE_SHIFT));
	hg_inc(vm->hdev, maps);
	hg_inc(vm->hdev, maps_big);
	trace_hmm_gpu_map(vm->asid, va, pte);
	return 0;
}

/**
 * hg_mmu_map_atomic() - write the leaf of a page for atomics in any case
 * @vm: address space; pt_lock and hw_sem (read) are held
 * @cache: tables
 * @va: page aligned address
 * @page: page; with exclusive access it is locked, and the CPU's entry is its
 *	device-exclusive entry
 *
 * Return: 0; -EAGAIN: @cache must be filled; -ENOMEM.
 */
int hg_mmu_map_atomic(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		      struct page *page)
{
	return map_leaf(vm, cache, va, page, false, true, true);
}

/**
 * hg_mmu_map_buffer() - write one leaf of a buffer
 * @vm: address space; pt_lock is held
 * @cache: tables
 * @va: page or 2 MiB aligned address from HMM_GPU_BO_START on; nothing is mapped there
 * @vram: offset in VRAM, aligned likewise
 * @huge: 2 MiB
 *
 * Return: 0; -EAGAIN: @cache must be filled.
 */
int hg_mmu_map_buffer(struct hg_vm *vm, struct hg_pt_cache *cache, unsigned long va,
		      u64 vram, bool huge)
{
	unsigned int level = huge ? 1 : 0;
	u64 pte = HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC | vram_bits(vm->hdev) | vram;
	struct hg_pt *pt;

	lockdep_assert_held(&vm->pt_lock);
	pt = pt_find_or_add(vm, cache, va, level);
	if (!pt)
		return -EAGAIN;
	if (huge)
		pte |= HG_PTE_HUGE;
	vm->gpu_vram += pt_span(level) >> PAGE_SHIFT;
	pt->used++;
	pt_write(pt, pt_index(va, level), pte);
	hg_inc(vm->hdev, maps);
	if (huge)
		hg_inc(vm->hdev, maps_huge);
	trace_hmm_gpu_map(vm->asid, va, pte);
	return 0;
}

/**
 * hg_mmu_program() - tell the device about an address space; again is harmless
 * @vm: address space; hw_sem is held and the device is there
 */
void hg_mmu_program(struct hg_vm *vm)
{
	u32 reg = HG_REG_ASID + vm->asid * HG_ASID_STRIDE;

	if (!vm->root)
		return;
	hg_write(vm->hdev, reg + HG_ASID_CTRL, HG_ASID_MODE_REPLAY);
	hg_write64(vm->hdev, reg + HG_ASID_ROOT, vm->root->dma | HG_ROOT_ENABLE);
	hg_audit_program(vm);
}

/**
 * hg_mmu_init() - make the root table
 * @vm: address space, not yet visible to anybody; hg_mmu_enable() comes next
 *
 * Return: 0 or -errno.
 */
int hg_mmu_init(struct hg_vm *vm)
{
	struct hg_device *hdev = vm->hdev;

	vm->root = pt_alloc(hdev, HG_PT_LEVELS - 1);
	if (!vm->root)
		return -ENOMEM;
	vm->root->linked = true;
	return 0;
}

/**
 * hg_mmu_enable() - let the device use the address space
 * @vm: address space; who resets the device finds it already, and programs it anew
 */
void hg_mmu_enable(struct hg_vm *vm)
{
	struct hg_device *hdev = vm->hdev;

	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live))
		hg_mmu_program(vm);
	up_read(&hdev->hw_sem);
}

/**
 * hg_mmu_fini() - disable the address space, give all pages and tables back
 * @vm: address space
 *
 * Nothing can be mapped afterwards.  Again is harmless: both the removal of the
 * device and the close of the file end here.
 */
void hg_mmu_fini(struct hg_vm *vm)
{
	struct hg_device *hdev = vm->hdev;
	u32 reg = HG_REG_ASID + vm->asid * HG_ASID_STRIDE;

	mutex_lock(&vm->pt_lock);
	WRITE_ONCE(vm->dead, true);
	if (!vm->root) {
		mutex_unlock(&vm->pt_lock);
		return;
	}
	down_read(&hdev->hw_sem);
	hg_audit_end(vm);
	if (READ_ONCE(hdev->hw_live))
		hg_write64(hdev, reg + HG_ASID_ROOT, 0);
	hg_mmu_zap(vm, 0, ULONG_MAX, true, true);
	gather_range(&vm->gather, 0, ULONG_MAX);
	hg_mmu_flush(vm, true);
	pt_free(hdev, vm->root);
	vm->root = NULL;
	up_read(&hdev->hw_sem);
	mutex_unlock(&vm->pt_lock);
}
