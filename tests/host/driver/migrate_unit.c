// SPDX-License-Identifier: GPL-2.0-or-later
/* mem/migrate.c: where MIGRATE is at the device, and where it is not. */
#include "fake_migrate.h"
#define VM_SPECIAL	1UL
#define VM_SHARED	2UL
#define VM_NOHUGEPAGE	4UL
#define MIGRATE_VMA_SELECT_SYSTEM		0
#define MIGRATE_VMA_SELECT_DEVICE_COHERENT	0
#define migrate_vma_setup(a)			setup()
#define mmap_read_lock_killable(mm)		lock_mm()
static int setup(void), lock_mm(void);
static struct vm_area_struct area = { .vm_end = -1UL, .anon_vma = &area };
#define find_vma_intersection(mm, start, end)	(&area)
#include "mem/migrate.c"

static struct hg_device hdev;
static struct hg_svm svm = { .vm.hdev = &hdev };
static unsigned int moved, locked;

static int setup(void)
{
	CHECK(hdev.users.readers);
	moved++;
	return 0;
}

/* It may wait for as long as somebody likes. */
static int lock_mm(void)
{
	CHECK(!hdev.users.readers);
	locked++;
	return 0;
}

struct hg_migrate_buf *hg_migrate_buf_alloc(unsigned long max, gfp_t gfp)
{
	CHECK(gfp & __GFP_RETRY_MAYFAIL);
	return calloc(1, sizeof(struct hg_migrate_buf));
}

/* Room is made, by copies; before that nobody knows how much it takes. */
bool hg_vram_short(struct hg_device *d, unsigned long n)
{
	return true;
}

void hg_vram_reserve(struct hg_device *d, unsigned long n)
{
	CHECK(hdev.users.readers);
}

int main(void)
{
	struct hg_migrate_result res = {};

	CHECK(hg_migrate_range(&svm, 0, PAGE_SIZE, true, false, &res) == 0 && moved && locked);
	CHECK(!hdev.users.readers);
	moved = 0;
	CHECK(hg_migrate_range(&svm, 0, PAGE_SIZE, false, false, &res) == 0 && moved);
	moved = 0;
	hdev.gone = true;
	CHECK(hg_migrate_range(&svm, 0, PAGE_SIZE, true, false, &res) == -ENODEV && !moved);
	CHECK(hg_migrate_range(&svm, 0, PAGE_SIZE, false, false, &res) == -ENODEV && !moved);
	CHECK(!hdev.users.readers);
	return 0;
}
