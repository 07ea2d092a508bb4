// SPDX-License-Identifier: GPL-2.0
/*
 * Fault service.
 *
 * The interrupt's handler takes all faults out of the ring and puts each into the
 * queue of its address space number.  A work item a number serves them, and so
 * address spaces independently of each other, for a process's file systems may keep
 * one waiting for as long as they like: it takes a batch, sorts it, drops duplicates,
 * serves it by 2 MiB window, and replays once.  What cannot be served is cancelled,
 * which ends the job that asked.  What could not be served now (the address space
 * changed all the time) is left alone: the replay brings it back.
 *
 * Nobody waits for such a work: neither close, which leaves the mirror's end to the
 * last who has it, nor reset and removal, after which it finds the mirror dead and the
 * device gone.  It holds the device and the module, and the workqueue is the module's,
 * whose exit waits for those that have given them back.  There are no more works than
 * numbers, and numbers stay taken while a work has their mirror: so with
 * WQ_MAX_ACTIVE none waits for another, while there are two devices at most (6.12:
 * 512 works; a device has 255 numbers, and one more that takes the ring empty).
 *
 * A replay makes everybody try again who waits, whatever for.  So while one address
 * space is stuck, each replay for another brings its faults once more, two at most for
 * each page and engine that wait.  They cost their way to the queue; what has no room
 * there is dropped.
 *
 * Who waits gets a replay.  An entry is old if a replay was sent after it was written:
 * its access was sent again, and if it still waits it has a newer entry, or the ring
 * had no room for that.  So whoever waits has an entry that is not old (or, in an
 * engine that has no room for more, waits for those that have one), and that is in the
 * ring, in a queue, served now, or dropped.  hg_fault_queue.last is above those that
 * were put in a queue or dropped there, so the end of the next batch sends a replay if
 * one of them is not old by then.  For those that had no entry at all, hg_fault_unit.owed
 * does.  Both under hg_fault_unit.lock, so no replay is between the question and the
 * answer, and of several address spaces that finish one after the other each finds out
 * whether somebody else's replay was enough: if it was sent too early, before the page
 * was mapped, there is a newer entry in the queue, and another batch.
 *
 * Who does not wait needs none: what is of jobs that have ended (drop_ended()), and what
 * is of a mirror that is dead, which it is only after its contexts have ended: closed, or
 * its device removed.  Either is left out, so that no page is touched for nobody.
 *
 * A cancel hits who waits.  Who has an entry that is old was sent again, waits no more
 * and may fault a second time, and a cancel for it may find nobody.  If another replay
 * followed, it could meet that second fault, whose entry then is old when its turn
 * comes, and so on: an access that is refused would go round for ever.  So a batch of
 * old entries alone is not followed by a replay; whoever still waits has a newer entry.
 * Replays for others can still come in between, but not in step: a cancel misses if one
 * was sent so shortly before that the access has not faulted again, which takes the
 * device a walk, and others a service each.
 *
 * A work takes the mmap lock for reading (for writing if nobody has it, where it refuses memory
 * without a file), and nothing that migrate_to_ram() or an MMU notifier waits for; while it waits
 * for a process that serves its faults itself, nothing (served_by_process()).
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/hmm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/userfaultfd_k.h>

#include <drm/drm_drv.h>

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
MODULE_PARM_DESC(fault_batch, "GPU faults served before a replay (1..512)");

/* So often a page is tried that there is no memory for, in how long, and how far apart. */
#define HG_STARVED_TRIES	25
#define HG_STARVED_WINDOW	(10 * HZ)
#define HG_STARVED_MS		20

/*
 * So long (us) who has what a refusal stands on is left alone before it is asked again
 * whether to refuse; and so often, where it is not asked for otherwise.
 */
#define HG_PAUSE_US		1000
#define HG_HELD_TRIES		16

/* The module's, for a work may outlive its device: see above. */
static struct workqueue_struct *hg_fault_wq;

static struct hg_fault_buf *buf_of(struct hg_svm *svm)
{
	return svm->vm.hdev->service.queue[svm->vm.asid].buf;
}

/* Hints are the weakest. */
static int strength(const struct hg_fault *f)
{
	return f->access == HG_ACCESS_PREFETCH ? -1 : f->access;
}

/* By address, and strongest access first. */
static int cmp_fault(const void *a, const void *b)
{
	const struct hg_fault *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return strength(y) - strength(x);
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
		if (m && f[m - 1].addr == f[i].addr) {
			/* for a hint nobody waits */
			if (f[i].access == HG_ACCESS_READ)
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

/* Marks what an earlier batch, or a larger leaf, has already served. */
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
 * Leaves out what is of jobs that have ended: nobody waits for it, and to serve it
 * would touch memory that nobody uses.  Returns the new number.
 */
static unsigned int drop_ended(struct hg_device *hdev, struct hg_fault *f, unsigned int n)
{
	unsigned int i, m = 0;

	for (i = 0; i < n; i++)
		if (!hg_fault_is_over(hdev, &f[i]))
			f[m++] = f[i];
	hg_add(hdev, faults_stale, n - m);
	return m;
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
	struct hg_fault_buf *buf = buf_of(svm);
	unsigned int i, left = 0, stay = 0;

	for (i = 0; i < n; i++) {
		if (f[i].done)
			continue;
		f[i].stays = __test_and_set_bit(hash_64(f[i].addr ^ svm->vm.asid, HG_THRASH_BITS),
						buf->moved);
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
	struct hg_fault_buf *buf = buf_of(svm);
	unsigned long start = f[0].addr, end = f[n - 1].addr + PAGE_SIZE;
	unsigned int i;

	/* what is there already beside the faults may become one leaf with them */
	if (svm->vm.hdev->big_pages) {
		start = ALIGN_DOWN(start, HG_BIG_SIZE);
		end = ALIGN(end, HG_BIG_SIZE);
	}
	memset(buf->want, 0, ((end - start) >> PAGE_SHIFT) * sizeof(*buf->want));
	for (i = 0; i < n; i++) {
		if (f[i].done)
			continue;
		buf->want[(f[i].addr - start) >> PAGE_SHIFT] = HMM_PFN_REQ_FAULT |
			(write && wants_write(&f[i]) ? HMM_PFN_REQ_WRITE : 0);
	}
	return hg_svm_map_window(svm, start, end, buf->want, buf->pfns, false);
}

/*
 * No memory for a page is no refusal: the replay brings it back, some milliseconds
 * later.  True: it was tried often enough, and the job gets -ENOMEM.  Counted
 * together for all of the address space, and afresh after some time.
 */
static bool starved(struct hg_svm *svm)
{
	if (time_after(jiffies, svm->starved_since + HG_STARVED_WINDOW)) {
		svm->starved_since = jiffies;
		svm->starved = 0;
	}
	svm->starves = true;
	return svm->starved >= HG_STARVED_TRIES;
}

static unsigned int fault_flags(bool write)
{
	return FAULT_FLAG_REMOTE | (write ? FAULT_FLAG_WRITE : 0);
}

/*
 * Whether the kernel would wait for a process that serves such faults itself (userfaultfd),
 * which it does only without the mmap lock: with FAULT_FLAG_RETRY_NOWAIT it keeps that and
 * says so.  Who does not serve the kernel's faults (UFFD_USER_MODE_ONLY) refuses at once.
 * The mmap lock is held.
 */
static bool is_served(struct hg_svm *svm, u64 addr, bool write)
{
	struct vm_area_struct *vma = vma_lookup(svm->vm.mm, addr);

	if (!vma || !userfaultfd_armed(vma) || !(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		return false;
	return handle_mm_fault(vma, addr, fault_flags(write) | FAULT_FLAG_ALLOW_RETRY |
			       FAULT_FLAG_RETRY_NOWAIT, NULL) & VM_FAULT_RETRY;
}

/*
 * What the CPU's page table says to the access: 0; -EFAULT, -EPERM: it may not have the
 * page; -EIO: it may, but its content cannot be read from VRAM; -EBUSY: the table changes,
 * or there was no memory, or the process has to bring the page; -ENOMEM: that has been
 * tried often enough.
 * What this stands on is held until the cancel is written: see hold_still().
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
	struct hg_migrate_result res = {};
	struct vm_area_struct *vma;
	int ret;

	if (range.end > hg_bo_start())
		return -EFAULT;
	range.notifier_seq = mmu_interval_read_begin(&svm->notifier);
	ret = hg_range_fault(svm, &range, range.default_flags);
	/* hmm_range_fault() of 6.12 says so of no memory, too */
	if (ret == -EFAULT) {
		ret = fixup_user_fault(svm->vm.mm, addr, fault_flags(write), NULL);
		if (ret == -EFAULT && is_served(svm, addr, write))
			return -EBUSY;
		/* it is there, which is not all that the mirror asks of a page */
		if (!ret)
			ret = hg_range_fault(svm, &range, range.default_flags);
	}
	/* no memory is no refusal, unless it was tried often enough */
	if (ret == -ENOMEM && !starved(svm))
		return -EBUSY;
	if (ret)
		return ret;
	ret = hg_svm_is_device_private(svm, &range);
	if (ret < 0 || !write || pfn & HMM_PFN_WRITE)
		return min(ret, 0);
	/* see hg_svm_map_window() */
	if (!ret)
		return -EFAULT;
	vma = vma_lookup(svm->vm.mm, addr);
	if (!vma || !(vma->vm_flags & VM_WRITE))
		return -EPERM;
	/* it may be written, if it can be brought home */
	hg_migrate_chunk(svm, vma, addr, addr + PAGE_SIZE, false, &res);
	return res.unreadable ? -EIO : 0;
}

/* What a refusal stands on, beside the mmap lock. */
struct hg_hold {
	struct inode *inode;	/* of the area's file, locked; NULL: there is none */
	bool write;		/* how the mmap lock is held */
};

/*
 * Takes what stays from when the CPU's page table is asked until the cancel is written.  A
 * cancel names an address and hits whoever waits there.  A job that the first of two
 * cancels has ended may be followed by one that waits where the second is due, if that
 * became allowed meanwhile.  So what is cancelled is refused at that moment, whoever asked.
 *
 * Memory without a file becomes allowed with the mmap lock for writing, or with it or the
 * area's own for reading (MADV_GUARD_REMOVE, userfaultfd): so the first is held, and the
 * area's too.  But only if nobody has it: who waits to write keeps out who comes after to
 * read, and who reads may wait for a file's memory, or have the lock for long.  Then it is
 * not refused now, and the replay asks again, after a pause; so often as HG_HELD_TRIES, lest
 * a job wait for who has nothing to do with it.  (Who takes it between the question and the
 * lock is waited for: there is no mmap_write_trylock().)
 *
 * A file's memory may keep whoever asks for it waiting, so there the mmap lock for reading
 * has to do: who removes guards, or answers for a userfaultfd that keeps no driver waiting,
 * is not held up.
 *
 * A file grows without the mmap lock, and tells nobody.  What was behind its end when
 * the CPU's page table was asked may be there, and be waited for by another job (or by a
 * job whose access came after the file had grown), before the cancel is written.  Who makes
 * a file longer has the inode's lock for writing (do_truncate(), and each file system's
 * write); so it is held for reading until then, and who finds the page there finds the
 * cancel written.  It is only tried for, too, since it comes before the mmap lock: whoever
 * has it may want that, and a large write() has it for long.
 * The area keeps its file while the mmap lock is held.
 *
 * Return: whether all is held; the mmap lock is in any case.
 */
static bool hold_still(struct hg_svm *svm, u64 addr, struct hg_hold *hold)
{
	struct vm_area_struct *vma;

	*hold = (struct hg_hold){};
	mmap_read_lock(svm->vm.mm);
	vma = vma_lookup(svm->vm.mm, addr);
	/* where nothing is, only who writes puts something */
	if (!vma)
		return true;
	if (vma->vm_file) {
		hold->inode = file_inode(vma->vm_file);
		if (inode_trylock_shared(hold->inode))
			return true;
		hold->inode = NULL;
		svm->pauses = true;
		return false;
	}
	mmap_read_unlock(svm->vm.mm);
	hold->write = !rwsem_is_locked(&svm->vm.mm->mmap_lock);
	if (hold->write)
		mmap_write_lock(svm->vm.mm);
	else
		mmap_read_lock(svm->vm.mm);
	/* it may be another area by now */
	vma = vma_lookup(svm->vm.mm, addr);
	if (vma && !vma->vm_file && (hold->write || ++svm->unheld > HG_HELD_TRIES)) {
		if (hold->write)
			vma_start_write(vma);
		svm->unheld = 0;
		return true;
	}
	svm->pauses = true;
	return false;
}

static void let_go(struct hg_svm *svm, const struct hg_hold *hold)
{
	if (hold->inode)
		inode_unlock_shared(hold->inode);
	if (hold->write)
		mmap_write_unlock(svm->vm.mm);
	else
		mmap_read_unlock(svm->vm.mm);
}

/* See hold_still(). */
static void refuse(struct hg_svm *svm, struct hg_fault *f, u32 scope, int error)
{
	/* before the cancel, which ends the job */
	WRITE_ONCE(*hg_svm_refused_at(svm, f->addr), f->addr | -error);
	hg_fault_cancel(svm->vm.hdev, f->asid, f->addr, HG_CANCEL_ADDR | scope);
}

/*
 * Whether the page is refused only because the mmap lock is kept.  Where a process serves
 * faults itself (userfaultfd) the kernel waits for it without that lock, which
 * hmm_range_fault() never lets go: it says -EFAULT then.  So the page is asked for once
 * more, and waited for.  Who serves it may take as long as it likes, as a file system
 * may; when its process dies the kernel does without it.  True: it was waited for, and
 * the replay finds what there is now.
 */
static bool served_by_process(struct hg_svm *svm, u64 addr, bool write)
{
	struct vm_area_struct *vma;
	bool waited = false;
	int ret = -EFAULT;

	mmap_read_lock(svm->vm.mm);
	vma = vma_lookup(svm->vm.mm, addr);
	if (vma && userfaultfd_armed(vma))
		ret = fixup_user_fault(svm->vm.mm, addr, fault_flags(write), &waited);
	mmap_read_unlock(svm->vm.mm);
	return !ret && waited;
}

/*
 * Ends the jobs that wait for the page and may not have it.  Of a write it is only known
 * that it is refused: a page that may not be written, or has no room on its disk, can be
 * read.  Its readers are asked for by themselves, also those who came after this batch.
 * False: it is not refused any more, the replay comes.
 */
static bool cancel_refused(struct hg_svm *svm, struct hg_fault *f, bool write, int error)
{
	struct hg_hold hold;
	bool held, still;

	if (error == -EFAULT && served_by_process(svm, f->addr, write))
		return false;
	hg_delay(fault_before_cancel);
	held = hold_still(svm, f->addr, &hold);
	/* no memory is not the page's fault */
	if (error != -ENOMEM)
		error = held ? ask_cpu(svm, f->addr, write) : -EBUSY;
	still = error && error != -EBUSY;
	if (still)
		refuse(svm, f, write ? HG_CANCEL_SCOPE_WRITE : HG_CANCEL_SCOPE_ALL, error);
	let_go(svm, &hold);
	return still;
}

/* Not refused: it comes with the replay, or the mirror or the device is gone and nobody waits. */
static bool is_moot(int error)
{
	return error == -EBUSY || error == -ESRCH || error == -ENODEV;
}

/*
 * Whether nobody waits any more: a process may have kept the page before this one waiting
 * for as long as it liked.
 */
static bool is_over(struct hg_svm *svm, const struct hg_fault *f)
{
	return READ_ONCE(svm->vm.dead) || hg_fault_is_over(svm->vm.hdev, f);
}

/*
 * Ends the jobs that wait with an atomic for a page that the kernel does not give.
 * The CPU's page table, which permits it, is not who to ask; else see ask_cpu().
 */
static void refuse_atomics(struct hg_svm *svm, struct hg_fault *f, int error)
{
	struct hg_hold hold;
	bool held;

	/* since it was mapped, protected against writes by the process itself */
	if (error == -EFAULT && served_by_process(svm, f->addr, true))
		return;
	hg_delay(fault_before_cancel);
	held = hold_still(svm, f->addr, &hold);
	if (error != -ENOMEM) {
		error = held ? hg_svm_ask_exclusive(svm, f->addr) : 0;
		if (error == -EFAULT && is_served(svm, f->addr, true))
			error = 0;
	}
	if (error)
		refuse(svm, f, HG_CANCEL_SCOPE_ATOMIC, error);
	let_go(svm, &hold);
}

/*
 * In a mirror that needs exclusive access for atomics on system pages.  Such
 * pages are mapped for writing by now.  Where the kernel has no exclusive access
 * (shared and file memory, huge pages), the page is mapped for atomics as it is:
 * this GPU's are atomic to the CPU's.  Whether it is such a page then is asked again
 * where it is mapped, with pt_lock: see map_one().  What changes too fast, or is
 * another page by now, comes with the replay; what the kernel refuses (memory that
 * is secret) is refused to those who wait for atomics.
 */
static void serve_atomics(struct hg_svm *svm, struct hg_fault *f, unsigned int n)
{
	unsigned long want = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE, pfn;
	unsigned int i;
	int ret;
	u64 pte;

	for (i = 0; i < n; i++) {
		if (f[i].done || f[i].access != HG_ACCESS_ATOMIC || is_over(svm, &f[i]))
			continue;
		mutex_lock(&svm->vm.pt_lock);
		pte = hg_mmu_lookup(&svm->vm, f[i].addr);
		mutex_unlock(&svm->vm.pt_lock);
		if (!(pte & HG_PTE_VALID) || permits(pte, &f[i]))
			continue;
		ret = hg_svm_map_exclusive(svm, f[i].addr, f[i].addr + PAGE_SIZE);
		if (ret == -EOPNOTSUPP)
			ret = hg_svm_map_window(svm, f[i].addr, f[i].addr + PAGE_SIZE, &want,
						&pfn, true);
		if (ret && !is_moot(ret) && (ret != -ENOMEM || starved(svm)))
			refuse_atomics(svm, &f[i], ret);
	}
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
	if (is_moot(ret) || f->access == HG_ACCESS_PREFETCH)
		return;
	if (ret == -ENOMEM && !starved(svm))
		return;
	if (!cancel_refused(svm, f, write, ret) || !write || !f->reader)
		return;
	ret = map_faults(svm, f, 1, false);
	if (ret && !is_moot(ret))
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
	if (!ret || is_moot(ret))
		return;
	for (i = 0; i < n; i++)
		if (!f[i].done && !is_over(svm, &f[i]))
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
	/* an earlier owner's; its contexts have ended before there was another */
	for (i = 0; i < n; i++)
		f[i].done = f[i].waits ? hg_fault_is_over(hdev, &f[i]) :
					 f[i].num < svm->first_fault;
	/* it may die at any time; what is mapped after that window_write() finds out */
	for (i = 0; i < n && !READ_ONCE(svm->vm.dead); i = j) {
		for (j = i + 1; j < n; j++)
			if ((f[j].addr ^ f[i].addr) >> HG_HUGE_SHIFT)
				break;
		serve_window(svm, f + i, j - i);
	}
	if (svm->starves) {
		svm->starves = false;
		svm->starved++;
		msleep(HG_STARVED_MS);
	}
	if (svm->pauses) {
		svm->pauses = false;
		usleep_range(HG_PAUSE_US, 4 * HG_PAUSE_US);
	}
	/* the end of a large process is nothing to do here */
	mmput_async(svm->vm.mm);
	hg_svm_put(svm);
}

/* Takes a batch out of a queue; @last: for the replay after it. */
static unsigned int take_batch(struct hg_fault_queue *q, u64 *last)
{
	unsigned int max = clamp(READ_ONCE(hg_fault_batch), 1U, (unsigned int)HG_FAULT_QUEUE);
	struct hg_fault_service *fs = &q->hdev->service;
	struct hg_fault_buf *buf = q->buf;
	unsigned int i, n;

	spin_lock_irq(&fs->lock);
	n = min(max, q->n);
	memcpy(buf->batch, buf->queue, n * sizeof(*buf->batch));
	q->n -= n;
	memmove(buf->queue, buf->queue + n, q->n * sizeof(*buf->queue));
	*last = q->last;
	spin_unlock_irq(&fs->lock);
	for (i = 0; i < n; i++) {
		struct hg_fault *f = &buf->batch[i];

		trace_hmm_gpu_fault(f->asid, f->addr, f->access, f->source, f->info);
	}
	return n;
}

static void hg_fault_work(struct work_struct *work)
{
	struct hg_fault_queue *q = container_of(work, struct hg_fault_queue, work);
	struct hg_device *hdev = q->hdev;
	struct hg_fault_buf *buf = q->buf;
	unsigned int n, m;
	u64 last;

	while ((n = take_batch(q, &last))) {
		hg_inc(hdev, fault_batches);
		hg_add(hdev, faults, n);
		if (++buf->batches % HG_THRASH_BATCHES == 0)
			bitmap_zero(buf->moved, 1 << HG_THRASH_BITS);
		hg_delay(fault_after_drain);
		m = drop_ended(hdev, buf->batch, n);
		m = dedupe(hdev, buf->batch, m);
		if (m)
			serve_asid(hdev, buf->batch, m);
		trace_hmm_gpu_batch(n, m);
		hg_fault_replay(hdev, last);
		cond_resched();
	}
	drm_dev_put(&hdev->drm);
	/* the module's exit waits for the end of this */
	module_put(THIS_MODULE);
}

/* A fault from the ring goes into its queue.  Called with interrupts off. */
static void enqueue(struct hg_device *hdev, const struct hg_fault *f)
{
	struct hg_fault_service *fs = &hdev->service;
	struct hg_fault_queue *q;

	if (f->asid >= hdev->num_asids)
		return;
	spin_lock(&fs->lock);
	q = &fs->queue[f->asid];
	if (q->buf) {
		if (q->n < HG_FAULT_QUEUE)
			q->buf->queue[q->n++] = *f;
		else
			hg_inc(hdev, faults_dropped);
		/* a copy's needs no replay for itself: each end of a batch answers it */
		if (!f->waits)
			q->last = f->num + 1;
		/* it begins with our lock, so it does not put what it has not got yet */
		if (queue_work(hg_fault_wq, &q->work)) {
			drm_dev_get(&hdev->drm);
			__module_get(THIS_MODULE);
		}
	}
	spin_unlock(&fs->lock);
}

/**
 * hg_fault_irq() - there may be something in the ring
 * @hdev: device
 *
 * From the interrupt's handler: hg_fault_drain() has what that is for.
 */
void hg_fault_irq(struct hg_device *hdev)
{
	int ms = hg_fault_drain(hdev, enqueue);

	if (ms >= 0)
		mod_delayed_work(hg_fault_wq, &hdev->service.late, msecs_to_jiffies(ms));
}

/**
 * hg_fault_error() - there may be something in the non-replayable ring
 * @hdev: device
 *
 * From the error work; hw_sem is held for reading.  Faults of copies go the way of all
 * others, and their answer comes with the replay.
 */
void hg_fault_error(struct hg_device *hdev)
{
	hg_fault_drain_nonreplay(hdev, enqueue);
}

/* Waits for nothing but the device, and for that no longer than HG_VALID_MS a time. */
static void hg_fault_late(struct work_struct *work)
{
	struct hg_device *hdev = container_of(to_delayed_work(work), struct hg_device,
					      service.late);
	int ms;

	for (;;) {
		down_read(&hdev->hw_sem);
		ms = hg_fault_drain(hdev, enqueue);
		up_read(&hdev->hw_sem);
		if (ms < 0)
			break;
		/* an entry that the device is about to finish */
		usleep_range(10, 20);
	}
	hg_fault_replay(hdev, 0);
}

/**
 * hg_fault_attach() - memory to serve the faults of an address space number
 * @hdev: device
 * @asid: number, taken
 *
 * It stays with the number until the device goes.
 *
 * Return: 0 or -ENOMEM.
 */
int hg_fault_attach(struct hg_device *hdev, u32 asid)
{
	struct hg_fault_service *fs = &hdev->service;
	struct hg_fault_buf *buf;

	if (READ_ONCE(fs->queue[asid].buf))
		return 0;
	buf = kvzalloc(sizeof(*buf), GFP_KERNEL);
	if (!buf)
		return -ENOMEM;
	spin_lock_irq(&fs->lock);
	WRITE_ONCE(fs->queue[asid].buf, buf);
	spin_unlock_irq(&fs->lock);
	return 0;
}

int hg_fault_init(struct hg_device *hdev)
{
	struct hg_fault_service *fs = &hdev->service;
	unsigned int i;

	spin_lock_init(&fs->lock);
	INIT_DELAYED_WORK(&fs->late, hg_fault_late);
	fs->queue = kvcalloc(hdev->num_asids, sizeof(*fs->queue), GFP_KERNEL);
	if (!fs->queue)
		return -ENOMEM;
	for (i = 0; i < hdev->num_asids; i++) {
		INIT_WORK(&fs->queue[i].work, hg_fault_work);
		fs->queue[i].hdev = hdev;
	}
	return 0;
}

/**
 * hg_fault_look_again() - an interrupt of the ring, or a replay, may have been lost
 * @hdev: device; hw_sem is held for reading, and it answers
 *
 * What is in the ring is taken out, and a replay sent after that.  One too many is
 * harmless: who still waits faults once more.
 */
void hg_fault_look_again(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;

	spin_lock_irq(&fu->lock);
	fu->owed = true;
	spin_unlock_irq(&fu->lock);
	mod_delayed_work(hg_fault_wq, &hdev->service.late, 0);
}

/**
 * hg_fault_stop() - no handler runs any more; works may
 * @hdev: device
 */
void hg_fault_stop(struct hg_device *hdev)
{
	cancel_delayed_work_sync(&hdev->service.late);
}

/* Nobody has the device any more. */
void hg_fault_fini(struct hg_device *hdev)
{
	struct hg_fault_service *fs = &hdev->service;
	unsigned int i;

	for (i = 0; fs->queue && i < hdev->num_asids; i++)
		kvfree(fs->queue[i].buf);
	kvfree(fs->queue);
	fs->queue = NULL;
}

int hg_fault_module_init(void)
{
	hg_fault_wq = alloc_workqueue("hmm_gpu-fault", WQ_UNBOUND | WQ_HIGHPRI, WQ_MAX_ACTIVE);
	return hg_fault_wq ? 0 : -ENOMEM;
}

void hg_fault_module_exit(void)
{
	destroy_workqueue(hg_fault_wq);
}
