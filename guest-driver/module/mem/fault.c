// SPDX-License-Identifier: GPL-2.0
/*
 * Fault service.
 *
 * One worker: drain a batch of the ring, sort it, drop duplicates, serve it by
 * address space and 2 MiB window, and replay once.  What cannot be served is
 * cancelled, which ends the job that asked.  What could not be served now (the
 * address space changed all the time) is left alone: the replay brings it back.
 *
 * A cancel hits who waits.  An entry that was in the ring when the last replay was
 * sent is old: its access was sent again, waits no more and may fault a second
 * time, and a cancel for it may find nobody.  If another replay followed, it could
 * meet that second fault, whose entry then is old when its turn comes, and so on:
 * an access that is refused would go round for ever.  So a batch of old entries
 * alone is not followed by a replay; whoever still waits has a newer entry.
 *
 * The worker takes the mmap lock for reading and nothing that migrate_to_ram()
 * or an MMU notifier waits for.
 */
#include <linux/hash.h>
#include <linux/hmm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/stats.h"
#include "hw/fault_unit.h"
#include "mem/evict.h"
#include "mem/exclusive.h"
#include "mem/fault.h"
#include "mem/map.h"
#include "mem/migrate.h"
#include "mem/svm.h"
#include "mem/vram.h"

static unsigned int hg_fault_batch = 256;
module_param_named(fault_batch, hg_fault_batch, uint, 0644);
MODULE_PARM_DESC(fault_batch, "GPU faults served before a replay (1..1024)");

/* By address space, address, and strongest access first. */
static int cmp_fault(const void *a, const void *b)
{
	const struct hg_fault *x = a, *y = b;

	if (x->asid != y->asid)
		return x->asid < y->asid ? -1 : 1;
	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return (int)(y->access % HG_ACCESS_PREFETCH) - (int)(x->access % HG_ACCESS_PREFETCH);
}

static bool wants_write(const struct hg_fault *f)
{
	return f->access == HG_ACCESS_WRITE || f->access == HG_ACCESS_ATOMIC;
}

/* One entry a page; returns the new number. */
static unsigned int dedupe(struct hg_device *hdev, struct hg_fault *f, unsigned int n)
{
	unsigned int i, m = 0;

	sort(f, n, sizeof(*f), cmp_fault, NULL);
	for (i = 0; i < n; i++) {
		if (m && f[m - 1].asid == f[i].asid && f[m - 1].addr == f[i].addr) {
			if (!wants_write(&f[i]))
				f[m - 1].reader = true;
			continue;
		}
		f[m++] = f[i];
	}
	hg_add(hdev, faults_duplicate, n - m);
	return m;
}

/* Whether an entry permits what the fault asks for. */
static bool permits(u64 pte, const struct hg_fault *f)
{
	if (!(pte & HG_PTE_VALID))
		return false;
	if (f->access == HG_ACCESS_ATOMIC)
		return pte & HG_PTE_ATOMIC;
	return !wants_write(f) || pte & HG_PTE_WRITE;
}

/* Marks what an earlier batch, or a 2 MiB entry, has already served. */
static void skip_satisfied(struct hg_svm *svm, struct hg_fault *f, unsigned int n)
{
	unsigned int i, stale = 0;

	mutex_lock(&svm->vm.pt_lock);
	for (i = 0; i < n; i++) {
		if (!f[i].done && permits(hg_mmu_lookup(&svm->vm, f[i].addr), &f[i])) {
			f[i].done = true;
			stale++;
		}
	}
	mutex_unlock(&svm->vm.pt_lock);
	hg_add(svm->vm.hdev, faults_stale, stale);
}

/*
 * Progress while VRAM is short.  An access may need several pages at once: a
 * copy does, and a warp.  If the way of each to VRAM evicted another, it would
 * never have them all.  So what a fault has moved then is not moved for a fault
 * again before HG_THRASH_BATCHES batches are over, but mapped where it is: each
 * page of the access is moved once at most, and then stays mapped, and there are
 * more batches than pages in an access.  Pages that share a bit are taken for
 * one, which costs a migration and nothing else.
 *
 * Returns how many pages are left to move.
 */
static unsigned int leave_thrashing(struct hg_svm *svm, struct hg_fault *f, unsigned int n)
{
	struct hg_fault_service *fs = &svm->vm.hdev->service;
	unsigned int i, left = 0, stay = 0;

	for (i = 0; i < n; i++) {
		if (f[i].done)
			continue;
		f[i].stays = __test_and_set_bit(hash_64(f[i].addr ^ svm->vm.asid, HG_THRASH_BITS),
						fs->moved);
		if (f[i].stays)
			stay++;
		else
			left++;
	}
	hg_add(svm->vm.hdev, faults_thrashing, stay);
	return left;
}

/* Policy MIGRATE: moves runs of faulting pages to VRAM, as far as they can. */
static void migrate_faults(struct hg_svm *svm, struct hg_fault *f, unsigned int n,
			   unsigned int todo)
{
	struct hg_migrate_result res = {};
	unsigned int i, j;

	if (hg_vram_short(svm->vm.hdev, todo)) {
		todo = leave_thrashing(svm, f, n);
		if (!todo)
			return;
		hg_vram_reserve(svm->vm.hdev, todo);
	}
	mmap_read_lock(svm->vm.mm);
	for (i = 0; i < n; i = j) {
		unsigned long start = f[i].addr, end = start + PAGE_SIZE;
		struct vm_area_struct *vma;

		for (j = i + 1; j < n && f[j].addr == end && !f[j].done && !f[j].stays; j++)
			end += PAGE_SIZE;
		if (f[i].done || f[i].stays) {
			j = i + 1;
			continue;
		}
		for (; start < end; start = vma->vm_end) {
			vma = find_vma_intersection(svm->vm.mm, start, end);
			if (!vma)
				break;
			start = max(start, vma->vm_start);
			hg_migrate_chunk(svm, vma, start, min(end, vma->vm_end), true, &res);
		}
	}
	mmap_read_unlock(svm->vm.mm);
}

static int map_faults(struct hg_svm *svm, struct hg_fault *f, unsigned int n, bool write)
{
	struct hg_fault_service *fs = &svm->vm.hdev->service;
	unsigned long start = f[0].addr, end = f[n - 1].addr + PAGE_SIZE;
	unsigned int i;

	memset(fs->want, 0, ((end - start) >> PAGE_SHIFT) * sizeof(*fs->want));
	for (i = 0; i < n; i++) {
		if (f[i].done)
			continue;
		fs->want[(f[i].addr - start) >> PAGE_SHIFT] = HMM_PFN_REQ_FAULT |
			(write && wants_write(&f[i]) ? HMM_PFN_REQ_WRITE : 0);
	}
	return hg_svm_map_window(svm, start, end, fs->want, fs->pfns, false);
}

/*
 * In a mirror that needs exclusive access for atomics on system pages.  Such
 * pages are mapped for writing by now.  Where the kernel has no exclusive access
 * (shared and file memory, huge pages), the page is mapped for atomics as it is:
 * this GPU's are atomic to the CPU's.  What changes too fast comes with the replay.
 */
static void serve_atomics(struct hg_svm *svm, struct hg_fault *f, unsigned int n)
{
	unsigned long want = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE, pfn;
	unsigned int i;
	u64 pte;

	for (i = 0; i < n; i++) {
		if (f[i].done || f[i].access != HG_ACCESS_ATOMIC)
			continue;
		mutex_lock(&svm->vm.pt_lock);
		pte = hg_mmu_lookup(&svm->vm, f[i].addr);
		mutex_unlock(&svm->vm.pt_lock);
		if (!(pte & HG_PTE_VALID) || permits(pte, &f[i]))
			continue;
		if (hg_svm_map_exclusive(svm, f[i].addr, f[i].addr + PAGE_SIZE) == -EOPNOTSUPP)
			hg_svm_map_window(svm, f[i].addr, f[i].addr + PAGE_SIZE, &want, &pfn, true);
	}
}

/*
 * What the CPU's page table says to the access: 0 or an error; -EBUSY: it changes.
 * The mmap lock is held for reading, and until the cancel is written: a cancel names
 * an address and hits whoever waits there.  A job that the first of two cancels has
 * ended may be followed by one that waits where the second is due, if the address was
 * given to it meanwhile.  That takes the lock for writing: so with it, what is
 * cancelled is refused at that moment, whoever asked.
 */
static int ask_cpu(struct hg_svm *svm, u64 addr, bool write)
{
	unsigned long pfn;
	struct hmm_range range = {
		.notifier = &svm->notifier,
		.start = addr,
		.end = addr + PAGE_SIZE,
		.hmm_pfns = &pfn,
		.default_flags = HMM_PFN_REQ_FAULT | (write ? HMM_PFN_REQ_WRITE : 0),
		.dev_private_owner = svm->vm.hdev,
	};
	struct vm_area_struct *vma;
	int ret;

	if (range.end > hg_bo_start())
		return -EFAULT;
	range.notifier_seq = mmu_interval_read_begin(&svm->notifier);
	ret = hg_range_fault(svm, &range, range.default_flags);
	if (ret || !write || pfn & HMM_PFN_WRITE)
		return ret;
	/* see hg_svm_map_window() */
	if (!is_device_private_page(hmm_pfn_to_page(pfn)))
		return -EFAULT;
	vma = vma_lookup(svm->vm.mm, addr);
	return vma && vma->vm_flags & VM_WRITE ? 0 : -EPERM;
}

/*
 * Ends the jobs that wait for the page and may not have it; readers of a page that
 * must not be written go on.  False: it is not refused any more, the replay comes.
 */
static bool cancel_refused(struct hg_svm *svm, struct hg_fault *f, bool write, int error)
{
	u32 scope = HG_CANCEL_SCOPE_ALL;
	bool still;

	hg_delay(fault_before_cancel);
	mmap_read_lock(svm->vm.mm);
	/* other errors are not the page table's: no memory, a dead mirror */
	if (error == -EFAULT || error == -EPERM)
		error = ask_cpu(svm, f->addr, write);
	still = error && error != -EBUSY;
	if (still) {
		if (write && (f->reader || error == -EPERM))
			scope = HG_CANCEL_SCOPE_WRITE;
		/* before the cancel, which ends the job */
		WRITE_ONCE(svm->fault_error, error);
		hg_fault_cancel(svm->vm.hdev, f->asid, f->addr, HG_CANCEL_ADDR | scope);
	}
	mmap_read_unlock(svm->vm.mm);
	return still;
}

/* One page for which the window as a whole failed. */
static void serve_alone(struct hg_svm *svm, struct hg_fault *f)
{
	struct hg_device *hdev = svm->vm.hdev;
	bool write = wants_write(f);
	int ret;

	ret = map_faults(svm, f, 1, true);
	if (!ret) {
		hg_inc(hdev, faults_served);
		if (READ_ONCE(svm->vm.exclusive))
			serve_atomics(svm, f, 1);
		return;
	}
	if (ret == -EBUSY || (f->access == HG_ACCESS_PREFETCH && !f->reader))
		return;
	if (!cancel_refused(svm, f, write, ret) || !write || !f->reader)
		return;
	ret = map_faults(svm, f, 1, false);
	if (ret && ret != -EBUSY)
		cancel_refused(svm, f, false, ret);
}

static void serve_window(struct hg_svm *svm, struct hg_fault *f, unsigned int n)
{
	unsigned int i, todo = 0;
	int ret;

	skip_satisfied(svm, f, n);
	for (i = 0; i < n; i++)
		todo += !f[i].done;
	if (!todo)
		return;
	if (READ_ONCE(svm->policy) == HMM_GPU_POLICY_MIGRATE)
		migrate_faults(svm, f, n, todo);
	ret = map_faults(svm, f, n, true);
	if (!ret)
		hg_add(svm->vm.hdev, faults_served, todo);
	if (!ret && READ_ONCE(svm->vm.exclusive))
		serve_atomics(svm, f, n);
	if (!ret || ret == -EBUSY)
		return;
	for (i = 0; i < n; i++)
		if (!f[i].done)
			serve_alone(svm, &f[i]);
}

/* All faults of one address space. */
static void serve_asid(struct hg_device *hdev, struct hg_fault *f, unsigned int n)
{
	struct hg_svm *svm = hg_svm_get(hdev, f->asid);
	unsigned int i, j;

	/* The contexts ended before the mirror did: nobody waits for an answer. */
	if (!svm)
		return;
	if (!mmget_not_zero(svm->vm.mm)) {
		/* the process is gone */
		hg_fault_cancel(hdev, f->asid, 0, HG_CANCEL_GLOBAL | HG_CANCEL_SCOPE_ALL);
		hg_svm_put(svm);
		return;
	}
	WRITE_ONCE(svm->faults, svm->faults + n);
	for (i = 0; i < n; i++)
		f[i].done = f[i].num < svm->first_fault;
	for (i = 0; i < n; i = j) {
		for (j = i + 1; j < n; j++)
			if ((f[j].addr ^ f[i].addr) >> HG_HUGE_SHIFT)
				break;
		serve_window(svm, f + i, j - i);
	}
	mmput(svm->vm.mm);
	hg_svm_put(svm);
}

static void hg_fault_work(struct work_struct *work)
{
	struct hg_fault_service *fs = container_of(work, struct hg_fault_service, work);
	struct hg_device *hdev = container_of(fs, struct hg_device, service);
	unsigned int max = clamp(READ_ONCE(hg_fault_batch), 1U, (unsigned int)HG_FAULT_BATCH_MAX);
	unsigned int i, j, m;
	bool again;
	int n;

	while ((n = hg_fault_drain(hdev, fs->batch, max, &again)) >= 0) {
		hg_inc(hdev, fault_batches);
		hg_add(hdev, faults, n);
		if (++fs->batches % HG_THRASH_BATCHES == 0)
			bitmap_zero(fs->moved, 1 << HG_THRASH_BITS);
		hg_delay(fault_after_drain);
		m = dedupe(hdev, fs->batch, n);
		for (i = 0; i < m; i = j) {
			for (j = i + 1; j < m; j++)
				if (fs->batch[j].asid != fs->batch[i].asid)
					break;
			serve_asid(hdev, fs->batch + i, j - i);
		}
		trace_hmm_gpu_batch(n, m);
		if (again)
			hg_fault_replay(hdev);
		cond_resched();
	}
}

/**
 * hg_fault_kick() - there is something in the ring
 * @hdev: device
 *
 * Any context.
 */
void hg_fault_kick(struct hg_device *hdev)
{
	queue_work(hdev->service.wq, &hdev->service.work);
}

int hg_fault_init(struct hg_device *hdev)
{
	struct hg_fault_service *fs = &hdev->service;

	INIT_WORK(&fs->work, hg_fault_work);
	fs->batch = kvcalloc(HG_FAULT_BATCH_MAX, sizeof(*fs->batch), GFP_KERNEL);
	fs->want = kcalloc(HG_WINDOW_PAGES, sizeof(*fs->want), GFP_KERNEL);
	fs->pfns = kcalloc(HG_WINDOW_PAGES, sizeof(*fs->pfns), GFP_KERNEL);
	fs->wq = alloc_ordered_workqueue("hmm_gpu-fault", WQ_HIGHPRI);
	if (!fs->batch || !fs->want || !fs->pfns || !fs->wq) {
		hg_fault_fini(hdev);
		return -ENOMEM;
	}
	return 0;
}

void hg_fault_fini(struct hg_device *hdev)
{
	struct hg_fault_service *fs = &hdev->service;

	if (fs->wq)
		destroy_workqueue(fs->wq);
	kfree(fs->pfns);
	kfree(fs->want);
	kvfree(fs->batch);
	memset(fs, 0, sizeof(*fs));
}
