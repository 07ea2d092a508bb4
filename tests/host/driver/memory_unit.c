// SPDX-License-Identifier: GPL-2.0-or-later
/* mem/to_ram.c, mem/evict.c, mem/drain.c: which page is worth an OOM kill. */
#define clamp_t(t, v, a, b)	clamp(v, a, b)
#include "fake_migrate.h"
#include "mem/to_ram.c"
#define bitmap_zalloc(n, g)	(last_gfp = (g), fake_alloc(8, g))
#include "mem/evict.c"
#include "mem/drain.c"

static gfp_t buf_gfp;

struct hg_migrate_buf *hg_migrate_buf_alloc(unsigned long max, gfp_t gfp)
{
	unsigned long bytes = sizeof(struct hg_migrate_buf) + max * 100;
	struct hg_migrate_buf *buf = calloc(1, bytes);

	buf_gfp = gfp;
	buf->src = calloc(max, 8);
	buf->dst = calloc(max, 8);
	buf->src[0] = MIGRATE_PFN_MIGRATE;
	return buf;
}

/* How hard a page was asked for. */
static gfp_t asked(struct hg_device *hdev, unsigned long must)
{
	struct hg_migrate_buf *buf = hg_migrate_buf_alloc(1, 0);

	last_gfp = 0;
	hg_copy_to_system(hdev, NULL, 0, buf, 1, must);
	return last_gfp;
}

int main(void)
{
	static struct hg_device hdev;

	/* a CPU's page: as any page of a process */
	CHECK(!(asked(&hdev, 0) & (__GFP_NORETRY | __GFP_RETRY_MAYFAIL)));
	/* what lies around it */
	CHECK(asked(&hdev, 5) & __GFP_NORETRY);
	/* an eviction's, and what it needs for itself */
	CHECK(asked(&hdev, ULONG_MAX) & __GFP_RETRY_MAYFAIL);
	evict_range(&hdev, 0, 1);
	CHECK(buf_gfp & __GFP_RETRY_MAYFAIL);
	last_gfp = 0;
	hdev.vram.lru.next = &hdev.vram.lru;
	hg_vram_evict(&hdev, 1);
	CHECK(last_gfp & __GFP_RETRY_MAYFAIL);
	last_gfp = 0;
	hg_drain_batches(&hdev);
	CHECK(last_gfp & __GFP_RETRY_MAYFAIL);
	return 0;
}
