// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory of processes that are gone: see remains.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base.h"
#include "remains.h"

/*
 * The supervisor's own may be a few more: its answers, its stack.  The smallest
 * process has more than these: its program, stack and heap are far apart.
 */
#define TABLES_FEW	8
/* The smallest process has written more pages, and the kernel's own tables map none. */
#define MAPPED_FEW	4

/* On the lists of anonymous pages are those of tmpfs as well. */
static const struct {
	const char *name;
	int sign;
} counts[] = {
	{ "nr_inactive_anon", 1 }, { "nr_active_anon", 1 }, { "nr_unevictable", 1 },
	{ "nr_isolated_anon", 1 }, { "nr_anon_pages", -1 }, { "nr_shmem", -1 },
};

bool remains_look(struct remains *r)
{
	char line[128], name[64];
	unsigned found = 0;
	long long n;
	FILE *f;

	*r = (struct remains){ 0 };
	/* Tests run the agent on a host, whose memory is no business of theirs. */
	if (getenv("HMMBENCH_DRI"))
		return false;
	drain_lru();
	/* CPUs have numbers of their own, which only now are added. */
	if (write_text("/proc/sys/vm/stat_refresh", "1"))
		return false;
	f = fopen("/proc/vmstat", "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %lld", name, &n) != 2)
			continue;
		if (strcmp(name, "nr_page_table_pages") == 0)
			r->tables = n;
		if (strcmp(name, "nr_swapcached") == 0)
			r->swap = n;
		if (strcmp(name, "nr_anon_pages") == 0)
			r->mapped = n;
		for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
			if (strcmp(name, counts[i].name))
				continue;
			r->unmapped += counts[i].sign * n;
			found++;
		}
	}
	fclose(f);
	return found == ARRAY_SIZE(counts);
}

/*
 * Of a large page that is mapped in part the rest is mapped nowhere until the kernel
 * splits it, which it does when it is short of memory, or thinks so.
 */
static void split_pages(void)
{
	/* The kernel takes 1 to 4; after a 4 it prints nothing of it any more. */
	write_text("/proc/sys/vm/drop_caches", "4");
	write_text("/proc/sys/vm/drop_caches", "2");
}

bool remains_more(const struct remains *before, uint32_t wait_ms, struct remains *more)
{
	uint64_t begun = now_ns();
	long nap_ns = 1000000;
	struct remains now;
	bool split = false;

	while (remains_look(&now)) {
		int64_t tables = now.tables - before->tables;

		/* of what swap has as well nobody says how much is mapped: none then, all now */
		now.unmapped -= now.swap;
		more->unmapped = now.unmapped > before->unmapped ? now.unmapped - before->unmapped : 0;
		more->tables = tables > TABLES_FEW && now.mapped > before->mapped + MAPPED_FEW ?
			       tables : 0;
		if (!more->unmapped && !more->tables)
			return false;
		if (split && now_ns() - begun >= wait_ms * 1000000ull)
			return true;
		if (!split)
			split_pages();
		split = true;
		nanosleep(&(struct timespec){ .tv_nsec = nap_ns }, NULL);
		if (nap_ns < 64000000)
			nap_ns *= 2;
	}
	return false;
}
