/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What observers know, HgDev.seen.  Each file of this folder has its part, and says there who
 * may touch it; two leaf locks are in here:
 *
 *  inject.lock  injection rules.
 *  report.lock  violations and what is kept for their record (violation.c).
 */
#ifndef HG_OBSERVE_H
#define HG_OBSERVE_H

#include "device.h"
#include "observe/hmm_gpu_observe.h"

/* -- inject.c -- */

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

typedef struct HgInject {
    pthread_mutex_t lock;
    HgRule rule[HG_MAX_RULES];
    unsigned nrule;
    uint64_t rng;
    _Atomic uint32_t mask;      /* events that have a rule */
} HgInject;

/* -- check.c, check_tables.c -- */

/* A page table that a walk has read. */
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
    uint64_t guarded;                   /* d->lock: contexts whose copies are counted, as bits */
    /* d->lock: PUT as software wrote it last; put itself may lag */
    uint32_t rung[HG_NUM_CTXS];
    HgTableUse use[HG_TABLE_SETS * HG_TABLE_WAYS];
} HgChecks;

/* -- audit.c -- */

#define HG_AUDIT_NOTES      128
#define HG_FILL_NOTES       64          /* power of two */
#define HG_FULL_BUDGET      (1u << 22)  /* entries that a full audit looks at */
#define HG_CMD_BUDGET       (1u << 16)  /* and one that the guest asked for */
#define HG_AUDIT_LOOK_NS    1000        /* deterministic mode: from one look to the next, */
#define HG_AUDIT_LOOKS      6           /* doubled so many times */
#define HG_AUDIT_WAITS      16          /* vain waits until the host clears the violations */

/* A translation used since the last safe point; when a page was last filled. */
typedef struct HgAuditNote {
    uint64_t vpn, pte, addr;
    uint16_t asid;
    uint8_t access;
} HgAuditNote;

typedef struct HgFillNote {
    uint64_t vpn, time;
    uint16_t asid;
} HgFillNote;

/* Of an engine: notes and fill times are the slice owner's. */
typedef struct HgAuditEngine {
    _Alignas(HG_LINE) _Atomic uint64_t audited; /* translations compared */
    uint32_t nnote, skip;
    bool waits;                 /* the stepping thread's: for an empty CPU entry */
    HgAuditNote note[HG_AUDIT_NOTES];
    HgFillNote fill[HG_FILL_NOTES];
} HgAuditEngine;

typedef struct HgAudit {
    _Atomic uint64_t cpu_root[HG_NUM_ASIDS];
    uint32_t cpu_root_lo[HG_NUM_ASIDS];     /* d->lock */
    _Atomic uint64_t enc[HG_NUM_ENC];
    uint32_t enc_lo[HG_NUM_ENC];            /* d->lock */
    _Atomic uint32_t enc_ready, mode, every, waits_lost;
    bool full;                  /* d->lock, all engines parked */
    HgAuditEngine *eng;         /* as HgDev.eng */
} HgAudit;

/* -- violation.c -- */

#define HG_INVAL_LOG        64

typedef struct HgInvalNote {
    HgInval iv;
    uint64_t seq, time;
} HgInvalNote;

typedef struct HgReport {
    pthread_mutex_t lock;
    HgViolation viol[HG_VIOLATIONS];
    uint64_t nviol, undecided, check_count[HG_CHECK_COUNT], unlooked[HG_CHECK_COUNT];
    HgInvalNote inval_log[HG_INVAL_LOG];
    unsigned inval_log_at;
} HgReport;

typedef struct HgObserve {
    HgInject inject;
    HgChecks chk;
    HgAudit audit;
    HgReport report;
} HgObserve;

#endif /* HG_OBSERVE_H */
