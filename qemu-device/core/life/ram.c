/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest RAM that can be reached directly comes and goes.
 */
#include "device.h"
#include "life/ram.h"
#include "base/pause.h"
#include "mem/posted.h"
#include "mmu/tlb.h"

void hg_ram_add(HgDev *d, uint64_t bus_addr, uint64_t size, void *ptr, bool readonly, void *opaque)
{
    unsigned i;

    if (!size || !ptr || bus_addr + (size - 1) < bus_addr ||
        ((bus_addr ^ (uintptr_t)ptr) & HG_PAGE_MASK)) {
        return;
    }
    hg_pause(d);
    if (d->nram == d->ram_cap) {
        unsigned cap = d->ram_cap ? d->ram_cap * 2 : 8;
        HgRam *n = realloc(d->ram, cap * sizeof(*n));
        if (!n) {
            hg_resume(d);       /* the callbacks still reach it */
            return;
        }
        d->ram = n;
        d->ram_cap = cap;
    }
    for (i = d->nram; i > 0 && d->ram[i - 1].base > bus_addr; i--) {
        d->ram[i] = d->ram[i - 1];
    }
    d->ram[i] = (HgRam) { .base = bus_addr, .size = size, .ptr = ptr,
                          .opaque = opaque, .ro = readonly };
    d->nram++;
    hg_resolve_all(d);
    hg_resume(d);
}

void hg_ram_remove(HgDev *d, uint64_t bus_addr, uint64_t size)
{
    unsigned i, n = 0;

    hg_pause(d);
    hg_posted_drain_idle(d, NULL);
    for (i = 0; i < d->nram; i++) {
        HgRam r = d->ram[i];
        /* whatever overlaps the hole goes; whole ranges are what hosts remove */
        if (size && r.base <= bus_addr + (size - 1) && bus_addr <= r.base + (r.size - 1)) {
            continue;
        }
        d->ram[n++] = r;
    }
    d->nram = n;
    hg_resolve_all(d);
    hg_resume(d);
}
