// SPDX-License-Identifier: GPL-2.0-or-later
/* mem/copy.c, mem/to_ram.c: a copy that was not begun is told from one that failed. */
#include "fake_migrate.h"

static int maps;		/* so many can still be mapped */
static int mapped;
static bool broken;		/* the engine */
#define dma_map_page(d, p, o, n, dir)	(maps-- > 0 ? (mapped++, 0x1000) : 0)
#define dma_mapping_error(d, a)		(!(a))
#define dma_unmap_page(d, a, n, dir)	(mapped--)

#define add_op			copy_add_op
#include "mem/copy.c"
#undef add_op
#include "mem/to_ram.c"

static struct hg_ce_slot slot;

struct hg_ce_slot *hg_ce_get(struct hg_device *hdev)
{
	slot.n = 0;
	return &slot;
}

void hg_ce_add(struct hg_ce_slot *s, u64 src, u64 dst, u64 bytes, u64 flags)
{
	s->n++;
}

int hg_ce_run(struct hg_device *hdev, struct hg_ce_slot *s)
{
	return broken ? -EIO : 0;
}

/* What becomes of two pages, the first of which can be mapped for the device, or none. */
static int home(struct hg_device *hdev, int can_map, bool fails, unsigned long must)
{
	struct hg_migrate_buf *buf = hg_migrate_buf_alloc(2, GFP_KERNEL);
	int ret;

	buf->src[0] = buf->src[1] = MIGRATE_PFN_MIGRATE;
	maps = can_map;
	broken = fails;
	ret = hg_copy_to_system(hdev, NULL, 0, buf, 2, must);
	CHECK(!buf->dst[0] == (fails || can_map < 1));
	CHECK(!buf->dst[1] == (fails || can_map < 2));
	CHECK(!mapped);
	hg_migrate_buf_free(buf);
	return ret;
}

int main(void)
{
	static struct hg_device hdev;
	static struct pci_dev pdev;

	hdev.pdev = &pdev;
	CHECK(home(&hdev, 2, false, ULONG_MAX) == 0);
	/* a CPU's page is asked for again, and so is one of many */
	CHECK(home(&hdev, 1, false, 1) == -ENOMEM);
	CHECK(home(&hdev, 1, false, ULONG_MAX) == -ENOMEM);
	/* what lies around it is not asked for */
	CHECK(home(&hdev, 1, false, 0) == 0);
	/* the engine could not read one of them */
	CHECK(home(&hdev, 2, true, 1) == -EIO);
	CHECK(home(&hdev, 1, true, ULONG_MAX) == -EIO);
	return 0;
}
