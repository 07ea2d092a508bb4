/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: the schedule of a whole machine as an input.
 *
 * Under "-accel tcg,thread=single -icount shift=N,sleep=off" one thread runs all
 * virtual CPUs.  A device "hmm-exact" decides who of them runs next and how far,
 * who is held, when the devices' engines step and when their interrupts arrive.
 * It takes all of that from its schedule, so that snapshot, request and schedule
 * make one execution, to the instruction (docs/exact.md).
 *
 *   hmm-exact.c          the turns: runs CPUs and events, moves the clock, stands
 *   hmm-exact-plan.c     the schedule: reads it, draws from it
 *   hmm-exact-log.c      what was decided: log and rolling hash
 *   hmm-exact-watch.c    which instructions of two CPUs meet in memory
 *   hmm-exact-memory.c   hashes of the machine's RAM, by page
 *   hmm-exact-vmstate.c  snapshots within an example
 *   hmm-exact-leaks.c    what would let the host in, for tests
 *   hmm-exact-qom.c      the object and its properties
 *
 * Everything here belongs to the BQL.  Decisions are made by the CPUs' thread alone,
 * the schedule is changed by the main thread while the machine stands.
 */
#ifndef HW_MISC_HMM_EXACT_H
#define HW_MISC_HMM_EXACT_H

#include "qemu/queue.h"
#include "hw/core/cpu.h"

/* -- for devices -- */

/* Is there such an object?  Constant once the machine is made. */
bool hmm_exact_on(void);

/*
 * The CPUs' thread: no CPU runs another instruction, no time passes, until the
 * machine was stopped and is told to go on ("cont").
 */
void hmm_exact_stand(uint32_t why);

/* The CPU that runs has nothing to do but to wait for another (PAUSE). */
void hmm_exact_paused(void);

/*
 * Where the guest says how many operations of a program are under way, in `n` counts,
 * and in which phase of it, little endian; NULL: nowhere, all time counts as theirs and
 * as one phase.
 */
void hmm_exact_told(const uint32_t *under_way, unsigned n, const uint32_t *phase);

/* Something that is due at a virtual time; in the order of times, then of adding. */
typedef struct HmmExactEvent {
    int64_t due;                        /* ns */
    bool pending;
    void (*fn)(void *opaque);           /* CPUs' thread, BQL; not pending any more */
    void *opaque;
    QTAILQ_ENTRY(HmmExactEvent) next;
} HmmExactEvent;

void hmm_exact_event_at(HmmExactEvent *e, int64_t due);     /* or moves it there */
void hmm_exact_event_cancel(HmmExactEvent *e);
bool hmm_exact_before(const HmmExactEvent *a, const HmmExactEvent *b); /* both pending */

/* Drawn from the schedule. */
int64_t hmm_exact_engine_gap(void);             /* ns until engines step again */
uint32_t hmm_exact_engine_steps(void);          /* how far they do then */
int64_t hmm_exact_irq_delay(void);              /* ns; 0: at once */
unsigned hmm_exact_engine_of(unsigned n);       /* which of n that could */

/* Into the log, who = unit, arg = how far. */
void hmm_exact_log_engine(unsigned who, uint64_t arg);
void hmm_exact_log_irq(unsigned vector);

/* A device has read or written RAM, at this pointer. */
void hmm_exact_gpu_touched(const void *ptr, uint32_t len);

/*
 * A snapshot that is made now goes on with the schedule where it is: devices save what
 * they have drawn, and draw nothing for being saved or loaded.
 */
bool hmm_exact_within(void);

/* Virtual ns in which no CPU was held; ask for nobody to be held from now on. */
int64_t hmm_exact_fair_ns(void);
void hmm_exact_hold_nobody(bool on);

/* -- among the files above -- */

/* Streams of random numbers; one does not move when another is drawn from. */
enum { HMM_EXACT_PICK, HMM_EXACT_SLICE, HMM_EXACT_HOLD, HMM_EXACT_POINT,
       HMM_EXACT_ENGINE, HMM_EXACT_IRQ, HMM_EXACT_STREAMS };

typedef struct HmmExactRange {
    uint8_t lo, hi;             /* log2 */
} HmmExactRange;

/*
 * How often anybody has come to an address since a phase of the program began.  Not
 * since the schedule did, and not this CPU: what a phase has before it, and where
 * its threads run, is another matter in a smaller program.
 */
typedef struct HmmExactPassage {
    uint16_t phase;             /* its low bits; or HM_NO_PHASE, HM_AFTER_PHASE */
    uint32_t number;            /* from 1; 0: not counted */
} HmmExactPassage;

/* Who comes to an address as the nth in a phase of the program is held there. */
typedef struct HmmExactDecision {
    uint64_t pc, ns;
    HmmExactPassage at;
} HmmExactDecision;

typedef struct HmmExactPlan {
    uint64_t seed;
    HmmExactRange slice;        /* instructions */
    unsigned holds;             /* at times spread over span */
    HmmExactRange hold;         /* ns */
    int64_t span;               /* ns */
    unsigned busy;              /* hold only while so many operations are under way */
    unsigned point_holds, odds; /* one passage of so many is taken */
    unsigned fair;              /* or so many of n, for the nth of a place; 0: odds */
    unsigned crowd;             /* while fewer than so many are held */
    HmmExactRange point_hold;   /* ns */
    HmmExactRange gap, steps;   /* of engines: ns between, units */
    HmmExactRange irq;          /* ns; hi 0: none */
    GArray *at;                 /* uint64_t, sorted: points where a CPU is held */
    GArray *decisions;          /* HmmExactDecision, sorted */
    GArray *count;              /* uint64_t, sorted: passages counted beside theirs */
    GArray *counted;            /* uint64_t, sorted: of all three */
    uint64_t stream[HMM_EXACT_STREAMS];
} HmmExactPlan;

#define HMM_EXACT_CPUS 64

bool hmm_exact_plan_read(HmmExactPlan *p, const char *text, Error **errp);
char *hmm_exact_plan_text(const HmmExactPlan *p);
void hmm_exact_plan_free(HmmExactPlan *p);
uint64_t hmm_exact_draw(HmmExactPlan *p, unsigned stream);
uint64_t hmm_exact_draw_below(HmmExactPlan *p, unsigned stream, uint64_t n);
/* 2^lo to 2^(hi + 1) */
uint64_t hmm_exact_draw_range(HmmExactPlan *p, unsigned stream, HmmExactRange r);
void hmm_exact_sort(GArray *addresses);
bool hmm_exact_among(const GArray *sorted, uint64_t address);
bool hmm_exact_plan_point(const HmmExactPlan *p, uint64_t pc);
/* Of the addresses whose passages are counted; -1: none of them. */
int hmm_exact_plan_counted(const HmmExactPlan *p, uint64_t pc);
/* ns to hold; 0: no decision */
uint64_t hmm_exact_plan_decided(const HmmExactPlan *p, uint64_t pc,
                                HmmExactPassage at);

typedef enum {
    HMM_EXACT_SLICE_OVER, HMM_EXACT_HALTED, HMM_EXACT_PAUSED,   /* ends of slices */
    HMM_EXACT_AT_POINT, HMM_EXACT_STANDS,
    HMM_EXACT_HELD,             /* arg: ns */
    HMM_EXACT_SKIPPED,          /* nobody could run; arg: ns */
    HMM_EXACT_SPUN,             /* all who could run only spun; arg: ns */
    HMM_EXACT_ENGINE_RAN, HMM_EXACT_IRQ_CAME,
} HmmExactWhat;

/* As written to a file, little endian */
typedef struct HmmExactEntry {
    uint64_t icount;            /* instructions of all CPUs until then */
    uint64_t ns;
    uint64_t pc;
    uint64_t arg;               /* of slices: instructions */
    uint8_t what, who;
    uint16_t phase;             /* these two: of pc, if it is counted; no part of hash */
    uint32_t passage;
} HmmExactEntry;

void hmm_exact_log_reset(void);
void hmm_exact_log(HmmExactWhat what, unsigned who, uint64_t pc, uint64_t arg,
                   HmmExactPassage at);
uint64_t hmm_exact_log_hash(void);
uint64_t hmm_exact_log_count(void);
const GArray *hmm_exact_log_kept(void);         /* of HmmExactEntry */
void hmm_exact_log_set(uint64_t hash, uint64_t count, const void *entries, size_t n);
bool hmm_exact_log_write(const char *path, Error **errp);

bool hmm_exact_memory_write(const char *path, Error **errp);

/* The table is read from a file, "": none; what was found goes to another. */
bool hmm_exact_watch_read(const char *path, Error **errp);
bool hmm_exact_watch_write(const char *path, Error **errp);
const GArray *hmm_exact_watched(void);          /* uint64_t, sorted; NULL: nothing */
bool hmm_exact_watches(uint64_t pc);
void hmm_exact_watch_gpu(const void *ptr, uint32_t len, uint64_t when);
/* About to be executed; when: instructions of all CPUs until then. */
void hmm_exact_watch_at(CPUState *cpu, uint64_t pc, uint64_t when);

typedef struct HmmExactState {
    uint64_t picks, holds, point_passes, point_holds, insns, skipped_ns, spun_ns;
    int64_t ns, icount;
    uint32_t why;
    bool stands;
} HmmExactState;

typedef struct HmmExactArrived {
    uint64_t pc, insns;
    HmmExactPassage at;
    bool picked;                /* there, and has not come to at() yet */
} HmmExactArrived;

/* What is not saved as it is, while it is saved or loaded. */
typedef struct HmmExactSaved {
    uint8_t *text, *points, *passages, *met, *log;
    uint32_t text_bytes, points_bytes, passages_bytes, met_bytes, log_bytes;
    uint64_t hash, count, random;
    int64_t flushes;
    int32_t cpu;                /* index; -1: none */
} HmmExactSaved;

/* hmm-exact.c's */
typedef struct HmmExactTurns {
    bool on, began, stands, asked, paused, hold_nobody;
    bool scheduled;             /* somebody has set it */
    uint32_t why;
    HmmExactPlan plan;

    /* the slice */
    CPUState *cpu;
    int64_t left;
    uint64_t slice_insns;
    int64_t begun;              /* icount when its CPU was let run */

    /* holds */
    int64_t held_until[HMM_EXACT_CPUS]; /* ns; 0: not held */
    unsigned held;              /* so many CPUs are */
    unsigned holds_left;
    int64_t next_hold;          /* of busy_ns; INT64_MAX: none */
    int64_t busy_ns, looked;    /* ns in which enough was under way, until `looked` */
    int64_t held_ns, held_since;

    /* points and decisions */
    unsigned point_holds_left;
    uint64_t insns[HMM_EXACT_CPUS];     /* of each CPU, as far as it has run */
    HmmExactArrived arrived[HMM_EXACT_CPUS];    /* where each was looked at last */
    int held_place[HMM_EXACT_CPUS];     /* of plan.counted, while it is held; -1: none */
    unsigned long *met;         /* held place * places + one that another CPU passed */
    uint32_t *passages;         /* of plan.counted in `phase`; plan_set() has it */
    uint16_t phase;
    GArray *points;             /* uint64_t, sorted: hmm_exact_points_set() */
    CPUState *at_point;
    int64_t at_point_ns;

    CPUState *leaves;           /* has stopped, the machine is about to */
    unsigned spins[HMM_EXACT_CPUS];
    uint64_t since_pause[HMM_EXACT_CPUS];       /* instructions */
    unsigned skips;
    int64_t stand_ns, stand_icount;     /* INT64_MAX: not */
    GArray *stand_pc;           /* uint64_t; NULL: nowhere */
    uint64_t stood_pc, stood_insns;     /* where it stood so, and may be told to again */
    int64_t deaf_ns;            /* the guest's own wish to stand counts from then on */
    const uint32_t *under_way, *told_phase;
    unsigned under_ways;
    QTAILQ_HEAD(, HmmExactEvent) events;
    HmmExactState state;
    HmmExactSaved saved;
} HmmExactTurns;

HmmExactTurns *hmm_exact_turns(void);

/* hmm-exact.c, for the object's properties */
bool hmm_exact_begin(Error **errp);     /* before any CPU's thread */
void hmm_exact_plan_set(HmmExactPlan *p, bool scheduled);   /* takes what is in it */
const HmmExactPlan *hmm_exact_plan(void);
void hmm_exact_points_set(GArray *sorted);       /* of uint64_t */
bool hmm_exact_watch_set(const char *path, Error **errp);
/* Pairs of addresses: a CPU was held at the first while another passed the second. */
char *hmm_exact_met(void);
void hmm_exact_state(HmmExactState *s);
void hmm_exact_deaf_for(int64_t ns);            /* no stand of the guest's; < 0: all */
void hmm_exact_stand_after(int64_t ns);         /* from now; < 0: not */
void hmm_exact_stand_at(int64_t icount);        /* < 0: not */
/* Stand where a CPU comes to one of these, which are points, too; once. */
void hmm_exact_stand_at_pc(const uint64_t *pc, size_t n);


/* hmm-exact-vmstate.c */
extern const VMStateDescription hmm_exact_vmstate;

/* What depends on flushes of TLBs, and the guest's random numbers, go on from there. */
int64_t hmm_exact_flushes(void);
uint64_t hmm_exact_random(void);
void hmm_exact_random_set(int64_t flushes, uint64_t random);

/* hmm-exact-leaks.c */
enum { HMM_EXACT_LEAK_KICKS = 1, HMM_EXACT_LEAK_WARP, HMM_EXACT_LEAK_TLB,
       HMM_EXACT_LEAK_DEADLINES, HMM_EXACT_LEAK_STOP = 7 };

bool hmm_exact_leaks(unsigned which);           /* is that the open one? */
void hmm_exact_leak_set(unsigned which, Error **errp);
int64_t hmm_exact_leak_deadline(void);          /* ns; INT64_MAX: none */
void hmm_exact_skip(int64_t ns);                /* hmm-exact.c: moves the clock */

#endif /* HW_MISC_HMM_EXACT_H */
