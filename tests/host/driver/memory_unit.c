// SPDX-License-Identifier: GPL-2.0-or-later
/* mem/to_ram.c, mem/evict.c: which page is worth an OOM kill. */
#define MIGRATE_PFN_MIGRATE	1UL
#define MIGRATE_PFN_VALID	2UL
#define HG_PFN_COMPOUND		0UL
#define migrate_pfn(p)		((p) << 6 | MIGRATE_PFN_VALID)
#define migrate_pfn_to_page(m)	((m) ? &a_page : NULL)
#define folio_alloc(g, o)	NULL
#define folio_page(f, n)	(&(f)->page)
#define page_folio(p)		((struct folio *)(p))
#define pfn_to_page(n)		(&a_page)
#define page_to_pfn(p)		1UL
#define HG_FAULT_PAGE_LOCKED	1
#define clamp_t(t, v, a, b)	clamp(v, a, b)
#define MIGRATE_VMA_SELECT_DEVICE_PRIVATE 0
#define HG_SELECT_COMPOUND	0
#define VM_FAULT_OOM		1
#define VM_FAULT_SIGBUS		2
#define roundup_pow_of_two(n)	(n)
#define hash_long(v, b)		0
struct vm_area_struct { unsigned long vm_start, vm_end; };
struct vm_fault { struct page *page; struct vm_area_struct *vma; void *pte; unsigned long address; };
struct migrate_vma {
	struct vm_area_struct *vma;
	void *pgmap_owner;
	unsigned long start, end, npages, flags, *src, *dst;
	struct page *fault_page;
};
#include "mem/to_ram.c"
#define bitmap_zalloc(n, g)	fake_alloc(8, g)
#include "mem/evict.c"

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
	return 0;
}
