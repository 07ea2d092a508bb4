/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu core: structures shared by the files of core/.
 *
 * Locking, in one place:
 *
 *  d->lock      all control state: registers, contexts, rings, fault units,
 *               the stalled warps and copies, engines' request lists and their
 *               in_slice flags.  Held briefly, never across read/write/atomic.
 *  d->l2_lock   the shared TLB.  Leaf lock.
 *  d->inj_lock  injection rules.  Leaf lock.
 *  d->viol_lock violations and what is kept for their record (violation.c).  Leaf lock.
 *  (check.c says what the state of the protocol checks relies on.)
 *
 * Engines and slices.  An engine (SM, copy engine, front end) is either
 * *parked* (in_slice == false) or *in a slice*.  Both transitions happen under
 * d->lock.  Only an engine in a slice touches guest memory, VRAM, its
 * micro-TLB, its instruction cache or the RAM table; while it is parked, these
 * belong to whoever holds d->lock.  In a slice the engine passes a *safe
 * point* at least between any two instructions or copy pieces; one access
 * (translate, then perform) never contains a safe point.  At a safe point with
 * `attn` set it takes d->lock and serves the requests posted to it.
 *
 * The invalidation path relies on exactly this: after removing L2 entries, it
 * flushes parked engines itself and posts to the others; an engine that has
 * served the request has finished every access under the old translation
 * (they lie before the safe point) and cannot find it in a TLB again (the L2
 * refuses inserts of walks that began before the removal).
 *
 * Stalled warps and copies belong to d->lock even while their engine is in a
 * slice (the engine only touches runnable ones; the transition to stalled
 * happens under d->lock), so replay and cancel act at once.
 *
 * hg_stop, reset, save, load, ram_add/remove raise d->pause and wait until no
 * engine is in a slice; an engine that sees it leaves its slice completely, so no
 * pointer of the old state survives on its stack.
 *
 * Deterministic stepping (step.c) keeps all of this and has no threads: each
 * engine is a coroutine, run by the host's thread inside hg_step_engine() until
 * its steps are used up.  It may stop at any *point* (hg_point()), which is
 * where others may come in between as they do between any two instructions of
 * a thread; so what is said above of an engine in a slice holds for one that
 * stands in the middle of it, and nothing else may be relied on there.  A point
 * is never passed with a lock held: d->lock, the leaf locks and the host's are
 * free whenever an engine stands, and only one engine runs at a time.  Instead of
 * waiting for engines in slices, hg_pause() runs them on to their safe points.
 * The machine's stop is no such pause: engines stay where they are (hg_stop()).
 */
#ifndef HG_INTERNAL_H
#define HG_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE             /* also under -std=c11; each .c includes this file first */
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "coro.h"
#include "hmm_gpu_core.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hmm-gpu core: little-endian hosts only"
#endif

#define HG_PAGE_SIZE        4096u
#define HG_PAGE_MASK        4095u
#define HG_UTLB_WAYS        4
#define HG_L2_WAYS          4
#define HG_IC_PAGES         16          /* decoded pages an SM */
#define HG_PAGE_INSNS       1024
#define HG_STALL_MAX        64          /* 32 lanes, each may straddle */
#define HG_INVAL_REQS       8
#define HG_INVAL_QUEUE      32
#define HG_REPLAY_QUEUE     16
#define HG_TIMERS           256
#define HG_SM_SLICE         1024        /* warp instructions */
#define HG_WARP_CHUNK       64          /* before the next warp has its turn */
#define HG_CE_SLICE         256         /* pieces */
#define HG_ROUND_SM         256         /* steps an engine in a round of hg_step() */
#define HG_ROUND_OTHER      32
#define HG_STARVE           4096        /* see rv.c */
#define HG_STARVE_QUANTUM   64
#define HG_DEFAULT_SLICE_US 1000
#define HG_NO_PEND          0xffffu
#define HG_AUDIT_NOTES      128
#define HG_FILL_NOTES       64          /* power of two */
#define HG_INVAL_LOG        64
#define HG_FULL_BUDGET      (1u << 22)
#define HG_AUDIT_LOOK_NS    1000        /* deterministic mode: from one look to the next, */
#define HG_AUDIT_LOOKS      6           /* doubled so many times */
#define HG_AUDIT_WAITS      16          /* vain waits until the host clears the violations */

/* Guest memory is shared with CPUs: always through these, never plain. */
typedef uint8_t __attribute__((may_alias)) hg_u8a;
typedef uint16_t __attribute__((may_alias)) hg_u16a;
typedef uint32_t __attribute__((may_alias)) hg_u32a;
typedef uint64_t __attribute__((may_alias)) hg_u64a;

/* Bytes of a cache line of the host. */
#define HG_LINE 64

/* Zeroed, in cache lines of its own; NULL: no memory.  For free(). */
static inline void *hg_alloc_lines(size_t bytes)
{
    size_t whole = (bytes + HG_LINE - 1) / HG_LINE * HG_LINE;
    void *p = aligned_alloc(HG_LINE, whole);

    return p ? memset(p, 0, whole) : NULL;
}

typedef struct HgEngine HgEngine;
typedef struct HgCtx HgCtx;

/* One directly reachable piece of guest RAM.  Changed only with all engines parked. */
typedef struct HgRam {
    uint64_t base, size;
    uint8_t *ptr;
    void *opaque;
    bool ro;
} HgRam;

/* TLB entry.  In a micro-TLB vpn is the 4 KiB page; in the L2 the leaf's first page. */
typedef struct HgTlbEnt {
    uint64_t vpn;
    uint64_t pte;               /* the leaf as read */
    uint64_t addr;              /* of the 4 KiB frame (micro-TLB) or the leaf (L2) */
    uint8_t *host;              /* micro-TLB: direct pointer to the frame, or NULL; not saved */
    void *opaque;               /* of the RAM range of host */
    uint16_t asid;
    bool valid;
    bool huge;
    bool host_ro;
    uint8_t stale;              /* check.c: faults of this entry that the tables would allow; not saved */
} HgTlbEnt;

typedef struct HgTlb {
    HgTlbEnt *ent;
    uint8_t *next;              /* round-robin victim a set */
    unsigned sets, ways;
} HgTlb;

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
    uint8_t access;
} HgPend;

typedef struct HgInval {
    uint64_t first, last;       /* pages, inclusive; first > last: nothing */
    uint16_t asid;
    uint8_t type;               /* HG_INVAL_* */
} HgInval;

/* audit.c: a translation used since the last safe point; when a page was last filled. */
typedef struct HgAuditNote {
    uint64_t vpn, pte, addr;
    uint16_t asid;
    uint8_t access;
} HgAuditNote;

typedef struct HgFillNote {
    uint64_t vpn, time;
    uint16_t asid;
} HgFillNote;

typedef struct HgInvalNote {
    HgInval iv;
    uint64_t seq, time;
} HgInvalNote;

typedef struct HgInsn {
    uint32_t raw;
    int32_t imm;
    uint8_t op;                 /* 0 = not decoded yet */
    uint8_t rd, rs1, rs2;       /* rd 32 is a bin for x0; f0 is a register */
} HgInsn;

typedef struct HgIcPage {
    uint64_t vpn;
    uint16_t asid;
    bool valid, huge;
    HgInsn insn[HG_PAGE_INSNS + 1];     /* the last one is never decoded: a mark */
} HgIcPage;

enum { HG_ENG_SM = HG_ENGINE_SM, HG_ENG_CE = HG_ENGINE_CE, HG_ENG_FE = 2 };

struct HgEngine {
    _Alignas(HG_LINE) HgDev *d; /* so that no two engines write the same line */
    uint8_t kind, num;
    pthread_t thread;
    pthread_cond_t cv;
    bool running;               /* thread exists */
    bool in_slice;              /* d->lock */
    _Atomic uint32_t attn;      /* set and cleared under d->lock, read anywhere */
    /* deterministic mode, else NULL; these belong to the thread that steps */
    HgCoro *co;
    uint32_t steps;             /* left until it yields */
    uint64_t held;              /* 1 + page of the translation in hand, of this instruction */
    uint8_t at;                 /* HgAt, while it stands in a slice */
    bool audit_waits;           /* for an empty CPU entry */
    uint64_t wake;              /* waits for this time, or 0 */
    HgInval req[HG_INVAL_REQS]; /* d->lock: invalidations posted, not served */
    unsigned nreq;
    bool req_all;
    uint64_t inval_ack;         /* d->lock: all up to this one are flushed here */
    HgTlb utlb;                 /* slice owner */
    HgPend *pend;               /* d->lock; cfg.utlb_misses slots */
    unsigned npend;
    _Atomic uint64_t cnt[HG_NUM_COUNTERS];  /* written by the engine only */
    /* d->lock */
    HgCtx *cur;                 /* SM: context scheduled last */
    HgCtx *run;                 /* SM: context whose warps it may touch now, or NULL */
    uint64_t slice_end;
    unsigned rr;                /* last context served */
    /* SM, slice owner: */
    uint64_t cycles;            /* warp instructions issued */
    HgIcPage *ic;
    uint8_t *shared;            /* of the block whose warp runs */
    uint32_t shared_bytes;
    bool fp_ok;                 /* hg_vec_fp_ok() of this thread */
    /* slice owner: coalesced ram_written/vram_written of one instruction */
    struct {
        uint8_t *ptr;
        void *opaque;
        uint64_t addr;
        uint32_t lo, hi;        /* in the page; hi == 0: nothing */
        bool vram;
    } dirty;
    /* audit: mode is a copy of d->audit_mode; notes and fill times are the slice owner's */
    _Atomic uint32_t audit;
    _Atomic uint64_t audited;   /* translations compared */
    uint32_t nnote, audit_skip;
    HgAuditNote note[HG_AUDIT_NOTES];
    HgFillNote fill[HG_FILL_NOTES];
    uint8_t bounce[HG_PAGE_SIZE];
};

enum { HG_W_FREE, HG_W_ACTIVE, HG_W_STALL };

/*
 * A warp slot.  `state` changes under d->lock only.  FREE and STALL: all fields
 * belong to d->lock.  ACTIVE: to the SM while it is in a slice with this
 * context, else to d->lock.
 */
typedef struct HgWarp {
    _Alignas(HG_LINE) uint64_t x[33][HG_LANES]; /* whole cache lines for vec.c */
    uint64_t f[32][HG_LANES];   /* a binary32 has ones above it */
    uint8_t fcsr[HG_LANES];     /* rounding mode and flags, as CSR fcsr */
    uint64_t pc[HG_LANES];
    uint64_t icount[HG_LANES];
    uint64_t jump_pc[HG_LANES], jump_to[HG_LANES];  /* the lane's last JALR, for reports */
    uint64_t res_addr[HG_LANES], res_val[HG_LANES];
    uint8_t res_size[HG_LANES]; /* 0 = no reservation */
    uint32_t live;              /* not ended */
    uint32_t barrier;           /* subset of live that waits for the block */
    uint32_t wsync;             /* another one that waits for the rest of the warp */
    uint32_t replay;            /* lanes whose access was sent again: they go first */
    uint32_t starve;
    uint64_t owed;              /* key of the replay that waits for `replay`, or 0 */
    uint8_t state;
    uint8_t block;              /* index in HgCtxSm.blocks */
    uint8_t index;              /* warp in block */
    uint32_t stall_mask;
    unsigned nfault;
    HgFault fault[HG_STALL_MAX];
} HgWarp;

typedef struct HgBlock {
    uint32_t bid;
    uint32_t threads;
    uint32_t live, arrived;
    uint8_t warps_left;         /* 0 = free */
    uint32_t warp_mask;
} HgBlock;

/* A context's part of one SM. */
typedef struct HgCtxSm {
    _Alignas(HG_LINE) HgWarp *warps;    /* so that no two SMs write the same line */
    HgBlock *blocks;            /* cfg.warps of them */
    uint8_t *shared;            /* HG_SHARED_MAX bytes: block b's at b * hg_shared_step() */
    _Atomic uint32_t run_mask;  /* warps that can issue */
    uint32_t free_mask;         /* d->lock */
    uint32_t last;              /* last warp issued */
    uint64_t instrs;            /* lane instructions of this launch */
} HgCtxSm;

typedef struct HgResult {
    uint32_t err, reason;
    uint64_t addr, pc;
    uint32_t block, thread;
    uint64_t instrs;
    bool die;                   /* the context halts after the report */
} HgResult;

typedef struct HgSeg {
    uint64_t src, dst, bytes, flags;
} HgSeg;

enum { HG_CP_NONE, HG_CP_RUN, HG_CP_STALL };

typedef struct HgCopy {
    HgSeg *seg;                 /* HG_COPY_LIST_MAX once allocated */
    uint32_t nseg, idx;
    uint64_t off;
    uint64_t done;              /* bytes, all segments */
    uint64_t fail_at;           /* injection: error once done >= fail_at; ~0 = never */
    uint8_t state;
    bool busy;                  /* d->lock: an engine has it in its slice */
    bool guarded;               /* d->lock: check.c knows of it */
    uint8_t eng;                /* engine that stalled */
    unsigned nfault;
    HgFault fault[2];
    uint64_t owed;
    bool replayed;
} HgCopy;

/* What the context's ring does. */
enum {
    HG_RS_FETCH, HG_RS_DELAY, HG_RS_LAUNCH, HG_RS_COPY, HG_RS_WAIT,
    HG_RS_INVAL, HG_RS_REPORT, HG_RS_COUNT
};

/*
 * A context.  d->lock, except what the busy flags give away: fe_busy (an engine
 * executes ring descriptors), copy.busy, and the warps as said above.
 */
struct HgCtx {
    unsigned id;
    uint64_t ring_base;
    uint32_t ring_base_lo;      /* latch of a half-written base */
    uint32_t ring_size, asid, timeslice;
    bool enabled, priv, aborting, halted;
    uint32_t get, put, error;
    uint32_t rung;              /* PUT as software wrote it last; put itself may lag */
    uint64_t error_addr;
    uint8_t rs;
    bool fe_busy;
    uint64_t desc[8];
    uint64_t not_before, wait_seq, poll_at, job_start;
    uint32_t poll_gap;
    HgResult res;
    /* launch */
    uint32_t next_block, blocks_done;
    bool dying;
    HgCtxSm *sm;                /* cfg.sms, allocated at first enable */
    HgCopy copy;
};

static inline uint32_t hg_shared_bytes(const HgCtx *c)
{
    return c->desc[5] >> 32;
}

static inline uint32_t hg_shared_step(const HgCtx *c)
{
    return (hg_shared_bytes(c) + 15) & ~15u;
}

/* Lanes that can issue. */
static inline uint32_t hg_warp_active(const HgWarp *w)
{
    return w->live & ~w->barrier & ~w->wsync;
}

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

enum { HG_T_IRQ = 1, HG_T_REPLAY, HG_T_DOORBELL, HG_T_VALID, HG_T_COUNT };

typedef struct HgTimer {
    uint64_t due, b;
    uint32_t a, c;
    uint8_t kind;
} HgTimer;

/* Injection events and actions: docs/device.md. */
typedef enum {
    HG_INJ_TLB_INVALIDATE, HG_INJ_FAULT, HG_INJ_REPLAY, HG_INJ_IRQ, HG_INJ_COPY,
    HG_INJ_DMA_READ, HG_INJ_DMA_WRITE, HG_INJ_DOORBELL, HG_INJ_FENCE,
    HG_INJ_LAUNCH, HG_INJ_WALK, HG_INJ_EVENTS
} HgInjEvent;

typedef enum {
    HG_ACT_NONE, HG_ACT_DELAY, HG_ACT_DELAY_VALID, HG_ACT_DUPLICATE, HG_ACT_DROP,
    HG_ACT_LOST, HG_ACT_ERROR, HG_ACT_PARTIAL, HG_ACT_COUNT
} HgInjAct;

enum { HG_SEL_ALWAYS, HG_SEL_NTH, HG_SEL_PROB, HG_SEL_MATCH, HG_SEL_COUNT };

typedef struct HgRule {
    uint8_t event, act, sel;
    bool has_arg;
    uint64_t arg;
    uint64_t nth, match, mask;
    uint32_t prob;              /* of 2^32 - 1 */
    uint64_t count;             /* most firings, 0 = no limit */
    uint64_t seen, fired;
} HgRule;

#define HG_MAX_RULES 64

/* check_tables.c: a page table that a walk has read. */
#define HG_TABLE_SETS 64        /* power of two */
#define HG_TABLE_WAYS 4

typedef struct HgTableUse {
    uint64_t table;             /* its address | HG_ROOT_VRAM */
    uint64_t first;             /* page that it translates */
    uint64_t gone;              /* the invalidation of all that it translates, or 0 */
    uint16_t asid;
    uint8_t level;
    bool used;
} HgTableUse;

/* The tables of a walk, by level; those from `low` on were read. */
typedef struct HgWay {
    uint64_t table[HG_PT_LEVELS];   /* as HgTableUse.table */
    unsigned low;
} HgWay;

/* State of the protocol checks: see check.c, check_tables.c. */
typedef struct HgChecks {
    _Atomic uint64_t vram_map;          /* HG_REG_VRAM_MAP */
    uint32_t vram_map_lo;               /* d->lock: latch */
    _Atomic uint32_t copies;            /* privileged copies under way */
    _Atomic uint64_t copy_bits[64];     /* their frames, hashed */
    _Atomic uint64_t inval_epoch;       /* last invalidation issued */
    _Atomic uint64_t filled[HG_NUM_ASIDS];  /* 1 + epoch at the latest walk */
    uint64_t clean[HG_NUM_ASIDS];       /* d->lock: 1 + last invalidation of the whole ASID */
    _Atomic bool tables_shown;          /* HG_REG_TABLE_CTRL */
    uint32_t table_lo;                  /* d->lock: latch */
    unsigned victim;
    struct {                            /* tables recorded since invalidation `gen` (of l2_gen) */
        uint64_t gen, table[HG_PT_LEVELS];
        unsigned asid;
    } last;
    HgTableUse use[HG_TABLE_SETS * HG_TABLE_WAYS];
} HgChecks;

/*
 * The parts begin at cache lines of their own: every engine reads the first one at
 * each access, and would wait for the line each time another one takes a lock in it.
 */
struct HgDev {
    _Alignas(HG_LINE) HgConfig cfg;
    HgHostOps ops;
    void *host;
    uint8_t *vram;
    const struct HgVec *vec;    /* vec.h; NULL: lane by lane.  Changed with all engines parked */
    unsigned nsm, nce, neng;    /* eng[]: SMs, copy engines, front end */
    HgEngine *eng;
    HgRam *ram;                 /* sorted; changed with all engines parked */
    unsigned nram, ram_cap;

    _Alignas(HG_LINE) pthread_mutex_t l2_lock;
    HgTlb l2;                   /* l2_lock */
    uint64_t l2_gen;            /* l2_lock */

    _Alignas(HG_LINE) pthread_mutex_t lock;
    pthread_mutex_t inj_lock;
    pthread_cond_t quiet;       /* an engine left its slice */

    bool started;
    bool exiting;
    bool stepping;              /* an engine's coroutine runs; the stepping thread's */
    uint32_t pause;             /* host wants all engines parked */
    bool bus_master;            /* changed with all engines parked */

    /* registers */
    uint32_t ctrl, intr_status, intr_enable, scratch;
    _Atomic uint64_t root[HG_NUM_ASIDS];
    uint32_t root_lo[HG_NUM_ASIDS];
    _Atomic uint32_t mode[HG_NUM_ASIDS];
    uint32_t inval_asid, inval_start_lo, inval_len_lo;
    uint64_t inval_start, inval_len, inval_seq, inval_issued, inval_done;
    uint32_t cancel_asid, cancel_client, cancel_addr_lo;
    uint64_t cancel_addr, replay_seq, replay_done;

    /* deferred host calls: made by hg_unlock() */
    uint32_t irq_out[HG_NUM_VECTORS];
    bool irq_any, kick_out;

    /* invalidations not issued yet (injected delay): in order */
    struct {
        HgInval iv;
        uint64_t seq, due;
    } invq[HG_INVAL_QUEUE];
    unsigned ninvq;

    HgReplay rq[HG_REPLAY_QUEUE];
    unsigned nrq;
    HgTimer timer[HG_TIMERS];
    unsigned ntimer;

    HgRing ring[2];             /* replayable, non-replayable */
    uint64_t rng;
    uint64_t cnt[HG_NUM_COUNTERS];  /* those counted under d->lock */
    uint32_t stalled_warps;

    HgRule rule[HG_MAX_RULES];  /* inj_lock */
    unsigned nrule;
    uint64_t inj_rng;
    _Atomic uint32_t inj_mask;  /* events that have a rule */

    HgChecks chk;

    /* audit.c says who may touch these */
    pthread_mutex_t viol_lock;
    _Atomic uint64_t cpu_root[HG_NUM_ASIDS];
    uint32_t cpu_root_lo[HG_NUM_ASIDS];     /* d->lock */
    _Atomic uint64_t enc[HG_NUM_ENC];
    uint32_t enc_lo[HG_NUM_ENC];            /* d->lock */
    _Atomic uint32_t enc_ready, audit_mode, audit_every, waits_lost;
    bool full_audit;            /* d->lock, all engines parked */
    HgViolation viol[HG_VIOLATIONS];
    uint64_t nviol, undecided, check_count[HG_CHECK_COUNT];
    HgInvalNote inval_log[HG_INVAL_LOG];
    unsigned inval_log_at;

    HgCtx ctx[HG_NUM_CTXS];
};

/* -- dev.c -- */
void hg_lock(HgDev *d);
void hg_unlock(HgDev *d);
uint64_t hg_now(HgDev *d);
void hg_trace(HgDev *d, HgTraceEvent ev, uint64_t a, uint64_t b, uint64_t c, uint64_t dd);
void hg_guest_error(HgDev *d, uint32_t err, uint64_t a, uint64_t v);   /* d->lock */
void hg_raise(HgDev *d, unsigned vector);                               /* d->lock */
void hg_raise_now(HgDev *d, unsigned vector);
void hg_kick(HgEngine *e);                                              /* d->lock */
void hg_kick_sms(HgDev *d);
void hg_kick_ces(HgDev *d);
void hg_kick_fe(HgDev *d);
void hg_pause(HgDev *d);        /* takes and keeps d->lock; all engines parked */
bool hg_wanted_parked(HgDev *d);        /* for an engine that waits in its slice; takes d->lock */
void hg_resume(HgDev *d);       /* releases d->lock */
void hg_slice_enter(HgEngine *e);                                       /* d->lock */
void hg_slice_leave(HgEngine *e);                                       /* d->lock */
void hg_serve(HgEngine *e);     /* requests posted to e; d->lock */
bool hg_may_run(HgDev *d);      /* d->lock: engines may be in slices */
uint64_t hg_rand(uint64_t *state);
void hg_reset_locked(HgDev *d); /* all engines parked */
bool hg_timer_add(HgDev *d, uint64_t due, uint8_t kind, uint32_t a, uint64_t b, uint32_t c);
uint64_t hg_next_deadline(HgDev *d, uint64_t now);
bool hg_fe_work(HgDev *d, uint64_t now);
void hg_fe_slice(HgEngine *e);

static inline void hg_cnt(HgEngine *e, unsigned n, uint64_t v)
{
    atomic_store_explicit(&e->cnt[n],
        atomic_load_explicit(&e->cnt[n], memory_order_relaxed) + v, memory_order_relaxed);
}

static inline bool hg_attn(HgEngine *e)
{
    return atomic_load_explicit(&e->attn, memory_order_relaxed) != 0;
}

/* -- step.c: deterministic mode; in the engine's coroutine -- */
bool hg_engine_turn(HgEngine *e);                           /* dev.c; d->lock on entry and exit */
void hg_spend(HgEngine *e, HgAt at, uint32_t steps);
void hg_spend_held(HgEngine *e, uint64_t vpn);
void hg_wait_until(HgEngine *e, HgAt at, uint64_t due);     /* or until it is to be parked */
/* -- by the host's thread -- */
bool hg_steps_new(HgEngine *e);                             /* false: no memory */
void hg_steps_free(HgEngine *e);                            /* d->exiting is set */
void hg_steps_to_rest(HgDev *d);                            /* d->lock on entry and exit; d->pause */

/*
 * A point: in a slice, no lock held.  Others may come in between here, as they may
 * anywhere if engines are threads; for threads it is nothing.
 */
static inline void hg_point(HgEngine *e, HgAt at)
{
    if (__builtin_expect(e->co != NULL, 0)) {
        hg_spend(e, at, 1);
    }
}

/*
 * A translation is in hand.  Lanes one after the other in the same page are one
 * access, however they are executed: so steps do not depend on the host's vectors.
 */
static inline void hg_point_held(HgEngine *e, uint64_t vpn)
{
    if (__builtin_expect(e->co != NULL, 0)) {
        hg_spend_held(e, vpn);
    }
}

/* After n instructions in a row, which hg_steps_room() has allowed. */
static inline void hg_point_insns(HgEngine *e, uint32_t n)
{
    if (__builtin_expect(e->co != NULL, 0)) {
        hg_spend(e, HG_AT_SAFE, n);
    }
}

static inline uint32_t hg_steps_room(const HgEngine *e, uint32_t n)
{
    return __builtin_expect(e->co != NULL, 0) && e->steps < n ? e->steps : n;
}

/* In a slice: let d->lock go for accesses to memory, and take it again. */
static inline void hg_leave_lock(HgEngine *e)
{
    hg_unlock(e->d);
    hg_point(e, HG_AT_BUS);
}

static inline void hg_retake_lock(HgEngine *e)
{
    hg_point(e, HG_AT_BUS);
    hg_lock(e->d);
}

/* -- mem.c: in a slice only -- */
int hg_bus_read(HgEngine *e, uint64_t addr, void *buf, uint32_t len);
int hg_bus_write(HgEngine *e, uint64_t addr, const void *buf, uint32_t len);
int hg_bus_atomic(HgEngine *e, uint64_t addr, uint32_t size, HgAtomicOp op,
                  uint64_t operand, uint64_t expected, uint64_t *old);
/* May guest RAM be used by pointer?  Not if each access has to be looked at. */
static inline bool hg_direct_sys(const HgDev *d)
{
    return d->bus_master &&
           !(atomic_load_explicit(&d->inj_mask, memory_order_relaxed) &
             (1u << HG_INJ_DMA_READ | 1u << HG_INJ_DMA_WRITE));
}
uint64_t hg_host_atomic(void *p, uint32_t size, HgAtomicOp op, uint64_t operand, uint64_t expected);
/* Reading that is no access of the GPU's: nothing is counted or injected. */
bool hg_peek(HgEngine *e, uint64_t addr, void *buf, uint32_t len);
const HgRam *hg_ram_find(const HgDev *d, uint64_t addr, uint64_t len);
void hg_copy_in(void *dst, const uint8_t *shared, uint32_t n);
void hg_copy_out(uint8_t *shared, const void *src, uint32_t n);
void hg_copy_shared(uint8_t *dst, const uint8_t *src, uint32_t n);
void hg_resolve_all(HgDev *d);   /* all engines parked */
void hg_dirty_flush(HgEngine *e);

/* -- mmu.c -- */
bool hg_tlb_init(HgTlb *t, unsigned entries, unsigned ways);
void hg_tlb_clear(HgTlb *t);
HgTlbEnt *hg_tlb_find(HgTlb *t, unsigned asid, uint64_t vpn);
HgTlbEnt *hg_translate_slow(HgEngine *e, unsigned asid, uint64_t va, unsigned access, HgFault *f);
/* Would a load miss?  Fills and counts nothing. */
bool hg_would_miss(HgEngine *e, unsigned asid, uint64_t va, HgFault *f);
bool hg_tables_allow(HgEngine *e, unsigned asid, uint64_t va, unsigned access);
HgTlbEnt *hg_l2_find(HgDev *d, unsigned asid, uint64_t vpn);    /* l2_lock */
void hg_tlb_resolve(HgEngine *e, HgTlbEnt *t);
void hg_engine_flush(HgEngine *e, const HgInval *iv);
void hg_inval_make(HgInval *iv, unsigned type, unsigned asid, uint64_t start, uint64_t len);
uint64_t hg_inval_submit(HgDev *d, const HgInval *iv);  /* d->lock; its sequence number */
void hg_inval_due(HgDev *d, uint64_t now);              /* d->lock */
void hg_inval_update(HgDev *d);                         /* d->lock: DONE */

/* -- check.c -- */
void hg_violated(HgDev *d, HgCheck what, uint32_t asid, uint64_t addr, uint64_t a, uint64_t b);
void hg_check_reset(HgDev *d);                              /* d->lock, engines parked */
void hg_check_copy_begin(HgDev *d, HgCtx *c);               /* d->lock */
void hg_check_copy_end(HgDev *d, HgCtx *c);                 /* d->lock */
void hg_check_copied(HgEngine *e, const HgTlbEnt *t, unsigned access);
void hg_check_vram(HgEngine *e, unsigned asid, uint64_t va, uint64_t frame);
void hg_check_stale(HgEngine *e, HgTlbEnt *t, uint64_t va, unsigned access, bool in_l2);
void hg_check_fence(HgEngine *e, HgCtx *c, uint64_t addr, uint64_t value);
void hg_check_doorbell(HgDev *d, HgCtx *c, uint32_t put);   /* d->lock */
void hg_check_fault_get(HgDev *d, unsigned ring, uint32_t get); /* d->lock, before GET changes */
void hg_check_fault_slot(HgEngine *e, unsigned ring, uint64_t addr);
uint64_t hg_check_walk_begin(HgDev *d);
void hg_check_walked(HgDev *d, unsigned asid, uint64_t epoch);
void hg_check_inval(HgDev *d, const HgInval *iv, uint64_t seq); /* d->lock */
void hg_check_root(HgDev *d, unsigned asid, uint64_t root); /* d->lock, before it changes */

/* -- check_tables.c -- */
void hg_check_tables_read(HgDev *d, unsigned asid, uint64_t va, const HgWay *way);  /* l2_lock */
void hg_check_tables_inval(HgDev *d, const HgInval *iv, uint64_t seq);  /* l2_lock */
void hg_check_tables_enable(HgDev *d);                      /* d->lock */
void hg_check_tables_ctx(HgDev *d, unsigned asid);          /* d->lock */
void hg_check_tables_show(HgDev *d, bool on);               /* d->lock */
void hg_check_table_free(HgDev *d, uint64_t table);         /* d->lock */

static inline bool hg_check_tables(const HgDev *d)
{
    return atomic_load_explicit(&d->chk.tables_shown, memory_order_relaxed);
}

static inline void hg_check_access(HgEngine *e, const HgTlbEnt *t, unsigned access)
{
    if (atomic_load_explicit(&e->d->chk.copies, memory_order_relaxed)) {
        hg_check_copied(e, t, access);
    }
}

/* -- violation.c -- */
void hg_inval_note(HgDev *d, const HgInval *iv, uint64_t seq, uint64_t now);

/* -- audit.c -- */
void hg_audit_note(HgEngine *e, const HgTlbEnt *t, unsigned access, bool fill);
void hg_audit_check(HgEngine *e, uint64_t pc, unsigned warp);
void hg_audit_apply(HgDev *d);
void hg_audit_reset(HgDev *d);
bool hg_audit_root_ok(uint64_t root);

/* After the accesses of an instruction or piece, before the next safe point. */
static inline void hg_audit_point(HgEngine *e, uint64_t pc, unsigned warp)
{
    if (e->nnote) {
        hg_audit_check(e, pc, warp);
    }
}

static inline bool hg_pte_allows(uint64_t pte, unsigned access, uint8_t *reason)
{
    if ((access == HG_ACCESS_WRITE || access == HG_ACCESS_ATOMIC) && !(pte & HG_PTE_WRITE)) {
        *reason = HG_REASON_WRITE;
        return false;
    }
    if (access == HG_ACCESS_ATOMIC && !(pte & HG_PTE_ATOMIC)) {
        *reason = HG_REASON_ATOMIC;
        return false;
    }
    return true;
}

/* NULL: *f says why (va, access, reason, level set). */
static inline HgTlbEnt *hg_translate(HgEngine *e, unsigned asid, uint64_t va, unsigned access,
                                     HgFault *f)
{
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgTlb *t = &e->utlb;
    HgTlbEnt *s = &t->ent[(vpn & (t->sets - 1)) * t->ways];

    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].vpn == vpn && s[i].asid == asid && s[i].valid) {
            uint8_t reason;
            if (!hg_pte_allows(s[i].pte, access, &reason)) {
                break;          /* the slow path makes the fault of it */
            }
            hg_cnt(e, HG_CNT_UTLB_HITS, 1);
            hg_check_access(e, &s[i], access);
            if (atomic_load_explicit(&e->audit, memory_order_relaxed) >= HG_AUDIT_SAMPLED) {
                hg_audit_note(e, &s[i], access, false);
            }
            hg_point_held(e, vpn);
            return &s[i];
        }
    }
    return hg_translate_slow(e, asid, va, access, f);
}

/* -- fault.c -- */
void hg_sm_stalled(HgEngine *e, HgCtx *c, unsigned warp);   /* not locked; w->fault[] is set */
void hg_copy_stalled(HgEngine *e, HgCtx *c);                /* not locked; c->copy.fault[] is set */
void hg_pend_drop(HgEngine *e, HgFault *f, unsigned n);     /* d->lock */
uint64_t hg_replay(HgDev *d, unsigned type);                /* d->lock */
void hg_replay_perform(HgDev *d, uint64_t key);             /* d->lock */
void hg_replay_answer(HgDev *d, uint64_t *owed);            /* d->lock */
unsigned hg_cancel(HgDev *d, unsigned type, unsigned scope);/* d->lock */
void hg_ring_valid_write(HgEngine *e, unsigned ring, uint64_t addr, uint32_t word); /* d->lock on entry and exit */
uint32_t hg_pending_faults(HgDev *d);

/* -- sm.c -- */
bool hg_sm_has_work(HgEngine *e, HgCtx *c);                 /* d->lock */
HgCtx *hg_sm_pick(HgEngine *e, uint64_t now);               /* d->lock */
void hg_sm_slice(HgEngine *e, HgCtx *c, uint32_t budget);   /* d->lock on entry and exit */
void hg_launch_start(HgDev *d, HgCtx *c);                   /* d->lock */
void hg_launch_fail(HgDev *d, HgCtx *c, const HgResult *r); /* d->lock */
void hg_launch_try_finish(HgDev *d, HgCtx *c);              /* d->lock */
unsigned hg_block_slots(const HgDev *d, const HgCtx *c);   /* blocks that an SM takes at once */
bool hg_ctx_alloc(HgDev *d, HgCtx *c);
void hg_ctx_free(HgDev *d, HgCtx *c);
void hg_ctx_clear_warps(HgDev *d, HgCtx *c);                /* d->lock */

/* -- rv.c -- */
typedef enum { HG_RUN_OK, HG_RUN_STALL, HG_RUN_IDLE, HG_RUN_ERROR } HgRun;
void hg_rv_decode(HgInsn *i, uint32_t raw);
/* The instruction at pc, or NULL: *f says why. */
const HgInsn *hg_rv_fetch(HgEngine *e, unsigned asid, uint64_t pc, HgFault *f);
/* Up to *budget warp instructions (decremented); returns at attention. */
HgRun hg_rv_run(HgEngine *e, HgCtx *c, HgWarp *w, uint32_t *budget, HgResult *r);

/*
 * All 32 lanes' load or store if it is aligned, in one page, and needs no look
 * at each lane.  False: nothing was done.
 */
bool hg_warp_access(HgEngine *e, unsigned asid, HgWarp *w, const HgInsn *in);

/* -- ahead.c -- */
void hg_look_ahead(HgEngine *e, HgCtx *c, HgWarp *w, const HgInsn *in, uint64_t pc, uint32_t mask);

/* -- rvf.c -- */
#define HG_FP_BOX       ((uint64_t)0xffffffff << 32)   /* above a binary32 */
bool hg_rvf_decode(HgInsn *i);
/* Arithmetic and moves; the lane whose rounding mode does not exist, or -1. */
int hg_rvf_run(HgEngine *e, HgWarp *w, const HgInsn *in, uint32_t mask);
/* fflags, frm and fcsr: the old value; arg is rs1 or the immediate. */
bool hg_rvf_is_csr(unsigned csr);
uint64_t hg_rvf_csr(HgWarp *w, unsigned l, uint32_t raw, uint64_t arg);

/* -- ce.c -- */
bool hg_ce_has_work(HgEngine *e);                           /* d->lock */
HgCtx *hg_ce_pick(HgEngine *e);                             /* d->lock */
void hg_ce_slice(HgEngine *e, HgCtx *c, uint32_t budget);   /* d->lock on entry and exit */
bool hg_copy_check(HgDev *d, HgCtx *c, const HgSeg *s);
void hg_copy_end(HgDev *d, HgCtx *c);                       /* d->lock; c->res is set */

/* -- ring.c -- */
bool hg_ring_ready(HgDev *d, HgCtx *c, uint64_t now);       /* d->lock */
void hg_ring_run(HgEngine *e, HgCtx *c);                    /* d->lock on entry and exit */
void hg_ctx_enable(HgDev *d, HgCtx *c, bool priv);
void hg_ctx_disable(HgDev *d, HgCtx *c);
void hg_ctx_try_quiesce(HgDev *d, HgCtx *c);
void hg_doorbell(HgDev *d, HgCtx *c, uint32_t put);
bool hg_launch_ok(HgDev *d, HgCtx *c);
bool hg_seg_alloc(HgCtx *c);
void hg_ctx_halt(HgDev *d, HgCtx *c, uint32_t err, uint64_t addr);

/* -- inject.c -- */
bool hg_rule_ok(const HgRule *r);
HgInjAct hg_injected(HgDev *d, HgInjEvent ev, uint64_t key, uint64_t *arg);

#endif /* HG_INTERNAL_H */
