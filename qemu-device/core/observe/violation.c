/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the checks of the device found: one record for all of them, and its
 * text for the bench.
 *
 * The ring, the counts and the log of invalidations belong to report.lock, a
 * leaf lock.  They outlive a reset of the device, so that a driver cannot
 * lose them; a loaded state starts without any.
 */
#include "device.h"
#include "observe/violation.h"
#include "base/time.h"
#include "base/trace.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const check_name[HG_CHECK_COUNT] = {
    [HG_CHECK_SYS_UNMAPPED] = "mirror-system-unmapped",
    [HG_CHECK_SYS_FRAME] = "mirror-system-other-frame",
    [HG_CHECK_SYS_READONLY] = "mirror-system-readonly",
    [HG_CHECK_SYS_PROTNONE] = "mirror-system-protnone",
    [HG_CHECK_SYS_IN_VRAM] = "mirror-system-in-vram",
    [HG_CHECK_SYS_MIGRATING] = "mirror-system-migrating",
    [HG_CHECK_SYS_SWAPPED] = "mirror-system-swapped",
    [HG_CHECK_SYS_NOWHERE] = "mirror-system-nowhere",
    [HG_CHECK_VRAM_UNMAPPED] = "mirror-vram-unmapped",
    [HG_CHECK_VRAM_IN_SYS] = "mirror-vram-in-system",
    [HG_CHECK_VRAM_PAGE] = "mirror-vram-other-page",
    [HG_CHECK_VRAM_READONLY] = "mirror-vram-readonly",
    [HG_CHECK_VRAM_MIGRATING] = "mirror-vram-migrating",
    [HG_CHECK_VRAM_SWAPPED] = "mirror-vram-swapped",
    [HG_CHECK_VRAM_RANGE] = "vram-owner-out-of-range",
    [HG_CHECK_VRAM_OWNERS] = "vram-two-owners",
    [HG_CHECK_FENCE_BACKWARDS] = "fence-backwards",
    [HG_CHECK_DOORBELL_OVERRUN] = "doorbell-overrun",
    [HG_CHECK_FAULT_GET_RANGE] = "fault-get-range",
    [HG_CHECK_FAULT_UNREADY] = "fault-unready",
    [HG_CHECK_FAULT_VALID_KEPT] = "fault-valid-kept",
    [HG_CHECK_COPY_SOURCE_WRITTEN] = "copy-source-written",
    [HG_CHECK_COPY_TARGET_USED] = "copy-target-used",
    [HG_CHECK_COPY_OVERLAP] = "copy-overlap",
    [HG_CHECK_VRAM_FREE_USED] = "vram-free-used",
    [HG_CHECK_ASID_REUSE] = "asid-reuse",
    [HG_CHECK_REPLAY_STALE] = "replay-stale",
    [HG_CHECK_DMA_REFUSED] = "dma-refused",
    [HG_CHECK_TABLE_FREED_USED] = "table-freed-used",
};

const char *hg_check_name(unsigned check)
{
    return check < HG_CHECK_COUNT ? check_name[check] : NULL;
}

void hg_report(HgDev *d, HgViolation *v)
{
    HgReport *r = &d->seen->report;

    v->time = hg_now(d);
    pthread_mutex_lock(&r->lock);
    v->seq = ++r->nviol;
    r->check_count[v->check]++;
    v->inval_seq = 0;
    for (unsigned i = 0; i < HG_INVAL_LOG; i++) {
        const HgInvalNote *n = &r->inval_log[i];
        bool hit = n->iv.type == HG_INVAL_ALL ||
                   (n->iv.asid == v->asid && (n->iv.type == HG_INVAL_ASID ||
                    (n->iv.first <= v->va >> HG_PAGE_SHIFT && v->va >> HG_PAGE_SHIFT <= n->iv.last)));
        if (n->seq > v->inval_seq && hit) {
            v->inval_seq = n->seq;
            v->inval_time = n->time;
        }
    }
    r->viol[(v->seq - 1) % HG_VIOLATIONS] = *v;
    pthread_mutex_unlock(&r->lock);
    hg_trace(d, HG_EV_VIOLATION, (uint64_t)v->asid << 32 | v->check, v->va, v->gpu_pte, v->cpu_entry);
}

void hg_unlooked(HgDev *d, HgCheck check)
{
    HgReport *r = &d->seen->report;

    pthread_mutex_lock(&r->lock);
    r->unlooked[check]++;
    pthread_mutex_unlock(&r->lock);
}

/* Invalidations as submitted; for the record of a violation only. */
static void violation_inval_asked(HgDev *d, const HgInval *iv, uint64_t seq, uint64_t now)
{
    HgReport *r = &d->seen->report;

    if (hg_audit_mode(d) == HG_AUDIT_OFF) {
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->inval_log[r->inval_log_at++ % HG_INVAL_LOG] = (HgInvalNote) { *iv, seq, now };
    pthread_mutex_unlock(&r->lock);
}

uint64_t hg_violations(HgDev *d)
{
    HgReport *r = &d->seen->report;

    pthread_mutex_lock(&r->lock);
    uint64_t n = r->nviol;
    pthread_mutex_unlock(&r->lock);
    return n;
}

uint64_t hg_check_count(HgDev *d, unsigned check)
{
    HgReport *r = &d->seen->report;

    pthread_mutex_lock(&r->lock);
    uint64_t n = check < HG_CHECK_COUNT ? r->check_count[check] : 0;
    pthread_mutex_unlock(&r->lock);
    return n;
}

void hg_violations_clear(HgDev *d)
{
    HgReport *r = &d->seen->report;

    pthread_mutex_lock(&r->lock);
    r->nviol = r->undecided = 0;
    memset(r->check_count, 0, sizeof(r->check_count));
    memset(r->unlooked, 0, sizeof(r->unlooked));
    atomic_store_explicit(&d->seen->audit.waits_lost, 0, memory_order_relaxed);
    pthread_mutex_unlock(&r->lock);
}

typedef struct Text {
    char *buf;
    size_t len, at;
} Text;

static void __attribute__((format(printf, 2, 3))) put(Text *t, const char *fmt, ...)
{
    va_list ap;
    size_t room = t->at < t->len ? t->len - t->at : 0;

    va_start(ap, fmt);
    int n = vsnprintf(room ? t->buf + t->at : NULL, room, fmt, ap);
    va_end(ap);
    t->at += n > 0 ? n : 0;
}

size_t hg_violations_json(HgDev *d, char *buf, size_t len)
{
    static const char *const engine[] = { "sm", "ce", "fe" };
    static const char *const access[] = { "read", "write", "atomic", "prefetch" };
    HgReport *r = &d->seen->report;
    Text t = { buf, len, 0 };
    uint64_t checks = 0;

    for (unsigned i = 0; i < d->neng; i++) {
        checks += atomic_load_explicit(&d->seen->audit.eng[i].audited, memory_order_relaxed);
    }
    pthread_mutex_lock(&r->lock);
    uint64_t n = r->nviol, first = n > HG_VIOLATIONS ? n - HG_VIOLATIONS : 0;
    put(&t, "{\"mode\": \"%s\", \"ready\": %s, \"checks\": %llu, \"total\": %llu, "
        "\"undecided\": %llu, \"unlooked\": {", hg_audit_name(hg_audit_mode(d)),
        atomic_load(&d->seen->audit.enc_ready) ? "true" : "false", (unsigned long long)checks,
        (unsigned long long)n,
        (unsigned long long)r->undecided);
    for (unsigned i = 0, some = 0; i < HG_CHECK_COUNT; i++) {
        if (r->unlooked[i]) {
            put(&t, "%s\"%s\": %llu", some++ ? ", " : "", check_name[i],
                (unsigned long long)r->unlooked[i]);
        }
    }
    put(&t, "}, \"violations\": [");
    for (uint64_t i = first; i < n; i++) {
        const HgViolation *v = &r->viol[i % HG_VIOLATIONS];
        if (v->check >= HG_CHECK_PROTOCOL) {
            put(&t, "%s{\"seq\": %llu, \"check\": \"%s\", \"time\": %llu, \"asid\": %u, "
                "\"address\": %llu, \"a\": %llu, \"b\": %llu}",
                i == first ? "" : ", ", (unsigned long long)v->seq, check_name[v->check],
                (unsigned long long)v->time, v->asid, (unsigned long long)v->va,
                (unsigned long long)v->a, (unsigned long long)v->b);
            continue;
        }
        put(&t, "%s{\"seq\": %llu, \"check\": \"%s\", \"address\": \"%#llx\", \"asid\": %u, "
            "\"gpu_pte\": \"%#llx\", \"cpu_entry\": \"%#llx\", \"cpu_level\": %u, "
            "\"engine\": \"%s\", \"unit\": %u, \"warp\": %u, \"pc\": \"%#llx\", "
            "\"access\": \"%s\", \"time\": %llu, \"fill_time\": %llu, "
            "\"inval_seq\": %llu, \"inval_time\": %llu, \"at_rest\": %s}",
            i == first ? "" : ", ", (unsigned long long)v->seq, check_name[v->check],
            (unsigned long long)v->va, v->asid, (unsigned long long)v->gpu_pte,
            (unsigned long long)v->cpu_entry, v->cpu_level, engine[v->engine], v->unit, v->warp,
            (unsigned long long)v->pc, access[v->access], (unsigned long long)v->time,
            (unsigned long long)v->fill_time, (unsigned long long)v->inval_seq,
            (unsigned long long)v->inval_time, v->at_rest ? "true" : "false");
    }
    pthread_mutex_unlock(&r->lock);
    put(&t, "]}");
    return t.at;
}

/* Another life. */
static void violation_loading(HgDev *d)
{
    hg_violations_clear(d);
}

static void violation_reset(HgDev *d)
{
    HgReport *r = &d->seen->report;

    pthread_mutex_lock(&r->lock);
    memset(r->inval_log, 0, sizeof(r->inval_log));
    pthread_mutex_unlock(&r->lock);
}

static const HgObserver observer = {
    .reset = violation_reset,
    .loading = violation_loading,
    .violations = hg_violations,
    .inval_asked = violation_inval_asked,
};

void hg_violation_observe(HgDev *d)
{
    hg_hooks_add(d, &observer);
}
