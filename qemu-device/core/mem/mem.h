/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Access to guest memory and VRAM: in a slice only.
 */
#ifndef HG_MEM_H
#define HG_MEM_H

#include "device.h"

int hg_bus_read(HgEngine *e, uint64_t addr, void *buf, uint32_t len);
int hg_bus_write(HgEngine *e, uint64_t addr, const void *buf, uint32_t len);
int hg_bus_atomic(HgEngine *e, uint64_t addr, uint32_t size, HgAtomicOp op,
                  uint64_t operand, uint64_t expected, uint64_t *old);

/* May guest RAM be used by pointer?  Not if each access has to be looked at. */
static inline bool hg_direct_sys(const HgDev *d)
{
    return d->bus_master && !HG_HOOKED(d, dma);
}

/* Reading that is no access of the GPU's: nothing is counted or injected. */
bool hg_peek(HgEngine *e, uint64_t addr, void *buf, uint32_t len);
const HgRam *hg_ram_find(const HgDev *d, uint64_t addr, uint64_t len);
void hg_copy_in(void *dst, const uint8_t *shared, uint32_t n);
void hg_copy_out(uint8_t *shared, const void *src, uint32_t n);
void hg_copy_shared(uint8_t *dst, const uint8_t *src, uint32_t n);
void hg_dirty_flush(HgEngine *e);

#endif /* HG_MEM_H */
