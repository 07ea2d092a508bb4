// SPDX-License-Identifier: GPL-2.0-or-later
/* pci/reset.c: what others do while the device is reset. */
#include "pci/reset.c"

static struct hg_device hdev;
static struct pci_dev pdev;
static int contexts, programmed;
static bool error_work;

void hg_sched_stop_all(struct hg_device *h, int error)
{
	CHECK(h == &hdev && error == -EIO);
	/* ends a context as ctx_kill() does: it may look at the device */
	down_read(&h->hw_sem);
	contexts = 0;
	up_read(&h->hw_sem);
}

void hg_ce_program(struct hg_device *h) { programmed += h == &hdev; }

/* Another thread gets its context after all were ended, and before the lock is taken. */
static void make_context(void)
{
	down_read(&hdev.hw_sem);
	contexts += hdev.hw_live;
	up_read(&hdev.hw_sem);
}

/* A page is reclaimed: the notifier's way to the device. */
static void reclaim(void)
{
	down_read(&hdev.hw_sem);
	up_read(&hdev.hw_sem);
}

/* Another thread gets no answer from the device: hg_wedge(). */
static void give_up(void)
{
	down_read(&hdev.hw_sem);
	hdev.hw_live = false;
	error_work = true;
	up_read(&hdev.hw_sem);
}

int cancel_work_sync(struct work_struct *work)
{
	CHECK(work == &hdev.error_work);
	/* it looks at the device */
	down_read(&hdev.hw_sem);
	error_work = false;
	up_read(&hdev.hw_sem);
	return 1;
}

int main(int argc, char **argv)
{
	const char *name = argv[argc - 1];

	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	*(u32 *)(hdev.regs + HG_REG_ID) = HG_ID_MAGIC;
	hdev.pdev = &pdev;
	pdev.dev.driver_data = &hdev;
	hdev.hw_live = strcmp(name, "given_up");
	contexts = hdev.hw_live;
	if (!strcmp(name, "late_context"))
		at_down_write = make_context;
	if (!strcmp(name, "late_wedge"))
		at_down_write = give_up;
	hg_reset_prepare(&pdev);
	CHECK(!contexts && !programmed && !error_work);
	if (!strcmp(name, "reclaim")) {
		reclaim();
		make_context();
		CHECK(!contexts);
	}
	hg_reset_done(&pdev);
	CHECK(hdev.hw_live && !hdev.in_reset && programmed == 1);
	make_context();
	CHECK(contexts == 1);
	return 0;
}
