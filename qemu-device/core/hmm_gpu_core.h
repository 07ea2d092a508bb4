/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu core: the GPU, without QEMU.  This is the whole interface between
 * the GPU and whoever hosts it (QEMU's glue, the unit tests, Python by cffi).
 *
 * Host threads: MMIO, start/stop, save/load, ram_add/remove, inject, reset and
 * stepping are called by one host thread at a time (in QEMU: under the big lock).
 * Engine threads belong to the core; hg_new() asks the host for them, hg_free() ends
 * them; they run from hg_start() to hg_stop().  Host callbacks may come from any engine thread or
 * from inside a host call; the core holds none of its locks across read/write/
 * atomic callbacks.  In deterministic mode there are no engine threads: engines
 * run inside hg_step_engine() and hg_step() alone, and inside the calls that park
 * them.  A host callback must then not step, nor call what parks engines.
 */
#ifndef HMM_GPU_CORE_H
#define HMM_GPU_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hmm_gpu_hw.h"

/* Of this interface: it grows when anything in this file changes its form or meaning. */
#define HG_CORE_VERSION 10

/* What VRAM and BAR 2 may be; hg_memory_sizes_ok() is the rule. */
#define HG_VRAM_STEP (2ull << 20)
#define HG_VRAM_MAX  (1ull << 40)
#define HG_BAR2_MIN  (64ull << 10)

typedef struct HgDev HgDev;

typedef enum {
    HG_ATOMIC_SWAP, HG_ATOMIC_ADD, HG_ATOMIC_XOR, HG_ATOMIC_AND, HG_ATOMIC_OR,
    HG_ATOMIC_MIN, HG_ATOMIC_MAX, HG_ATOMIC_MINU, HG_ATOMIC_MAXU, HG_ATOMIC_CAS,
} HgAtomicOp;

/* Events for trace(): the host maps each to its own trace point. */
typedef enum {
    HG_EV_MMIO_READ,      /* a = offset, b = value */
    HG_EV_MMIO_WRITE,     /* a = offset, b = value */
    HG_EV_FAULT,          /* a = asid << 32 | source, b = address, c = info word */
    HG_EV_FAULT_DROPPED,  /* same */
    HG_EV_REPLAY,         /* a = type, b = sequence */
    HG_EV_CANCEL,         /* a = asid << 32 | type, b = address, c = stalled accesses cancelled */
    HG_EV_INVAL_START,    /* a = asid << 32 | type, b = start, c = length, d = sequence */
    HG_EV_INVAL_DONE,     /* a = sequence */
    HG_EV_LAUNCH,         /* a = context, b = entry, c = grid, d = block */
    HG_EV_LAUNCH_DONE,    /* a = context, b = HG_ERR_*, c = instructions */
    HG_EV_COPY,           /* a = context, b = src, c = dst, d = bytes */
    HG_EV_COPY_DONE,      /* a = context, b = HG_ERR_* */
    HG_EV_FENCE,          /* a = context, b = bus address, c = value */
    HG_EV_PREEMPT,        /* a = old context, b = new context */
    HG_EV_TLB_FILL,       /* a = asid << 32 | source, b = va, c = pte */
    HG_EV_GUEST_ERROR,    /* a = HG_ERR_* or 0, b = offset or context, c = value */
    HG_EV_IRQ,            /* a = vector */
    HG_EV_INJECT,         /* a = rule number, b = event */
    HG_EV_RESET,
    HG_EV_VIOLATION,      /* a = asid << 32 | HgCheck, b = va, c = GPU pte, d = CPU entry */
    HG_EV_COUNT
} HgTraceEvent;

/*
 * What the host provides.  read/write/atomic work on bus addresses (RAM only:
 * a target that is not RAM must fail), return 0 or -1 (bus error).  Atomics
 * are host atomics on the same RAM that the guest CPUs use; size is 4 or 8,
 * address naturally aligned; the old value is zero extended.
 */
typedef struct HgHostOps {
    int (*read)(void *host, uint64_t addr, void *buf, uint32_t len);
    int (*write)(void *host, uint64_t addr, const void *buf, uint32_t len);
    int (*atomic)(void *host, uint64_t addr, uint32_t size, HgAtomicOp op,
                  uint64_t operand, uint64_t expected, uint64_t *old);
    /*
     * The device wrote guest RAM through a pointer of hg_ram_add(): mark it
     * dirty and drop translated code.  May be NULL.
     */
    void (*ram_written)(void *host, void *opaque, void *ptr, uint64_t addr, uint32_t len);
    void (*vram_written)(void *host, uint64_t offset, uint32_t len); /* may be NULL */
    /* It read what a driver gave it in RAM: tables, rings, lists.  May be NULL. */
    void (*ram_read)(void *host, const void *ptr, uint32_t len);
    /*
     * Edge; any thread.  again: injected, and when it has been sent, not before, the host
     * calls hg_irq_again() with the vector.
     */
    void (*irq)(void *host, unsigned vector, bool again);
    uint64_t (*now)(void *host);                    /* virtual nanoseconds */
    void (*trace)(void *host, HgTraceEvent ev, uint64_t a, uint64_t b,
                  uint64_t c, uint64_t d);          /* may be NULL */
    /* A thread of that name that runs fn(opaque), for an engine; NULL: there is none to be had. */
    void *(*thread_create)(void *host, const char *name, void *(*fn)(void *), void *opaque);
    void (*thread_join)(void *host, void *thread);  /* fn has returned, or will soon */
    void (*thread_enter)(void *host);               /* first in each engine thread; may be NULL */
    void (*thread_exit)(void *host);
    /* deterministic mode: there is work, call hg_step() soon; may be NULL */
    void (*kick)(void *host);
    /*
     * Virtual nanoseconds in which no CPU was kept from running: what limits of
     * time are counted in.  May be NULL: a host that holds up none, now() then.
     */
    uint64_t (*fair_now)(void *host);
    /*
     * For the audit, which compares frames of memory, where a bus address is none.  Both or
     * neither; without them bus addresses are physical.  frame: where an access of the bus at
     * this address leads to, 0; -1: nowhere; 1: nobody can say now.  look: 8 aligned bytes of
     * RAM by their physical address, 0 or -1.  A full audit calls them with the device's lock
     * held, so whatever a host does for them must not come back to the device.
     */
    int (*frame)(void *host, uint64_t addr, uint64_t *phys);
    int (*look)(void *host, uint64_t phys, uint64_t *v);
} HgHostOps;

typedef struct HgConfig {
    uint32_t sms;              /* 1..HG_MAX_SMS, default 2 */
    uint32_t warps;            /* a SM, 1..HG_MAX_WARPS, default 8 */
    uint32_t ces;              /* 2..HG_MAX_CES, default 2; engine 0 is for PRIV contexts */
    uint32_t utlb_entries;     /* default 64 */
    uint32_t utlb_misses;      /* default 56 */
    uint32_t sms_per_utlb;     /* so many SMs have one miss table, default 1 */
    uint32_t l2tlb_entries;    /* default 512 */
    uint32_t walk_entries;     /* of the walk cache, default 32; 0: there is none */
    /*
     * Of the data cache, default 0: there is none.  Else hg_data_least() or more; not with
     * `coherent`.
     */
    uint32_t data_pages;
    uint64_t vram_size;        /* bytes, multiple of 2 MiB */
    uint64_t bar2_size;        /* bytes, power of two <= vram_size */
    void *vram;                /* host memory of vram_size bytes, page aligned */
    bool deterministic;        /* no threads: hg_step() runs the engines */
    uint64_t seed;             /* of injection and of out-of-order VALID */
    /*
     * Longest wait (virtual nanoseconds) for a CPU entry that is empty for a
     * moment only: see observe/audit.c.  0: this host's CPUs have no such moments.
     */
    uint64_t audit_wait_ns;
    uint32_t asids, ctxs;      /* that it has, default the most: HG_NUM_ASIDS, HG_NUM_CTXS */
    bool coherent;             /* bar2_size is vram_size, and CPUs may use it as memory */
    bool audit_cmd;            /* the guest may ask for full audits (HG_REG_AUDIT_CMD) */
    bool big_pages;            /* HG_PTE_BIG has a meaning; default no */
    bool prefetch_faults;      /* prefetch instructions report pages that are missing; default yes */
    bool ce_faults;            /* copies may report misses to the non-replayable ring; default no */
    bool reset_loses_vram;     /* the host takes VRAM's content away with hg_reset(): FEATURES */
} HgConfig;

/*
 * On memory that CPUs use, aligned; for the host's atomic() as well, so that there is one kind.
 * The old value, zero extended.
 */
uint64_t hg_host_atomic(void *p, uint32_t size, HgAtomicOp op, uint64_t operand,
                        uint64_t expected);

/* The fewest pages of a data cache, so that each micro-TLB entry may have one. */
uint32_t hg_data_least(const HgConfig *cfg);
/*
 * Was a host made for this core?  It says HG_CORE_VERSION and the sizes of HgConfig
 * and HgHostOps as it knows them (0: it has none); who was compiled apart asks before
 * hg_new().
 */
bool hg_core_fits(uint32_t version, size_t config, size_t ops);
void hg_config_default(HgConfig *cfg);
/* vram_size, bar2_size and coherent, which a host needs before it has memory; or a message. */
bool hg_memory_sizes_ok(const HgConfig *cfg, char *err, size_t errlen);
/* NULL and a message in err (size errlen) if cfg is bad. */
HgDev *hg_new(const HgConfig *cfg, const HgHostOps *ops, void *host,
              char *err, size_t errlen);
void hg_free(HgDev *d);                /* stops first */

/* size 4 or 8, naturally aligned; anything else reads 0 / is ignored and counts as guest error */
uint64_t hg_mmio_read(HgDev *d, uint64_t off, unsigned size);
void hg_mmio_write(HgDev *d, uint64_t off, uint64_t val, unsigned size);

/*
 * A message that irq() asked for with `again` is on its way: the same one follows a little
 * later.  Messages that merge in the host have one that follows.
 */
void hg_irq_again(HgDev *d, unsigned vector);

/*
 * Let engines run / keep them from running.  Idempotent.  hg_stop() brings engine
 * threads to an instruction boundary.  In deterministic mode it leaves engines
 * where they stand, in the middle of an access perhaps: they go on from there
 * after hg_start(), and what ran does not depend on when the machine was stopped.
 *
 * hg_park() brings them to an instruction boundary, stopped or not.  In
 * deterministic mode that finishes accesses to memory, which is to be
 * done before memory is saved, replaced or reset.  Save, load, reset and others
 * begin with the same, which is too late for that.
 */
void hg_start(HgDev *d);
void hg_stop(HgDev *d);
void hg_park(HgDev *d);
/* Bus mastering off: engines' bus accesses fail with a bus error. */
void hg_set_bus_master(HgDev *d, bool on);
void hg_reset(HgDev *d);               /* to power-on state; VRAM is the host's */

/*
 * Deterministic mode.  Engines are numbered: SMs, copy engines, front end.  One runs
 * in hg_step_engine() for so many steps and stops there, in the middle of what it
 * does; CPUs and other engines may run before it goes on.  A step is a warp
 * instruction, a copy piece, or one part of an access (HgAt): an access that hits
 * is two or three steps, one with a walk about eight.  What an engine does does not
 * depend on how its steps are cut, only on what others do in between.
 */
typedef enum {
    HG_AT_REST,             /* not in a slice */
    HG_AT_SAFE,             /* between two instructions, pieces or descriptors */
    HG_AT_WALK,             /* about to walk: the TLBs have no entry */
    HG_AT_LEVEL,            /* an entry of an upper table is read */
    HG_AT_LEAF,             /* the leaf is read, and in no TLB yet */
    HG_AT_HELD,             /* translation in hand, data not touched */
    HG_AT_DATA,             /* data done, the audit has not looked */
    HG_AT_AUDITED,          /* the audit has looked */
    HG_AT_BUS,              /* before or after accesses for a ring: descriptors, fences, faults */
    HG_AT_PAUSE,            /* injected pause of a walk: waits for time */
    HG_AT_AUDIT_WAIT,       /* the CPU's entry is empty: the audit waits to look again */
    HG_AT_COUNT
} HgAt;

unsigned hg_engines(HgDev *d);
/* Bit i: engine i has something to do now, perhaps in the middle of a slice. */
uint32_t hg_engines_ready(HgDev *d);
/* Where engine i stands, and its name for people. */
HgAt hg_engine_at(HgDev *d, unsigned i);
const char *hg_at_name(unsigned at);
/*
 * Run engine i for at most about `steps` steps; how many it took.  Fewer: it has
 * nothing to do now.  0: it had nothing to do, or waits for time.
 */
uint32_t hg_step_engine(HgDev *d, unsigned i, uint32_t steps);
/*
 * When (virtual nanoseconds) hg_engines_ready() will say more than now although
 * nothing happens but time: timers, delays, polls, pauses.  UINT64_MAX: never.
 * A time that has come means that it says so already.
 */
uint64_t hg_deadline(HgDev *d);
/*
 * Rounds over all engines, in a fixed order, of together about `budget` steps;
 * false: nothing to do, now and later.
 */
bool hg_step(HgDev *d, uint32_t budget);

/*
 * Directly reachable guest RAM.  remove returns only when no engine uses the
 * pointer any more.  Ranges do not overlap.  `opaque` comes back in ram_written.
 * With frame(): the bus address is the physical one there.
 * Address and pointer are equal modulo 4096, so that what is aligned on the bus is aligned
 * in memory; a range that is not is left to read, write and atomic.
 */
void hg_ram_add(HgDev *d, uint64_t bus_addr, uint64_t size, void *ptr, bool readonly, void *opaque);
void hg_ram_remove(HgDev *d, uint64_t bus_addr, uint64_t size);

/*
 * State, all of it but VRAM: a versioned byte string.  Only while stopped.
 * load validates everything as hostile input: 0, or -1 with a message and the
 * device reset.
 */
size_t hg_save_size(HgDev *d);
size_t hg_save_max(HgDev *d);                       /* it is never more, whatever the guest does */
size_t hg_save(HgDev *d, void *buf, size_t len);    /* bytes written, 0 if len is too small */
int hg_load(HgDev *d, const void *buf, size_t len, char *err, size_t errlen);

uint64_t hg_counter(HgDev *d, unsigned n);          /* HG_CNT_* */
const char *hg_counter_name(unsigned n);            /* "faults", ... */

/*
 * How whole warps are executed: "off" (lane by lane), "plain", "avx2", "avx512",
 * "best" (of this host; the default).  No result, flag or counter depends on it.
 * -1: no such name, or this host has not got it.
 */
int hg_vec_set(HgDev *d, const char *name);
const char *hg_vec_name(HgDev *d);

#endif /* HMM_GPU_CORE_H */
