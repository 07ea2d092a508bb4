/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data cache: pages of VRAM that translations with HG_PTE_CACHED lead to.
 */
#ifndef HG_DATA_CACHE_H
#define HG_DATA_CACHE_H

#include "device.h"

bool hg_data_init(HgDataCache *c, unsigned pages);
void hg_data_free(HgDataCache *c);
void hg_data_forget(HgDev *d);          /* also what is dirty; nobody has a reference */
/* The copy of that page of VRAM, with a reference.  Any lock but data_lock. */
HgFrame *hg_frame_get(HgDev *d, uint64_t addr);
/*
 * What is dirty of the pages in [first, last] goes to VRAM, and those that nobody has a
 * reference of are forgotten.  Any lock but data_lock.
 */
void hg_data_flush(HgDev *d, uint64_t first, uint64_t last);

/* One more, by who has one. */
static inline void hg_frame_hold(HgFrame *f)
{
    if (f) {
        atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    }
}

static inline void hg_frame_put(HgFrame *f)
{
    if (f) {
        atomic_fetch_sub_explicit(&f->refs, 1, memory_order_release);
    }
}

/* By who has a reference, after [off, off + size) was written. */
static inline void hg_frame_written(HgFrame *f, uint32_t off, uint32_t size)
{
    unsigned first = off >> HG_LINE_SHIFT, last = (off + size - 1) >> HG_LINE_SHIFT;
    uint64_t lines = UINT64_MAX >> (63 - (last - first)) << first;

    /* Also where all are set: to read them says nothing of whose store is there first. */
    atomic_fetch_or_explicit(&f->dirty, lines, memory_order_release);
}

#endif /* HG_DATA_CACHE_H */
