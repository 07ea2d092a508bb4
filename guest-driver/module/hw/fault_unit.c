// SPDX-License-Identifier: GPL-2.0
/*
 * The fault rings: what the device writes there, taken out in order and numbered,
 * and the answers that it knows, replay and cancel.  Who asks for the pages, and
 * what for, is no matter here.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/pci.h>

#include "base/delay.h"
#include "base/hmm_gpu_trace.h"
#include "base/regs.h"
#include "base/stats.h"
#include "hw/fault_unit.h"

#define HG_NRFAULT_RING		256
#define HG_FAULT_WORDS		(HG_FAULT_ENTRY_SIZE / 4)

/*
 * An entry between GET and PUT becomes valid within this time: long, for the
 * host may have something else to do than to run the device.  Those that do not
 * cost it once together, however many they are: they were written before it began.
 */
#define HG_VALID_MS		1000

/* What the ring had no room for is replayed so late, unless somebody else does it before. */
#define HG_OWED_MS		4

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
	spin_lock_irq(&fu->lock);
	fu->get = hg_read(hdev, HG_REG_FAULT + HG_FAULT_GET) & HG_FAULT_INDEX_MASK;
	fu->taken += HG_FAULT_RING;
	fu->nrget = hg_read(hdev, HG_REG_NRFAULT + HG_FAULT_GET) & HG_FAULT_INDEX_MASK;
	fu->nrtaken += HG_NRFAULT_RING;
	spin_unlock_irq(&fu->lock);
}

/*
 * Whether the device has finished an entry.  Most are when they are announced, and to
 * spin is no use to a device that a hypervisor makes.
 */
static bool entry_valid(__le32 *e)
{
	unsigned int spins = 0;

	while (!(le32_to_cpu(READ_ONCE(e[HG_FE_FLAGS])) & HG_FE_VALID)) {
		if (spins++ == 4)
			return false;
		cpu_relax();
	}
	dma_rmb();
	return true;
}

static void read_entry(struct hg_fault *f, __le32 *e, u64 num)
{
	f->addr = le32_to_cpu(e[HG_FE_ADDR_LO]) | (u64)le32_to_cpu(e[HG_FE_ADDR_HI]) << 32;
	f->addr &= PAGE_MASK;
	f->num = num;
	f->asid = le32_to_cpu(e[HG_FE_ASID]) & 0xffff;
	f->ctx = le32_to_cpu(e[HG_FE_ASID]) >> 16 & (HG_NUM_CTXS - 1);
	f->source = le32_to_cpu(e[HG_FE_SOURCE]);
	f->info = le32_to_cpu(e[HG_FE_INFO]);
	f->waits = le32_to_cpu(e[HG_FE_FLAGS]) & HG_FE_WAITS;
	f->access = f->info & 0xf;
	f->reader = false;
	f->done = false;
	f->stays = false;
}

/*
 * The next entry, @num, is not valid.  Whether it is given up: together with all
 * that was in the ring (to number @end) when the wait for the first of them began.
 */
static bool give_up(struct hg_fault_unit *fu, u64 num, u64 end)
{
	if (num < fu->patient)
		return time_after(jiffies, fu->until);
	fu->patient = end;
	fu->until = jiffies + msecs_to_jiffies(HG_VALID_MS);
	return false;
}

/**
 * hg_fault_drain() - take faults out of the ring
 * @hdev: device
 * @take: gets each of them, in order; called with a lock held and interrupts off
 *
 * From the interrupt's handler, under which nobody takes the registers away, or
 * with hw_sem held for reading.  It waits for nothing.
 *
 * Return: -1, or in how many milliseconds there is something left to do: to drain
 * again, and to send the replay that is owed.
 */
int hg_fault_drain(struct hg_device *hdev,
		   void (*take)(struct hg_device *hdev, const struct hg_fault *f))
{
	struct hg_fault_unit *fu = &hdev->fault;
	unsigned long flags;
	unsigned int lost = 0;
	u32 put, end, get;
	int late = -1;
	u64 num;

	spin_lock_irqsave(&fu->lock, flags);
	if (!READ_ONCE(hdev->hw_live))
		goto out;
	get = fu->get;
	num = fu->taken;
	put = hg_read(hdev, HG_REG_FAULT + HG_FAULT_PUT);
	end = put & HG_FAULT_INDEX_MASK;
	if (end >= HG_FAULT_RING || (end == get && !(put & HG_FAULT_OVERFLOW)))
		goto out;
	for (; get != end; num++) {
		__le32 *e = fu->ring + get * HG_FAULT_WORDS;

		if (entry_valid(e)) {
			struct hg_fault f;

			read_entry(&f, e, num);
			take(hdev, &f);
		} else if (give_up(fu, num, num + (end + HG_FAULT_RING - get) % HG_FAULT_RING)) {
			/* lost; the replay makes the access fault again */
			fu->owed = true;
			lost++;
			late = 0;
		} else {
			late = 0;
			break;
		}
		WRITE_ONCE(e[HG_FE_FLAGS], 0);
		get = (get + 1) % HG_FAULT_RING;
	}
	if (put & HG_FAULT_OVERFLOW) {
		hg_inc(hdev, fault_overflows);
		/* who else would have had an entry is not known */
		fu->owed = true;
		if (late < 0)
			late = num == fu->taken ? 0 : HG_OWED_MS;
	}
	/* raises the interrupt again if there is more: not to wait for what is not valid */
	if (num != fu->taken || put & HG_FAULT_OVERFLOW)
		hg_write(hdev, HG_REG_FAULT + HG_FAULT_GET, get | (put & HG_FAULT_OVERFLOW));
	fu->get = get;
	fu->taken = num;
out:
	spin_unlock_irqrestore(&fu->lock, flags);
	if (lost) {
		hg_add(hdev, device_errors, lost);
		dev_err_ratelimited(hdev->drm.dev, "%u fault entries never became valid\n", lost);
	}
	return late;
}

/* How many entries are in a ring, from @get on; the lock is held. */
static u32 not_taken(struct hg_device *hdev, u32 reg, u32 size, u32 get)
{
	u32 put = READ_ONCE(hdev->hw_live) ? hg_read(hdev, reg + HG_FAULT_PUT) : get;

	/* under the lock: nobody gets past what is read here */
	put &= HG_FAULT_INDEX_MASK;
	return put < size ? (put + size - get) % size : 0;
}

/* The number of the next entry that the device writes; the lock is held. */
static u64 next_entry(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;

	return fu->taken + not_taken(hdev, HG_REG_FAULT, HG_FAULT_RING, fu->get);
}

/* The same of the non-replayable ring, whose entries have numbers of their own. */
static u64 next_nonreplay(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;

	return fu->nrtaken + not_taken(hdev, HG_REG_NRFAULT, HG_NRFAULT_RING, fu->nrget);
}

/**
 * hg_fault_count() - how many faults the device has written
 * @hdev: device
 *
 * The number of the next entry of the ring.  An address space number may get a
 * new owner while faults of the old one are in the ring, or in the hands of who
 * serves them.  They are not the new owner's: to serve them would touch memory that
 * it did not ask for, and to cancel them would end its jobs.  The device has written
 * all of them when the old owner's contexts have become inactive, so they have
 * lower numbers than what is counted after that, and all of the new owner's
 * higher ones.  A reset only makes numbers go up.
 *
 * Return: the number; nobody has taken that entry yet.
 */
u64 hg_fault_count(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;
	u64 n;

	down_read(&hdev->hw_sem);
	spin_lock_irq(&fu->lock);
	n = next_entry(hdev);
	spin_unlock_irq(&fu->lock);
	up_read(&hdev->hw_sem);
	return n;
}

/**
 * hg_fault_jobs_ended() - the faults so far of a context are of jobs that have ended
 * @hdev: device
 * @ctx: hardware context, inactive; hw_sem is held for reading
 *
 * Nobody waits for them, and to serve them would touch memory that nobody uses.
 */
void hg_fault_jobs_ended(struct hg_device *hdev, u32 ctx)
{
	struct hg_fault_unit *fu = &hdev->fault;

	spin_lock_irq(&fu->lock);
	WRITE_ONCE(fu->ended[ctx], next_entry(hdev));
	WRITE_ONCE(fu->nrended[ctx], next_nonreplay(hdev));
	spin_unlock_irq(&fu->lock);
}

/**
 * hg_fault_is_over() - whether the job that a fault is of has ended
 * @hdev: device
 * @f: fault
 *
 * It may end right after.
 */
bool hg_fault_is_over(struct hg_device *hdev, const struct hg_fault *f)
{
	const u64 *ended = f->waits ? hdev->fault.nrended : hdev->fault.ended;

	return f->num < READ_ONCE(ended[f->ctx]);
}

/**
 * hg_fault_cancel() - end accesses that wait for a page
 * @hdev: device
 * @asid: address space
 * @addr: page
 * @cmd: HG_CANCEL_*: which of them
 */
void hg_fault_cancel(struct hg_device *hdev, u32 asid, u64 addr, u32 cmd)
{
	struct hg_fault_unit *fu = &hdev->fault;

	down_read(&hdev->hw_sem);
	/* three registers, one command: address spaces are served side by side */
	spin_lock_irq(&fu->lock);
	if (READ_ONCE(hdev->hw_live)) {
		hg_write64(hdev, HG_REG_CANCEL_ADDR, addr);
		hg_write(hdev, HG_REG_CANCEL_ASID, asid);
		hg_write(hdev, HG_REG_CANCEL_CMD, cmd);
	}
	spin_unlock_irq(&fu->lock);
	up_read(&hdev->hw_sem);
	hg_inc(hdev, cancels);
	trace_hmm_gpu_cancel(asid, addr, cmd);
}

static u32 faulted_reg(unsigned int ctx)
{
	return HG_REG_CTX + ctx * HG_CTX_STRIDE + HG_CTX_FAULTED;
}

/*
 * The same for copies, each of which waits for an answer of its own.  Also those whose
 * faults are others' to serve: they report again, as after a replay.  One that waits no
 * more is not concerned.  The lock is held.
 */
static void resume_copies(struct hg_device *hdev)
{
	struct hg_fault_unit *fu = &hdev->fault;
	unsigned int i;

	for (i = 1; fu->waiting && READ_ONCE(hdev->hw_live) && i < hdev->num_ctxs; i++)
		if (fu->waiting & BIT_ULL(i))
			hg_write(hdev, faulted_reg(i), HG_FAULTED_GO_ON);
	fu->waiting = 0;
}

/**
 * hg_fault_replay() - whoever waits tries again; what is in the ring by now is old
 * @hdev: device
 * @last: number after the newest of the faults that were dealt with.  If they all
 *	are old, nothing is sent (a replay followed them), unless one is owed
 */
void hg_fault_replay(struct hg_device *hdev, u64 last)
{
	struct hg_fault_unit *fu = &hdev->fault;

	hg_delay(fault_before_replay);
	down_read(&hdev->hw_sem);
	spin_lock_irq(&fu->lock);
	if ((last > fu->replayed || fu->owed) && READ_ONCE(hdev->hw_live)) {
		/* before the replay: what comes between is taken for new, and costs a replay */
		fu->replayed = next_entry(hdev);
		fu->owed = false;
		hg_write(hdev, HG_REG_REPLAY, HG_REPLAY_START);
		hg_inc(hdev, replays);
	}
	resume_copies(hdev);
	spin_unlock_irq(&fu->lock);
	up_read(&hdev->hw_sem);
}

/*
 * A copy waits for this page: @take gets it as it gets what is in the other ring.  Unless
 * its job has ended meanwhile: then the context waits no more, or for another's page.
 */
static void take_waiting(struct hg_device *hdev, __le32 *e,
			 void (*take)(struct hg_device *hdev, const struct hg_fault *f))
{
	struct hg_fault_unit *fu = &hdev->fault;
	struct hg_fault f;

	read_entry(&f, e, fu->nrtaken);
	if (!hg_read(hdev, faulted_reg(f.ctx)) || hg_fault_is_over(hdev, &f))
		return;
	spin_lock_irq(&fu->lock);
	fu->waiting |= BIT_ULL(f.ctx);
	take(hdev, &f);
	spin_unlock_irq(&fu->lock);
}

/**
 * hg_fault_drain_nonreplay() - take faults out of the non-replayable ring
 * @hdev: device
 * @take: gets those of copies that wait, as from hg_fault_drain()
 *
 * The others have ended their jobs, and are noted.  From the error work alone; hw_sem is
 * held for reading.
 */
void hg_fault_drain_nonreplay(struct hg_device *hdev,
			      void (*take)(struct hg_device *hdev, const struct hg_fault *f))
{
	struct hg_fault_unit *fu = &hdev->fault;
	u32 put = hg_read(hdev, HG_REG_NRFAULT + HG_FAULT_PUT);
	u32 end = put & HG_FAULT_INDEX_MASK;
	unsigned long until = jiffies + msecs_to_jiffies(HG_VALID_MS);
	bool lost = put & HG_FAULT_OVERFLOW;
	unsigned int i;

	if (end >= HG_NRFAULT_RING || (end == fu->nrget && !(put & HG_FAULT_OVERFLOW)))
		return;
	while (fu->nrget != end) {
		__le32 *e = fu->nrring + fu->nrget * HG_FAULT_WORDS;

		while (!entry_valid(e) && time_before(jiffies, until))
			usleep_range(10, 20);
		if (entry_valid(e) && le32_to_cpu(e[HG_FE_FLAGS]) & HG_FE_WAITS) {
			take_waiting(hdev, e, take);
		} else if (entry_valid(e)) {
			hg_inc(hdev, nonreplay_faults);
			trace_hmm_gpu_fault(le32_to_cpu(e[HG_FE_ASID]) & 0xffff,
					    le32_to_cpu(e[HG_FE_ADDR_LO]) |
					    (u64)le32_to_cpu(e[HG_FE_ADDR_HI]) << 32,
					    le32_to_cpu(e[HG_FE_INFO]) & 0xf,
					    le32_to_cpu(e[HG_FE_SOURCE]),
					    le32_to_cpu(e[HG_FE_INFO]));
		} else {
			lost = true;
		}
		WRITE_ONCE(e[HG_FE_FLAGS], 0);
		spin_lock_irq(&fu->lock);
		fu->nrget = (fu->nrget + 1) % HG_NRFAULT_RING;
		fu->nrtaken++;
		spin_unlock_irq(&fu->lock);
	}
	hg_write(hdev, HG_REG_NRFAULT + HG_FAULT_GET, fu->nrget | (put & HG_FAULT_OVERFLOW));
	/* who waits without an entry that can be read, nobody knows: each reports again */
	for (i = 1; lost && hdev->ce_faults && i < hdev->num_ctxs; i++)
		hg_write(hdev, faulted_reg(i), HG_FAULTED_GO_ON);
}

/**
 * hg_fault_unit_init() - memory for the rings
 * @hdev: device
 *
 * Return: 0 or -ENOMEM.
 */
int hg_fault_unit_init(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct hg_fault_unit *fu = &hdev->fault;

	spin_lock_init(&fu->lock);
	fu->ring = dma_alloc_coherent(dev, HG_FAULT_RING * HG_FAULT_ENTRY_SIZE, &fu->ring_dma,
				      GFP_KERNEL);
	fu->nrring = dma_alloc_coherent(dev, HG_NRFAULT_RING * HG_FAULT_ENTRY_SIZE,
					&fu->nrring_dma, GFP_KERNEL);
	if (!fu->ring || !fu->nrring) {
		hg_fault_unit_fini(hdev);
		return -ENOMEM;
	}
	return 0;
}

/**
 * hg_fault_unit_fini() - the device writes no faults any more
 * @hdev: device
 */
void hg_fault_unit_fini(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct hg_fault_unit *fu = &hdev->fault;

	if (fu->nrring)
		dma_free_coherent(dev, HG_NRFAULT_RING * HG_FAULT_ENTRY_SIZE, fu->nrring,
				  fu->nrring_dma);
	if (fu->ring)
		dma_free_coherent(dev, HG_FAULT_RING * HG_FAULT_ENTRY_SIZE, fu->ring,
				  fu->ring_dma);
	fu->ring = NULL;
	fu->nrring = NULL;
}
