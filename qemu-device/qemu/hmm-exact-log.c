/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: what was decided, and where the machine stood.
 *
 * Each entry goes into a rolling hash, but for its passage: whether they are
 * counted is no part of an execution.  The entries themselves are kept, too, up to
 * a limit that an example does not reach.  Two executions are equal, as far as the
 * CPUs and the devices' events go, if their hashes are; else the first entry in
 * which they differ is where they part.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/timer.h"
#include "system/cpu-timers.h"
#include "hmm-exact.h"

/* Entries that are kept: 40 MiB */
#define HMM_EXACT_KEPT (1u << 20)

static struct {
    GArray *entries;
    uint64_t hash, count;
} exact_log;

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

void hmm_exact_log_reset(void)
{
    if (!exact_log.entries) {
        exact_log.entries = g_array_new(false, false, sizeof(HmmExactEntry));
    }
    g_array_set_size(exact_log.entries, 0);
    exact_log.hash = exact_log.count = 0;
}

void hmm_exact_log(HmmExactWhat what, unsigned who, uint64_t pc, uint64_t arg,
                   HmmExactPassage at)
{
    HmmExactEntry e = {
        .icount = icount_get_raw(),
        .ns = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL),
        .pc = pc, .arg = arg, .what = what, .who = who,
        .phase = at.phase, .passage = at.number,
    };
    uint64_t h = exact_log.hash;

    h = mix(h, e.icount);
    h = mix(h, e.ns);
    h = mix(h, e.pc);
    h = mix(h, e.arg);
    exact_log.hash = mix(h, what << 8 | who);
    exact_log.count++;
    if (exact_log.entries->len < HMM_EXACT_KEPT) {
        g_array_append_val(exact_log.entries, e);
    }
}

uint64_t hmm_exact_log_hash(void)
{
    return exact_log.hash;
}

uint64_t hmm_exact_log_count(void)
{
    return exact_log.count;
}

const GArray *hmm_exact_log_kept(void)
{
    return exact_log.entries;
}

void hmm_exact_log_set(uint64_t hash, uint64_t count, const void *entries, size_t n)
{
    hmm_exact_log_reset();
    g_array_append_vals(exact_log.entries, entries, MIN(n, HMM_EXACT_KEPT));
    exact_log.hash = hash;
    exact_log.count = count;
}

bool hmm_exact_log_write(const char *path, Error **errp)
{
    g_autoptr(GError) error = NULL;

    if (!g_file_set_contents(path, exact_log.entries->data,
                             exact_log.entries->len * sizeof(HmmExactEntry),
                             &error)) {
        error_setg(errp, "%s", error->message);
        return false;
    }
    return true;
}
