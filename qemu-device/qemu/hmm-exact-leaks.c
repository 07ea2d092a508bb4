/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: ways in which the host reaches a guest, closed elsewhere and opened
 * here again by a test, which has to see that executions part ("leak", one at a time;
 * tests/vm/test_exact_leaks.py says which numbers are options of the machine instead).
 *
 *   1  a kick by another thread ends the slice, and timers run where they are due
 *   2  the main loop moves the clock when all CPUs look idle
 *   3  the sizes of TLBs go by the host's clock
 *   4  deadlines of the real-time clock end slices; there is one each millisecond,
 *      as with a display
 *   7  the machine stands when the main loop gets to it
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/timer.h"
#include "system/cpus.h"
#include "system/runstate.h"
#include "hmm-exact.h"

#define LEAK_WARP_NS (20 * SCALE_US)
#define LEAK_DEADLINE_NS SCALE_MS

static struct {
    unsigned open;
    QEMUTimer *timer;
} leaks;

bool hmm_exact_leaks(unsigned which)
{
    return leaks.open == which;
}

static void leak_timer(void *opaque)
{
    bool warps = hmm_exact_leaks(HMM_EXACT_LEAK_WARP);
    int64_t ns = qemu_clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL,
                                            QEMU_TIMER_ATTR_ALL);

    if (warps && ns > 0 && runstate_is_running() && all_cpu_threads_idle()) {
        hmm_exact_skip(ns);
        qemu_cpu_kick(first_cpu);
    }
    timer_mod_ns(leaks.timer, qemu_clock_get_ns(QEMU_CLOCK_REALTIME) +
                              (warps ? LEAK_WARP_NS : LEAK_DEADLINE_NS));
}

void hmm_exact_leak_set(unsigned which, Error **errp)
{
    switch (which) {
    case 0:
    case HMM_EXACT_LEAK_KICKS:
    case HMM_EXACT_LEAK_TLB:
    case HMM_EXACT_LEAK_STOP:
        g_clear_pointer(&leaks.timer, timer_free);
        break;
    case HMM_EXACT_LEAK_WARP:
    case HMM_EXACT_LEAK_DEADLINES:
        if (!leaks.timer) {
            leaks.timer = timer_new_ns(QEMU_CLOCK_REALTIME, leak_timer, NULL);
        }
        timer_mod_ns(leaks.timer, qemu_clock_get_ns(QEMU_CLOCK_REALTIME));
        break;
    default:
        error_setg(errp, "leak: there is no leak %u here", which);
        return;
    }
    leaks.open = which;
}

int64_t hmm_exact_leak_deadline(void)
{
    int64_t ns = -1;

    if (hmm_exact_leaks(HMM_EXACT_LEAK_DEADLINES)) {
        ns = qemu_clock_deadline_ns_all(QEMU_CLOCK_REALTIME, QEMU_TIMER_ATTR_ALL);
    }
    return ns < 0 ? INT64_MAX : ns;
}
