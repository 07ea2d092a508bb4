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

/**
 * hg_fault_drain() - take faults out of the ring
 * @hdev: device
 * @batch: out: the faults
 * @max: room in @batch
 * @replay: out: somebody may wait for a replay
 *
 * From the fault worker alone.
 *
 * Return: the number, or -1 if the ring was empty (0: only an overflow).
 */
int hg_fault_drain(struct hg_device *hdev, struct hg_fault *batch, unsigned int max, bool *replay)
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
			struct hg_fault *f = &batch[n++];

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

/**
 * hg_fault_cancel() - end accesses that wait for a page
 * @hdev: device
 * @asid: address space
 * @addr: page
 * @cmd: HG_CANCEL_*: which of them
 */
void hg_fault_cancel(struct hg_device *hdev, u32 asid, u64 addr, u32 cmd)
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

/**
 * hg_fault_replay() - whoever waits tries again; what is in the ring by now is old
 * @hdev: device
 *
 * From the fault worker alone.
 */
void hg_fault_replay(struct hg_device *hdev)
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
	memset(fu, 0, sizeof(*fu));
}
