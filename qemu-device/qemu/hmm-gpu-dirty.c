/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: what a write by host pointer owes to QEMU.
 *
 * Two parties keep copies of guest RAM: migration (pages already sent) and TCG
 * (code already translated).  After writing RAM by pointer the device must set
 * the page's dirty bits and, if the page's code bit is clear, drop the
 * translations made from it.  QEMU's function for that is static;
 * address_space_unmap() is its public door, at the price of a look-up and two
 * reference counts.  Pages are nearly always dirty for every client already,
 * and that costs only a look at the bitmaps.
 *
 * Order: the caller writes the data first and calls this after.  A dirty-log
 * start or clear that comes before our look makes us see a clean bit; one that
 * comes after it reads the RAM later than our data was written.
 */
#include "qemu/osdep.h"
#include "exec/memory.h"
#include "exec/ram_addr.h"
#include "hmm-gpu.h"

void hmm_gpu_mark_written(AddressSpace *as, MemoryRegion *mr, hwaddr off,
                          hwaddr len)
{
    uint8_t mask = memory_region_get_dirty_log_mask(mr);
    uint8_t *ptr;

    if (!len || !mask) {
        return;
    }
    smp_mb();   /* data before dirty bits */
    if (!cpu_physical_memory_range_includes_clean(
            memory_region_get_ram_addr(mr) + off, len, mask)) {
        return;
    }
    ptr = memory_region_get_ram_ptr(mr);
    memory_region_ref(mr);      /* address_space_unmap() drops it */
    address_space_unmap(as, ptr + off, len, true, len);
}
