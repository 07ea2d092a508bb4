// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory that no program has: see bystander.h. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "base.h"
#include "bystander.h"

#define KEPT_PAGES	64	/* of a process that stands by, the same all the time */
#define CACHE_PAGES	16	/* of a file: page cache */
#define FREED_PAGES	48	/* that others had before */
#define WORDS		(PAGE_SIZE / 8)

static uint64_t *kept, *cache, *freed;

/* Different in each word, so that words that changed places are seen too. */
static uint64_t pattern(const uint64_t *word)
{
	return 0x5354414e44425900ull ^ (uintptr_t)word * 0x9e3779b97f4a7c15ull;
}

static void write_pattern(uint64_t *p, unsigned pages)
{
	for (unsigned i = 0; i < pages * WORDS; i++)
		p[i] = pattern(p + i);
}

/* Memory of 4 KiB pages that is not inherited; NULL: there is none. */
static uint64_t *map(unsigned pages, int fd)
{
	size_t len = pages * PAGE_SIZE;
	uint64_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
			   fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, len, MADV_NOHUGEPAGE);
	if (madvise(p, len, MADV_DONTFORK)) {
		munmap(p, len);
		return NULL;
	}
	write_pattern(p, pages);
	return p;
}

static uint64_t *map_cache(void)
{
	int fd = memfd_create("bystander", MFD_CLOEXEC);
	uint64_t *p;

	if (fd < 0)
		return NULL;
	p = ftruncate(fd, CACHE_PAGES * PAGE_SIZE) ? NULL : map(CACHE_PAGES, fd);
	close(fd);
	return p;
}

void bystander_begin(void)
{
	uint64_t *before;

	if (!kept)
		kept = map(KEPT_PAGES, -1);
	if (!cache)
		cache = map_cache();
	/* What the last program had comes first; what we have would only come back. */
	before = freed;
	freed = map(FREED_PAGES, -1);
	if (before)
		munmap(before, FREED_PAGES * PAGE_SIZE);
}

static uint64_t check(uint64_t *p, unsigned pages)
{
	uint64_t wrong = 0;

	for (unsigned i = 0; p && i < pages * WORDS; i++) {
		if (__builtin_expect(p[i] == pattern(p + i), 1))
			continue;
		wrong++;
		p[i] = pattern(p + i);
	}
	return wrong;
}

uint64_t bystander_check(void)
{
	return check(kept, KEPT_PAGES) + check(cache, CACHE_PAGES) + check(freed, FREED_PAGES);
}
