/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: the turns of an exact machine.
 *
 * turn() is called again and again by the thread of all CPUs (include/system/turns.h,
 * which harness/hmmbench/build/qemu/exact.patch adds to QEMU).  A turn does what is
 * due (timers of the virtual clock, events of devices, ends of holds), picks a CPU,
 * and runs it until its slice is over, it halts, it pauses, or something is due.
 * When no CPU can run, the clock is moved to what is due next, here and not in the
 * main loop.
 *
 * What makes it exact:
 *  - a slice belongs to its CPU until it is over, however often something makes the
 *    CPU leave its code before that;
 *  - all that is due is done here, in one order: the clock's timers, then events;
 *  - the clock moves by instructions and by skips that are decided here;
 *  - other threads change nothing of a running machine.  The main thread stops it,
 *    at a place that depends on the host, and lets it go on: what is half done here
 *    stays as it is.
 *
 * All of it is the BQL's.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/main-loop.h"
#include "qemu/seqlock.h"
#include "qemu/timer.h"
#include "system/cpus.h"
#include "system/cpu-timers.h"
#include "system/cpu-timers-internal.h"
#include "system/runstate.h"
#include "system/tcg.h"
#include "exec/cpu-common.h"
#include "exec/tb-flush.h"
#include "accel/tcg/tcg-accel-ops.h"
#include "accel/tcg/tcg-accel-ops-icount.h"
#include "migration/vmstate.h"
#include "hmm-exact.h"
#include "hmm_mailbox_hw.h"

#if __has_include("system/turns.h")
#include "system/turns.h"
#define HAVE_TURNS 1
#else
#define HAVE_TURNS 0
#endif

/*
 * Everybody who can run has paused so many times in a row, with no more than so many
 * instructions in between: they wait for what is due next.
 */
#define SPIN_PAUSES 8
#define SPIN_INSNS 200
/*
 * So far the clock is moved then (ns): who spins may look at a clock, in a delay of
 * its own, and the next timer may be a day away.
 */
#define SPIN_SKIP_NS (20 * SCALE_US)

/* At most so often the clock is moved before the main thread gets the BQL. */
#define SKIPS 64

static HmmExactTurns x = { .events = QTAILQ_HEAD_INITIALIZER(x.events) };

#if HAVE_TURNS
static __thread bool in_turn;
static unsigned long points[BITS_TO_LONGS(1 << VCPU_TURNS_BITS)];
#endif

HmmExactTurns *hmm_exact_turns(void)
{
    return &x;
}

bool hmm_exact_on(void)
{
    return x.on;
}

static const HmmExactPassage no_passage;

static int64_t now_ns(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static uint64_t pc_of(CPUState *cpu)
{
    return cpu->cc->get_pc(cpu);
}

/* -- events -- */

void hmm_exact_event_at(HmmExactEvent *e, int64_t due)
{
    HmmExactEvent *other;

    hmm_exact_event_cancel(e);
    e->due = due;
    e->pending = true;
    QTAILQ_FOREACH(other, &x.events, next) {
        if (other->due > due) {
            break;
        }
    }
    if (other) {
        QTAILQ_INSERT_BEFORE(other, e, next);
    } else {
        QTAILQ_INSERT_TAIL(&x.events, e, next);
    }
    if (!current_cpu) {
        /* Not the CPUs' thread, which may wait for nothing in particular. */
        qemu_cpu_kick(first_cpu);
    } else if (current_cpu->running) {
        /* Whoever runs has a budget that ends later, perhaps. */
        cpu_exit(current_cpu);
    }
}

void hmm_exact_event_cancel(HmmExactEvent *e)
{
    if (e->pending) {
        QTAILQ_REMOVE(&x.events, e, next);
        e->pending = false;
    }
}

bool hmm_exact_before(const HmmExactEvent *a, const HmmExactEvent *b)
{
    const HmmExactEvent *e;

    QTAILQ_FOREACH(e, &x.events, next) {
        if (e == a || e == b) {
            break;
        }
    }
    return e == a;
}

/* -- what devices draw -- */

int64_t hmm_exact_engine_gap(void)
{
    return hmm_exact_draw_range(&x.plan, HMM_EXACT_ENGINE, x.plan.gap);
}

uint32_t hmm_exact_engine_steps(void)
{
    unsigned bits = x.plan.steps.lo +
                    hmm_exact_draw_below(&x.plan, HMM_EXACT_ENGINE,
                                         x.plan.steps.hi - x.plan.steps.lo + 1);

    return 1u << bits;
}

unsigned hmm_exact_engine_of(unsigned n)
{
    return hmm_exact_draw_below(&x.plan, HMM_EXACT_ENGINE, n);
}

int64_t hmm_exact_irq_delay(void)
{
    return x.plan.irq.hi ? hmm_exact_draw_range(&x.plan, HMM_EXACT_IRQ,
                                                x.plan.irq) : 0;
}

void hmm_exact_log_engine(unsigned who, uint64_t arg)
{
    hmm_exact_log(HMM_EXACT_ENGINE_RAN, who, 0, arg, no_passage);
}

void hmm_exact_log_irq(unsigned vector)
{
    hmm_exact_log(HMM_EXACT_IRQ_CAME, vector, 0, 0, no_passage);
}

void hmm_exact_gpu_touched(const void *ptr, uint32_t len)
{
    if (hmm_exact_watched()) {
        hmm_exact_watch_gpu(ptr, len, icount_get_raw());
    }
}

/* -- passages -- */

static unsigned number_of(CPUState *cpu)
{
    return cpu->cpu_index % HMM_EXACT_CPUS;
}

/*
 * A CPU comes to an instruction once, however often it is stopped before it executes
 * it: it has come there again when it has executed something since.
 */
static bool looked_at(unsigned n, uint64_t pc, uint64_t insns)
{
    return x.arrived[n].pc == pc && x.arrived[n].insns == insns;
}

static uint32_t *passages_of(int place)
{
    uint16_t phase = x.told_phase ? le32_to_cpu(qatomic_read(x.told_phase)) : 0;

    /* A decision names a phase that there is once in a schedule. */
    if (phase == HM_NO_PHASE && x.phase != HM_NO_PHASE) {
        phase = HM_AFTER_PHASE;
    }
    if (phase != x.phase) {
        memset(x.passages, 0, x.plan.counted->len * sizeof(*x.passages));
        x.phase = phase;
    }
    return &x.passages[place];
}

/*
 * The passage that a CPU that does not run is at, or would be.  That of its arrival:
 * others may have passed since, and another phase may have begun.
 */
static HmmExactPassage passage(CPUState *cpu)
{
    unsigned n = number_of(cpu);
    uint64_t pc = pc_of(cpu);
    int place = hmm_exact_plan_counted(&x.plan, pc);
    uint32_t passed;

    if (place < 0) {
        return no_passage;
    }
    if (looked_at(n, pc, x.insns[n])) {
        return x.arrived[n].at;
    }
    passed = *passages_of(place);
    return (HmmExactPassage) { .number = passed + 1, .phase = x.phase };
}

/* A CPU has come to an instruction.  For how long it is to be held there; 0: it is not. */
static int64_t arrive(unsigned n, uint64_t pc, uint64_t insns)
{
    int place = hmm_exact_plan_counted(&x.plan, pc);
    HmmExactPassage *at = &x.arrived[n].at;

    x.arrived[n].pc = pc;
    x.arrived[n].insns = insns;
    x.arrived[n].picked = false;
    *at = no_passage;
    if (place < 0) {
        return 0;
    }
    for (unsigned other = 0; x.held && other < HMM_EXACT_CPUS; other++) {
        if (x.held_place[other] >= 0) {
            set_bit(x.held_place[other] * x.plan.counted->len + place, x.met);
        }
    }
    at->number = ++*passages_of(place);
    at->phase = x.phase;
    return hmm_exact_plan_decided(&x.plan, pc, *at);
}

/* -- holds -- */

/* Has something to do, and may; whether the host lets it is no part of a schedule. */
static bool busy(CPUState *cpu)
{
    return !x.held_until[number_of(cpu)] && !(cpu->halted && !cpu_has_work(cpu));
}

static bool ready(CPUState *cpu)
{
    return busy(cpu) && cpu_can_run(cpu);
}

static bool others_busy(CPUState *cpu)
{
    CPUState *other;

    CPU_FOREACH(other) {
        if (other != cpu && busy(other)) {
            return true;
        }
    }
    return false;
}

void hmm_exact_told(const uint32_t *under_way, unsigned n, const uint32_t *phase)
{
    x.under_way = under_way;
    x.under_ways = n;
    x.told_phase = phase;
}

/* Enough happens at the same time for a hold to be worth something. */
static bool enough_under_way(void)
{
    unsigned sum = 0;

    for (unsigned i = 0; i < x.under_ways && sum < x.plan.busy; i++) {
        sum += le32_to_cpu(qatomic_read(&x.under_way[i]));
    }
    return !x.under_way || sum >= x.plan.busy;
}

/* Something has happened that one who spins may have waited for. */
static void nobody_spins(void)
{
    memset(x.spins, 0, sizeof(x.spins));
}

static void hold(CPUState *cpu, int64_t ns)
{
    int64_t now = now_ns();

    if (!x.held++) {
        x.held_since = now;
    }
    x.held_until[number_of(cpu)] = now + ns;
    x.state.holds++;
    if (!looked_at(number_of(cpu), pc_of(cpu), x.insns[number_of(cpu)])) {
        /* That was its passage: who comes by meanwhile is the next. */
        arrive(number_of(cpu), pc_of(cpu), x.insns[number_of(cpu)]);
    }
    x.held_place[number_of(cpu)] = hmm_exact_plan_counted(&x.plan, pc_of(cpu));
    hmm_exact_log(HMM_EXACT_HELD, cpu->cpu_index, pc_of(cpu), ns, passage(cpu));
    if (x.cpu == cpu) {
        x.cpu = NULL;
    }
    nobody_spins();
}

/* Those whose time is over by then. */
static void release(int64_t then)
{
    for (unsigned n = 0; x.held && n < HMM_EXACT_CPUS; n++) {
        if (x.held_until[n] && x.held_until[n] <= then) {
            x.held_until[n] = 0;
            x.held_place[n] = -1;
            nobody_spins();
            if (!--x.held) {
                x.held_ns += now_ns() - x.held_since;
            }
        }
    }
}

static int64_t next_release(void)
{
    int64_t next = INT64_MAX;

    for (unsigned n = 0; x.held && n < HMM_EXACT_CPUS; n++) {
        if (x.held_until[n]) {
            next = MIN(next, x.held_until[n]);
        }
    }
    return next;
}

int64_t hmm_exact_fair_ns(void)
{
    int64_t now = now_ns();

    return now - x.held_ns - (x.held ? now - x.held_since : 0);
}

void hmm_exact_hold_nobody(bool on)
{
    x.hold_nobody = on;
    if (on) {
        release(INT64_MAX);
    }
}

/* The times of what holds are left are drawn one after another, spread over the rest. */
static void plan_next_hold(int64_t from, int64_t end)
{
    x.next_hold = INT64_MAX;
    if (x.holds_left) {
        int64_t step = MAX(1, (end - from) / x.holds_left) * 2;

        x.next_hold = from + hmm_exact_draw_below(&x.plan, HMM_EXACT_HOLD, step);
    }
}

/* True: the CPU that is about to run is held instead. */
static bool hold_by_time(CPUState *cpu, int64_t now)
{
    bool busy = enough_under_way();

    x.busy_ns += busy ? now - x.looked : 0;
    x.looked = now;
    if (!busy || x.busy_ns < x.next_hold || x.held || x.hold_nobody ||
        !others_busy(cpu)) {
        return false;
    }
    x.holds_left--;
    plan_next_hold(x.busy_ns,
                   x.busy_ns + x.plan.span * x.holds_left / MAX(1, x.plan.holds));
    hold(cpu, hmm_exact_draw_range(&x.plan, HMM_EXACT_HOLD, x.plan.hold));
    return true;
}

/* The same where a decision says so. */
static bool hold_by_decision(CPUState *cpu)
{
    unsigned n = number_of(cpu);
    uint64_t pc = pc_of(cpu), ns;

    if (x.hold_nobody || looked_at(n, pc, x.insns[n])) {
        return false;
    }
    ns = hmm_exact_plan_decided(&x.plan, pc, passage(cpu));
    if (ns) {
        hold(cpu, ns);
    }
    return ns;
}

/*
 * Who is let run where it stands has come there, though an interrupt may be the first
 * that it takes: a decision would have held it.
 */
static void let_run(CPUState *cpu)
{
    unsigned n = number_of(cpu);
    uint64_t pc = pc_of(cpu);

    if (!looked_at(n, pc, x.insns[n])) {
        arrive(n, pc, x.insns[n]);
        x.arrived[n].picked = true;
    }
}

/* -- the clock -- */

/* ns until something is due that is known here; INT64_MAX: nothing is. */
static int64_t until_due(int64_t now)
{
    HmmExactEvent *e = QTAILQ_FIRST(&x.events);
    int64_t due = MIN(x.stand_ns, next_release());

    if (e) {
        due = MIN(due, e->due);
    }
    return due == INT64_MAX ? INT64_MAX : MAX(0, due - now);
}

static int64_t until_timer(void)
{
    int64_t ns = qemu_clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL,
                                            QEMU_TIMER_ATTR_ALL);

    return ns < 0 ? INT64_MAX : ns;
}

void hmm_exact_skip(int64_t ns)
{
    seqlock_write_lock(&timers_state.vm_clock_seqlock,
                       &timers_state.vm_clock_lock);
    qatomic_set_i64(&timers_state.qemu_icount_bias,
                    timers_state.qemu_icount_bias + ns);
    seqlock_write_unlock(&timers_state.vm_clock_seqlock,
                         &timers_state.vm_clock_lock);
}

static void do_what_is_due(void)
{
    int64_t now;
    HmmExactEvent *e;

    while (until_timer() == 0 && qemu_clock_run_timers(QEMU_CLOCK_VIRTUAL)) {
        nobody_spins();
    }
    now = now_ns();
    release(now);
    while ((e = QTAILQ_FIRST(&x.events)) && e->due <= now) {
        hmm_exact_event_cancel(e);
        nobody_spins();
        e->fn(e->opaque);
    }
    if (now >= x.stand_ns || icount_get_raw() >= x.stand_icount) {
        x.stand_ns = x.stand_icount = INT64_MAX;
        hmm_exact_stand(0);
    }
}

/* -- standing -- */

/*
 * Somebody else may be stopping the machine just now: then it stands here for us
 * when it is told to go on for him.
 */
static void ask_to_stop(void)
{
    if (runstate_is_running()) {
        x.asked = true;
        qemu_system_vmstop_request_prepare();
        qemu_system_vmstop_request(RUN_STATE_PAUSED);
    }
}

void hmm_exact_stand(uint32_t why)
{
    if (x.stands || (why && now_ns() < x.deaf_ns)) {
        return;
    }
    if (why && hmm_exact_leaks(HMM_EXACT_LEAK_STOP)) {
        ask_to_stop();
        return;
    }
    x.stands = true;
    x.asked = false;
    x.why = why;
    if (why) {
        /* Where somebody looks is no decision. */
        hmm_exact_log(HMM_EXACT_STANDS, current_cpu ? current_cpu->cpu_index : 0, 0,
                      why, no_passage);
    }
    if (current_cpu && current_cpu->running) {
        cpu_exit(current_cpu);
    }
    ask_to_stop();
}

static void state_changed(void *opaque, bool running, RunState state)
{
    if (!running) {
        return;
    }
    x.leaves = NULL;
    if (x.stands && !x.asked) {
        ask_to_stop();
    } else {
        x.stands = false;
    }
}

void hmm_exact_deaf_for(int64_t ns)
{
    x.deaf_ns = ns < 0 ? 0 : now_ns() + ns;
}

void hmm_exact_stand_after(int64_t ns)
{
    x.stand_ns = ns < 0 ? INT64_MAX : now_ns() + ns;
}

void hmm_exact_stand_at(int64_t icount)
{
    x.stand_icount = icount < 0 ? INT64_MAX : icount;
}

void hmm_exact_stand_at_pc(const uint64_t *pc, size_t n)
{
    g_clear_pointer(&x.stand_pc, g_array_unref);
    if (n) {
        x.stand_pc = g_array_new(false, false, sizeof(*pc));
        g_array_append_vals(x.stand_pc, pc, n);
    }
}

/* -- turns -- */

void hmm_exact_paused(void)
{
    x.paused = true;
}

/*
 * All who can run have done nothing but pause since anything else happened, and each
 * of them has looked often enough to see that.
 */
static bool all_spin(void)
{
    CPUState *cpu;
    bool any = false;

    CPU_FOREACH(cpu) {
        if (ready(cpu)) {
            if (x.spins[number_of(cpu)] < SPIN_PAUSES) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

static CPUState *pick(int64_t now)
{
    CPUState *cpu, *can[HMM_EXACT_CPUS];
    unsigned n = 0;

    if (x.cpu && x.left > 0 && ready(x.cpu)) {
        return x.cpu;
    }
    CPU_FOREACH(cpu) {
        if (n < HMM_EXACT_CPUS && ready(cpu)) {
            can[n++] = cpu;
        }
    }
    x.cpu = NULL;
    if (!n) {
        return NULL;
    }
    cpu = can[hmm_exact_draw_below(&x.plan, HMM_EXACT_PICK, n)];
    if (hold_by_time(cpu, now) || hold_by_decision(cpu)) {
        return pick(now);
    }
    let_run(cpu);
    x.cpu = cpu;
    x.left = hmm_exact_draw_range(&x.plan, HMM_EXACT_SLICE, x.plan.slice);
    x.slice_insns = 0;
    x.state.picks++;
    return cpu;
}

static void end_slice(CPUState *cpu, HmmExactWhat why)
{
    unsigned n = number_of(cpu);

    hmm_exact_log(why, cpu->cpu_index, pc_of(cpu), x.slice_insns, passage(cpu));
    x.since_pause[n] += x.slice_insns;
    if (why == HMM_EXACT_HALTED || x.since_pause[n] > SPIN_INSNS) {
        nobody_spins();
    } else if (why == HMM_EXACT_PAUSED) {
        x.spins[n]++;
    }
    if (why == HMM_EXACT_PAUSED) {
        x.since_pause[n] = 0;
    }
    x.cpu = NULL;
    x.left = 0;
}

static void run(CPUState *cpu)
{
    int64_t ns = until_due(now_ns()), budget = x.left, begun = icount_get_raw(), ran;
    int64_t leak_ns = hmm_exact_leak_deadline();
    bool cut;
    int r;

    /* Here and with the BQL: who stops the machine hides its timers. */
    ns = MIN(ns, until_timer());
    if (ns < INT32_MAX) {
        budget = MIN(budget, icount_round(ns));
    }
    if (x.stand_icount != INT64_MAX) {
        budget = MIN(budget, MAX(1, x.stand_icount - begun));
    }
    cut = leak_ns < INT32_MAX && icount_round(leak_ns) < budget;
    if (cut) {
        budget = MAX(1, icount_round(leak_ns));
    }
    x.paused = false;
    x.begun = begun;
    qatomic_set(&cpu->exit_request, 0);
    bql_unlock();
    icount_prepare_for_run(cpu, budget);
    r = tcg_cpu_exec(cpu);
    icount_process_data(cpu);
    bql_lock();
    ran = icount_get_raw() - begun;
    x.insns[number_of(cpu)] += ran;
    x.left -= ran;
    x.slice_insns += ran;
    x.state.insns += ran;
    if (ran < budget) {
        cut = r == EXCP_INTERRUPT && hmm_exact_leaks(HMM_EXACT_LEAK_KICKS);
    }

    if (r == EXCP_DEBUG) {
        cpu_handle_guest_debug(cpu);
        x.leaves = cpu;
    } else if (r == EXCP_ATOMIC) {
        bql_unlock();
        cpu_exec_step_atomic(cpu);
        bql_lock();
    }
    if (cpu->stop) {
        x.leaves = cpu;         /* reset, power off */
    }
    if (x.at_point) {
        x.at_point = NULL;
        end_slice(cpu, HMM_EXACT_AT_POINT);
        hold(cpu, x.at_point_ns);
    } else if (x.paused) {
        end_slice(cpu, HMM_EXACT_PAUSED);
    } else if (cpu->halted) {
        end_slice(cpu, HMM_EXACT_HALTED);
    } else if (x.left <= 0 || cut) {
        end_slice(cpu, HMM_EXACT_SLICE_OVER);
    }
}

#if HAVE_TURNS

static void wait_for_others(void)
{
    CPUState *cpu;

    /* Work was done without the BQL, perhaps, and more came meanwhile. */
    CPU_FOREACH(cpu) {
        if (cpu->stop || !cpu_work_list_empty(cpu)) {
            return;
        }
    }
    qemu_cond_wait_bql(first_cpu->halt_cond);
}

static bool all_stopped(void)
{
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        if (cpu_can_run(cpu)) {
            return false;       /* the only one that a debugger lets go, perhaps */
        }
    }
    return true;
}

/* The rest waits for the main thread, too, or how far it comes is the host's matter. */
static bool one_leaves(void)
{
    if (x.leaves && !x.leaves->stop && !x.leaves->stopped) {
        x.leaves = NULL;
    }
    return x.leaves;
}

static void turn(void)
{
    CPUState *cpu;
    int64_t ns;

    in_turn = true;
    if (hmm_exact_leaks(HMM_EXACT_LEAK_TLB)) {
        vcpu_turns.flushes = get_clock_realtime() / SCALE_MS;
    }
    CPU_FOREACH(cpu) {
        current_cpu = cpu;
        qemu_wait_io_event_common(cpu);
    }
    current_cpu = first_cpu;
    if (x.stands || one_leaves() || all_stopped() || !runstate_is_running()) {
        wait_for_others();
        return;
    }
    do_what_is_due();
    if (x.stands) {
        return;
    }
    cpu = pick(now_ns());
    if (cpu && !all_spin()) {
        current_cpu = cpu;
        x.skips = 0;
        run(cpu);
        current_cpu = first_cpu;
        return;
    }
    ns = MIN(until_due(now_ns()), until_timer());
    if (cpu) {
        ns = MIN(ns, SPIN_SKIP_NS);
    }
    if (ns == INT64_MAX) {
        /* All is over: only somebody outside can go on. */
        wait_for_others();
        return;
    }
    if (cpu) {
        nobody_spins();
        x.state.spun_ns += ns;
    } else {
        x.state.skipped_ns += ns;
    }
    hmm_exact_log(cpu ? HMM_EXACT_SPUN : HMM_EXACT_SKIPPED, 0, 0, ns, no_passage);
    hmm_exact_skip(ns);
    if (++x.skips % SKIPS == 0) {
        bql_unlock();
        g_usleep(1);
        bql_lock();
    }
}

static bool mine(void)
{
    return in_turn || hmm_exact_leaks(HMM_EXACT_LEAK_KICKS);
}

/* Of all CPUs until now; the clock is not to be asked while one runs. */
static uint64_t all_insns(CPUState *cpu)
{
    int64_t since = cpu->icount_budget -
                    (cpu->neg.icount_decr.u16.low + cpu->icount_extra);

    return qatomic_read_i64(&timers_state.qemu_icount) + since;
}

/* Instructions that the CPU that runs has executed. */
static uint64_t insns_of(CPUState *cpu)
{
    return x.insns[number_of(cpu)] + all_insns(cpu) - x.begun;
}

/*
 * True, once, at one of the places where somebody who looks wants it to stand; where it
 * stands so already it has to come again.
 */
static bool stand_here(CPUState *cpu, vaddr pc)
{
    uint64_t insns = x.stand_pc ? all_insns(cpu) : 0;

    for (guint i = 0; x.stand_pc && i < x.stand_pc->len; i++) {
        if (g_array_index(x.stand_pc, uint64_t, i) == pc &&
            (x.stood_pc != pc || x.stood_insns != insns)) {
            x.stood_pc = pc;
            x.stood_insns = insns;
            hmm_exact_stand_at_pc(NULL, 0);
            return true;
        }
    }
    return false;
}

/* Whether this passage is one to hold at. */
static bool drawn(unsigned n)
{
    if (x.plan.fair) {
        uint64_t number = MAX(x.arrived[n].at.number, x.plan.fair);

        return hmm_exact_draw_below(&x.plan, HMM_EXACT_POINT, number) < x.plan.fair;
    }
    return !hmm_exact_draw_below(&x.plan, HMM_EXACT_POINT, x.plan.odds);
}

static bool at(CPUState *cpu, vaddr pc)
{
    unsigned n = number_of(cpu);
    bool point, picked, watched = hmm_exact_watches(pc);
    uint64_t insns;
    int64_t ns;

    if (stand_here(cpu, pc)) {
        hmm_exact_stand(0);
        return true;
    }
    if (!watched && hmm_exact_plan_counted(&x.plan, pc) < 0) {
        return false;
    }
    if (cpu->exit_request || cpu->neg.icount_decr.u16.high ||
        !(cpu->neg.icount_decr.u16.low + cpu->icount_extra)) {
        return false;           /* it leaves here, and comes back later */
    }
    insns = insns_of(cpu);
    picked = looked_at(n, pc, insns);
    if (picked && !x.arrived[n].picked) {
        return false;
    }
    x.arrived[n].picked = false;
    if (watched && enough_under_way()) {
        hmm_exact_watch_at(cpu, pc, all_insns(cpu));
    }
    ns = picked ? 0 : arrive(n, pc, insns);
    point = hmm_exact_plan_point(&x.plan, pc);
    if (point) {
        x.state.point_passes++;
    }
    if (x.hold_nobody) {
        return false;
    }
    if (!ns) {
        if (!point || !x.point_holds_left || x.held >= x.plan.crowd ||
            !enough_under_way() ||
            !drawn(n) ||
            (x.plan.crowd == 1 && !others_busy(cpu))) {
            return false;
        }
        x.point_holds_left--;
        ns = hmm_exact_draw_range(&x.plan, HMM_EXACT_POINT, x.plan.point_hold);
    }
    x.state.point_holds++;
    x.at_point = cpu;
    x.at_point_ns = ns;
    return true;
}

static void mark(const GArray *addresses)
{
    for (unsigned i = 0; addresses && i < addresses->len; i++) {
        unsigned bit = vcpu_turns_bit(g_array_index(addresses, uint64_t, i));

        points[bit / BITS_PER_LONG] |= 1ul << bit % BITS_PER_LONG;
    }
}

/* For cpu_breakpoint_remove_all(); unknown to everybody else. */
#define BP_HMM_EXACT 0x10000

/*
 * Where functions begin or return to a translated block begins: the points that were
 * told before.  Others may be anywhere.  QEMU goes through a page that has breakpoints
 * by single instructions, but for the address of one: hence two in a page, none of
 * which stops anybody.
 */
static void step_through(const GArray *addresses)
{
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        uint64_t last = 0;

        for (unsigned i = 0; addresses && i < addresses->len; i++) {
            uint64_t pc = g_array_index(addresses, uint64_t, i);
            uint64_t page = pc & ~0xfffull;

            if (page != last && !hmm_exact_among(x.points, pc)) {
                cpu_breakpoint_insert(cpu, page, BP_HMM_EXACT, NULL);
                cpu_breakpoint_insert(cpu, page + 1, BP_HMM_EXACT, NULL);
                last = page;
            }
        }
    }
}

static void points_changed(void)
{
    CPUState *cpu;

    memset(points, 0, sizeof(points));
    mark(x.points);
    mark(x.plan.counted);
    mark(hmm_exact_watched());
    CPU_FOREACH(cpu) {
        cpu_breakpoint_remove_all(cpu, BP_HMM_EXACT);
    }
    step_through(x.plan.counted);
    step_through(hmm_exact_watched());
    vcpu_turns.points = points;
}

void hmm_exact_points_set(GArray *sorted)
{
    if (x.points) {
        g_array_unref(x.points);
    }
    x.points = g_array_ref(sorted);
    points_changed();
    /* Code that was translated before jumps straight to them. */
    tb_flush(first_cpu);
}

bool hmm_exact_watch_set(const char *path, Error **errp)
{
    bool read = hmm_exact_watch_read(path, errp);

    points_changed();
    tb_flush(first_cpu);
    return read;
}

int64_t hmm_exact_flushes(void)
{
    return vcpu_turns.flushes;
}

uint64_t hmm_exact_random(void)
{
    return vcpu_turns.random;
}

void hmm_exact_random_set(int64_t flushes, uint64_t random)
{
    vcpu_turns.flushes = flushes;
    vcpu_turns.random = random;
}

bool hmm_exact_begin(Error **errp)
{
    if (x.began) {
        error_setg(errp, "hmm-exact: there is one already");
        return false;
    }
    if (icount_enabled() != ICOUNT_PRECISE || !tcg_enabled()) {
        error_setg(errp, "hmm-exact: needs -accel tcg,thread=single "
                   "-icount shift=N,sleep=off");
        return false;
    }
    x.began = true;
    memset(x.held_place, -1, sizeof(x.held_place));
    x.stand_ns = x.stand_icount = x.next_hold = INT64_MAX;
    hmm_exact_log_reset();
    qemu_add_vm_change_state_handler(state_changed, NULL);
    vmstate_register(NULL, 0, &hmm_exact_vmstate, &x);
    vcpu_turns.mine = mine;
    vcpu_turns.at = at;
    vcpu_turns.turn = turn;
    x.on = true;
    return true;
}

#else

static void points_changed(void)
{
}

void hmm_exact_points_set(GArray *sorted)
{
}

bool hmm_exact_watch_set(const char *path, Error **errp)
{
    return true;
}

int64_t hmm_exact_flushes(void)
{
    return 0;
}

uint64_t hmm_exact_random(void)
{
    return 0;
}

void hmm_exact_random_set(int64_t flushes, uint64_t random)
{
}

bool hmm_exact_begin(Error **errp)
{
    error_setg(errp, "hmm-exact: this QEMU was built without exact.patch, which "
               "does not fit its source");
    return false;
}

#endif

/* -- for the object's properties: the machine stands -- */

void hmm_exact_plan_set(HmmExactPlan *p, bool scheduled)
{
    x.scheduled = scheduled;
    release(INT64_MAX);
    hmm_exact_plan_free(&x.plan);
    x.plan = *p;
    g_free(x.passages);
    x.passages = g_new0(uint32_t, p->counted->len);
    x.phase = HM_NO_PHASE;
    g_free(x.met);
    x.met = bitmap_new(MAX(1, p->counted->len * p->counted->len));
    points_changed();
    x.cpu = NULL;
    x.left = 0;
    x.holds_left = p->holds;
    x.point_holds_left = p->point_holds;
    x.busy_ns = 0;
    x.looked = now_ns();
    plan_next_hold(0, p->span);
    memset(x.arrived, 0, sizeof(x.arrived));
    memset(x.since_pause, 0, sizeof(x.since_pause));
    nobody_spins();
    memset(&x.state, 0, sizeof(x.state));
    hmm_exact_log_reset();
}

char *hmm_exact_met(void)
{
    g_autoptr(GString) s = g_string_new(NULL);
    const GArray *places = x.plan.counted;
    unsigned long n = places ? places->len : 0;

    for (unsigned long bit = find_first_bit(x.met, n * n); bit < n * n;
         bit = find_next_bit(x.met, n * n, bit + 1)) {
        g_string_append_printf(s, "%s%" PRIx64 ":%" PRIx64, s->len ? "," : "",
                               g_array_index(places, uint64_t, bit / n),
                               g_array_index(places, uint64_t, bit % n));
    }
    return g_string_free(g_steal_pointer(&s), false);
}

const HmmExactPlan *hmm_exact_plan(void)
{
    return &x.plan;
}

void hmm_exact_state(HmmExactState *s)
{
    *s = x.state;
    s->ns = now_ns();
    s->icount = icount_get_raw();
    s->why = x.why;
    s->stands = x.stands;
}
