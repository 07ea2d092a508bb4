/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A host for the core without a machine: one RAM block, a clock, interrupt
 * counters, a trace log.  Used by the C tests, the fuzzers and (through cffi)
 * by tests/core.
 */
#ifndef HG_TEST_HOST_H
#define HG_TEST_HOST_H

#include "hmm_gpu_core.h"
#ifndef HG_UNOBSERVED            /* the core alone, without observe/ */
#include "observe/hmm_gpu_observe.h"
#endif

#define TH_LOG 65536

typedef struct ThEvent {
    uint32_t ev;
    uint64_t a, b, c, d;
} ThEvent;

typedef struct ThHost {
    uint8_t *ram;               /* ram_base .. ram_base + ram_size on the bus */
    uint64_t ram_base, ram_size;
    uint8_t *vram;
    uint64_t vram_size;
    uint64_t now, now_step;     /* clock of deterministic runs; now_step 0: host time */
    uint64_t irq[HG_NUM_VECTORS];
    uint64_t ram_written, vram_written;     /* bytes */
    uint64_t bus_reads, bus_writes;         /* callbacks, not direct accesses */
    uint64_t kicks;
    uint64_t bad_lo, bad_hi;    /* bus error for callbacks that touch [lo, hi) */
    uint64_t alias;             /* RAM is here on the bus, too; its physical address is ram_base */
    ThEvent *log;
    uint64_t logged;            /* all events; the log keeps the last TH_LOG */
    HgDev *dev;
    bool measured;              /* bytes are not counted: two engines would take turns at it */
    bool manual;                /* the clock is `now`, which the test sets */
    uint64_t held;              /* of it, time in which a CPU was held up */
    uint32_t threads;           /* made */
    uint32_t no_thread;         /* the so-manyth there is none any more; 0: there always is */
} ThHost;

ThHost *th_new(uint64_t ram_base, uint64_t ram_size, uint64_t vram_size);
/* cfg->vram and vram_size are filled in.  direct: hg_ram_add() the RAM. */
HgDev *th_device(ThHost *h, HgConfig *cfg, int direct, char *err, size_t errlen);
void th_free(ThHost *h);        /* frees the device, too */

#endif
