/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: the object, "-device hmm-exact,id=exact0", and its properties (qom-set,
 * qom-get; to be written while the machine stands).  It is a device without a bus
 * and without anything that a guest can see: an "-object" would have to be known to
 * QEMU's own schema.
 *
 *   schedule     string (hmm-exact-plan.c); writing begins it from its start
 *   points       string: addresses (hexadecimal, ',' between) where functions begin
 *                or return to; a schedule may name others, too, which takes more time
 *   watch        string, write only: a file with the instructions whose accesses are
 *                looked at (hmm-exact-watch.c), "": none
 *   write-watch  string, write only: what was found goes to this file
 *   met          string, read only: pairs of the schedule's addresses (ADDR:ADDR,...);
 *                a CPU was held at the first while another passed the second
 *   state        read only: one object (HmmExactState and the log's hash)
 *   write-log    string, write only: the log goes to this file
 *   write-memory string, write only: hashes of RAM go to this file
 *   stand-after  write: stand so many ns of virtual time from now; -1: not
 *   deaf-for     write: the guest's own wish to stand does not count for so many ns
 *                from now: an agent with nothing to do would stand at once; -1: it does
 *   stand-at     write: stand at this instruction count; -1: not
 *   leak         write: open this leak (hmm-exact-leaks.c); 0: none
 *   stand-at-pc  string: stand where a CPU comes to one of these addresses, which
 *                have to be among the points; once
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "qemu/cutils.h"
#include "qemu/module.h"
#include "hw/qdev-core.h"
#include "system/runstate.h"
#include "hmm-gpu.h"

#define TYPE_HMM_EXACT "hmm-exact"
OBJECT_DECLARE_SIMPLE_TYPE(HmmExact, HMM_EXACT)

struct HmmExact {
    DeviceState parent;
    char *points;
};

/* The CPUs' thread reads what these change, without a lock. */
static bool stands(Error **errp)
{
    if (runstate_is_running()) {
        error_setg(errp, "the machine runs: to be written while it stands");
        return false;
    }
    return true;
}

static void set_schedule(Object *obj, const char *text, Error **errp)
{
    HmmExactPlan plan;

    if (stands(errp) && hmm_exact_plan_read(&plan, text, errp)) {
        hmm_exact_plan_set(&plan, true);
    }
}

static char *get_schedule(Object *obj, Error **errp)
{
    return hmm_exact_plan()->at ? hmm_exact_plan_text(hmm_exact_plan())
                                : g_strdup("");
}

/* A list of addresses; NULL if it is none, or the machine runs. */
static GArray *read_addresses(const char *text, Error **errp)
{
    g_autoptr(GArray) at = g_array_new(false, false, sizeof(uint64_t));
    const char *p = text;
    uint64_t pc;

    if (!stands(errp)) {
        return NULL;
    }
    while (*p) {
        if (qemu_strtou64(p, &p, 16, &pc) || (*p && *p != ',')) {
            error_setg(errp, "'%.20s' is no address in hexadecimal", p);
            return NULL;
        }
        g_array_append_val(at, pc);
        p += *p == ',';
    }
    return g_steal_pointer(&at);
}

static void set_points(Object *obj, const char *text, Error **errp)
{
    g_autoptr(GArray) at = read_addresses(text, errp);

    if (at) {
        hmm_exact_sort(at);
        hmm_exact_points_set(at);
        g_free(HMM_EXACT(obj)->points);
        HMM_EXACT(obj)->points = g_strdup(text);
    }
}

static void set_stand_at_pc(Object *obj, const char *text, Error **errp)
{
    g_autoptr(GArray) at = read_addresses(text, errp);

    if (at) {
        hmm_exact_stand_at_pc((uint64_t *)at->data, at->len);
    }
}

static char *get_points(Object *obj, Error **errp)
{
    return g_strdup(HMM_EXACT(obj)->points ? HMM_EXACT(obj)->points : "");
}

static char *get_nothing(Object *obj, Error **errp)
{
    return g_strdup("");
}

static void write_log(Object *obj, const char *path, Error **errp)
{
    hmm_exact_log_write(path, errp);
}

static void set_watch(Object *obj, const char *path, Error **errp)
{
    if (stands(errp)) {
        hmm_exact_watch_set(path, errp);
    }
}

static void write_watch(Object *obj, const char *path, Error **errp)
{
    hmm_exact_watch_write(path, errp);
}

static char *get_met(Object *obj, Error **errp)
{
    return hmm_exact_met();
}

static void write_memory(Object *obj, const char *path, Error **errp)
{
    hmm_exact_memory_write(path, errp);
}

static void get_state(Object *obj, Visitor *v, const char *name, void *opaque,
                      Error **errp)
{
    HmmExactState s;
    uint64_t hash = hmm_exact_log_hash(), count = hmm_exact_log_count();
    uint64_t why, ns, icount, holds;
    struct {
        const char *name;
        uint64_t *value;
    } fields[] = {
        { "hash", &hash }, { "decisions", &count }, { "ns", &ns },
        { "icount", &icount }, { "why", &why }, { "picks", &s.picks },
        { "holds", &holds }, { "point-passes", &s.point_passes },
        { "point-holds", &s.point_holds }, { "instructions", &s.insns },
        { "skipped-ns", &s.skipped_ns }, { "spun-ns", &s.spun_ns },
    };

    hmm_exact_state(&s);
    why = s.why;
    ns = s.ns;
    icount = s.icount;
    holds = s.holds;
    if (!visit_start_struct(v, name, NULL, 0, errp)) {
        return;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) {
        if (!visit_type_uint64(v, fields[i].name, fields[i].value, errp)) {
            goto out;
        }
    }
    if (visit_type_bool(v, "stands", &s.stands, errp)) {
        visit_check_struct(v, errp);
    }
out:
    visit_end_struct(v, NULL);
}

static void set_stand(Object *obj, Visitor *v, const char *name, void *opaque,
                      Error **errp)
{
    void (*set)(int64_t) = opaque;
    int64_t value;

    if (visit_type_int64(v, name, &value, errp) && stands(errp)) {
        set(value);
    }
}

static void set_leak(Object *obj, Visitor *v, const char *name, void *opaque,
                     Error **errp)
{
    uint32_t which;

    if (visit_type_uint32(v, name, &which, errp) && stands(errp)) {
        hmm_exact_leak_set(which, errp);
    }
}

static void realize(DeviceState *dev, Error **errp)
{
    HmmExactPlan plan;

    hmm_gpu_yield_at_pause();
    if (hmm_exact_begin(errp) && hmm_exact_plan_read(&plan, "", errp)) {
        hmm_exact_plan_set(&plan, false);
    }
}

static void finalize(Object *obj)
{
    g_free(HMM_EXACT(obj)->points);
}

static void class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);

    dc->realize = realize;
    dc->hotpluggable = false;
    dc->user_creatable = true;
    dc->desc = "Schedule of an exact machine";
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    object_class_property_add_str(oc, "schedule", get_schedule, set_schedule);
    object_class_property_add_str(oc, "points", get_points, set_points);
    object_class_property_add_str(oc, "write-log", get_nothing, write_log);
    object_class_property_add_str(oc, "write-memory", get_nothing, write_memory);
    object_class_property_add_str(oc, "stand-at-pc", get_nothing, set_stand_at_pc);
    object_class_property_add(oc, "leak", "uint32", NULL, set_leak, NULL, NULL);
    object_class_property_add_str(oc, "watch", get_nothing, set_watch);
    object_class_property_add_str(oc, "write-watch", get_nothing, write_watch);
    object_class_property_add_str(oc, "met", get_met, NULL);
    object_class_property_add(oc, "state", "HmmExactState", get_state, NULL, NULL,
                              NULL);
    object_class_property_add(oc, "stand-after", "int64", NULL, set_stand, NULL,
                              hmm_exact_stand_after);
    object_class_property_add(oc, "deaf-for", "int64", NULL, set_stand, NULL,
                              hmm_exact_deaf_for);
    object_class_property_add(oc, "stand-at", "int64", NULL, set_stand, NULL,
                              hmm_exact_stand_at);
}

static const TypeInfo types[] = {
    {
        .name = TYPE_HMM_EXACT,
        .parent = TYPE_DEVICE,
        .instance_size = sizeof(HmmExact),
        .instance_finalize = finalize,
        .class_init = class_init,
    },
};

DEFINE_TYPES(types)
