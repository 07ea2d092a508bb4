/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: properties that work at run time (qom-set, qom-get).
 *
 *   inject    string; writing replaces all injection rules, reading gives them
 *             with their hits.  "-device hmm-gpu,inject=..." before boot.
 *   counters  read only; one object, name to value, as in HG_CNT_*.
 *   violations  string: what the protocol checks found, a JSON list of objects,
 *             the oldest first (docs/checks.md); writing "" forgets it.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hmm-gpu.h"

static char *hmm_gpu_get_inject(Object *obj, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);
    size_t len;
    char *text;

    if (!s->gpu) {
        return g_strdup(s->inject ? s->inject : "");
    }
    len = hg_inject_get(s->gpu, NULL, 0) + 1;
    text = g_malloc0(len);
    hg_inject_get(s->gpu, text, len);
    return text;
}

typedef struct HmmGpuInject {
    const char *rules;
    char err[256];
    int ret;
} HmmGpuInject;

static void hmm_gpu_do_inject(HmmGpuState *s, void *opaque)
{
    HmmGpuInject *i = opaque;

    i->ret = hg_inject(s->gpu, i->rules, i->err, sizeof(i->err));
}

static void hmm_gpu_set_inject(Object *obj, const char *value, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);
    HmmGpuInject inject = { .rules = value };

    if (!s->gpu) {      /* checked by realize */
        g_free(s->inject);
        s->inject = g_strdup(value);
        return;
    }
    hmm_gpu_blocking(s, hmm_gpu_do_inject, &inject);
    if (inject.ret) {
        error_setg(errp, "inject: %s", inject.err);
    }
}

static void hmm_gpu_get_counters(Object *obj, Visitor *v, const char *name,
                                 void *opaque, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);
    unsigned i;

    if (!visit_start_struct(v, name, NULL, 0, errp)) {
        return;
    }
    for (i = 0; i < HG_NUM_COUNTERS; i++) {
        uint64_t value = s->gpu ? hg_counter(s->gpu, i) : 0;

        if (!visit_type_uint64(v, hg_counter_name(i), &value, errp)) {
            goto out;
        }
    }
    visit_check_struct(v, errp);
out:
    visit_end_struct(v, NULL);
}

static char *hmm_gpu_get_violations(Object *obj, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);
    HgViolation found[HG_VIOLATIONS];
    unsigned i, n = s->gpu ? hg_violations(s->gpu, found) : 0;
    GString *text = g_string_new("[");

    for (i = 0; i < n; i++) {
        const HgViolation *v = &found[i];

        g_string_append_printf(text,
            "%s{\"check\": \"%s\", \"count\": %" PRIu64 ", \"time\": %" PRIu64
            ", \"asid\": %" PRIu32 ", \"address\": %" PRIu64 ", \"a\": %" PRIu64
            ", \"b\": %" PRIu64 "}",
            i ? ", " : "", hg_check_name(v->check),
            hg_check_count(s->gpu, v->check), v->time, v->asid, v->addr, v->a, v->b);
    }
    g_string_append_c(text, ']');
    return g_string_free(text, false);
}

static void hmm_gpu_set_violations(Object *obj, const char *value, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);

    if (*value) {
        error_setg(errp, "violations: only \"\" can be written, which forgets them");
    } else if (s->gpu) {
        hg_violations_forget(s->gpu);
    }
}

void hmm_gpu_class_add_properties(ObjectClass *oc)
{
    object_class_property_add_str(oc, "inject", hmm_gpu_get_inject,
                                  hmm_gpu_set_inject);
    object_class_property_set_description(oc, "inject",
        "injection rules, separated by ';' (docs/device.md)");
    object_class_property_add_str(oc, "violations", hmm_gpu_get_violations,
                                  hmm_gpu_set_violations);
    object_class_property_set_description(oc, "violations",
        "what the protocol checks found, in JSON; write \"\" to forget");
    object_class_property_add(oc, "counters", "HmmGpuCounters",
                              hmm_gpu_get_counters, NULL, NULL, NULL);
    object_class_property_set_description(oc, "counters",
        "all counters of the device (read only)");
}
