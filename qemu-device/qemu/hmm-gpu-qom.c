/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: properties that work at run time (qom-set, qom-get).
 *
 *   inject    string; writing replaces all injection rules, reading gives them
 *             with their hits.  "-device hmm-gpu,inject=..." before boot.
 *   counters  read only; one object, name to value, as in HG_CNT_*.
 *   audit     mirror audit: off, fill, sampled, sampled=N, access.
 *   violations       read only; JSON text: what the device's checks found.
 *   clear-violations write true: forget them.
 *   audit-full       write true: run the full audit; the processes must be at rest.
 *   audit-full-compared  read only; how many entries the last one compared.
 *   frame            write a bus address, read the physical one that it leads to; all ones:
 *                    nowhere.  For those who read the GPU's page tables behind an IOMMU.
 * Reading a property parks no engine: whoever looks at all of them changes nothing.
 *
 * Of an exact machine, for those who look at a failure:
 *   keep-events        write true: keep the core's events from here on
 *   write-events       string, write only: they go to this file (HmmGpuKept)
 *   stand-at-violation the machine stands where a check finds something
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

static char *hmm_gpu_get_audit(Object *obj, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);

    return g_strdup(s->gpu ? hg_audit_name(hg_audit_mode(s->gpu))
                           : s->audit ? s->audit : "off");
}

static void hmm_gpu_set_audit(Object *obj, const char *value, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);

    if (!s->gpu) {      /* checked by realize */
        g_free(s->audit);
        s->audit = g_strdup(value);
    } else if (hg_audit_set(s->gpu, value)) {
        error_setg(errp, "audit: '%s' is not off, fill, sampled, sampled=N "
                   "or access", value);
    }
}

static char *hmm_gpu_get_violations(Object *obj, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);
    size_t len, need = 4096;
    char *text = NULL;

    if (!s->gpu) {
        return g_strdup("{}");
    }
    do {                /* more may come between two looks */
        len = need + 1;
        g_free(text);
        text = g_malloc0(len);
        need = hg_violations_json(s->gpu, text, len);
    } while (need >= len);
    return text;
}

static bool hmm_gpu_get_clear(Object *obj, Error **errp)
{
    return false;
}

static void hmm_gpu_set_clear(Object *obj, bool value, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);

    if (s->gpu && value) {
        hg_violations_clear(s->gpu);
    }
}

static void hmm_gpu_do_audit_full(HmmGpuState *s, void *opaque)
{
    *(uint64_t *)opaque = hg_audit_full(s->gpu);
}

static bool hmm_gpu_get_audit_full(Object *obj, Error **errp)
{
    return false;
}

static void hmm_gpu_set_audit_full(Object *obj, bool value, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);

    if (s->gpu && value) {
        s->in_audit = true;
        hmm_gpu_blocking(s, hmm_gpu_do_audit_full, &s->audit_compared);
        s->in_audit = false;
    }
}

static void hmm_gpu_get_compared(Object *obj, Visitor *v, const char *name,
                                 void *opaque, Error **errp)
{
    visit_type_uint64(v, name, &HMM_GPU(obj)->audit_compared, errp);
}

static void hmm_gpu_get_frame(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    visit_type_uint64(v, name, &HMM_GPU(obj)->frame, errp);
}

static void hmm_gpu_set_frame(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);
    uint64_t addr;

    if (visit_type_uint64(v, name, &addr, errp) &&
        hmm_gpu_host_ops.frame(s, addr, &s->frame)) {
        s->frame = UINT64_MAX;
    }
}

static bool hmm_gpu_exact(Error **errp)
{
    if (!hmm_exact_on()) {
        error_setg(errp, "this is no exact machine");
    }
    return hmm_exact_on();
}

static bool hmm_gpu_get_keep(Object *obj, Error **errp)
{
    return HMM_GPU(obj)->kept;
}

static void hmm_gpu_set_keep(Object *obj, bool value, Error **errp)
{
    HmmGpuState *s = HMM_GPU(obj);

    if (!hmm_gpu_exact(errp)) {
        return;
    }
    if (value) {
        hmm_gpu_keep_events(s);
    } else {
        g_clear_pointer(&s->kept, g_array_unref);
    }
}

static char *hmm_gpu_get_nothing(Object *obj, Error **errp)
{
    return g_strdup("");
}

static void hmm_gpu_set_write(Object *obj, const char *path, Error **errp)
{
    hmm_gpu_write_events(HMM_GPU(obj), path, errp);
}

static bool hmm_gpu_get_stand(Object *obj, Error **errp)
{
    return HMM_GPU(obj)->stand_at_violation;
}

static void hmm_gpu_set_stand(Object *obj, bool value, Error **errp)
{
    if (hmm_gpu_exact(errp)) {
        HMM_GPU(obj)->stand_at_violation = value;
    }
}

void hmm_gpu_class_add_properties(ObjectClass *oc)
{
    object_class_property_add_str(oc, "audit", hmm_gpu_get_audit,
                                  hmm_gpu_set_audit);
    object_class_property_set_description(oc, "audit",
        "mirror audit: off, fill, sampled, sampled=N or access");
    object_class_property_add_str(oc, "violations", hmm_gpu_get_violations,
                                  NULL);
    object_class_property_set_description(oc, "violations",
        "what the device's checks found, as JSON text (read only)");
    object_class_property_add_bool(oc, "clear-violations", hmm_gpu_get_clear,
                                   hmm_gpu_set_clear);
    object_class_property_set_description(oc, "clear-violations",
        "write true: forget all violations");
    object_class_property_add_bool(oc, "audit-full", hmm_gpu_get_audit_full,
                                   hmm_gpu_set_audit_full);
    object_class_property_set_description(oc, "audit-full",
        "write true: run the full audit");
    object_class_property_add(oc, "audit-full-compared", "uint64",
                              hmm_gpu_get_compared, NULL, NULL, NULL);
    object_class_property_set_description(oc, "audit-full-compared",
        "entries that the last full audit compared (read only)");
    object_class_property_add(oc, "frame", "uint64", hmm_gpu_get_frame,
                              hmm_gpu_set_frame, NULL, NULL);
    object_class_property_set_description(oc, "frame",
        "write a bus address, read the physical one that it leads to");
    object_class_property_add_str(oc, "inject", hmm_gpu_get_inject,
                                  hmm_gpu_set_inject);
    object_class_property_set_description(oc, "inject",
        "injection rules, separated by ';' (docs/device.md)");
    object_class_property_add_bool(oc, "keep-events", hmm_gpu_get_keep,
                                   hmm_gpu_set_keep);
    object_class_property_set_description(oc, "keep-events",
        "write true: keep events, from here on");
    object_class_property_add_str(oc, "write-events", hmm_gpu_get_nothing,
                                  hmm_gpu_set_write);
    object_class_property_set_description(oc, "write-events",
        "the events that were kept go to this file (write only)");
    object_class_property_add_bool(oc, "stand-at-violation", hmm_gpu_get_stand,
                                   hmm_gpu_set_stand);
    object_class_property_set_description(oc, "stand-at-violation",
        "the machine stands where a check finds something");
    object_class_property_add(oc, "counters", "HmmGpuCounters",
                              hmm_gpu_get_counters, NULL, NULL, NULL);
    object_class_property_set_description(oc, "counters",
        "all counters of the device (read only)");
}
