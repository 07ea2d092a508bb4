// SPDX-License-Identifier: GPL-2.0-or-later
/* hw/ce.c: a list that runs behind another's, at which the context stops. */
#include "hw/ce.c"

bool hg_hw_lock(struct hg_device *h)
{
	down_read(&h->hw_sem);
	if (h->hw_live)
		return true;
	up_read(&h->hw_sem);
	return false;
}

static struct hg_device hdev;
static struct pci_dev pdev;
static int halts, runs;
static bool ours;	/* which list the context stops at */

static u32 *reg(u32 off)
{
	return (u32 *)(hdev.regs + HG_REG_CTX + off);
}

/* The device: executes what is in the ring, and halts so often before it gets to our list. */
static void device(u64 off, u64 v)
{
	struct hg_ce *ce = &hdev.ce;

	if (off == HG_REG_CTX + HG_CTX_CTRL && !v)
		*reg(HG_CTX_STATUS) = *reg(HG_CTX_GET) = 0;
	if (off != HG_REG_DOORBELL || *reg(HG_CTX_STATUS) & HG_CTX_HALTED)
		return;
	if (halts) {
		halts--;
		/* one that was there before is in the ring before ours, or ours */
		*reg(HG_CTX_GET) = ours ? (v + HG_CE_RING - 2) % HG_CE_RING : HG_CE_RING - 1;
		*reg(HG_CTX_STATUS) = HG_CTX_HALTED;
		return;
	}
	while (*reg(HG_CTX_GET) != v) {
		u64 *d = ce->mem + *reg(HG_CTX_GET) * HG_DESC_SIZE;

		if ((d[0] & 0xff) == HG_OP_FENCE)
			*(u64 *)d[1] = d[2];
		else
			*(u64 *)(d[7] + HG_RPT_DONE) = HG_RPT_DONE_MAGIC, runs++;
		*reg(HG_CTX_GET) = (*reg(HG_CTX_GET) + 1) % HG_CE_RING;
	}
}

static int run(int n, bool at_ours)
{
	struct hg_ce_slot *slot = hg_ce_get(&hdev);
	int ret;

	halts = n;
	ours = at_ours;
	runs = 0;
	hg_ce_add(slot, 0, 0, PAGE_SIZE, 0);
	ret = hg_ce_run(&hdev, slot);
	hg_ce_put(&hdev, slot);
	return ret;
}

int main(void)
{
	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	hdev.pdev = &pdev;
	hdev.hw_live = true;
	at_write = device;
	CHECK(hg_ce_init(&hdev) == 0);
	hg_ce_program(&hdev);
	CHECK(run(0, false) == 0 && runs == 1);
	/* another's list stopped the context, twice: ours is done all the same, once */
	CHECK(run(2, false) == 0 && runs == 1);
	/* our own fails, at once */
	CHECK(run(1, true) == -EIO && runs == 0);
	/* and nobody's: not for ever */
	CHECK(run(1000000, false) == -EIO);
	hdev.hw_live = false;
	CHECK(run(0, false) == -ENODEV);
	return 0;
}
