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
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/hash.h>
#include <linux/hmm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "hmm_gpu.h"
#include "hmm_gpu_trace.h"

#define HG_NRFAULT_RING		256
#define HG_FAULT_WORDS		(HG_FAULT_ENTRY_SIZE / 4)

/*
 * An entry between GET and PUT becomes valid within this time: long, for the
 * host may have something else to do than to run the device.
 */
#define HG_VALID_MS		1000

static void program_ring(struct hg_device *hdev, u32 reg, dma_addr_t base, u32 size)
{
	hg_write(hdev, reg + HG_FAULT_CTRL, 0);
	hg_write64(hdev, reg + HG_FAULT_BASE, base);
	hg_write(hdev, reg + HG_FAULT_SIZE, size);
	hg_write(hdev, reg + HG_FAULT_CTRL, HG_FAULT_CTRL_ENABLE);
}

/* Called with hw_sem held for writing, or before anybody else uses the device. */
void hg_fault_program(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;

	memset(fu->ring, 0, HG_FAULT_RING * HG_FAULT_ENTRY_SIZE);
	memset(fu->nrring, 0, HG_NRFAULT_RING * HG_FAULT_ENTRY_SIZE);
	program_ring(hdev, HG_REG_FAULT, fu->ring_dma, HG_FAULT_RING);
	program_ring(hdev, HG_REG_NRFAULT, fu->nrring_dma, HG_NRFAULT_RING);
	spin_lock(&fu->lock);
	fu->get = hg_read(hdev, HG_REG_FAULT + HG_FAULT_GET) & HG_FAULT_INDEX_MASK;
	fu->taken += HG_FAULT_RING;
	spin_unlock(&fu->lock);
	fu->nrget = hg_read(hdev, HG_REG_NRFAULT + HG_FAULT_GET) & HG_FAULT_INDEX_MASK;
}

/* Waits until the device has finished an entry; false: it never does. */
static bool entry_valid(__le32 *e)
{
	unsigned long end = jiffies + msecs_to_jiffies(HG_VALID_MS);
	unsigned int spins = 0;

	while (!(le32_to_cpu(READ_ONCE(e[HG_FE_FLAGS])) & HG_FE_VALID)) {
		if (time_after(jiffies, end))
			return false;
		if (spins++ < 100)
			cpu_relax();
		else
			usleep_range(10, 20);
	}
	dma_rmb();
	return true;
}

/*
 * Takes up to @max faults out of the ring.  Returns the number, or -1 if the
 * ring was empty (0: only an overflow).  @replay: somebody may wait for one.
 */
static int drain(struct hg_device *hdev, unsigned int max, bool *replay)
{
	struct hg_fault_unit *fu = &hdev->fault;
	u32 put, end, get;
	unsigned int n = 0;
	u64 num;

	*replay = false;
	down_read(&hdev->hw_sem);
	if (!READ_ONCE(hdev->hw_live)) {
		up_read(&hdev->hw_sem);
		return -1;
	}
	get = fu->get;
	num = fu->taken;
	put = hg_read(hdev, HG_REG_FAULT + HG_FAULT_PUT);
	end = put & HG_FAULT_INDEX_MASK;
	if (end >= HG_FAULT_RING || (end == get && !(put & HG_FAULT_OVERFLOW))) {
		up_read(&hdev->hw_sem);
		return -1;
	}
	for (; get != end && n < max; num++) {
		__le32 *e = fu->ring + get * HG_FAULT_WORDS;

		if (entry_valid(e)) {
			struct hg_fault *f = &fu->batch[n++];

			f->addr = le32_to_cpu(e[HG_FE_ADDR_LO]) |
				  (u64)le32_to_cpu(e[HG_FE_ADDR_HI]) << 32;
			f->addr &= PAGE_MASK;
			f->num = num;
			f->asid = le32_to_cpu(e[HG_FE_ASID]) & 0xffff;
			f->access = le32_to_cpu(e[HG_FE_INFO]) & 0xf;
			f->reader = false;
			f->done = false;
			f->stays = false;
			trace_hmm_gpu_fault(f->asid, f->addr, f->access,
					    le32_to_cpu(e[HG_FE_SOURCE]),
					    le32_to_cpu(e[HG_FE_INFO]));
		} else {
			/* lost; the replay makes the access fault again */
			*replay = true;
			hg_inc(hdev, device_errors);
			dev_err_ratelimited(hdev->drm.dev, "fault entry %u never became valid\n",
					    get);
		}
		WRITE_ONCE(e[HG_FE_FLAGS], 0);
		get = (get + 1) % HG_FAULT_RING;
	}
	spin_lock(&fu->lock);
	fu->get = get;
	fu->taken = num;
	spin_unlock(&fu->lock);
	if (put & HG_FAULT_OVERFLOW)
		hg_inc(hdev, fault_overflows);
	*replay |= num > fu->replayed || put & HG_FAULT_OVERFLOW;
	hg_write(hdev, HG_REG_FAULT + HG_FAULT_GET, get | (put & HG_FAULT_OVERFLOW));
	up_read(&hdev->hw_sem);
	return n;
}

/* The number of the next entry that the device writes; hw_sem is held for reading. */
static u64 next_entry(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;
	u64 n;
	u32 put;

	spin_lock(&fu->lock);
	n = fu->taken;
	/* under the lock: the worker must not get past what is read here */
	put = READ_ONCE(hdev->hw_live) ? hg_read(hdev, HG_REG_FAULT + HG_FAULT_PUT) : fu->get;
	put &= HG_FAULT_INDEX_MASK;
	if (put < HG_FAULT_RING)
		n += (put + HG_FAULT_RING - fu->get) % HG_FAULT_RING;
	spin_unlock(&fu->lock);
	return n;
}

/**
 * hg_fault_count() - how many faults the device has written
 * @hdev: device
 *
 * The number of the next entry of the ring.  An address space number may get a
 * new owner while faults of the old one are in the ring, or in the worker's
 * hands.  They are not the new owner's: to serve them would touch memory that it
 * did not ask for, and to cancel them would end its jobs.  The device has written
 * all of them when the old owner's contexts have become inactive, so they have
 * lower numbers than what is counted after that, and all of the new owner's
 * higher ones.  A reset only makes numbers go up.
 *
 * Return: the number; the worker has not taken that entry yet.
 */
u64 hg_fault_count(struct hg_device *hdev)
{
	u64 n;

	down_read(&hdev->hw_sem);
	n = next_entry(hdev);
	up_read(&hdev->hw_sem);
	return n;
}

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

static void cancel(struct hg_device *hdev, u32 asid, u64 addr, u32 cmd)
{
	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live)) {
		hg_write64(hdev, HG_REG_CANCEL_ADDR, addr);
		hg_write(hdev, HG_REG_CANCEL_ASID, asid);
		hg_write(hdev, HG_REG_CANCEL_CMD, cmd);
	}
	up_read(&hdev->hw_sem);
	hg_inc(hdev, cancels);
	trace_hmm_gpu_cancel(asid, addr, cmd);
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

	mutex_lock(&svm->pt_lock);
	for (i = 0; i < n; i++) {
		if (!f[i].done && permits(hg_mmu_lookup(svm, f[i].addr), &f[i])) {
			f[i].done = true;
			stale++;
		}
	}
	mutex_unlock(&svm->pt_lock);
	hg_add(svm->hdev, faults_stale, stale);
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
	struct hg_fault_unit *fu = &svm->hdev->fault;
	unsigned int i, left = 0, stay = 0;

	for (i = 0; i < n; i++) {
		if (f[i].done)
			continue;
		f[i].stays = __test_and_set_bit(hash_64(f[i].addr ^ svm->asid, HG_THRASH_BITS),
						fu->moved);
		if (f[i].stays)
			stay++;
		else
			left++;
	}
	hg_add(svm->hdev, faults_thrashing, stay);
	return left;
}

/* Policy MIGRATE: moves runs of faulting pages to VRAM, as far as they can. */
static void migrate_faults(struct hg_svm *svm, struct hg_fault *f, unsigned int n,
			   unsigned int todo)
{
	struct hg_migrate_result res = {};
	unsigned int i, j;

	if (hg_vram_short(svm->hdev, todo)) {
		todo = leave_thrashing(svm, f, n);
		if (!todo)
			return;
		hg_vram_reserve(svm->hdev, todo);
	}
	mmap_read_lock(svm->mm);
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
			vma = find_vma_intersection(svm->mm, start, end);
			if (!vma)
				break;
			start = max(start, vma->vm_start);
			hg_migrate_chunk(svm, vma, start, min(end, vma->vm_end), true, &res);
		}
	}
	mmap_read_unlock(svm->mm);
}

static int map_faults(struct hg_svm *svm, struct hg_fault *f, unsigned int n, bool write)
{
	struct hg_fault_unit *fu = &svm->hdev->fault;
	unsigned long start = f[0].addr, end = f[n - 1].addr + PAGE_SIZE;
	unsigned int i;

	memset(fu->want, 0, ((end - start) >> PAGE_SHIFT) * sizeof(*fu->want));
	for (i = 0; i < n; i++) {
		if (f[i].done)
			continue;
		fu->want[(f[i].addr - start) >> PAGE_SHIFT] = HMM_PFN_REQ_FAULT |
			(write && wants_write(&f[i]) ? HMM_PFN_REQ_WRITE : 0);
	}
	return hg_svm_map_window(svm, start, end, fu->want, fu->pfns, false);
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
		mutex_lock(&svm->pt_lock);
		pte = hg_mmu_lookup(svm, f[i].addr);
		mutex_unlock(&svm->pt_lock);
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
		.dev_private_owner = svm->hdev,
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
	vma = vma_lookup(svm->mm, addr);
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
	mmap_read_lock(svm->mm);
	/* other errors are not the page table's: no memory, a dead mirror */
	if (error == -EFAULT || error == -EPERM)
		error = ask_cpu(svm, f->addr, write);
	still = error && error != -EBUSY;
	if (still) {
		if (write && (f->reader || error == -EPERM))
			scope = HG_CANCEL_SCOPE_WRITE;
		/* before the cancel, which ends the job */
		WRITE_ONCE(svm->fault_error, error);
		cancel(svm->hdev, f->asid, f->addr, HG_CANCEL_ADDR | scope);
	}
	mmap_read_unlock(svm->mm);
	return still;
}

/* One page for which the window as a whole failed. */
static void serve_alone(struct hg_svm *svm, struct hg_fault *f)
{
	struct hg_device *hdev = svm->hdev;
	bool write = wants_write(f);
	int ret;

	ret = map_faults(svm, f, 1, true);
	if (!ret) {
		hg_inc(hdev, faults_served);
		if (READ_ONCE(svm->exclusive))
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
		hg_add(svm->hdev, faults_served, todo);
	if (!ret && READ_ONCE(svm->exclusive))
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
	if (!mmget_not_zero(svm->mm)) {
		/* the process is gone */
		cancel(hdev, f->asid, 0, HG_CANCEL_GLOBAL | HG_CANCEL_SCOPE_ALL);
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
	mmput(svm->mm);
	hg_svm_put(svm);
}

/* Whoever waits tries again; what is in the ring by now is old. */
static void replay(struct hg_device *hdev)
{
	hg_delay(fault_before_replay);
	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live)) {
		/* before the replay: what comes in between is taken for new, which costs a replay */
		hdev->fault.replayed = next_entry(hdev);
		hg_write(hdev, HG_REG_REPLAY, HG_REPLAY_START);
	}
	up_read(&hdev->hw_sem);
	hg_inc(hdev, replays);
}

static void hg_fault_work(struct work_struct *work)
{
	struct hg_fault_unit *fu = container_of(work, struct hg_fault_unit, work);
	struct hg_device *hdev = container_of(fu, struct hg_device, fault);
	unsigned int max = clamp(READ_ONCE(hg_fault_batch), 1U, (unsigned int)HG_FAULT_BATCH_MAX);
	unsigned int i, j, m;
	bool again;
	int n;

	while ((n = drain(hdev, max, &again)) >= 0) {
		hg_inc(hdev, fault_batches);
		hg_add(hdev, faults, n);
		if (++fu->batches % HG_THRASH_BATCHES == 0)
			bitmap_zero(fu->moved, 1 << HG_THRASH_BITS);
		hg_delay(fault_after_drain);
		m = dedupe(hdev, fu->batch, n);
		for (i = 0; i < m; i = j) {
			for (j = i + 1; j < m; j++)
				if (fu->batch[j].asid != fu->batch[i].asid)
					break;
			serve_asid(hdev, fu->batch + i, j - i);
		}
		trace_hmm_gpu_batch(n, m);
		if (again)
			replay(hdev);
		cond_resched();
	}
}

/* Fault interrupt; any context. */
void hg_fault_kick(struct hg_device *hdev)
{
	queue_work(hdev->fault.wq, &hdev->fault.work);
}

/**
 * hg_fault_drain_nonreplay() - take note of faults that ended a job
 * @hdev: device
 *
 * From the error work alone; hw_sem is held for reading.
 */
void hg_fault_drain_nonreplay(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;
	u32 put = hg_read(hdev, HG_REG_NRFAULT + HG_FAULT_PUT);
	u32 end = put & HG_FAULT_INDEX_MASK;

	if (end >= HG_NRFAULT_RING || (end == fu->nrget && !(put & HG_FAULT_OVERFLOW)))
		return;
	while (fu->nrget != end) {
		__le32 *e = fu->nrring + fu->nrget * HG_FAULT_WORDS;

		if (entry_valid(e)) {
			hg_inc(hdev, nonreplay_faults);
			trace_hmm_gpu_fault(le32_to_cpu(e[HG_FE_ASID]) & 0xffff,
					    le32_to_cpu(e[HG_FE_ADDR_LO]) |
					    (u64)le32_to_cpu(e[HG_FE_ADDR_HI]) << 32,
					    le32_to_cpu(e[HG_FE_INFO]) & 0xf,
					    le32_to_cpu(e[HG_FE_SOURCE]),
					    le32_to_cpu(e[HG_FE_INFO]));
		}
		WRITE_ONCE(e[HG_FE_FLAGS], 0);
		fu->nrget = (fu->nrget + 1) % HG_NRFAULT_RING;
	}
	hg_write(hdev, HG_REG_NRFAULT + HG_FAULT_GET, fu->nrget | (put & HG_FAULT_OVERFLOW));
}

int hg_fault_init(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct hg_fault_unit *fu = &hdev->fault;

	INIT_WORK(&fu->work, hg_fault_work);
	spin_lock_init(&fu->lock);
	fu->ring = dma_alloc_coherent(dev, HG_FAULT_RING * HG_FAULT_ENTRY_SIZE, &fu->ring_dma,
				      GFP_KERNEL);
	fu->nrring = dma_alloc_coherent(dev, HG_NRFAULT_RING * HG_FAULT_ENTRY_SIZE,
					&fu->nrring_dma, GFP_KERNEL);
	fu->batch = kvcalloc(HG_FAULT_BATCH_MAX, sizeof(*fu->batch), GFP_KERNEL);
	fu->want = kcalloc(HG_WINDOW_PAGES, sizeof(*fu->want), GFP_KERNEL);
	fu->pfns = kcalloc(HG_WINDOW_PAGES, sizeof(*fu->pfns), GFP_KERNEL);
	fu->wq = alloc_ordered_workqueue("hmm_gpu-fault", WQ_HIGHPRI);
	if (!fu->ring || !fu->nrring || !fu->batch || !fu->want || !fu->pfns || !fu->wq) {
		hg_fault_fini(hdev);
		return -ENOMEM;
	}
	return 0;
}

void hg_fault_fini(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct hg_fault_unit *fu = &hdev->fault;

	if (fu->wq)
		destroy_workqueue(fu->wq);
	kfree(fu->pfns);
	kfree(fu->want);
	kvfree(fu->batch);
	if (fu->nrring)
		dma_free_coherent(dev, HG_NRFAULT_RING * HG_FAULT_ENTRY_SIZE, fu->nrring,
				  fu->nrring_dma);
	if (fu->ring)
		dma_free_coherent(dev, HG_FAULT_RING * HG_FAULT_ENTRY_SIZE, fu->ring,
				  fu->ring_dma);
	memset(fu, 0, sizeof(*fu));
}
