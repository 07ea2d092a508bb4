// SPDX-License-Identifier: GPL-2.0
/*
 * Migration to VRAM, and back on request.
 *
 * Pages are moved, not mapped: mapping goes through hg_svm_map_window() as
 * everywhere.  An entry written between migrate_vma_pages() and
 * migrate_vma_finalize() would have to be protected against MADV_DONTNEED,
 * which needs the mmap lock only for reading and may drop a migration entry
 * after migrate_vma_setup() invalidated; no sequence number read after setup
 * can tell.
 */
#include <linux/highmem.h>
#include <linux/hmm.h>
#include <linux/migrate.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/stats.h"
#include "mem/copy.h"
#include "mem/drain.h"
#include "mem/evict.h"
#include "mem/map.h"
#include "mem/migrate.h"
#include "mem/snapshot.h"
#include "mem/to_ram.h"
#include "mem/vram.h"

static bool hg_thp = true;
module_param_named(thp, hg_thp, bool, 0644);
MODULE_PARM_DESC(thp, "migrate 2 MiB folios whole, where the kernel can");

/**
 * hg_use_thp() - whether 2 MiB folios are to move whole, and this kernel can
 */
bool hg_use_thp(void)
{
	return READ_ONCE(hg_thp) && hg_thp_migration_supported();
}

/* Pages that a passing reference kept from moving get so many tries. */
#define HG_MIGRATE_TRIES	4

static void drop_page(struct page *page)
{
	unlock_page(page);
	put_page(page);
}

/* What migrate_vma has to select to find such pages. */
static inline unsigned int hg_select_vram(struct hg_device *hdev)
{
	return hdev->coherent ? MIGRATE_VMA_SELECT_DEVICE_COHERENT :
				MIGRATE_VMA_SELECT_DEVICE_PRIVATE;
}

/*
 * Whether an entry that setup has unmapped, and whose page it has locked, may go to
 * VRAM.  Pages that KSM merged may not: the core (up to 7.3 at least) knows them there
 * only in part.  Unmerging passes over them, so that mremap() takes them to where the
 * reverse map does not find them and a migration's entries stay for ever; and a CPU
 * fault whose range has such a page twice never moves it.
 */
static bool may_go_to_vram(unsigned long src)
{
	struct page *page = migrate_pfn_to_page(src);

	return src & MIGRATE_PFN_MIGRATE && !(page && folio_test_ksm(page_folio(page)));
}

/*
 * VRAM pages for the pages that setup has unmapped, and their content.  @huge is
 * a free 2 MiB folio if compound pages were selected, else NULL; it is used up.
 */
static void fill_device_pages(struct hg_device *hdev, struct hg_migrate_buf *buf,
			      unsigned long n, struct page *huge)
{
	unsigned long i, wanted = 0, got, used = 0;

	if (huge && buf->src[0] & HG_PFN_COMPOUND) {
		buf->ops[0] = (struct hg_copy_op) {
			.vram = hg_page_vram(hdev, huge),
			.sys = migrate_pfn_to_page(buf->src[0]),
			.huge = true,
		};
		hg_delay(migrate_before_copy);
		hg_copy_pages(hdev, buf->ops, 1, true);
		hg_delay(migrate_after_copy);
		if (buf->ops[0].error)
			drop_page(huge);
		else
			buf->dst[0] = migrate_pfn(page_to_pfn(huge)) | HG_PFN_COMPOUND;
		return;
	}
	if (huge)
		drop_page(huge);

	for (i = 0; i < n; i++)
		wanted += may_go_to_vram(buf->src[i]);
	got = hg_vram_alloc(hdev, wanted, buf->pages);
	for (i = 0; i < n && used < got; i++) {
		struct hg_copy_op *op = &buf->ops[used];

		if (!may_go_to_vram(buf->src[i]))
			continue;
		op->vram = hg_page_vram(hdev, buf->pages[used]);
		op->sys = migrate_pfn_to_page(buf->src[i]);
		op->index = i;
		op->huge = false;
		used++;
	}

	hg_delay(migrate_before_copy);
	hg_copy_pages(hdev, buf->ops, used, true);
	hg_delay(migrate_after_copy);

	for (i = 0; i < used; i++) {
		/* nobody may ever see what an unfinished copy left in VRAM */
		if (buf->ops[i].error)
			drop_page(buf->pages[i]);
		else
			buf->dst[buf->ops[i].index] =
				migrate_pfn(page_to_pfn(buf->pages[i]));
	}
}

/**
 * hg_vma_may_migrate() - whether an area may have pages that can go to VRAM
 * @vma: area
 *
 * Only anonymous memory can, which a private file mapping has after a write.
 */
bool hg_vma_may_migrate(struct vm_area_struct *vma)
{
	return !is_vm_hugetlb_page(vma) && !(vma->vm_flags & (VM_SPECIAL | VM_SHARED)) &&
	       (vma_is_anonymous(vma) || vma->anon_vma);
}

/* Whether 2 MiB folios in the range may stay whole. */
static bool may_move_whole(struct vm_area_struct *vma, unsigned long start, unsigned long n)
{
	return hg_use_thp() && n == HG_CHUNK_PAGES &&
	       IS_ALIGNED(start, 1UL << HG_HUGE_SHIFT) && !(vma->vm_flags & VM_NOHUGEPAGE);
}

/**
 * hg_migrate_chunk() - move the pages of a range that can be moved
 * @svm: mirror
 * @vma: area that has the whole range; its mmap lock is held for reading
 * @start: first address
 * @end: end, at most HG_WINDOW_PAGES pages
 * @to_device: to VRAM, else to system memory
 * @res: migrated is increased by the pages moved; unreadable is set, never cleared
 *
 * Return: 0, also if nothing moved; -EINVAL: an area whose pages never move;
 * -ENOMEM.
 */
int hg_migrate_chunk(struct hg_svm *svm, struct vm_area_struct *vma,
		     unsigned long start, unsigned long end, bool to_device,
		     struct hg_migrate_result *res)
{
	unsigned long n = (end - start) >> PAGE_SHIFT, moved = 0, nhuge = 0;
	struct hg_device *hdev = svm->vm.hdev;
	struct hg_migrate_buf *buf;
	struct page *huge = NULL;
	struct migrate_vma args = {
		.vma = vma,
		.start = start,
		.end = end,
		.pgmap_owner = hdev,
		.flags = to_device ? MIGRATE_VMA_SELECT_SYSTEM : hg_select_vram(hdev),
	};
	int ret;

	if (to_device && !hg_vma_may_migrate(vma))
		return -EINVAL;
	buf = hg_migrate_buf_alloc(n, GFP_KERNEL | __GFP_RETRY_MAYFAIL);
	if (!buf)
		return -ENOMEM;
	args.src = buf->src;
	args.dst = buf->dst;
	if (!hdev->coherent && may_move_whole(vma, start, n)) {
		/*
		 * Towards VRAM only with a free 2 MiB at hand; without, the
		 * kernel splits the folio and its pages move one by one.
		 */
		if (xchg(&svm->fail_huge, false))
			buf->fail_huge = true;
		if (to_device && !buf->fail_huge)
			huge = hg_vram_alloc_huge(hdev);
		if (huge || !to_device)
			args.flags |= HG_SELECT_COMPOUND;
	}
	ret = migrate_vma_setup(&args);
	if (ret) {
		if (huge)
			drop_page(huge);
		goto out;
	}
	hg_delay(migrate_after_setup);
	if (args.cpages) {
		if (to_device)
			fill_device_pages(hdev, buf, args.npages, huge);
		else if (hg_copy_to_system(hdev, vma, start, buf, args.npages, ULONG_MAX) == -EIO)
			res->unreadable = true;
		migrate_vma_pages(&args);
		moved = hg_migrate_buf_moved(buf, args.npages, &nhuge);
		if (!to_device)
			hg_vram_leave(hdev, buf, args.npages);
		hg_delay(migrate_before_finalize);
	} else if (huge) {
		drop_page(huge);
	}
	migrate_vma_finalize(&args);
	if (to_device) {
		hg_add(hdev, pages_to_device, moved);
		hg_add(hdev, huge_to_device, nhuge);
		trace_hmm_gpu_to_device(svm->vm.asid, start, end, moved);
	} else {
		hg_add(hdev, pages_to_system, moved);
		hg_add(hdev, huge_to_system, nhuge);
		trace_hmm_gpu_to_system(svm->vm.asid, start, end, moved);
	}
	res->migrated += moved;
out:
	hg_migrate_buf_free(buf);
	return ret;
}

/*
 * Makes room for a range, before anything is locked: eviction may have to wait
 * for others.  Pages that are in VRAM already need none.
 */
static int reserve_for(struct hg_svm *svm, unsigned long start, unsigned long end,
		       unsigned long *pfns)
{
	unsigned long n = (end - start) >> PAGE_SHIFT, device;
	struct hg_device *hdev = svm->vm.hdev;
	int ret, idx;

	if (!hg_vram_short(hdev, n))
		return 0;
	ret = hg_svm_count_device(svm, start, end, pfns, &device);
	if (ret)
		return ret;
	if (!hg_enter(hdev, &idx))
		return -ENODEV;
	hg_vram_reserve(hdev, n - device);
	hg_exit(hdev, idx);
	return 0;
}

/*
 * Moves one chunk of the ioctl's range, with retries, and counts what is left.
 * @drained: hg_drain_batches() was called for this range.
 */
static int migrate_step(struct hg_svm *svm, unsigned long start, unsigned long *end,
			bool to_device, unsigned long *pfns,
			struct hg_migrate_result *res, bool *mapped, bool *drained)
{
	unsigned long limit = *end, before = res->migrated, n, device;
	struct hg_migrate_result now = {};
	struct vm_area_struct *vma;
	unsigned int tries;
	int ret, idx;

	for (tries = 0; ; tries++) {
		ret = to_device ? reserve_for(svm, start, limit, pfns) : 0;
		if (!ret)
			ret = mmap_read_lock_killable(svm->vm.mm);
		if (ret)
			return ret;
		vma = find_vma_intersection(svm->vm.mm, start, limit);
		if (!vma || vma->vm_start > start) {
			/* a hole: up to the next area */
			*end = vma ? vma->vm_start : limit;
			mmap_read_unlock(svm->vm.mm);
			if (to_device)
				res->failed += (*end - start) >> PAGE_SHIFT;
			return 0;
		}
		*mapped = true;
		*end = min(limit, vma->vm_end);
		n = (*end - start) >> PAGE_SHIFT;
		now.migrated = 0;
		ret = -ENODEV;
		/* with the lock: the removal does not wait for who waits for it */
		if (hg_enter(svm->vm.hdev, &idx)) {
			ret = hg_migrate_chunk(svm, vma, start, *end, to_device, &now);
			hg_exit(svm->vm.hdev, idx);
		}
		mmap_read_unlock(svm->vm.mm);
		if (ret == -EINVAL) {
			if (to_device)
				res->failed += n;
			return 0;
		}
		if (ret)
			return ret;
		/* what had to make room for its neighbours and moved again counts once */
		res->migrated = min(res->migrated + now.migrated, before + n);
		if (to_device && now.migrated == n)
			return 0;
		ret = hg_svm_count_device(svm, start, *end, pfns, &device);
		if (ret)
			return ret;
		if (device == (to_device ? n : 0))
			return 0;
		if (tries == HG_MIGRATE_TRIES || (tries > 1 && !now.migrated) ||
		    signal_pending(current))
			break;
		if (tries == 1 && !*drained) {
			hg_drain_batches(svm->vm.hdev);
			*drained = true;
		}
	}
	if (to_device) {
		res->failed += n - device;
		hg_add(svm->vm.hdev, pages_to_device_failed, n - device);
	} else {
		res->failed += device;
		hg_add(svm->vm.hdev, pages_to_system_failed, device);
	}
	return 0;
}

/**
 * hg_migrate_range() - move what can be moved
 * @svm: mirror of the caller's process
 * @start: first address
 * @end: end, at most TASK_SIZE
 * @to_device: to VRAM, else to system memory
 * @map: then map for the GPU what is there
 * @res: out: pages moved; pages that are not where they should be
 *
 * Return: 0, also if nothing moved; -EFAULT: nothing is mapped there; -EINTR,
 * -ENODEV, -ENOMEM, -EBUSY.
 */
int hg_migrate_range(struct hg_svm *svm, unsigned long start, unsigned long end,
		     bool to_device, bool map, struct hg_migrate_result *res)
{
	unsigned long addr, next, *pfns;
	bool mapped = false, drained = false;
	int ret = 0;

	if (to_device && READ_ONCE(svm->vm.hdev->stopping))
		return -ENODEV;
	pfns = kvmalloc_array(HG_WINDOW_PAGES, sizeof(*pfns), GFP_KERNEL);
	if (!pfns)
		return -ENOMEM;

	for (addr = start; addr < end; addr = next) {
		if (signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		next = min(end, ALIGN(addr + 1, HG_WINDOW_PAGES << PAGE_SHIFT));
		ret = migrate_step(svm, addr, &next, to_device, pfns, res, &mapped, &drained);
		if (ret)
			break;
		if (map) {
			hg_delay(migrate_before_map);
			/* best effort: what changes too fast the GPU faults in */
			ret = hg_svm_map_window(svm, addr, next, NULL, pfns, false);
			if (ret && ret != -EBUSY)
				break;
			ret = 0;
		}
		cond_resched();
	}
	kvfree(pfns);
	if (!ret && !mapped)
		ret = -EFAULT;
	return ret;
}
