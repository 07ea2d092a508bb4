// SPDX-License-Identifier: GPL-2.0-or-later
/* Folios of all orders: what makes large ones, and what moves pages about. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "op.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

#define THP	"/sys/kernel/mm/transparent_hugepage/"
#define DAEMON	THP "khugepaged/"

/* What a kernel may offer between a page and 2 MiB. */
static const unsigned sizes_kib[] = { 16, 32, 64, 128, 256, 512, 1024 };

static int op_collapse(const struct op_call *call)
{
	void *addr = op_range(call->op);

	if (!addr)
		return -EINVAL;
	return madvise(addr, call->op->len, MADV_COLLAPSE) ? -errno : 0;
}

static int op_compact(const struct op_call *call)
{
	(void)call;
	return write_text("/proc/sys/vm/compact_memory", "1");
}

static unsigned long full_scans(void)
{
	FILE *f = fopen(DAEMON "full_scans", "re");
	unsigned long n = 0;

	if (f) {
		if (fscanf(f, "%lu", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

/* As the kernel has it by itself. */
static void calm_khugepaged(void)
{
	write_text(DAEMON "scan_sleep_millisecs", "10000");
	write_text(DAEMON "pages_to_scan", "4096");
}

/* One look at everything, or a quarter of a second. */
static int op_khugepaged(const struct op_call *call)
{
	unsigned long before = full_scans();
	int ret;

	(void)call;
	write_text(DAEMON "pages_to_scan", "100000");
	ret = write_text(DAEMON "scan_sleep_millisecs", "0");
	for (int i = 0; ret == 0 && i < 250 && full_scans() < before + 2; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	calm_khugepaged();
	return ret;
}

static int set_size(unsigned kib, const char *word)
{
	char path[128];

	snprintf(path, sizeof(path), THP "hugepages-%ukB/enabled", kib);
	return write_text(path, word);
}

static void no_sizes(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(sizes_kib); i++)
		set_size(sizes_kib[i], "never");
}

static int op_mthp(const struct op_call *call)
{
	no_sizes();
	return call->op->a ? set_size(call->op->a, "always") : 0;
}

static const struct op_kind folios[] = {
	/* region off len: 2 MiB pages are made of it */
	{ 60, "collapse", op_collapse, 0, NULL },
	/* pages move within memory */
	{ 61, "compact", op_compact, 0, NULL },
	/* khugepaged looks at everything, now */
	{ 62, "khugepaged", op_khugepaged, 0, calm_khugepaged },
	/* a = KiB of the folios that faults of anonymous memory make; 0: single pages */
	{ 63, "mthp", op_mthp, 0, no_sizes },
};
OP_FAMILY(folios);
