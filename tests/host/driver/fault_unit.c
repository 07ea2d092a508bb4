// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mem/fault.c: pages that a process brings itself are waited for, and no others; what a
 * refusal stands on is held, and nothing is refused where it cannot be.  Faults for which
 * nobody waits are left out.
 */
#define FAULT_FLAG_REMOTE	0x80
#define FAULT_FLAG_ALLOW_RETRY	0x100
#define FAULT_FLAG_RETRY_NOWAIT	0x200
#define VM_FAULT_RETRY		0x400
#define VM_READ			1

struct inode { int readers; };
struct vm_area_struct { unsigned long vm_start, vm_end, vm_flags; struct inode *vm_file; };

static bool armed, brings, grows, there, refused_to_all, busy;
static unsigned int asked, waited_for, flags_seen, locks, cancels;
static bool writing, area_held;
static int tried;
static struct vm_area_struct area = { 0, TASK_SIZE, 3 };

#define userfaultfd_armed(vma)	armed
#define file_inode(file)	(file)
#define inode_trylock_shared(inode)	(!grows && ++(inode)->readers)
#define inode_unlock_shared(inode)	((inode)->readers--)
#define vma_lookup(mm, addr)	(&area)
#define mmap_read_lock(mm)	lock_for_reading()
#define mmap_read_unlock(mm)	unlock(false)
#define rwsem_is_locked(lock)	busy
#define mmap_write_lock(mm)	lock_for_writing()
#define mmap_write_unlock(mm)	unlock(true)
#define vma_start_write(vma)	hold_area()
#define HMM_PFN_WRITE		4UL
#define VM_WRITE		2
#define mmget_not_zero(mm)	1
#define WQ_UNBOUND		0
#define WQ_HIGHPRI		0
#define WQ_MAX_ACTIVE		0

static void lock_for_reading(void)
{
	CHECK(!locks);
	locks++;
}

static void lock_for_writing(void)
{
	CHECK(!busy);
	lock_for_reading();
	writing = true;
}

static void hold_area(void)
{
	CHECK(writing);
	area_held = true;
}

static void unlock(bool from_writing)
{
	CHECK(locks == 1 && writing == from_writing);
	writing = area_held = false;
	locks--;
}

/* What it says without waiting, the lock kept. */
static int handle_mm_fault(struct vm_area_struct *vma, unsigned long addr, unsigned int flags,
			   void *regs)
{
	CHECK(locks == 1 && flags & FAULT_FLAG_ALLOW_RETRY && flags & FAULT_FLAG_RETRY_NOWAIT);
	return there || refused_to_all ? 0 : VM_FAULT_RETRY;
}

static int fixup_user_fault(void *mm, unsigned long addr, unsigned int flags, bool *unlocked)
{
	CHECK(locks == 1);
	flags_seen = flags;
	asked++;
	if (!unlocked)
		return there ? 0 : -EFAULT;
	if (refused_to_all)
		return -EFAULT;
	if (brings) {
		*unlocked = true;
		waited_for++;
	}
	return 0;
}

#undef usleep_range
#define sort(base, n, size, compare, swap)	qsort(base, n, size, compare)
#define usleep_range(least, most)	(slept_us += (least))
static unsigned long slept_us;

#include "mem/fault.c"

int hg_range_fault(struct hg_svm *svm, struct hmm_range *range, unsigned long want)
{
	return -EFAULT;
}

int hg_svm_map_window(struct hg_svm *svm, unsigned long start, unsigned long end,
		      const unsigned long *want, unsigned long *pfns, bool atomic)
{
	return -EFAULT;
}

void hg_fault_cancel(struct hg_device *hdev, u32 asid, u64 addr, u32 how)
{
	CHECK(locks == 1);
	if (area.vm_file)
		CHECK(area.vm_file->readers == 1 && !writing);
	else
		CHECK(busy ? tried > HG_HELD_TRIES : writing && area_held);
	cancels++;
}

#define FIRST_FAULT	100	/* of the ring, of the number's owner */
static struct hg_svm dead = { .ref = { 1 }, .first_fault = FIRST_FAULT };
static bool over;

struct hg_svm *hg_svm_get(struct hg_device *hdev, u32 asid)
{
	return &dead;
}

bool hg_fault_is_over(struct hg_device *hdev, const struct hg_fault *f)
{
	return over;
}

/* Whether the owner of the number has nothing to do with the fault. */
static bool left_out(struct hg_device *hdev, u64 num, bool waits)
{
	struct hg_fault f = { .num = num, .waits = waits };

	dead.vm.dead = true;
	serve_asid(hdev, &f, 1);
	return f.done;
}

int main(void)
{
	static struct hg_device hdev;
	static struct hg_svm svm;
	static struct mm_struct mm;
	static struct inode inode;
	static struct hg_fault_buf buf;
	static struct hg_fault_queue queue = { .buf = &buf };
	struct hg_fault f = { .addr = 0x7000000000, .access = HG_ACCESS_WRITE };

	svm.vm.hdev = &hdev;
	hdev.service.queue = &queue;
	svm.vm.mm = &mm;
	/* An area of no process that serves its faults: refused as ever. */
	CHECK(cancel_refused(&svm, &f, true, -EFAULT));
	CHECK(!waited_for && cancels == 1);
	/* It is waited for as it is wanted, and the replay finds what there is. */
	armed = brings = true;
	CHECK(!cancel_refused(&svm, &f, true, -EFAULT));
	CHECK(waited_for == 1 && cancels == 1 && flags_seen == (FAULT_FLAG_REMOTE | FAULT_FLAG_WRITE));
	CHECK(!cancel_refused(&svm, &f, false, -EFAULT));
	CHECK(waited_for == 2 && flags_seen == FAULT_FLAG_REMOTE);
	/* Nobody had to bring it, and the mirror may not have it all the same. */
	brings = false;
	there = true;
	CHECK(cancel_refused(&svm, &f, true, -EFAULT));
	CHECK(cancels == 2 && !locks);
	/* It was there, and is not when nobody can wait for it: that is no refusal. */
	there = false;
	CHECK(!cancel_refused(&svm, &f, true, -EFAULT));
	CHECK(cancels == 2 && !locks);
	/* Who serves the process alone refuses it to all others. */
	refused_to_all = true;
	CHECK(cancel_refused(&svm, &f, true, -EFAULT));
	CHECK(cancels == 3 && !locks);
	armed = refused_to_all = false;
	/* Who has the mmap lock is left alone, but not for ever. */
	busy = true;
	for (tried = 1; !cancel_refused(&svm, &f, true, -EPERM); tried++)
		CHECK(tried <= HG_HELD_TRIES && cancels == 3 && svm.pauses);
	CHECK(tried == HG_HELD_TRIES + 1 && cancels == 4 && !svm.unheld && !locks);
	busy = svm.pauses = false;
	cancels = 3;
	/* A file keeps its size until the cancel is written; one that grows may have the page. */
	area.vm_file = &inode;
	CHECK(cancel_refused(&svm, &f, true, -EPERM));
	CHECK(cancels == 4 && !inode.readers);
	grows = true;
	CHECK(!cancel_refused(&svm, &f, true, -EPERM));
	CHECK(cancels == 4 && !inode.readers && !locks);
	grows = false;
	/* A hint is no reader, and the entry that is kept is not the hint. */
	{
		struct hg_fault two[3] = {
			{ .addr = 0x1000, .access = HG_ACCESS_PREFETCH },
			{ .addr = 0x1000, .access = HG_ACCESS_WRITE },
			{ .addr = 0x1000, .access = HG_ACCESS_PREFETCH },
		};
		CHECK(dedupe(&hdev, two, 3) == 1 && two[0].access == HG_ACCESS_WRITE &&
		      !two[0].reader);
		two[1] = (struct hg_fault){ .addr = 0x1000, .access = HG_ACCESS_READ };
		CHECK(dedupe(&hdev, two, 2) == 1 && two[0].access == HG_ACCESS_WRITE &&
		      two[0].reader);
		two[0].access = two[1].access = HG_ACCESS_PREFETCH;
		two[0].reader = two[1].reader = false;
		CHECK(dedupe(&hdev, two, 2) == 1 && !two[0].reader);
	}
	/* Nobody waits any more: no page is asked for. */
	asked = cancels = 0;
	over = true;
	f.done = false;
	serve_window(&svm, &f, 1);
	CHECK(!asked && !cancels);
	over = false;
	serve_window(&svm, &f, 1);
	CHECK(asked && cancels == 1);
	grows = true;
	/* What came before the owner; of copies, which have other numbers, of who ended. */
	CHECK(left_out(&hdev, FIRST_FAULT - 1, false) && !left_out(&hdev, FIRST_FAULT, false));
	CHECK(!left_out(&hdev, 0, true));
	over = true;
	CHECK(left_out(&hdev, FIRST_FAULT, true));
	/* One pause for all pages of a batch that could not be refused, and none else. */
	CHECK(!slept_us);
	cancel_refused(&dead, &f, true, -EPERM);
	cancel_refused(&dead, &f, true, -EPERM);
	left_out(&hdev, FIRST_FAULT, false);
	left_out(&hdev, FIRST_FAULT, false);
	CHECK(slept_us == HG_PAUSE_US);
	return 0;
}
