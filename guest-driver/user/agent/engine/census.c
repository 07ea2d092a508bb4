// SPDX-License-Identifier: GPL-2.0-or-later
/* Counts of the kernel's own: see census.h. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "base.h"
#include "census.h"

#define MAX_COUNTS	2048
#define NAME_SIZE	104

struct count {
	char name[NAME_SIZE];		/* what says it, and what it is of */
	int64_t seen[CENSUS_LOOKS];	/* 0: there was none */
};
static struct count counts[MAX_COUNTS];
static unsigned ncounts, looks;

/*
 * Caches that the kernel fills by looking at names, and empties when memory is short;
 * those whose objects it gives back later, by rules that ask for no process: vmap areas
 * (lazily), bus addresses of an IOMMU (each CPU keeps hundreds), KSM's notes of pages,
 * swap's of compressed ones, its own debugging.
 */
static const char *const unsteady[] = {
	"dentry", "inode", "kernfs", "vmap_area", "iova", "ksm_", "zs", "key_jar", "kmemleak",
	"debug_objects",
};

static bool is_steady(const char *cache)
{
	for (unsigned i = 0; i < ARRAY_SIZE(unsteady); i++)
		if (strstr(cache, unsteady[i]))
			return false;
	return true;
}

/* The count of a name at this look; a place that nobody reads, if there are too many. */
static int64_t *count_of(const char *source, const char *name)
{
	static int64_t unused;
	char full[NAME_SIZE];
	static unsigned next;	/* they come in the same order each time */

	if (snprintf(full, sizeof(full), "%s:%s", source, name) >= (int)sizeof(full))
		full[sizeof(full) - 1] = 0;
	for (char *c = full; *c; c++)
		if (*c == ' ')
			*c = '_';
	for (unsigned i = 0; i < ncounts; i++) {
		unsigned n = (next + i) % ncounts;

		if (strcmp(counts[n].name, full) == 0) {
			next = n + 1;
			return &counts[n].seen[looks];
		}
	}
	if (ncounts == MAX_COUNTS)
		return &unused;
	counts[ncounts] = (struct count){ 0 };
	strcpy(counts[ncounts].name, full);
	return &counts[ncounts++].seen[looks];
}

/* Calls @line with each line of a file, if it can be read. */
static void each_line(const char *path, void (*line)(char *text))
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!f)
		return;
	while (getline(&text, &size, f) > 0) {
		text[strcspn(text, "\n")] = 0;
		line(text);
	}
	free(text);
	fclose(f);
}

static void slab_line(char *text)
{
	long long active;
	char name[64];

	if (sscanf(text, "%63s %lld", name, &active) == 2 && name[0] != '#' && is_steady(name))
		*count_of("slab", name) = active;
}

static void read_slabs(void)
{
	each_line("/proc/slabinfo", slab_line);
}

/* Tests run the agent on a host, whose caches are no business of theirs. */
static void tell_kernel(const char *path, const char *text)
{
	if (!getenv("HMMBENCH_DRI"))
		write_text(path, text);
}

/* What its CPUs have of a cache and is free counts as used. */
static void shrink(const char *cache)
{
	char path[160];

	snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", cache);
	tell_kernel(path, "1");
}

/* What is free when RCU, or somebody's work, allows it. */
static void wait_for_others(void)
{
	/* One CPU alone has no barrier to wait for. */
	long nap_ns = get_nprocs() > 1 ? 4000000 : 20000000;

	for (int i = 0; i < 2; i++) {
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
		nanosleep(&(struct timespec){ .tv_nsec = nap_ns }, NULL);
	}
}

/* Of zones: pages that the kernel has to give, and those of them that nobody has. */
static int64_t managed, unused_pages;

static void zone_line(char *text)
{
	long long n;

	/* In a CPU's list they are free as well. */
	if (sscanf(text, " pages free %lld", &n) == 1 || sscanf(text, " count: %lld", &n) == 1)
		unused_pages += n;
	else if (sscanf(text, " managed %lld", &n) == 1)
		managed += n;
}

static int64_t slab_pages;

static void vmstat_line(char *text)
{
	static const char *const wanted[] = {
		"nr_anon_pages", "nr_mapped", "nr_shmem", "nr_isolated_anon", "nr_isolated_file",
		"nr_page_table_pages", "nr_sec_page_table_pages", "nr_unevictable", "nr_mlock",
		"nr_dirty", "nr_writeback", "nr_kernel_stack",
	};
	char name[64];
	long long n;

	if (sscanf(text, "%63s %lld", name, &n) != 2)
		return;
	if (strncmp(name, "nr_slab_", 8) == 0)
		slab_pages += n;
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		if (strcmp(name, wanted[i]) == 0)
			*count_of("vmstat", name) = n;
}

/*
 * CONFIG_MEM_ALLOC_PROFILING: what each line of a module has allocated, "SIZE CALLS FILE:LINE
 * [MODULE] func:NAME".
 */
static void alloc_line(char *text)
{
	long long size, calls;
	char file[64], module[32], func[64];
	char *base;

	if (sscanf(text, "%lld %lld %63s [%31[^]]] func:%63s", &size, &calls, file, module,
		   func) != 5)
		return;
	base = strrchr(file, '/');
	snprintf(text, strlen(text) + 1, "%.20s:%.30s:%.40s", module, base ? base + 1 : file, func);
	*count_of("alloc", text) = calls;
}

/* CONFIG_DMA_API_DEBUG: each mapping of a device that has not been given back; "DRIVER DEVICE ...". */
static void dma_line(char *text)
{
	text[strcspn(text, " ")] = 0;
	++*count_of("dma", text);
}

void census_begin(void)
{
	ncounts = looks = 0;
}

void census_look(void)
{
	bool all = !looks;

	if (looks == CENSUS_LOOKS)
		return;
	drain_lru();
	/*
	 * What kfree_rcu() was given waits for seconds else.  The kernel takes 1 to 4; after a 4
	 * it prints nothing of it any more.
	 */
	if (all)
		tell_kernel("/proc/sys/vm/drop_caches", "4");
	tell_kernel("/proc/sys/vm/drop_caches", "2");
	wait_for_others();
	read_slabs();
	for (unsigned i = 0; i < ncounts; i++)
		if (strncmp(counts[i].name, "slab:", 5) == 0 &&
		    (all || counts[i].seen[looks] > counts[i].seen[looks - 1]))
			shrink(counts[i].name + 5);
	wait_for_others();
	read_slabs();
	/* CPUs have numbers of their own, which only now are added. */
	tell_kernel("/proc/sys/vm/stat_refresh", "1");
	managed = unused_pages = slab_pages = 0;
	each_line("/proc/zoneinfo", zone_line);
	each_line("/proc/vmstat", vmstat_line);
	if (managed)
		*count_of("pages", "used") = managed - unused_pages - slab_pages;
	each_line("/proc/allocinfo", alloc_line);
	each_line("/sys/kernel/debug/dma-api/dump", dma_line);
	looks++;
}

unsigned census_looks(void)
{
	return looks;
}

static bool is_suspect(const struct count *c)
{
	int64_t grown = looks ? c->seen[looks - 1] - c->seen[0] : 0;

	/* By half of it in the end: what is told is judged by others. */
	return looks > 1 && llabs(grown) >= (looks < CENSUS_LOOKS ? looks - 1 : looks / 2);
}

bool census_suspects(void)
{
	for (unsigned i = 0; i < ncounts; i++)
		if (is_suspect(counts + i))
			return true;
	return false;
}

void census_tell(char *text, size_t size)
{
	size_t len = strlen(text);

	len += snprintf(text + len, size - len, "looks %u\n", ncounts ? looks : 0);
	for (unsigned i = 0; i < ncounts && size - len > NAME_SIZE + 24 * CENSUS_LOOKS; i++) {
		if (!is_suspect(counts + i))
			continue;
		len += snprintf(text + len, size - len, "left %s", counts[i].name);
		for (unsigned n = 0; n < looks; n++)
			len += snprintf(text + len, size - len, " %lld", (long long)counts[i].seen[n]);
		len += snprintf(text + len, size - len, "\n");
	}
}
