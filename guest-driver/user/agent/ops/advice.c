// SPDX-License-Identifier: GPL-2.0-or-later
/* Advice to the kernel about memory, locking, and the page merger that some advice is for. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "op.h"

static unsigned long ksm_scans(void)
{
	FILE *f = fopen("/sys/kernel/mm/ksm/full_scans", "re");
	unsigned long n = 0;

	if (f) {
		if (fscanf(f, "%lu", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

static void stop_ksm(void)
{
	write_text("/sys/kernel/mm/ksm/run", "0");
}

/*
 * Let ksmd look at everything twice, which is what it needs to merge (the first
 * round only notes the checksums), or give up after a quarter of a second.
 */
static int op_ksm(const struct op_call *call)
{
	unsigned long scans;
	int ret;

	if (!call->op->a)
		return write_text("/sys/kernel/mm/ksm/run", "0");
	write_text("/sys/kernel/mm/ksm/sleep_millisecs", "0");
	write_text("/sys/kernel/mm/ksm/pages_to_scan", "10000");
	scans = ksm_scans();
	ret = write_text("/sys/kernel/mm/ksm/run", "1");
	for (int i = 0; ret == 0 && i < 250 && ksm_scans() < scans + 3; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	write_text("/sys/kernel/mm/ksm/run", "0");
	return ret;
}

static int op_madvise(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	void *addr = op_range(op);

	if (!addr)
		return -EINVAL;
	if (op->a == MADV_FREE || op->a == MADV_PAGEOUT)
		drain_lru();
	return madvise(addr, op->len, op->a) ? -errno : 0;
}

static int op_zap(const struct op_call *call)
{
	void *addr = op_range(call->op);

	if (!addr)
		return -EINVAL;
	return madvise(addr, call->op->len, MADV_DONTNEED) ? -errno : 0;
}

/*
 * A page of locked memory that goes waits in such a batch of its CPU, too, whose
 * reference keeps it; also a page of VRAM, which never was on a list (seen with
 * 7.3: mlock, migrate to the device, exit).  Nothing empties the batch until that
 * CPU's next turn, so when a program is over the driver would be said to hold
 * pages that the kernel holds.
 */
static int op_mlock(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	void *addr = op_range(op);

	if (!addr)
		return -EINVAL;
	switch (op->a) {
	case 0:
		return mlock(addr, op->len) ? -errno : 0;
	case 1:
		return mlock2(addr, op->len, MLOCK_ONFAULT) ? -errno : 0;
	case 2:
		return munlock(addr, op->len) ? -errno : 0;
	}
	return -EINVAL;
}

static const struct op_kind advice[] = {
	/* region off len; a = MADV_* of Linux */
	{ 5, "madvise", op_madvise, 0, NULL },
	/* region off len, shared memory: what is in its pages stays */
	{ 26, "zap", op_zap, 0, NULL },
	/* region off len; a = 0: lock, 1: lock what comes, 2: unlock */
	{ 23, "mlock", op_mlock, 0, drain_lru },
	/* a = 1: run ksmd now for a moment, 0: stop it */
	{ 22, "ksm", op_ksm, 0, stop_ksm },
};
OP_FAMILY(advice);
