// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's own context, number 0: privileged, on copy engine 0, for copies
 * by physical address.  It never faults and depends on nobody, so migration,
 * and with it a CPU page fault, can always wait for it.
 *
 * A list of copies is built in a slot.  To run it, COPY_LIST and FENCE go into
 * the ring (and FLUSH before them, if the device has a data cache); the fence
 * word then passes the list's number.  The wait first looks at the word (most
 * lists are short), then asks for an interrupt.
 *
 * Locking: struct hg_ce.  hw_sem is held for reading over submission and wait,
 * so a reset or removal finds no list under way.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/pci.h>
#include <linux/sched/clock.h>

#include "base/delay.h"
#include "base/regs.h"
#include "base/stats.h"
#include "hw/ce.h"
#include "hw/hw.h"

#define HG_CE_WAIT_MS	10000

/* A list that was lost because of others' is run again so often. */
#define HG_CE_TRIES	100

static unsigned int ce_spin_us = 30;
module_param(ce_spin_us, uint, 0644);
MODULE_PARM_DESC(ce_spin_us, "microseconds to look for the end of a copy before sleeping");

#define CE_REPORTS	(HG_CE_RING * HG_DESC_SIZE)
#define CE_FENCE	(CE_REPORTS + HG_CE_SLOTS * HG_REPORT_SIZE)
#define CE_MEM		(CE_FENCE + 64)

static u64 ce_fence(struct hg_ce *ce)
{
	return le64_to_cpu(READ_ONCE(*(__le64 *)(ce->mem + CE_FENCE)));
}

/* Called with hw_sem held for writing, or before anybody else uses the device. */
void hg_ce_program(struct hg_device *hdev)
{
	struct hg_ce *ce = &hdev->ce;

	ce->put = 0;
	hg_write(hdev, HG_REG_CTX + HG_CTX_CTRL, 0);
	hg_write64(hdev, HG_REG_CTX + HG_CTX_RING_BASE, ce->dma);
	hg_write(hdev, HG_REG_CTX + HG_CTX_RING_SIZE, HG_CE_RING);
	hg_write64(hdev, HG_REG_CTX + HG_CTX_SYNC, ce->dma | (PAGE_SHIFT + get_order(CE_MEM)));
	hg_write(hdev, HG_REG_CTX + HG_CTX_ASID, 0);
	hg_write(hdev, HG_REG_CTX + HG_CTX_CTRL, HG_CTX_ENABLE | HG_CTX_PRIV);
}

static struct hg_ce_slot *try_get(struct hg_ce *ce)
{
	unsigned int i;

	for (i = 0; i < HG_CE_SLOTS; i++)
		if (test_and_clear_bit(i, &ce->free_mask))
			return &ce->slots[i];
	return NULL;
}

int hg_ce_init(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct hg_ce *ce = &hdev->ce;
	unsigned int i;

	mutex_init(&ce->lock);
	init_waitqueue_head(&ce->wait);
	ce->mem = dma_alloc_coherent(dev, CE_MEM, &ce->dma, GFP_KERNEL);
	if (!ce->mem)
		return -ENOMEM;
	for (i = 0; i < HG_CE_SLOTS; i++) {
		struct hg_ce_slot *slot = &ce->slots[i];

		slot->index = i;
		slot->at = -1;
		slot->list = dma_alloc_coherent(dev, HG_CE_LIST_MAX * sizeof(*slot->list),
						&slot->list_dma, GFP_KERNEL);
		if (!slot->list) {
			hg_ce_fini(hdev);
			return -ENOMEM;
		}
	}
	ce->free_mask = GENMASK(HG_CE_SLOTS - 1, 0);
	ce->ready = true;
	return 0;
}

void hg_ce_fini(struct hg_device *hdev)
{
	struct device *dev = &hdev->pdev->dev;
	struct hg_ce *ce = &hdev->ce;
	unsigned int i;

	if (ce->ready) {
		/* nobody gets a slot any more; those who have one bring it back */
		WRITE_ONCE(ce->ready, false);
		wake_up_all(&ce->wait);
		for (i = 0; i < HG_CE_SLOTS; i++)
			wait_event(ce->wait, try_get(ce));
	}
	for (i = 0; i < HG_CE_SLOTS; i++) {
		struct hg_ce_slot *slot = &ce->slots[i];

		if (slot->list)
			dma_free_coherent(dev, HG_CE_LIST_MAX * sizeof(*slot->list),
					  slot->list, slot->list_dma);
		slot->list = NULL;
	}
	if (ce->mem)
		dma_free_coherent(dev, CE_MEM, ce->mem, ce->dma);
	ce->mem = NULL;
}

/**
 * hg_ce_get() - get an empty list
 * @hdev: device
 *
 * Waits for one; holders wait for nothing but the device, so one comes.
 *
 * Return: the list, or NULL: the device is gone.
 */
struct hg_ce_slot *hg_ce_get(struct hg_device *hdev)
{
	struct hg_ce *ce = &hdev->ce;
	struct hg_ce_slot *slot = NULL;

	wait_event(ce->wait, !READ_ONCE(ce->ready) || (slot = try_get(ce)));
	if (slot)
		slot->n = 0;
	return slot;
}

void hg_ce_put(struct hg_device *hdev, struct hg_ce_slot *slot)
{
	struct hg_ce *ce = &hdev->ce;

	/* our use of the list before the next holder's */
	smp_mb__before_atomic();
	set_bit(slot->index, &ce->free_mask);
	wake_up(&ce->wait);
}

/**
 * hg_ce_add() - add a piece, joined with the last one where both continue
 * @slot: list with room
 * @src: bus address or VRAM offset, or the pattern of a fill
 * @dst: bus address or VRAM offset
 * @bytes: size
 * @flags: spaces, HG_COPY_FILL
 */
void hg_ce_add(struct hg_ce_slot *slot, u64 src, u64 dst, u64 bytes, u64 flags)
{
	struct hg_ce_entry *e = &slot->list[slot->n];

	if (slot->n) {
		struct hg_ce_entry *p = e - 1;
		u64 len = le64_to_cpu(p->bytes);

		if (p->flags == cpu_to_le64(flags) && le64_to_cpu(p->dst) + len == dst &&
		    len + bytes <= HG_COPY_MAX_BYTES &&
		    le64_to_cpu(p->src) + (flags & HG_COPY_FILL ? 0 : len) == src) {
			p->bytes = cpu_to_le64(len + bytes);
			return;
		}
	}
	e->src = cpu_to_le64(src);
	e->dst = cpu_to_le64(dst);
	e->bytes = cpu_to_le64(bytes);
	e->flags = cpu_to_le64(flags);
	slot->n++;
}

/* Appends a descriptor; ce->lock is held.  The ring is larger than all slots can fill. */
static __le64 *ce_desc(struct hg_ce *ce, u64 w0)
{
	__le64 *d = ce->mem + ce->put * HG_DESC_SIZE;

	memset(d, 0, HG_DESC_SIZE);
	d[0] = cpu_to_le64(w0);
	ce->put = (ce->put + 1) % HG_CE_RING;
	return d;
}

static void ce_emit_fence(struct hg_device *hdev, u64 value, bool irq)
{
	struct hg_ce *ce = &hdev->ce;
	__le64 *d = ce_desc(ce, HG_OP_FENCE | (irq ? HG_FENCE_IRQ : 0));

	d[1] = cpu_to_le64(ce->dma + CE_FENCE);
	d[2] = cpu_to_le64(value);
}

/*
 * The copies are by physical address and go past the GPU's data cache: what jobs wrote to
 * VRAM has to be there before it is read, and what the cache has of a frame has to be gone
 * before it is written.  That is not only who moves out: a frame that was given back without
 * a copy (munmap(), exit) still has its last owner's data in the cache, and the next one's
 * jobs would see them instead of what is copied here, or have them written over it.
 *
 * A page stays in the cache while a TLB leads to it.  None does: whoever copies out has
 * invalidated (migrate_vma_setup() and migrate_device_range() come to our notifier), and
 * a frame that is copied into or cleared is nobody's yet, and was invalidated when it was
 * given back.  Nobody maps it before the list is done, so once is enough.  The range may
 * hold frames of others: those are written back, and go on in the cache if they are in use.
 *
 * In order with the list behind it; ce->lock is held.
 */
static void ce_emit_flush(struct hg_device *hdev, const struct hg_ce_slot *slot)
{
	u64 first = U64_MAX, end = 0;
	unsigned int i;
	__le64 *d;

	for (i = 0; i < slot->n; i++) {
		const struct hg_ce_entry *e = &slot->list[i];
		u64 flags = le64_to_cpu(e->flags), at = le64_to_cpu(e->dst);

		if (((flags >> HG_COPY_DST_SHIFT) & 3) != HG_SPACE_VRAM)
			at = le64_to_cpu(e->src);
		first = min(first, at);
		end = max(end, at + le64_to_cpu(e->bytes));
	}
	d = ce_desc(&hdev->ce, HG_OP_FLUSH);
	d[1] = cpu_to_le64(first);
	d[2] = cpu_to_le64(end - first);
}

static void ce_doorbell(struct hg_device *hdev)
{
	/* writel() orders the descriptors before it */
	hg_write(hdev, HG_REG_DOORBELL, hdev->ce.put);
}

/* The context stopped: start it again, empty.  hw_sem (read) and ce->lock are held. */
static void ce_restart(struct hg_device *hdev)
{
	int at = hg_read(hdev, HG_REG_CTX + HG_CTX_GET);
	unsigned int i;

	for (i = 0; i < HG_CE_SLOTS; i++) {
		struct hg_ce_slot *slot = &hdev->ce.slots[i];

		/* behind it: its report could not be written, or its fence; before: the flush */
		slot->bad |= slot->at >= 0 &&
			     (slot->at == at || (slot->at + 1) % HG_CE_RING == at ||
			      (hdev->data_cache && (at + 1) % HG_CE_RING == slot->at));
		slot->at = -1;
	}
	hg_write(hdev, HG_REG_CTX + HG_CTX_CTRL, 0);
	for (i = 0; i < 1000 && hg_read(hdev, HG_REG_CTX + HG_CTX_STATUS) & HG_CTX_ACTIVE; i++)
		usleep_range(100, 200);
	hdev->ce.put = 0;
	WRITE_ONCE(hdev->ce.restarts, hdev->ce.restarts + 1);
	hg_write(hdev, HG_REG_CTX + HG_CTX_CTRL, HG_CTX_ENABLE | HG_CTX_PRIV);
}

/*
 * 0: the fence passed @value.  Else the context halted, or was restarted since
 * the list was submitted, or the device is gone.  A fence of a later list may
 * pass @value too; whether this list was done, its report says.
 */
static int ce_wait(struct hg_device *hdev, u64 value, unsigned int restarts)
{
	u64 end = local_clock() + (u64)ce_spin_us * 1000;
	struct hg_ce *ce = &hdev->ce;
	unsigned long limit;

	do {
		if (ce_fence(ce) >= value)
			return 0;
		cpu_relax();
	} while (local_clock() < end);

	mutex_lock(&ce->lock);
	if (ce_fence(ce) < value) {
		/* fences are in order: with this value only if nobody is behind us */
		ce_emit_fence(hdev, ce->next, true);
		ce_doorbell(hdev);
	}
	mutex_unlock(&ce->lock);

	limit = jiffies + msecs_to_jiffies(HG_CE_WAIT_MS);
	while (ce_fence(ce) < value) {
		wait_event_timeout(ce->wait, ce_fence(ce) >= value, HZ / 10);
		if (ce_fence(ce) >= value)
			break;
		if (!READ_ONCE(hdev->hw_live) || READ_ONCE(ce->restarts) != restarts ||
		    hg_read(hdev, HG_REG_CTX + HG_CTX_STATUS) & HG_CTX_HALTED)
			return -EIO;
		if (time_after(jiffies, limit)) {
			hg_wedge(hdev, "kernel copy");
			return -EIO;
		}
		/* the doorbell may be what was lost; with the lock it is the newest again */
		if (READ_ONCE(hg_watch_ms)) {
			mutex_lock(&ce->lock);
			ce_doorbell(hdev);
			mutex_unlock(&ce->lock);
		}
	}
	return 0;
}

/* Runs the list once; -EAGAIN: it was lost, and another one is to blame. */
static int ce_run_once(struct hg_device *hdev, struct hg_ce_slot *slot)
{
	struct hg_ce *ce = &hdev->ce;
	__le32 *report = ce->mem + CE_REPORTS + slot->index * HG_REPORT_SIZE;
	unsigned int restarts;
	__le64 *d;
	u64 value;
	bool done;
	int ret;

	if (!hg_hw_lock(hdev))
		return -ENODEV;
	memset(report, 0, HG_REPORT_SIZE);

	mutex_lock(&ce->lock);
	if (hdev->data_cache)
		ce_emit_flush(hdev, slot);
	slot->at = ce->put;
	slot->bad = false;
	d = ce_desc(ce, HG_OP_COPY_LIST);
	d[1] = cpu_to_le64(slot->list_dma);
	d[2] = cpu_to_le64(slot->n);
	d[7] = cpu_to_le64(ce->dma + CE_REPORTS + slot->index * HG_REPORT_SIZE);
	value = ++ce->next;
	restarts = ce->restarts;
	ce_emit_fence(hdev, value, false);
	ce_doorbell(hdev);
	mutex_unlock(&ce->lock);

	ret = ce_wait(hdev, value, restarts);
	if (ret && READ_ONCE(hdev->hw_live)) {
		/*
		 * Whoever notices first restarts; lists behind the bad one are
		 * lost with it, and run again.
		 */
		mutex_lock(&ce->lock);
		if (hg_read(hdev, HG_REG_CTX + HG_CTX_STATUS) & HG_CTX_HALTED) {
			ce_restart(hdev);
			hg_inc(hdev, ctx_restarts);
		}
		mutex_unlock(&ce->lock);
	}
	dma_rmb();
	done = le64_to_cpu(READ_ONCE(*(__le64 *)(report + HG_RPT_DONE / 4))) == HG_RPT_DONE_MAGIC;
	if (done)
		ret = le32_to_cpu(READ_ONCE(report[HG_RPT_STATUS / 4])) == HG_ERR_NONE ? 0 : -EIO;
	mutex_lock(&ce->lock);
	if (!done)
		ret = slot->bad || ce->restarts == restarts || !READ_ONCE(hdev->hw_live) ?
		      -EIO : -EAGAIN;
	slot->at = -1;
	mutex_unlock(&ce->lock);
	up_read(&hdev->hw_sem);
	return ret;
}

/**
 * hg_ce_run() - execute a list and wait for it
 * @hdev: device
 * @slot: list
 *
 * Return: 0; -EIO: part of it may not have been done; -ENODEV.
 */
int hg_ce_run(struct hg_device *hdev, struct hg_ce_slot *slot)
{
	unsigned int i, tries = HG_CE_TRIES;
	u64 bytes = 0;
	int ret;

	hg_delay(ce_before_run);
	for (i = 0; i < slot->n; i++)
		bytes += le64_to_cpu(slot->list[i].bytes);
	do
		ret = ce_run_once(hdev, slot);
	while (ret == -EAGAIN && --tries);
	if (ret == -EAGAIN)
		ret = -EIO;
	hg_inc(hdev, copies);
	if (!ret)
		hg_add(hdev, copy_bytes, bytes);
	return ret;
}

/**
 * hg_ce_fence() - a fence alone, not waited for
 * @hdev: device; hw_sem is held for reading
 * @irq: with an interrupt, whose handler wakes hg_ce.wait
 *
 * Return: its value, for hg_ce_passed().
 */
u64 hg_ce_fence(struct hg_device *hdev, bool irq)
{
	struct hg_ce *ce = &hdev->ce;
	u64 value;

	mutex_lock(&ce->lock);
	value = ++ce->next;
	ce_emit_fence(hdev, value, irq);
	ce_doorbell(hdev);
	mutex_unlock(&ce->lock);
	return value;
}

/* Any context. */
bool hg_ce_passed(struct hg_device *hdev, u64 value)
{
	return ce_fence(&hdev->ce) >= value;
}

/* Fence interrupt; any context. */
void hg_ce_irq(struct hg_device *hdev)
{
	wake_up_all(&hdev->ce.wait);
}
