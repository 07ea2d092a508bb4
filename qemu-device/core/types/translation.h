/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translations: guest RAM, TLBs, why there is none, misses, invalidations, walks.
 */
#ifndef HG_TRANSLATION_H
#define HG_TRANSLATION_H

#include "types/common.h"
#include "types/cache.h"

/* One directly reachable piece of guest RAM.  Changed only with all engines parked. */
typedef struct HgRam {
    uint64_t base, size;
    uint8_t *ptr;
    void *opaque;
    bool ro;
} HgRam;

#define HG_BIG_ORDER  4
#define HG_HUGE_ORDER 9

/* TLB entry.  In a micro-TLB vpn is the 4 KiB page; in the L2 the leaf's first page. */
typedef struct HgTlbEnt {
    uint64_t vpn;
    uint64_t pte;               /* the leaf as read */
    uint64_t addr;              /* of the 4 KiB frame (micro-TLB) or the leaf (L2) */
    uint8_t *host;              /* micro-TLB: direct pointer to the frame, or NULL; not saved */
    void *opaque;               /* of the RAM range of host */
    uint16_t asid;
    bool valid;
    uint8_t order;              /* log2 of the leaf's pages: 0, HG_BIG_ORDER, HG_HUGE_ORDER */
    bool host_ro;
    bool posted;                /* stores are; not saved */
    HgFrame *frame;             /* micro-TLB: of the data cache, with a reference; not saved */
    uint8_t stale;              /* an observer's count of faults of this entry; not saved */
} HgTlbEnt;

typedef struct HgTlb {
    HgTlbEnt *ent;
    uint8_t *next;              /* round-robin victim a set */
    unsigned sets, ways;
} HgTlb;

/* The table of a level for 2^(9 * (level + 1)) pages. */
typedef struct HgWalkEnt {
    uint64_t span;              /* page >> 9 * (level + 1) */
    uint64_t table;             /* address | HG_ROOT_VRAM */
    uint16_t asid;
    uint8_t level;
    bool valid;
} HgWalkEnt;

typedef struct HgWalkCache {
    HgWalkEnt *ent;             /* NULL: the device has none */
    uint8_t *next;              /* round-robin victim a set */
    unsigned sets, ways;
} HgWalkCache;

/* Why a translation failed. */
typedef struct HgFault {
    uint64_t va;
    uint8_t access, reason, level, lane;
    uint16_t pend;              /* slot in the engine's miss table, or HG_NO_PEND */
    bool ahead;                 /* of a load that is not at the pc yet: ahead.c */
} HgFault;

/* Outstanding miss of an engine: (asid, page), shared by all its stalled accesses to that page. */
typedef struct HgPend {
    uint64_t vpn;
    uint16_t asid;
    uint16_t refs;              /* 0 = free */
    uint8_t access;             /* the strongest that software was told of */
    bool hint;                  /* one reference is a prefetch's, until the next replay */
} HgPend;

typedef struct HgInval {
    uint64_t first, last;       /* pages, inclusive; first > last: nothing */
    uint16_t asid;
    uint8_t type;               /* HG_INVAL_* */
    bool membar;                /* complete when posted writes are there, too */
} HgInval;

/* The tables of a walk, by level; those from `low` to `from` were read. */
typedef struct HgWay {
    uint64_t table[HG_PT_LEVELS];   /* address | HG_ROOT_VRAM */
    unsigned low, from;             /* from: where it begins, the root or what a cache knows */
    uint64_t epoch;             /* an observer's */
} HgWay;

#endif /* HG_TRANSLATION_H */
