// SPDX-License-Identifier: GPL-2.0
/*
 * From VRAM to system memory: when a CPU touches a page, and by eviction.
 *
 * A CPU fault brings the aligned neighbourhood of the page as well: most of its
 * cost is there once, not once a page.
 */
#include <linux/gfp.h>
#include <linux/hmm.h>
#include <linux/migrate.h>
#include <linux/sched.h>

#include "hmm_gpu.h"
#include "hmm_gpu_trace.h"

/**
 * hg_copy_to_system() - fill the destination of a migration from VRAM
 * @hdev: device
 * @vma: area for the memory policy, or NULL
 * @addr: address of the first page in @vma
 * @buf: its src is what migrate_vma_setup() left; dst is filled
 * @npages: entries
 * @must: index of a page that the caller needs, or ULONG_MAX
 *
 * Pages without memory to go to, or whose copy failed, get no destination and
 * so stay.
 *
 * Return: 0; -ENOMEM or -EIO if page @must is one of those.
 */
int hg_copy_to_system(struct hg_device *hdev, struct vm_area_struct *vma,
		      unsigned long addr, struct hg_migrate_buf *buf,
		      unsigned long npages, unsigned long must)
{
	unsigned long i, n = 0;
	int ret = 0;

	for (i = 0; i < npages; i++) {
		struct page *spage = migrate_pfn_to_page(buf->src[i]);
		struct hg_copy_op *op = &buf->ops[n];
		gfp_t gfp = GFP_HIGHUSER_MOVABLE;
		struct page *dpage;

		if (!spage || !(buf->src[i] & MIGRATE_PFN_MIGRATE))
			continue;
		/* only the page that is needed is worth an OOM kill */
		if (i != must && must != ULONG_MAX)
			gfp |= __GFP_NORETRY | __GFP_NOWARN;
		dpage = vma ? alloc_page_vma(gfp, vma, addr + (i << PAGE_SHIFT)) :
			      alloc_page(gfp | __GFP_NOWARN);
		if (!dpage) {
			if (i == must)
				ret = -ENOMEM;
			continue;
		}
		lock_page(dpage);
		op->vram = hg_page_vram(hdev, spage);
		op->sys = dpage;
		op->index = i;
		op->huge = false;
		n++;
	}
	hg_copy_pages(hdev, buf->ops, n, false);
	for (i = 0; i < n; i++) {
		struct hg_copy_op *op = &buf->ops[i];

		if (op->failed) {
			if (op->index == must)
				ret = -EIO;
			unlock_page(op->sys);
			put_page(op->sys);
			continue;
		}
		/*
		 * The GPU may have written it.  A page that was MADV_FREEd
		 * before it went to VRAM would be dropped if it came back clean.
		 */
		SetPageDirty(op->sys);
		buf->dst[op->index] = migrate_pfn(page_to_pfn(op->sys));
	}
	return ret;
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
	unsigned long base, index, i, moved = 0;
	struct hg_migrate_buf *buf;
	bool done;
	int ret;

	hg_inc(hdev, cpu_faults);
	hg_delay(to_ram_entry);
	if (hg_fault_page_contended(vmf->page)) {
		/* somebody moves it already; our reference is in the way */
		hg_inc(hdev, cpu_fault_retries);
		cond_resched();
		return 0;
	}
	buf = hg_migrate_buf_alloc(around);
	if (!buf)
		return VM_FAULT_OOM;
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
	for (i = 0; i < args.npages; i++)
		moved += !!(buf->src[i] & MIGRATE_PFN_MIGRATE);
	done = buf->src[index] & MIGRATE_PFN_MIGRATE;
	hg_delay(to_ram_before_finalize);
	migrate_vma_finalize(&args);
	hg_add(hdev, pages_to_system, moved);
	trace_hmm_gpu_cpu_fault(vmf->address, moved, done);
	/*
	 * Not done: somebody else migrates it, or has a reference for the
	 * moment.  The CPU finds out by faulting again, and not by trying here:
	 * our own reference is in their way.
	 */
	if (!done)
		hg_inc(hdev, cpu_fault_retries);
out:
	hg_migrate_buf_free(buf);
	if (ret == -ENOMEM)
		return VM_FAULT_OOM;
	return ret ? VM_FAULT_SIGBUS : 0;
}

/**
 * hg_evict_range() - move VRAM pages to system memory, whoever has them
 * @hdev: device
 * @pfn: first
 * @npages: at most HG_CHUNK_PAGES
 *
 * Return: pages moved.
 */
unsigned long hg_evict_range(struct hg_device *hdev, unsigned long pfn,
			     unsigned long npages)
{
	struct hg_migrate_buf *buf = hg_migrate_buf_alloc(npages);
	unsigned long i, moved = 0;

	if (!buf)
		return 0;
	migrate_device_range(buf->src, pfn, npages);
	hg_delay(evict_after_setup);
	hg_copy_to_system(hdev, NULL, 0, buf, npages, ULONG_MAX);
	migrate_device_pages(buf->src, buf->dst, npages);
	for (i = 0; i < npages; i++)
		moved += !!(buf->src[i] & MIGRATE_PFN_MIGRATE);
	migrate_device_finalize(buf->src, buf->dst, npages);
	hg_migrate_buf_free(buf);
	hg_add(hdev, pages_to_system, moved);
	return moved;
}
