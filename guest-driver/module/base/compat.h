/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place that knows kernel versions.  The code is written for the
 * newest kernel supported; what older ones call differently is named here.
 */
#ifndef HMM_GPU_COMPAT_H
#define HMM_GPU_COMPAT_H

#include <linux/version.h>
#include <linux/dma-fence.h>
#include <linux/memremap.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/swapops.h>

/*
 * 6.19: device-private folios may be large: the free hook takes a folio and
 * zone_device_page_init() the page map and an order.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
#define HG_HAVE_LARGE_DEVICE_FOLIOS	1
#define HG_PAGEMAP_FREE_OP(fn)		.folio_free = fn
#define HG_DEFINE_PAGE_FREE(fn)						\
	static void fn(struct folio *folio)				\
	{								\
		fn##_page(folio_page(folio, 0), folio_order(folio));	\
	}
static inline void hg_zone_page_init(struct page *page, struct dev_pagemap *map,
				     unsigned int order)
{
	/* not through page_folio(): it may have been a tail page before */
	zone_device_page_init(page, map, order);
	if (order)
		folio_set_large_rmappable(page_folio(page));
}
#else
#define HG_PAGEMAP_FREE_OP(fn)		.page_free = fn
#define HG_DEFINE_PAGE_FREE(fn)						\
	static void fn(struct page *page)				\
	{								\
		fn##_page(page, 0);					\
	}
static inline void hg_zone_page_init(struct page *page, struct dev_pagemap *map,
				     unsigned int order)
{
	zone_device_page_init(page);
}
#endif

/*
 * Without large device folios the "compound" bits do not exist: 0 makes every
 * test of them false and every selection of them a no-op.
 */
#ifdef HG_HAVE_LARGE_DEVICE_FOLIOS
#define HG_SELECT_COMPOUND		MIGRATE_VMA_SELECT_COMPOUND
#define HG_PFN_COMPOUND			MIGRATE_PFN_COMPOUND
#define hg_thp_migration_supported()	thp_migration_supported()
#else
#define HG_SELECT_COMPOUND		0
#define HG_PFN_COMPOUND			0UL
#define hg_thp_migration_supported()	false
#endif

/* page->pgmap moved into the folio in 6.15 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define hg_page_pgmap(page)		page_pgmap(page)
#else
#define hg_page_pgmap(page)		((page)->pgmap)
#endif

/*
 * Since 6.15 do_swap_page() locks the faulting device page before it calls
 * migrate_to_ram(), so that of several CPUs faulting on it one wins and the
 * others wait.  Before, each of them arrives with a reference that makes the
 * others' migration fail; the driver has to let one of them win.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define HG_FAULT_PAGE_LOCKED	1
#else
#define HG_FAULT_PAGE_LOCKED	0
#endif

/*
 * Which pages can become exclusive.
 * 6.15: make_device_exclusive() takes one page instead of a range.  Returns the
 * page, locked and with a reference, or ERR_PTR; -EBUSY may go away by itself.
 * The mmap lock is held.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
static inline bool hg_may_be_exclusive(struct page *page)
{
	return PageAnon(page) && !PageHuge(page);
}

static inline struct page *hg_make_exclusive(struct mm_struct *mm, unsigned long addr,
					     void *owner)
{
	struct folio *folio;

	return make_device_exclusive(mm, addr, owner, &folio);
}
#else
static inline bool hg_may_be_exclusive(struct page *page)
{
	return PageAnon(page) && !PageCompound(page);
}

static inline struct page *hg_make_exclusive(struct mm_struct *mm, unsigned long addr,
					     void *owner)
{
	struct page *page = NULL;
	bool never;
	long n;

	n = make_device_exclusive_range(mm, addr, addr + PAGE_SIZE, &page, owner);
	if (n < 0)
		return ERR_PTR(n);
	if (page)
		return page;
	/* it does not say why */
	n = get_user_pages_remote(mm, addr, 1, FOLL_GET | FOLL_WRITE, &page, NULL);
	if (n < 0)
		return ERR_PTR(n);
	if (!n)
		return ERR_PTR(-EBUSY);
	/*
	 * Of a large folio it takes all pages or none, and only by the first one:
	 * it fails for ever while one of the others is mapped as it is.
	 */
	never = !hg_may_be_exclusive(page);
	put_page(page);
	return ERR_PTR(never ? -EOPNOTSUPP : -EBUSY);
}
#endif

/* 7.3: a range fault that waits for handlers in user space */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
#define HG_HAVE_UNLOCKED_RANGE_FAULT	1
#endif

/* 6.15 has one swap type for device-exclusive entries, older kernels two; 0xff: none */
#ifdef SWP_DEVICE_EXCLUSIVE
#define HG_SWP_EXCLUSIVE_A		SWP_DEVICE_EXCLUSIVE
#define HG_SWP_EXCLUSIVE_B		0xff
#else
#define HG_SWP_EXCLUSIVE_A		SWP_DEVICE_EXCLUSIVE_WRITE
#define HG_SWP_EXCLUSIVE_B		SWP_DEVICE_EXCLUSIVE_READ
#endif

/* how the end of an exclusive access is announced */
#ifdef SWP_DEVICE_EXCLUSIVE
#define HG_NOTIFY_REVOKE		MMU_NOTIFY_CLEAR
#else
#define HG_NOTIFY_REVOKE		MMU_NOTIFY_EXCLUSIVE
#endif

/* drm_driver.date went away in 6.14 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
#define HG_DRM_DATE
#else
#define HG_DRM_DATE			.date = "20261121",
#endif

#endif
