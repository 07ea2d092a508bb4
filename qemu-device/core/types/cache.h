/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data cache and posted writes.
 */
#ifndef HG_CACHE_H
#define HG_CACHE_H

#include "types/common.h"

#define HG_LINE_SHIFT   6           /* what is written back: 64 a page, a bit each */
#define HG_POSTED_RUNS  256
#define HG_POSTED_BYTES 4096
#define HG_POSTED_NS    1000000     /* as long as a write may wait */

/*
 * A page of VRAM in the data cache.  Whoever has a reference uses `data`, by atomic accesses
 * as if it were VRAM; else it is data_lock's.
 */
typedef struct HgFrame {
    uint64_t addr;              /* offset in VRAM; data_lock */
    uint8_t *data;
    _Atomic uint64_t dirty;     /* lines that VRAM has not got */
    _Atomic uint32_t refs;      /* of micro-TLB entries and accesses; 0 to 1 under data_lock */
    bool valid;                 /* data_lock */
} HgFrame;

typedef struct HgDataCache {
    HgFrame *frame;             /* NULL: the device has none */
    uint8_t *memory;
    unsigned n, next;           /* next: the round-robin victim */
} HgDataCache;

/*
 * Stores to system memory on their way, of one SM and of one context: runs of bytes in
 * the order in which they were issued.  The SM's while it runs warps (run), else d->lock's.
 */
typedef struct HgPosted {
    struct HgCtx *ctx;          /* whose they are; d->lock */
    uint64_t due;
    uint32_t n, bytes;
    struct {
        uint64_t addr;
        uint32_t len;           /* inside one page */
    } run[HG_POSTED_RUNS];
    uint8_t data[HG_POSTED_BYTES];
} HgPosted;

#endif /* HG_CACHE_H */
