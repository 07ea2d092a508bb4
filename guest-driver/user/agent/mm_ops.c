// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on memory by system call. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "program.h"

uint64_t region_addr(unsigned region, uint64_t off, uint64_t len)
{
	if (region >= HB_MAX_REGIONS || off > sh->region_size[region] ||
	    len > sh->region_size[region] - off)
		return 0;
	return sh->region_base[region] + off;
}

static int result(int ret)
{
	return ret < 0 ? -errno : 0;
}

static int op_mmap(const struct hb_op *op, void *addr)
{
	int flags = MAP_FIXED, fd = -1;

	switch (op->arg) {
	case HB_MAP_ANON_PRIVATE: flags |= MAP_PRIVATE | MAP_ANONYMOUS; break;
	case HB_MAP_ANON_SHARED: flags |= MAP_SHARED | MAP_ANONYMOUS; break;
	case HB_MAP_FILE_PRIVATE: flags |= MAP_PRIVATE; break;
	case HB_MAP_FILE_SHARED: flags |= MAP_SHARED; break;
	case HB_MAP_HUGETLB_PRIVATE: flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB; break;
	case HB_MAP_HUGETLB_SHARED: flags |= MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB; break;
	case HB_MAP_STACK:
	case HB_MAP_GLOBAL:
		/* They are there; make them what a fresh mapping would be: zero, with this protection. */
		if (mprotect(addr, op->len, op->a))
			return -errno;
		return result(madvise(addr, op->len, MADV_DONTNEED));
	default:
		return -EINVAL;
	}
	if (!(flags & MAP_ANONYMOUS)) {
		if (op->b >= HB_MAX_FILES || sh->file_fd[op->b] < 0)
			return -EBADF;
		fd = sh->file_fd[op->b];
	}
	if (mmap(addr, op->len, op->a, flags, fd, fd >= 0 ? op->c : 0) == MAP_FAILED)
		return -errno;
	return 0;
}

static int op_mremap(const struct hb_op *op, void *addr)
{
	void *to = (void *)(uintptr_t)region_addr(op->arg, op->a, op->b);
	int flags = 0;

	if (!to)
		return -EINVAL;
	/* To the same address means: grow or shrink in place. */
	if (to != addr)
		flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	if (op->c == 1)
		flags |= MREMAP_DONTUNMAP;
	else if (op->c)
		return -EINVAL;
	if (mremap(addr, op->len, op->b, flags, to) == MAP_FAILED)
		return -errno;
	return 0;
}

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

/*
 * Let ksmd look at everything twice, which is what it needs to merge (the first
 * round only notes the checksums), or give up after a quarter of a second.
 */
static int op_ksm(const struct hb_op *op)
{
	unsigned long scans;
	int ret;

	if (!op->a)
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

static int op_evict(const struct hb_op *op)
{
	char text[32];

	if (op->a)
		snprintf(text, sizeof(text), "%llu", (unsigned long long)op->a);
	else
		strcpy(text, "all");
	return debugfs_write("evict", text);
}

/*
 * Pages that a CPU puts on the LRU lists, or gives up, wait in a batch of that CPU
 * until there are enough.  MADV_FREE and reclaim pass over what waits on another
 * CPU, and the scheduler moves us between operations: so on each CPU the batch is
 * emptied, which is the first thing MADV_COLD does.  Of a page that nobody uses it
 * does no more.
 */
static void drain_lru(void)
{
	static char unused[4096] __attribute__((aligned(4096)));
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0, left = CPU_COUNT(&all); left; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		left--;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (!sched_setaffinity(0, sizeof(one), &one))
			madvise(unused, sizeof(unused), MADV_COLD);
	}
	sched_setaffinity(0, sizeof(all), &all);
}

static int op_madvise(const struct hb_op *op, void *addr)
{
	if (op->a == MADV_FREE || op->a == MADV_PAGEOUT)
		drain_lru();
	return result(madvise(addr, op->len, op->a));
}

int mm_op(const struct hb_op *op, struct hb_op_result *r)
{
	void *addr;

	(void)r;
	if (op->op == HB_OP_KSM)
		return op_ksm(op);
	if (op->op == HB_OP_EVICT)
		return op_evict(op);
	addr = (void *)(uintptr_t)region_addr(op->region, op->off, op->len);
	if (!addr)
		return -EINVAL;
	switch (op->op) {
	case HB_OP_MMAP: return op_mmap(op, addr);
	case HB_OP_MUNMAP: return result(munmap(addr, op->len));
	case HB_OP_MPROTECT: return result(mprotect(addr, op->len, op->a));
	case HB_OP_MADVISE: return op_madvise(op, addr);
	case HB_OP_MREMAP: return op_mremap(op, addr);
	default: return -EINVAL;
	}
}
