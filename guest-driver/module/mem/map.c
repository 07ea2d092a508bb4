// SPDX-License-Identifier: GPL-2.0
/*
 * The one way by which pages of a process are mapped for the GPU: for a fault, for
 * a prefetch, after a migration.  Why it is correct stands at the top of svm.c.
 */
#include <linux/hmm.h>

#include "base/delay.h"
#include "base/stats.h"
#include "mem/map.h"
#include "mem/migrate.h"
#include "mem/vram.h"
#include "mmu/mmu.h"

/*
 * An address space that changes all the time may never be seen unchanged.  The
 * fault service gives up after so many tries; the replay makes the GPU ask
 * again, and others have their turn between.
 */
#define HG_MAP_TRIES	32

/* Writes the entry for one page of a window, as 2 MiB if the CPU has it so. */
static int map_one(struct hg_svm *svm, struct hg_pt_cache *cache, unsigned long va,
		   unsigned long pfn, bool atomic)
{
	struct page *page = hmm_pfn_to_page(pfn);
	bool write = pfn & HMM_PFN_WRITE;
	int ret;

	if (hmm_pfn_to_map_order(pfn) >= HG_CHUNK_ORDER) {
		unsigned long off = (va >> PAGE_SHIFT) & (HG_PT_ENTRIES - 1);
		struct page *head = pfn_to_page(page_to_pfn(page) - off);

		/*
		 * For a device-private PMD, hmm_range_fault() of 7.3 counts the
		 * frames from the start of the range instead of from the start
		 * of the PMD.  The folio is right in any case.
		 */
		if (is_device_private_page(page))
			head = folio_page(page_folio(page), 0);
		ret = atomic ? -E2BIG :
		      hg_mmu_map(&svm->vm, cache, va - (off << PAGE_SHIFT), head, true, write);
		if (ret != -E2BIG)
			return ret;
		page = pfn_to_page(page_to_pfn(head) + off);
	}
	/* not another page than the one that cannot become exclusive */
	if (atomic && write && !hg_may_be_exclusive(page))
		return hg_mmu_map_atomic(&svm->vm, cache, va, page);
	return hg_mmu_map(&svm->vm, cache, va, page, false, write);
}

/* The page is of the device, and only a CPU write fault can make it writable. */
static bool wants_cow(unsigned long want, unsigned long pfn)
{
	return want & HMM_PFN_REQ_WRITE && pfn & HMM_PFN_VALID && !(pfn & HMM_PFN_WRITE);
}

/*
 * Brings such pages to system memory: -EBUSY, look again; -EPERM; -EIO: what a CPU gets
 * SIGBUS for, the copy fails.  What only does not move now (somebody has a reference,
 * there is no memory) does the next time.
 */
static int window_break_cow(struct hg_svm *svm, unsigned long start,
			    const unsigned long *want, const unsigned long *pfns,
			    unsigned long n)
{
	unsigned long i;

	for (i = 0; i < n; i++) {
		struct hg_migrate_result res = {};
		unsigned long va = start + (i << PAGE_SHIFT);
		struct vm_area_struct *vma;

		if (!wants_cow(want[i], pfns[i]))
			continue;
		if (mmap_read_lock_killable(svm->vm.mm))
			return -EINTR;
		vma = vma_lookup(svm->vm.mm, va);
		if (vma && !(vma->vm_flags & VM_WRITE)) {
			mmap_read_unlock(svm->vm.mm);
			return -EPERM;
		}
		if (vma)
			hg_migrate_chunk(svm, vma, va, va + PAGE_SIZE, false, &res);
		mmap_read_unlock(svm->vm.mm);
		if (res.unreadable)
			return -EIO;
	}
	return -EBUSY;
}

/**
 * hg_range_fault() - hmm_range_fault() that is safe for hugetlb areas
 * @svm: mirror; its mmap lock is held
 * @range: as for hmm_range_fault(); of a hugetlb area within one of its pages
 * @want: what of HMM_PFN_REQ_* the range asks for
 *
 * For a huge page that has no page table yet hmm_range_fault() of 6.12 calls the
 * fault handler with the area's hugetlb lock held (hmm_vma_walk_hole() out of
 * walk_hugetlb_range(); 7.3 faults outside of the walk), and the handler takes it
 * again: for ever, if somebody who wants it for writing (MADV_DONTNEED) comes in
 * between.  So the page is faulted in before; its table stays as the area does.
 *
 * Return: as hmm_range_fault().
 */
int hg_range_fault(struct hg_svm *svm, struct hmm_range *range, unsigned long want)
{
	struct vm_area_struct *vma = vma_lookup(svm->vm.mm, range->start);
	bool write = want & HMM_PFN_REQ_WRITE;
	int ret = 0;

	if (vma && is_vm_hugetlb_page(vma) && want & HMM_PFN_REQ_FAULT &&
	    vma->vm_flags & (write ? VM_WRITE : VM_READ))
		ret = fixup_user_fault(svm->vm.mm, range->start,
				       FAULT_FLAG_REMOTE | (write ? FAULT_FLAG_WRITE : 0), NULL);
	if (ret)
		return ret == -ENOMEM ? ret : -EFAULT;
	return hmm_range_fault(range);
}

/*
 * How many pages are wanted of those that would be one leaf of 64 KiB with the page at @i;
 * 0, too, where not all of them are in @range.
 */
static unsigned int wanted_of_big(const struct hmm_range *range, const unsigned long *want,
				  unsigned long i)
{
	unsigned long n = (range->end - range->start) >> PAGE_SHIFT, k;
	unsigned long off = ((range->start >> PAGE_SHIFT) + i) % HG_BIG_PAGES;
	unsigned int wanted = 0;

	if (off > i || i - off + HG_BIG_PAGES > n)
		return 0;
	for (k = i - off; k < i - off + HG_BIG_PAGES; k++)
		wanted += !want || want[k];
	return wanted;
}

/*
 * Faults in what @want asks for and reads the CPU's entries, run by run.  A run
 * is a series of pages wanted in the same way: when hmm_range_fault() has to
 * fault a page, it faults all from there to the end of its range alike, and so
 * would touch pages that nobody asked for, or write to those only read.  (For a
 * huge page of hugetlbfs it looks at the first page's wish alone.)  What is wanted
 * in no way is only looked at, and that where a leaf of 64 KiB may take it along.
 * The mmap lock is held for reading.
 */
static int window_fault(struct hg_svm *svm, struct hmm_range *window, const unsigned long *want)
{
	unsigned long n = (window->end - window->start) >> PAGE_SHIFT, i, j;
	struct hmm_range run = *window;
	int ret = 0;

	if (!want)
		return hmm_range_fault(window);
	for (i = 0; i < n && !ret; i = j) {
		for (j = i + 1; j < n && want[j] == want[i]; j++)
			if (!want[i] &&
			    IS_ALIGNED(window->start + (j << PAGE_SHIFT), HG_BIG_SIZE))
				break;
		if (!want[i] && !(svm->vm.hdev->big_pages && wanted_of_big(window, want, i)))
			continue;
		run.start = window->start + (i << PAGE_SHIFT);
		run.end = window->start + (j << PAGE_SHIFT);
		run.hmm_pfns = window->hmm_pfns + i;
		ret = hg_range_fault(svm, &run, want[i]);
	}
	return ret;
}

/* A page of VRAM whose content a reset has taken away. */
static bool is_lost(struct hg_device *hdev, struct page *page)
{
	return hdev->reset_loses_vram && hg_is_vram(hdev, page) && hg_vram_lost(hdev, page, 1);
}

/*
 * Whether the pages from the one at @i on, of which one is wanted, are alike as one leaf is.
 * What would never fault for a leaf of system memory has none: a page that did not move
 * this time, whose neighbours are still to be asked.  And atomics with exclusive access
 * would take the leaf away again.
 */
static bool is_big(struct hg_svm *svm, const struct hmm_range *range,
		   const unsigned long *want, unsigned long i)
{
	struct hg_device *hdev = svm->vm.hdev;
	unsigned long va = range->start + (i << PAGE_SHIFT), k;
	const unsigned long *pfns = range->hmm_pfns + i;
	struct page *page = hmm_pfn_to_page(pfns[0]);
	unsigned int wanted = wanted_of_big(range, want, i);

	if (!IS_ALIGNED(va, HG_BIG_SIZE) || !wanted)
		return false;
	for (k = 0; k < HG_BIG_PAGES; k++) {
		if (!(pfns[k] & HMM_PFN_VALID) ||
		    pfns[k] & HMM_PFN_ERROR ||
		    (pfns[k] ^ pfns[0]) & HMM_PFN_WRITE ||
		    hmm_pfn_to_map_order(pfns[k]) >= HG_CHUNK_ORDER ||
		    hmm_pfn_to_page(pfns[k]) != page + k || is_lost(hdev, page + k))
			return false;
	}
	if (hg_is_vram(hdev, page))
		return hg_is_vram(hdev, page + k - 1) &&
		       IS_ALIGNED(hg_page_vram(hdev, page), HG_BIG_SIZE);
	if (svm->vm.exclusive ||
	    (wanted < HG_BIG_PAGES && READ_ONCE(svm->policy) == HMM_GPU_POLICY_MIGRATE))
		return false;
	return page_folio(page) == page_folio(page + k - 1) &&
	       IS_ALIGNED(page_to_pfn(page), HG_BIG_PAGES);
}

/*
 * Writes the entries.  pt_lock is held and the sequence stands still: without both
 * the pages may be gone already, and if they were a device's, their struct pages too.
 */
static int write_entries(struct hg_svm *svm, const struct hmm_range *range,
			 struct hg_pt_cache *cache, const unsigned long *want, bool atomic)
{
	unsigned long n = (range->end - range->start) >> PAGE_SHIFT, i;
	const unsigned long *pfns = range->hmm_pfns;
	struct hg_device *hdev = svm->vm.hdev;
	bool cow = false;
	int ret = 0;

	lockdep_assert_held(&svm->vm.pt_lock);
	for (i = 0; want && i < n; i++) {
		if (!wants_cow(want[i], pfns[i]))
			continue;
		/* nobody can bring it anywhere */
		if (is_lost(hdev, hmm_pfn_to_page(pfns[i])))
			return -EFAULT;
		if (!is_device_private_page(hmm_pfn_to_page(pfns[i])))
			return -EFAULT;
		cow = true;
	}
	if (cow)
		return -EREMOTE;
	down_read(&hdev->hw_sem);
	for (i = 0; i < n && !ret; i++) {
		if (!(pfns[i] & HMM_PFN_VALID) || pfns[i] & HMM_PFN_ERROR)
			continue;
		if (hdev->big_pages && !atomic && is_big(svm, range, want, i)) {
			ret = hg_mmu_map_big(&svm->vm, cache, range->start + (i << PAGE_SHIFT),
					     hmm_pfn_to_page(pfns[i]), pfns[i] & HMM_PFN_WRITE);
			if (!ret)
				i += HG_BIG_PAGES - 1;
			if (ret != -E2BIG)
				continue;
			ret = 0;
		}
		if (want && !want[i])
			continue;
		if (is_lost(hdev, hmm_pfn_to_page(pfns[i])))
			ret = -EFAULT;
		else
			ret = map_one(svm, cache, range->start + (i << PAGE_SHIFT), pfns[i],
				      atomic);
	}
	up_read(&hdev->hw_sem);
	return ret;
}

/**
 * hg_svm_is_device_private() - whether a page read from the CPU's table is
 * @svm: mirror
 * @range: of one page, as hmm_range_fault() left it
 *
 * Return: 1 or 0; -EBUSY: it is another one by now; -EIO: its content was lost.
 */
int hg_svm_is_device_private(struct hg_svm *svm, const struct hmm_range *range)
{
	int ret = -EBUSY;

	/* see write_entries() */
	mutex_lock(&svm->vm.pt_lock);
	/* a dead mirror's notifier may be gone, and its sequence stands still then */
	if (!svm->vm.dead && !mmu_interval_read_retry(&svm->notifier, range->notifier_seq)) {
		struct page *page = hmm_pfn_to_page(range->hmm_pfns[0]);

		ret = is_lost(svm->vm.hdev, page) ? -EIO : is_device_private_page(page);
	}
	mutex_unlock(&svm->vm.pt_lock);
	return ret;
}

/*
 * Writes what was read, if it is still so: 0; -EBUSY: it is not; -EREMOTE: a page
 * of the device has to become writable first; other errors.
 * Nothing here waits for a process, so that the removal of the device can wait for
 * the tables that are held meanwhile.
 */
static int window_write(struct hg_svm *svm, struct hmm_range *range,
			const unsigned long *want, bool atomic)
{
	struct hg_device *hdev = svm->vm.hdev;
	struct hg_pt_cache cache = {};
	int ret, idx;

	hg_delay(svm_after_range_fault);
	if (!hg_enter(hdev, &idx))
		return -ENODEV;
	do {
		mutex_lock(&svm->vm.pt_lock);
		if (mmu_interval_read_retry(&svm->notifier, range->notifier_seq)) {
			mutex_unlock(&svm->vm.pt_lock);
			ret = -EBUSY;
			break;
		}
		ret = svm->vm.dead ? -ESRCH : 0;
		if (!ret)
			ret = write_entries(svm, range, &cache, want, atomic);
		mutex_unlock(&svm->vm.pt_lock);
		/* a table is missing; each try adds one */
	} while (ret == -EAGAIN && !(ret = hg_pt_cache_fill(&svm->vm, &cache)));
	hg_pt_cache_drain(hdev, &cache);
	hg_exit(hdev, idx);
	return ret;
}

/**
 * hg_svm_map_window() - map pages for the GPU, faulting them in as wanted
 * @svm: mirror; the caller has a reference to its mm's users
 * @start: first address
 * @end: end, in the same 2 MiB as @start
 * @want: a page: HMM_PFN_REQ_FAULT, with HMM_PFN_REQ_WRITE too, or 0: not faulted in, but
 *	mapped in a leaf of 64 KiB with one that is; NULL: map all pages that are there,
 *	fault none
 * @pfns: room for as many
 * @atomic: pages that cannot become exclusive also for atomics where the mirror
 *	needs exclusive access for them
 *
 * Return: 0; -EBUSY: the address space changes too fast; -EFAULT, -EPERM: at
 * least one page cannot be had as wanted; -EIO: nor can its content; -ENOMEM;
 * -ESRCH: the mirror is dead; -ENODEV: so is the device; -EINTR: the caller is killed.
 */
int hg_svm_map_window(struct hg_svm *svm, unsigned long start, unsigned long end,
		      const unsigned long *want, unsigned long *pfns, bool atomic)
{
	unsigned long n = (end - start) >> PAGE_SHIFT;
	struct hg_device *hdev = svm->vm.hdev;
	struct hmm_range range = {
		.notifier = &svm->notifier,
		.start = start,
		.end = end,
		.hmm_pfns = pfns,
		.pfn_flags_mask = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE,
		.dev_private_owner = hdev,
	};
	int ret = -EBUSY, tries;

	if (end > hg_bo_start())
		return -EFAULT;
	for (tries = 0; tries < HG_MAP_TRIES && ret == -EBUSY; tries++) {
		if (tries)
			hg_inc(hdev, fault_retries);
		if (want)
			memcpy(pfns, want, n * sizeof(*pfns));
		else
			memset(pfns, 0, n * sizeof(*pfns));

		range.notifier_seq = mmu_interval_read_begin(&svm->notifier);
		ret = mmap_read_lock_killable(svm->vm.mm);
		if (ret)
			break;
		ret = window_fault(svm, &range, want);
		mmap_read_unlock(svm->vm.mm);
		if (ret)
			continue;
		ret = window_write(svm, &range, want, atomic);
		/*
		 * A device page is reported without write permission even if
		 * that was asked for: it is shared after fork(), say.  As system
		 * memory it takes the ordinary way.
		 */
		if (ret == -EREMOTE)
			ret = window_break_cow(svm, start, want, pfns, n);
	}
	return ret;
}
