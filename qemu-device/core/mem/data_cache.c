/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data cache (L2).  It lies between the engines' translated accesses and VRAM: a page
 * whose leaf has HG_PTE_CACHED is read and written in a copy here, by SMs and by copies of
 * virtual addresses alike, and so is the same for all of them.  Physical copies, walks and
 * the CPU (BAR2) go past it.  So software flushes before it lets those look, and before
 * they write: a page that stays behind is later taken for VRAM's content, and its
 * dirty lines are written over it.
 *
 * A page stays until it is flushed or evicted: no invalidation of translations, launch or
 * context switch removes it.
 *
 * Who may touch what.  A micro-TLB entry has a reference of its page here and the pointer to
 * its data, so an access costs what it costs in VRAM.  References come from 0 under data_lock
 * alone, and go anywhere.  Without one a page may be evicted: an access that lets an entry
 * go before it is done holds one of its own (lane_store(), one_piece()).  There are more
 * pages than there can be references (hg_data_least()), so one is free.
 *
 * Written back is what `dirty` says, taken before the data are read; a store comes before
 * its bit, which is set each time: so what takes the bit sees the store.  A store that a
 * write-back misses has its bit set after, and is written by the next one.
 */
#include "device.h"
#include "mem/data_cache.h"
#include "base/lock.h"
#include "mem/mem.h"

bool hg_data_init(HgDataCache *c, unsigned pages)
{
    *c = (HgDataCache) { 0 };
    if (!pages) {
        return true;
    }
    c->n = pages;
    c->frame = hg_alloc_lines(pages * sizeof(*c->frame));
    c->memory = aligned_alloc(HG_PAGE_SIZE, (size_t)pages * HG_PAGE_SIZE);
    for (unsigned i = 0; c->frame && i < pages; i++) {
        c->frame[i].data = c->memory + (size_t)i * HG_PAGE_SIZE;
    }
    return c->frame && c->memory;
}

void hg_data_free(HgDataCache *c)
{
    free(c->frame);
    free(c->memory);
}

void hg_data_forget(HgDev *d)
{
    HgDataCache *c = &d->data;

    pthread_mutex_lock(&d->data_lock);
    c->next = 0;
    for (unsigned i = 0; i < c->n; i++) {
        c->frame[i].valid = false;
        atomic_store_explicit(&c->frame[i].dirty, 0, memory_order_relaxed);
    }
    pthread_mutex_unlock(&d->data_lock);
}

/* data_lock is held. */
static void write_back(HgDev *d, HgFrame *f)
{
    uint64_t lines = atomic_exchange_explicit(&f->dirty, 0, memory_order_acquire);

    while (lines) {
        unsigned first = __builtin_ctzll(lines);
        uint64_t rest = ~(lines >> first);
        unsigned n = rest ? __builtin_ctzll(rest) : 64;
        uint32_t off = first << HG_LINE_SHIFT, len = n << HG_LINE_SHIFT;

        hg_copy_shared(d->vram + f->addr + off, f->data + off, len);
        if (d->ops.vram_written) {
            d->ops.vram_written(d->host, f->addr + off, len);
        }
        lines &= ~(UINT64_MAX >> (64 - n) << first);
    }
}

static bool unused(HgFrame *f)
{
    return !atomic_load_explicit(&f->refs, memory_order_acquire);
}

HgFrame *hg_frame_get(HgDev *d, uint64_t addr)
{
    HgDataCache *c = &d->data;
    HgFrame *f = NULL, *empty = NULL;

    pthread_mutex_lock(&d->data_lock);
    hg_visit(d, c->n, HG_PAGE_SIZE);
    for (unsigned i = 0; i < c->n && !f; i++) {
        if (c->frame[i].valid && c->frame[i].addr == addr) {
            f = &c->frame[i];
        } else if (!empty && !c->frame[i].valid) {
            empty = &c->frame[i];
        }
    }
    if (!f) {
        while (!empty) {
            HgFrame *victim = &c->frame[c->next];

            c->next = (c->next + 1) % c->n;
            if (unused(victim)) {
                write_back(d, victim);
                empty = victim;
            }
        }
        f = empty;
        f->addr = addr;
        f->valid = true;
        hg_copy_shared(f->data, d->vram + addr, HG_PAGE_SIZE);
    }
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&d->data_lock);
    return f;
}

void hg_data_flush(HgDev *d, uint64_t first, uint64_t last)
{
    HgDataCache *c = &d->data;

    pthread_mutex_lock(&d->data_lock);
    hg_visit(d, c->n, (uint64_t)c->n * HG_PAGE_SIZE);
    for (unsigned i = 0; i < c->n; i++) {
        HgFrame *f = &c->frame[i];

        if (f->valid && f->addr <= last && f->addr + (HG_PAGE_SIZE - 1) >= first) {
            f->valid = !unused(f);  /* before the write-back: what came before is in it */
            write_back(d, f);
        }
    }
    pthread_mutex_unlock(&d->data_lock);
}
