/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory of processes that are gone.  Where a reference on a page is forgotten, no
 * process has the page and the kernel keeps it: it stays on the lists of anonymous
 * pages, but is mapped nowhere.  Where it is one on an address space (mm_users),
 * its page tables stay, and all that they map.  (In the lists are pages of tmpfs, too; those
 * that a migration has taken off them and forgotten, or of hugetlb, are not.)
 *
 * Once is enough for either: the counts are exact, and when everybody has gone they are
 * what they were before.  It takes no counter of a driver's.
 *
 * The supervisor's own, before a program and after it.
 */
#ifndef HMMBENCH_REMAINS_H
#define HMMBENCH_REMAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct remains {
	int64_t unmapped;	/* anonymous pages that nobody maps, those in swap's cache too */
	int64_t swap;		/* pages in swap's cache, mapped or not */
	int64_t mapped;		/* anonymous pages that somebody maps */
	int64_t tables;		/* pages of page tables; the kernel's own may be among them */
};

/* False: this kernel does not say. */
bool remains_look(struct remains *r);
/* Whether there is more than before; the kernel gives back late what it gives back itself. */
bool remains_more(const struct remains *before, uint32_t wait_ms, struct remains *more);

#endif
