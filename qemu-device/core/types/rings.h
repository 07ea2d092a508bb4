/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fault rings, replays, timers.
 */
#ifndef HG_RINGS_H
#define HG_RINGS_H

#include "types/common.h"

typedef struct HgRing {
    uint64_t base;
    uint32_t base_lo;
    uint32_t size, get, put;
    bool enabled, overflow;
    uint32_t writers;           /* entries being written outside the lock */
} HgRing;

typedef struct HgReplay {
    uint64_t key, seq;          /* seq may grow by merging, key never changes */
    uint64_t owed;              /* accesses sent again, no answer yet */
    bool waiting;               /* injection: not performed yet */
    uint8_t type;
} HgReplay;

enum { HG_T_IRQ = 1, HG_T_REPLAY, HG_T_DOORBELL, HG_T_VALID, HG_T_REPEAT, HG_T_COUNT };

typedef struct HgTimer {
    uint64_t due, b;
    uint32_t a, c;
    uint8_t kind;
} HgTimer;

#endif /* HG_RINGS_H */
