/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Life cycle and engine threads.  (Deterministic stepping: stepping.c.)
 */
#include "device.h"
#include "life/dev.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/pause.h"
#include "base/step.h"
#include "base/time.h"
#include "front/front.h"
#include "front/reset.h"
#include "life/stepping.h"
#include "mem/data_cache.h"
#include "mmu/tlb.h"
#include "mmu/walk_cache.h"
#include "simt/sm.h"
#include "simt/vec.h"

#include <stdio.h>
#include <time.h>

#define NSEC 1000000000ull

/* -- engine threads -- */

static void *engine_main(void *opaque)
{
    HgEngine *e = opaque;
    HgDev *d = e->d;

    if (d->ops.thread_enter) {
        d->ops.thread_enter(d->host);
    }
    hg_lock(d);
    while (!d->exiting) {
        if (hg_engine_turn(e)) {
            /* let a waiting MMIO handler have the lock, and make put-off host calls */
            hg_unlock(d);
            hg_lock(d);
            continue;
        }
        if (d->irq_any || d->kick_out) {
            hg_unlock(d);
            hg_lock(d);
            continue;
        }
        uint64_t now = hg_now(d), at = UINT64_MAX;
        if (e->kind == HG_ENG_FE && d->started && !d->pause) {
            at = hg_next_deadline(d, now);
        }
        if (at == UINT64_MAX) {
            pthread_cond_wait(&e->cv, &d->lock);
        } else {
            /*
             * Virtual time need not follow host time: look again soon, but
             * never spin.
             */
            uint64_t ns = at > now ? at - now : 0;
            struct timespec ts;
            ns = ns < 10000 ? 10000 : ns > 5000000 ? 5000000 : ns;
            clock_gettime(CLOCK_MONOTONIC, &ts);
            ns += ts.tv_nsec;
            ts.tv_sec += ns / NSEC;
            ts.tv_nsec = ns % NSEC;
            pthread_cond_timedwait(&e->cv, &d->lock, &ts);
        }
    }
    hg_unlock(d);
    if (d->ops.thread_exit) {
        d->ops.thread_exit(d->host);
    }
    return NULL;
}

void hg_start(HgDev *d)
{
    hg_lock(d);
    if (!d->started) {
        d->started = true;
        for (unsigned i = 0; i < d->neng; i++) {
            hg_kick(&d->eng[i]);
        }
    }
    hg_unlock(d);
}

void hg_stop(HgDev *d)
{
    if (d->cfg.deterministic) {
        hg_lock(d);             /* nobody steps now */
    } else {
        hg_pause(d);
        d->pause--;
    }
    d->started = false;
    hg_unlock(d);
}

void hg_park(HgDev *d)
{
    hg_pause(d);
    hg_resume(d);
}

void hg_set_bus_master(HgDev *d, bool on)
{
    hg_pause(d);
    if (d->bus_master != on) {
        d->bus_master = on;
        hg_resolve_all(d);
    }
    hg_resume(d);
}

/* -- creation and reset -- */

void hg_config_default(HgConfig *cfg)
{
    *cfg = (HgConfig) {
        .sms = 2, .warps = 8, .ces = 2, .utlb_entries = 64, .utlb_misses = 56,
        .l2tlb_entries = 512, .walk_entries = 32, .asids = HG_NUM_ASIDS, .ctxs = HG_NUM_CTXS,
        .prefetch_faults = true, .sms_per_utlb = 1,
    };
}

/* An entry has one, and an access that holds one while its entry may go; two of a copy. */
uint32_t hg_data_least(const HgConfig *c)
{
    return (c->sms + c->ces) * (c->utlb_entries + 3);
}

bool hg_core_fits(uint32_t version, size_t config, size_t ops)
{
    return version == HG_CORE_VERSION && config == sizeof(HgConfig) &&
           (!ops || ops == sizeof(HgHostOps));
}

/* NULL: fine. */
static const char *config_error(const HgConfig *c)
{
    if (c->sms < 1 || c->sms > HG_MAX_SMS) {
        return "sms must be 1..16";
    }
    if (c->warps < 1 || c->warps > HG_MAX_WARPS) {
        return "warps must be 1..32";
    }
    if (c->ces < 2 || c->ces > HG_MAX_CES) {
        return "ces must be 2..4";
    }
    if (c->utlb_entries < 1 || c->utlb_entries > 65536) {
        return "utlb_entries must be 1..65536";
    }
    if (c->utlb_misses < 1 || c->utlb_misses > 4096) {
        return "utlb_misses must be 1..4096";
    }
    if (c->sms_per_utlb < 1 || c->sms_per_utlb > HG_MAX_SMS) {
        return "sms_per_utlb must be 1..16";
    }
    if (c->l2tlb_entries < 1 || c->l2tlb_entries > 1048576) {
        return "l2tlb_entries must be 1..1048576";
    }
    if (c->walk_entries > 65536) {
        return "walk_entries must be 0..65536";
    }
    if (c->data_pages && (c->data_pages < hg_data_least(c) || c->data_pages > 65536)) {
        return "data_pages must be 0, or (sms + ces) * (utlb_entries + 3)..65536";
    }
    if (c->data_pages && c->coherent) {
        return "a coherent device has no data_pages";
    }
    if (c->asids < 2 || c->asids > HG_NUM_ASIDS) {
        return "asids must be 2..256";
    }
    if (c->ctxs < 2 || c->ctxs > HG_NUM_CTXS) {
        return "ctxs must be 2..64";
    }
    if (!c->vram || ((uintptr_t)c->vram & HG_PAGE_MASK)) {
        return "vram must be page-aligned memory";
    }
    return NULL;
}

static bool pow2(uint64_t v)
{
    return v && !(v & (v - 1));
}

bool hg_memory_sizes_ok(const HgConfig *c, char *err, size_t errlen)
{
    const char *what = NULL;
    uint64_t is = c->vram_size;

    if (c->coherent && !pow2(c->vram_size)) {
        what = "coherent=on: vram-size must be a power of two";
    } else if (!c->vram_size || c->vram_size % HG_VRAM_STEP || c->vram_size > HG_VRAM_MAX) {
        what = "vram-size must be a multiple of 2 MiB, at most 1 TiB";
    } else if (!pow2(c->bar2_size) || c->bar2_size < HG_BAR2_MIN || c->bar2_size > c->vram_size) {
        what = "bar-size must be a power of two from 64 KiB to vram-size";
        is = c->bar2_size;
    } else if (c->coherent && c->bar2_size != c->vram_size) {
        what = "coherent=on: bar-size must be vram-size";
        is = c->bar2_size;
    }
    if (what && err && errlen) {
        snprintf(err, errlen, "%s (is %llu)", what, (unsigned long long)is);
    }
    return !what;
}

void hg_reset(HgDev *d)
{
    hg_pause(d);
    hg_reset_written(d);
    hg_resume(d);
}

/* They wait for hg_start().  False: not all of them are there. */
static bool make_threads(HgDev *d)
{
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        char name[16];

        snprintf(name, sizeof(name), "gpu/%s%u",
                 e->kind == HG_ENG_SM ? "sm" : e->kind == HG_ENG_CE ? "ce" : "fe", e->num);
        e->thread = d->ops.thread_create(d->host, name, engine_main, e);
        if (!e->thread) {
            return false;
        }
    }
    return true;
}

HgDev *hg_new(const HgConfig *cfg, const HgHostOps *ops, void *host, char *err, size_t errlen)
{
    const char *bad = config_error(cfg);
    char why[128];
    pthread_condattr_t attr;
    HgDev *d;

    if (bad) {
        if (err && errlen) {
            snprintf(err, errlen, "hmm-gpu: %s", bad);
        }
        return NULL;
    }
    if (!hg_memory_sizes_ok(cfg, why, sizeof(why))) {
        if (err && errlen) {
            snprintf(err, errlen, "hmm-gpu: vram_size, bar2_size: %s", why);
        }
        return NULL;
    }
    d = hg_alloc_lines(sizeof(*d));
    if (!d) {
        goto oom;
    }
    d->cfg = *cfg;
    d->ops = *ops;
    d->host = host;
    d->vram = cfg->vram;
    d->vec = hg_vec_best();
    d->bus_master = true;
    d->nsm = cfg->sms;
    d->nce = cfg->ces;
    d->neng = d->nsm + d->nce + 1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->l2_lock, NULL);
    pthread_mutex_init(&d->data_lock, NULL);
    pthread_cond_init(&d->quiet, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    d->eng = hg_alloc_lines(d->neng * sizeof(*d->eng));
    if (!d->eng || !hg_tlb_init(&d->l2, cfg->l2tlb_entries, HG_L2_WAYS) ||
        !hg_walk_cache_init(&d->walks, cfg->walk_entries) ||
        !hg_data_init(&d->data, cfg->data_pages)) {
        pthread_condattr_destroy(&attr);
        hg_free(d);
        goto oom;
    }
    bool ok = true;
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        e->d = d;
        e->kind = i < d->nsm ? HG_ENG_SM : i < d->nsm + d->nce ? HG_ENG_CE : HG_ENG_FE;
        e->num = e->kind == HG_ENG_CE ? i - d->nsm : i < d->nsm ? i : 0;
        pthread_cond_init(&e->cv, &attr);
        if (e->kind != HG_ENG_FE) {
            ok &= hg_tlb_init(&e->utlb, cfg->utlb_entries, HG_UTLB_WAYS);
        }
        e->misses = e->kind == HG_ENG_SM ? &d->eng[i - i % cfg->sms_per_utlb] : e;
        if (e->kind != HG_ENG_FE && e->misses == e) {
            e->pend = hg_alloc_lines(cfg->utlb_misses * sizeof(*e->pend));
            ok &= e->pend != NULL;
        }
        if (cfg->deterministic) {
            ok &= hg_steps_new(e);
        }
        if (e->kind == HG_ENG_SM) {
            e->ic = calloc(HG_IC_PAGES, sizeof(*e->ic));
            ok &= e->ic != NULL;
            e->posted = cfg->data_pages ? calloc(1, sizeof(*e->posted)) : NULL;
            ok &= e->posted || !cfg->data_pages;
        }
    }
    pthread_condattr_destroy(&attr);
    if (!ok) {
        hg_free(d);
        goto oom;
    }
    hg_lock(d);
    hg_reset_locked(d);
    hg_unlock(d);
    if (!cfg->deterministic && !make_threads(d)) {
        hg_free(d);
        if (err && errlen) {
            snprintf(err, errlen, "hmm-gpu: no thread for an engine");
        }
        return NULL;
    }
    return d;
oom:
    if (err && errlen) {
        snprintf(err, errlen, "hmm-gpu: out of memory");
    }
    return NULL;
}

void hg_free(HgDev *d)
{
    if (!d) {
        return;
    }
    if (d->eng) {
        hg_stop(d);
        hg_pause(d);
        d->exiting = true;
        for (unsigned i = 0; i < d->neng; i++) {
            pthread_cond_broadcast(&d->eng[i].cv);
        }
        hg_unlock(d);
        for (unsigned i = 0; i < d->neng; i++) {
            HgEngine *e = &d->eng[i];
            if (e->thread) {
                d->ops.thread_join(d->host, e->thread);
            }
        }
        for (unsigned i = 0; i < d->neng; i++) {
            HgEngine *e = &d->eng[i];
            hg_steps_free(e);
            pthread_cond_destroy(&e->cv);
            free(e->utlb.ent);
            free(e->utlb.next);
            free(e->pend);
            free(e->ic);
            free(e->posted);
        }
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        hg_ctx_free(d, &d->ctx[i]);
    }
    HG_HOOK(d, free, d);
    free(d->eng);
    free(d->l2.ent);
    free(d->l2.next);
    free(d->walks.ent);
    free(d->walks.next);
    hg_data_free(&d->data);
    free(d->ram);
    pthread_cond_destroy(&d->quiet);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->l2_lock);
    pthread_mutex_destroy(&d->data_lock);
    free(d);
}
