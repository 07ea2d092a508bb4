/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What mem/to_ram.c asks of the kernel's migration, beside fake_kernel.h: of one page alone. */
#ifndef FAKE_MIGRATE_H
#define FAKE_MIGRATE_H

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
#define MIGRATE_VMA_SELECT_DEVICE_PRIVATE 0
#define HG_SELECT_COMPOUND	0
#define VM_FAULT_OOM		1
#define VM_FAULT_SIGBUS		2
#define roundup_pow_of_two(n)	(n)
#define hash_long(v, b)		0
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags;
	void *anon_vma;
};
struct vm_fault {
	struct page *page;
	struct vm_area_struct *vma;
	void *pte;
	unsigned long address;
};
struct migrate_vma {
	struct vm_area_struct *vma;
	void *pgmap_owner;
	unsigned long start, end, npages, cpages, flags, *src, *dst;
	struct page *fault_page;
};

#endif
