/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: snapshots within an example.
 *
 * Where a schedule was set and has decided something, all that decides what comes next
 * goes into the stream: the schedule and its random streams, who has the slice and what
 * is left of it, holds, passages, hash and log.  The machine goes on in another process
 * as if it had not been saved.  Else nothing does, and a restored machine begins anew.
 *
 * Not in the stream: where the machine is to stand, what is watched, leaks: whoever
 * wants that says so again.
 *
 * A stream is hostile input: lengths are bounded before memory is allocated, and what
 * points to something is checked before it is used.
 */
#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/error-report.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "hw/core/cpu.h"
#include "migration/vmstate.h"
#include "hmm-exact.h"

#define MOST (64 * MiB)

bool hmm_exact_within(void)
{
    return hmm_exact_turns()->scheduled && hmm_exact_log_count();
}

static bool needed(void *opaque)
{
    return hmm_exact_within();
}

static size_t met_bytes(unsigned places)
{
    return BITS_TO_LONGS(MAX(1, (size_t)places * places)) * sizeof(unsigned long);
}

static int pre_save(void *opaque)
{
    HmmExactTurns *x = opaque;
    HmmExactSaved *s = &x->saved;
    const GArray *log = hmm_exact_log_kept();

    /* Buffers are those of who has them, but for the text. */
    *s = (HmmExactSaved) {
        .text = (uint8_t *)hmm_exact_plan_text(&x->plan),
        .points = x->points ? (uint8_t *)x->points->data : NULL,
        .points_bytes = x->points ? x->points->len * sizeof(uint64_t) : 0,
        .passages = (uint8_t *)x->passages,
        .passages_bytes = x->plan.counted->len * sizeof(*x->passages),
        .met = (uint8_t *)x->met,
        .met_bytes = met_bytes(x->plan.counted->len),
        .log = (uint8_t *)log->data,
        .log_bytes = log->len * sizeof(HmmExactEntry),
        .hash = hmm_exact_log_hash(), .count = hmm_exact_log_count(),
        .cpu = x->cpu ? x->cpu->cpu_index : -1,
        .flushes = hmm_exact_flushes(), .random = hmm_exact_random(),
    };
    s->text_bytes = strlen((char *)s->text) + 1;
    return 0;
}

static int post_save(void *opaque)
{
    HmmExactTurns *x = opaque;

    g_free(x->saved.text);
    x->saved = (HmmExactSaved) {};
    return 0;
}

static int pre_load(void *opaque)
{
    HmmExactTurns *x = opaque;

    x->saved = (HmmExactSaved) {};
    return 0;
}

static bool lengths_are_good(void *opaque, int version_id)
{
    HmmExactSaved *s = &((HmmExactTurns *)opaque)->saved;

    return s->text_bytes && s->text_bytes <= MOST && s->points_bytes <= MOST &&
           s->passages_bytes <= MOST && s->met_bytes <= MOST && s->log_bytes <= MOST;
}

/* Of what was loaded, the schedule aside; its words are fine. */
static bool good(const HmmExactTurns *x, const HmmExactPlan *plan)
{
    const HmmExactSaved *s = &x->saved;
    unsigned held = 0;

    for (unsigned n = 0; n < HMM_EXACT_CPUS; n++) {
        held += x->held_until[n] != 0;
        if (x->held_until[n] < 0 || x->held_place[n] < -1 ||
            x->held_place[n] >= (int)plan->counted->len) {
            return false;
        }
    }
    return held == x->held && (s->cpu < 0 || qemu_get_cpu(s->cpu)) &&
           s->points_bytes % sizeof(uint64_t) == 0 &&
           s->passages_bytes == plan->counted->len * sizeof(*x->passages) &&
           s->met_bytes == met_bytes(plan->counted->len) &&
           s->log_bytes % sizeof(HmmExactEntry) == 0 &&
           s->log_bytes / sizeof(HmmExactEntry) <= s->count;
}

static bool take(HmmExactTurns *x, Error **errp)
{
    HmmExactSaved *s = &x->saved;
    HmmExactTurns loaded = *x;
    HmmExactPlan plan;
    g_autoptr(GArray) points = g_array_new(false, false, sizeof(uint64_t));

    /* It has no 0 in it but its last byte, or what is behind that is not read. */
    s->text[s->text_bytes - 1] = 0;
    if (!hmm_exact_plan_read(&plan, (char *)s->text, errp)) {
        return false;
    }
    if (!good(x, &plan)) {
        hmm_exact_plan_free(&plan);
        error_setg(errp, "the state of a schedule is not sound");
        return false;
    }
    /* This begins a schedule, in place of what was loaded; then that is put back. */
    hmm_exact_plan_set(&plan, true);
    memcpy(x->plan.stream, loaded.plan.stream, sizeof(x->plan.stream));
    loaded.plan = x->plan;
    loaded.passages = x->passages;
    loaded.met = x->met;
    *x = loaded;
    memcpy(x->passages, s->passages, s->passages_bytes);
    memcpy(x->met, s->met, s->met_bytes);
    x->scheduled = true;
    x->cpu = s->cpu < 0 ? NULL : qemu_get_cpu(s->cpu);
    g_array_append_vals(points, s->points, s->points_bytes / sizeof(uint64_t));
    hmm_exact_sort(points);
    hmm_exact_points_set(points);
    hmm_exact_log_set(s->hash, s->count, s->log,
                      s->log_bytes / sizeof(HmmExactEntry));
    hmm_exact_random_set(s->flushes, s->random);
    return true;
}

static int post_load(void *opaque, int version_id)
{
    HmmExactTurns *x = opaque;
    HmmExactSaved *s = &x->saved;
    Error *err = NULL;
    uint8_t *buffers[] = { s->text, s->points, s->passages, s->met, s->log };
    bool taken = take(x, &err);

    for (unsigned i = 0; i < ARRAY_SIZE(buffers); i++) {
        g_free(buffers[i]);
    }
    x->saved = (HmmExactSaved) {};
    if (!taken) {
        error_reportf_err(err, "hmm-exact: ");
        return -EINVAL;
    }
    return 0;
}

static const VMStateDescription arrived_vmstate = {
    .name = "hmm-exact/arrived",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(pc, HmmExactArrived),
        VMSTATE_UINT64(insns, HmmExactArrived),
        VMSTATE_UINT16(at.phase, HmmExactArrived),
        VMSTATE_UINT32(at.number, HmmExactArrived),
        VMSTATE_BOOL(picked, HmmExactArrived),
        VMSTATE_END_OF_LIST()
    }
};

#define BYTES(f) \
    VMSTATE_VBUFFER_ALLOC_UINT32(saved.f, HmmExactTurns, 0, NULL, saved.f##_bytes)

const VMStateDescription hmm_exact_vmstate = {
    .name = "hmm-exact",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = needed,
    .pre_save = pre_save,
    .post_save = post_save,
    .pre_load = pre_load,
    .post_load = post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(saved.text_bytes, HmmExactTurns),
        VMSTATE_UINT32(saved.points_bytes, HmmExactTurns),
        VMSTATE_UINT32(saved.passages_bytes, HmmExactTurns),
        VMSTATE_UINT32(saved.met_bytes, HmmExactTurns),
        VMSTATE_UINT32(saved.log_bytes, HmmExactTurns),
        VMSTATE_VALIDATE("lengths", lengths_are_good),
        BYTES(text), BYTES(points), BYTES(passages), BYTES(met), BYTES(log),
        VMSTATE_UINT64(saved.hash, HmmExactTurns),
        VMSTATE_UINT64(saved.count, HmmExactTurns),
        VMSTATE_INT32(saved.cpu, HmmExactTurns),
        VMSTATE_INT64(saved.flushes, HmmExactTurns),
        VMSTATE_UINT64(saved.random, HmmExactTurns),
        VMSTATE_UINT64_ARRAY(plan.stream, HmmExactTurns, HMM_EXACT_STREAMS),
        VMSTATE_BOOL(hold_nobody, HmmExactTurns),
        VMSTATE_INT64(left, HmmExactTurns),
        VMSTATE_UINT64(slice_insns, HmmExactTurns),
        VMSTATE_INT64_ARRAY(held_until, HmmExactTurns, HMM_EXACT_CPUS),
        VMSTATE_UINT32(held, HmmExactTurns),
        VMSTATE_UINT32(holds_left, HmmExactTurns),
        VMSTATE_INT64(next_hold, HmmExactTurns),
        VMSTATE_INT64(busy_ns, HmmExactTurns),
        VMSTATE_INT64(looked, HmmExactTurns),
        VMSTATE_INT64(held_ns, HmmExactTurns),
        VMSTATE_INT64(held_since, HmmExactTurns),
        VMSTATE_UINT32(point_holds_left, HmmExactTurns),
        VMSTATE_UINT64_ARRAY(insns, HmmExactTurns, HMM_EXACT_CPUS),
        VMSTATE_STRUCT_ARRAY(arrived, HmmExactTurns, HMM_EXACT_CPUS, 1,
                             arrived_vmstate, HmmExactArrived),
        VMSTATE_INT32_ARRAY(held_place, HmmExactTurns, HMM_EXACT_CPUS),
        VMSTATE_UINT16(phase, HmmExactTurns),
        VMSTATE_UINT32_ARRAY(spins, HmmExactTurns, HMM_EXACT_CPUS),
        VMSTATE_UINT64_ARRAY(since_pause, HmmExactTurns, HMM_EXACT_CPUS),
        VMSTATE_UINT64(state.picks, HmmExactTurns),
        VMSTATE_UINT64(state.holds, HmmExactTurns),
        VMSTATE_UINT64(state.point_passes, HmmExactTurns),
        VMSTATE_UINT64(state.point_holds, HmmExactTurns),
        VMSTATE_UINT64(state.insns, HmmExactTurns),
        VMSTATE_UINT64(state.skipped_ns, HmmExactTurns),
        VMSTATE_UINT64(state.spun_ns, HmmExactTurns),
        VMSTATE_END_OF_LIST()
    }
};
