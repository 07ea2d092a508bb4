/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: a virtual CPU that spins lets others run.
 *
 * Under TCG virtual CPUs are threads, and a bench that runs several machines
 * has more of them than the host has CPUs.  A guest that waits for a lock or
 * for another CPU's answer executes PAUSE, and QEMU, whose comment there says
 * that another CPU is to run, comes back to the same guest at once: the host
 * goes on giving its time to who waits, and none to who is waited for.  So the
 * helper of that instruction first yields the host's CPU.  What the guest sees
 * is a PAUSE that takes longer.  In an exact machine all CPUs are one thread, and
 * it ends the CPU's slice.
 *
 * The helper is called by the pointer in its description, which nobody writes
 * but we: once, when a machine gets the first device of ours or becomes exact.  The description is a name of QEMU
 * 10.0's; where a build has none (no TCG, another version), all stays as it is.
 */
#include "qemu/osdep.h"
#include <sched.h>
#include "qemu/atomic.h"
#include "tcg/helper-info.h"
#include "hmm-gpu.h"
#include "trace.h"

extern struct TCGHelperInfo helper_info_pause __attribute__((weak));

static void (*pause_helper)(void *env);

static void yield_and_pause(void *env)
{
    if (hmm_exact_on()) {
        hmm_exact_paused();
    } else {
        sched_yield();
    }
    pause_helper(env);          /* does not return */
}

void hmm_gpu_yield_at_pause(void)
{
    if (&helper_info_pause && !pause_helper) {
        trace_hmm_gpu_pause_helper();
        pause_helper = helper_info_pause.func;
        /* hot-plugged: what was translated before goes on calling the old one */
        qatomic_set(&helper_info_pause.func, (void *)yield_and_pause);
    }
}
