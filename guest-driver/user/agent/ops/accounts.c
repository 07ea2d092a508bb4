// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel says of a process's memory, by all of its mouths: for each page
 * /proc/self/pagemap and PAGEMAP_SCAN, for all of it the counters of its mm (status)
 * and what a walk of its page tables finds (smaps_rollup).
 *
 * Two looks that are equal, one right after the other, are one moment; where there are
 * none, because something still moves pages, nothing is told.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "op.h"
#include "pagemap.h"

#define MAX_PAGES	1024
#define LOOKS		6
#define FEW		3	/* pages, less than any CPU keeps */

/* Kilobytes; in this order known to the bench (model/ops/accounts.py); all 0: not exact. */
struct sums {
	uint64_t rss_anon, rss_file, rss_shmem;	/* as counted */
	uint64_t rss, anonymous;		/* as found */
	/* of the machine: memory that is said to be broken */
	uint64_t corrupted;
};

/* Of a page. */
struct page {
	uint64_t pagemap;
	uint64_t scan;		/* PAGE_IS_*; NOT_SCANNED: this kernel cannot */
};
#define NOT_SCANNED	UINT64_MAX

struct look {
	struct sums sums;
	struct page page[MAX_PAGES];
};

/* As linux/fs.h has it since 6.7, which is newer than what this is compiled with. */
struct scan_region {
	uint64_t start, end, categories;
};
struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN		_IOWR('f', 16, struct scan_arg)
#define IS_FILE		(1 << 2)
#define IS_PRESENT	(1 << 3)
#define IS_SWAPPED	(1 << 4)
#define IS_PFNZERO	(1 << 5)

/* The sum of lines "NAME: N kB" of a file; NULL ends the names. */
static void add_lines(const char *path, const char *const *names, uint64_t *const *to)
{
	FILE *f = fopen(path, "re");
	char line[256];

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		for (unsigned i = 0; names[i]; i++) {
			size_t len = strlen(names[i]);

			if (strncmp(line, names[i], len) == 0 && line[len] == ':')
				*to[i] += strtoull(line + len + 1, NULL, 10);
		}
	}
	fclose(f);
}

/* Whether the mm's counters are up to date: some kernels keep dozens of pages for each CPU. */
static bool counts_exactly(void)
{
	static atomic_bool known;
	uint64_t before = 0, after = 0;
	char *p;

	if (known)
		return true;
	p = mmap(NULL, FEW * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return false;
	madvise(p, FEW * PAGE_SIZE, MADV_NOHUGEPAGE);
	add_lines("/proc/self/status", (const char *[]){ "RssAnon", NULL }, (uint64_t *[]){ &before });
	for (unsigned i = 0; i < FEW; i++)
		((volatile char *)p)[i * PAGE_SIZE] = 1;
	add_lines("/proc/self/status", (const char *[]){ "RssAnon", NULL }, (uint64_t *[]){ &after });
	munmap(p, FEW * PAGE_SIZE);
	/* another thread may have come in between; the next look asks again */
	known = after - before == FEW * PAGE_SIZE / 1024;
	return known;
}

static void read_sums(struct sums *s)
{
	memset(s, 0, sizeof(*s));
	add_lines("/proc/self/status", (const char *[]){ "RssAnon", "RssFile", "RssShmem", NULL },
		  (uint64_t *[]){ &s->rss_anon, &s->rss_file, &s->rss_shmem });
	add_lines("/proc/self/smaps_rollup", (const char *[]){ "Rss", "Anonymous", NULL },
		  (uint64_t *[]){ &s->rss, &s->anonymous });
	add_lines("/proc/meminfo", (const char *[]){ "HardwareCorrupted", NULL },
		  (uint64_t *[]){ &s->corrupted });
}

/* Two looks, and what the kernel fills. */
struct room {
	struct look look[2];
	uint64_t entry[MAX_PAGES];
	struct scan_region region[MAX_PAGES];
};

/* What a scan says of pages of which each has its own region, or many have one. */
static void scan(int fd, const void *addr, struct scan_region *region, struct page *page,
		 uint32_t n)
{
	uint64_t first = (uintptr_t)addr;
	struct scan_arg arg = {
		.size = sizeof(arg), .start = first, .end = first + n * PAGE_SIZE,
		.vec = (uintptr_t)region, .vec_len = MAX_PAGES,
		.return_mask = IS_FILE | IS_PRESENT | IS_SWAPPED | IS_PFNZERO,
	};
	int got = ioctl(fd, SCAN, &arg);

	for (uint32_t i = 0; i < n; i++)
		page[i].scan = got < 0 ? NOT_SCANNED : 0;
	for (int r = 0; r < got; r++)
		for (uint64_t at = region[r].start; at < region[r].end; at += PAGE_SIZE)
			page[(at - first) / PAGE_SIZE].scan = region[r].categories;
}

/* False: who has changed its user may not look. */
static bool look(struct room *room, struct look *l, const void *addr, uint32_t n, bool all)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	scan(fd, addr, room->region, l->page, n);
	close(fd);
	if (pagemap_read(addr, room->entry, n))
		return false;
	for (uint32_t i = 0; i < n; i++)
		l->page[i].pagemap = room->entry[i];
	if (all && counts_exactly())
		read_sums(&l->sums);
	return true;
}

static int op_account(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	const void *addr = op_range(op);
	uint32_t n = op->len / PAGE_SIZE, len;
	struct room *room;
	uint8_t *to;
	int ret = 0;

	if (!addr || !n || n > MAX_PAGES || op->off % PAGE_SIZE || op->len % PAGE_SIZE)
		return -EINVAL;
	room = calloc(1, sizeof(*room));
	if (!room)
		return -ENOMEM;
	len = sizeof(struct sums) + n * sizeof(struct page);
	for (unsigned i = 0; i < LOOKS; i++) {
		if (!look(room, room->look + i % 2, addr, n, op->arg))
			break;
		if (!i || memcmp(room->look, room->look + 1, len))
			continue;
		to = op_data(call, len);
		if (!to) {
			ret = -ENOSPC;
			break;
		}
		memcpy(to, room->look, len);
		call->result->data_len = len;
		call->result->aux0 = n;
		break;
	}
	free(room);
	return ret;
}

static const struct op_kind accounts[] = {
	/*
	 * region off len; arg = 1: sums too -> data: struct sums, struct page each, if two looks
	 * were equal; aux0 = pages
	 */
	{ 72, "account", op_account, 0, NULL },
};
OP_FAMILY(accounts);
