// SPDX-License-Identifier: GPL-2.0
/*
 * From VRAM to system memory: the copies, and what a CPU does that touches a page.
 *
 * A CPU fault brings the aligned neighbourhood of the page as well: most of its
 * cost is there once, not once a page.
 */
#include <linux/bitops.h>
#include <linux/gfp.h>
#include <linux/hash.h>
#include <linux/hmm.h>
#include <linux/migrate.h>
#include <linux/module.h>
#include <linux/sched.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/stats.h"
#include "mem/copy.h"
#include "mem/drain.h"
#include "mem/to_ram.h"
#include "mem/vram.h"
#include "mmu/mmu.h"

static unsigned int hg_faultaround_pages = 32;
module_param_named(faultaround_pages, hg_faultaround_pages, uint, 0644);
MODULE_PARM_DESC(faultaround_pages,
		 "pages that one CPU fault brings back from VRAM (1..512, a power of two)");

static void add_op(struct hg_device *hdev, struct hg_migrate_buf *buf, unsigned long n,
		   struct page *spage, struct page *dpage, unsigned long index, bool huge)
{
	buf->ops[n] = (struct hg_copy_op) {
		.vram = hg_page_vram(hdev, spage),
		.sys = dpage,
		.index = index,
		.huge = huge,
	};
}

/*
 * A locked page.  One that a CPU touches (@must) is worth an OOM kill; to make room in
 * VRAM, or to move what somebody wants elsewhere (ULONG_MAX), only trying hard; what
 * lies around a CPU's page neither.
 */
static struct page *alloc_system_page(struct vm_area_struct *vma, unsigned long addr,
				      unsigned long index, unsigned long must)
{
	gfp_t gfp = GFP_HIGHUSER_MOVABLE;
	struct page *page;

	if (must == ULONG_MAX)
		gfp |= __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
	else if (index != must)
		gfp |= __GFP_NORETRY | __GFP_NOWARN;
	page = vma ? alloc_page_vma(gfp, vma, addr) : alloc_page(gfp | __GFP_NOWARN);
	if (page)
		lock_page(page);
	return page;
}

/* Whether the caller has to know of what became of pages from @index on. */
static bool is_needed(unsigned long must, unsigned long index, bool huge)
{
	return must == ULONG_MAX || must - index < (huge ? HG_CHUNK_PAGES : 1);
}

/**
 * hg_copy_to_system() - fill the destination of a migration from VRAM
 * @hdev: device
 * @vma: area for the memory policy, or NULL
 * @addr: address of the first page in @vma
 * @buf: its src is what migrate_vma_setup() left; dst is filled
 * @npages: entries
 * @must: index of a page that the caller needs, or ULONG_MAX: all alike
 *
 * Pages without memory to go to, or whose copy failed, get no destination and
 * so stay.
 *
 * Return: 0; -ENOMEM or -EIO if page @must is one of those; if all are alike, -EIO
 * for any whose content cannot be had.  No memory, also to map a page for the device,
 * is no word about the content: it is tried again.
 */
int hg_copy_to_system(struct hg_device *hdev, struct vm_area_struct *vma,
		      unsigned long addr, struct hg_migrate_buf *buf,
		      unsigned long npages, unsigned long must)
{
	unsigned long i, j, n = 0;
	int ret = 0;

	for (i = 0; i < npages; i++) {
		struct page *spage = migrate_pfn_to_page(buf->src[i]);
		unsigned long pieces = 1;
		struct folio *huge;

		if (!spage || !(buf->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		if (hg_vram_lost(hdev, spage, buf->src[i] & HG_PFN_COMPOUND ? HG_CHUNK_PAGES : 1)) {
			if (is_needed(must, i, buf->src[i] & HG_PFN_COMPOUND))
				ret = -EIO;
			continue;
		}
		if (buf->src[i] & HG_PFN_COMPOUND) {
			huge = buf->fail_huge ? NULL :
			       folio_alloc(GFP_TRANSHUGE | __GFP_NOWARN, HG_CHUNK_ORDER);
			if (huge) {
				folio_lock(huge);
				add_op(hdev, buf, n++, spage, folio_page(huge, 0), i, true);
				continue;
			}
			/*
			 * Page by page: the core splits the folio once it has
			 * small destinations, if it knows an area to split in.
			 */
			if (!vma)
				continue;
			pieces = HG_CHUNK_PAGES;
		}
		for (j = 0; j < pieces; j++) {
			struct page *dpage = alloc_system_page(vma, addr + ((i + j) << PAGE_SHIFT),
							       i + j, must);

			if (dpage)
				add_op(hdev, buf, n++, pfn_to_page(page_to_pfn(spage) + j),
				       dpage, i + j, false);
			else if (i + j == must)
				ret = -ENOMEM;
			else if (!j && pieces > 1)
				break;	/* no split without a first page */
		}
	}
	hg_copy_pages(hdev, buf->ops, n, false);
	for (i = 0; i < n; i++) {
		struct hg_copy_op *op = &buf->ops[i];

		if (op->error) {
			/* of many, that a content cannot be had is what to tell */
			if (is_needed(must, op->index, op->huge) && ret != -EIO)
				ret = op->error;
			unlock_page(op->sys);
			put_page(op->sys);
			continue;
		}
		/*
		 * The GPU may have written it.  A page that was MADV_FREEd
		 * before it went to VRAM would be dropped if it came back clean.
		 */
		folio_set_dirty(page_folio(op->sys));
		buf->dst[op->index] = migrate_pfn(page_to_pfn(op->sys)) |
				      (op->huge ? HG_PFN_COMPOUND : 0);
	}
	return ret;
}

/* So many CPU faults in a row in vain, and it is no passing reference that keeps a page. */
#define HG_HOMING_TRIES		8

static unsigned int homing_slot(struct page *page)
{
	return hash_long(page_to_pfn(&page_folio(page)->page), HG_HOMING_BITS);
}

/*
 * Of several CPUs that fault on one page, each has a reference that keeps the
 * others from moving it, and holds it as long as moving takes.  So one alone
 * may try; the others let go at once and fault again until it is done.  Two
 * folios with the same bit only make a fault come again.
 */
static bool start_homing(struct hg_device *hdev, struct page *page)
{
	if (HG_FAULT_PAGE_LOCKED)
		return true;
	/* locked: an eviction moves it, or a GPU's fault looks at it */
	return !folio_test_locked(page_folio(page)) &&
	       !test_and_set_bit_lock(homing_slot(page), hdev->homing);
}

static void end_homing(struct hg_device *hdev, struct page *page)
{
	if (!HG_FAULT_PAGE_LOCKED)
		clear_bit_unlock(homing_slot(page), hdev->homing);
}

/*
 * A fault that could not move its page.  Who else moves it, or has a reference for the
 * moment, is done some faults later; a batch for the LRU lists of a CPU that is idle
 * never is.
 */
static void not_homed(struct hg_device *hdev, struct page *page)
{
	u8 *fails = &hdev->homing_fails[homing_slot(page)];

	hg_inc(hdev, cpu_fault_retries);
	WRITE_ONCE(*fails, (READ_ONCE(*fails) + 1) % HG_HOMING_TRIES);
	if (!READ_ONCE(*fails))
		hg_drain_batches(hdev);
}

/**
 * hg_migrate_to_ram() - a CPU touches a page that is in VRAM
 * @vmf: the fault; mmap lock held for reading, a reference on the page
 *
 * Return: 0: look at the entry again; VM_FAULT_OOM; VM_FAULT_SIGBUS: the data
 * is lost.
 */
vm_fault_t hg_migrate_to_ram(struct vm_fault *vmf)
{
	struct hg_device *hdev = hg_page_pgmap(vmf->page)->owner;
	struct vm_area_struct *vma = vmf->vma;
	unsigned long around = roundup_pow_of_two(clamp(READ_ONCE(hg_faultaround_pages), 1U,
							(unsigned int)HG_WINDOW_PAGES));
	struct migrate_vma args = {
		.vma = vma,
		.pgmap_owner = hdev,
		.flags = MIGRATE_VMA_SELECT_DEVICE_PRIVATE,
		.fault_page = vmf->page,
	};
	unsigned long base, index, moved, nhuge;
	struct hg_migrate_buf *buf;
	bool done = false;
	int ret;

	hg_inc(hdev, cpu_faults);
	if (!start_homing(hdev, vmf->page)) {
		hg_inc(hdev, cpu_fault_retries);
		cond_resched();
		return 0;
	}
	hg_delay(to_ram_entry);
	if (folio_test_large(page_folio(vmf->page))) {
		/*
		 * Whole if the CPU has it mapped as a whole.  Else the page
		 * alone: the core splits the folio, and must not wait for the
		 * locks of others while it holds this one's.
		 */
		around = vmf->pte ? 1 : HG_CHUNK_PAGES;
		if (!vmf->pte)
			args.flags |= HG_SELECT_COMPOUND;
		/*
		 * After a split the fault's reference and lock are the first page's,
		 * and the kernel takes others for the fault's own page (7.3:
		 * migrate_vma_split_folio()), which MADV_DONTNEED may have freed by
		 * then.  Named as the fault's page, the first one keeps both.
		 */
		vmf->page = folio_page(page_folio(vmf->page), 0);
		args.fault_page = vmf->page;
	}
	buf = hg_migrate_buf_alloc(around, GFP_KERNEL);
	if (!buf) {
		ret = -ENOMEM;
		goto out_homing;
	}
	base = vmf->address & ~((around << PAGE_SHIFT) - 1);
	args.start = max(vma->vm_start, base);
	args.end = min(vma->vm_end, base + (around << PAGE_SHIFT));
	args.src = buf->src;
	args.dst = buf->dst;
	index = (vmf->address - args.start) >> PAGE_SHIFT;

	if (migrate_vma_setup(&args)) {
		ret = -EIO;
		goto out;
	}
	hg_delay(to_ram_after_setup);
	ret = hg_copy_to_system(hdev, vma, args.start, buf, args.npages, index);
	hg_delay(to_ram_after_copy);
	migrate_vma_pages(&args);
	moved = hg_migrate_buf_moved(buf, args.npages, &nhuge);
	hg_vram_leave(hdev, buf, args.npages);
	done = moved && (nhuge || buf->src[index] & MIGRATE_PFN_MIGRATE);
	hg_delay(to_ram_before_finalize);
	migrate_vma_finalize(&args);
	hg_add(hdev, pages_to_system, moved);
	hg_add(hdev, huge_to_system, nhuge);
	trace_hmm_gpu_cpu_fault(vmf->address, moved, done);
	/*
	 * Not done: somebody else migrates it, or has a reference for the
	 * moment.  The CPU finds out by faulting again, and not by trying here:
	 * our own reference is in their way.
	 */
	if (done)
		WRITE_ONCE(hdev->homing_fails[homing_slot(vmf->page)], 0);
	else
		not_homed(hdev, vmf->page);
out:
	hg_migrate_buf_free(buf);
out_homing:
	end_homing(hdev, vmf->page);
	/*
	 * Up to 6.14 only the fault's reference still keeps the page.  Without "done"
	 * the CPU comes again, and if all of them waited here none would get it.
	 */
	if (done)
		hg_delay(to_ram_moved);
	if (ret == -ENOMEM)
		return VM_FAULT_OOM;
	return ret ? VM_FAULT_SIGBUS : 0;
}
