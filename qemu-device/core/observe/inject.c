/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Injection rules: EVENT [nth=N | prob=P | match=HEX[/MASK]] [count=N] ACTION[=ARG]
 * docs/device.md says what each event and action does.  Rules are tried in
 * order; the first that fires decides.
 */
#include "device.h"
#include "observe/inject.h"
#include "base/pause.h"
#include "base/trace.h"
#include "mem/posted.h"
#include "mmu/tlb.h"
#include "state/archive.h"

#include <stdio.h>

static const char *const act_name[HG_ACT_COUNT] = {
    "", "delay", "delay_valid", "duplicate", "drop", "lost", "error", "partial",
    "repeat",
};

#define ACT(a) (1u << HG_ACT_##a)

/* What can go wrong, as unit.event, and how; names of before, if any, are read as well. */
static const struct {
    const char *name, *before;
    uint32_t allowed;           /* actions, as bits */
} event[HG_INJ_EVENTS] = {
    [HG_INJ_TLB_INVALIDATE] = { "mmu.invalidate", "tlb_invalidate", ACT(DELAY) },
    [HG_INJ_WALK] = { "mmu.walk", "walk", ACT(DELAY) },
    [HG_INJ_FAULT] = { "fault.entry", "fault", ACT(DELAY_VALID) | ACT(DUPLICATE) | ACT(DROP) |
                       ACT(REPEAT) },
    [HG_INJ_REPLAY] = { "fault.replay", "replay", ACT(LOST) | ACT(DELAY) },
    [HG_INJ_IRQ] = { "irq.message", "irq", ACT(LOST) | ACT(DUPLICATE) | ACT(DELAY) },
    [HG_INJ_COPY] = { "ce.copy", "copy", ACT(ERROR) | ACT(PARTIAL) | ACT(DELAY) },
    [HG_INJ_DMA_READ] = { "bus.read", "dma_read", ACT(ERROR) },
    [HG_INJ_DMA_WRITE] = { "bus.write", "dma_write", ACT(ERROR) },
    [HG_INJ_DOORBELL] = { "ring.doorbell", "doorbell", ACT(LOST) | ACT(DELAY) },
    [HG_INJ_FENCE] = { "ring.fence", "fence", ACT(DELAY) },
    [HG_INJ_LAUNCH] = { "ring.launch", "launch", ACT(DELAY) },
};

/* Events whose key is an address match by page unless a mask is given. */
static bool by_address(unsigned ev)
{
    return ev != HG_INJ_REPLAY && ev != HG_INJ_IRQ && ev != HG_INJ_DOORBELL;
}

/* The action for this occurrence of ev, or HG_ACT_NONE.  Any thread, any lock but inject.lock. */
static HgInjAct inject(HgDev *d, HgInjEvent ev, uint64_t key, uint64_t *arg)
{
    HgInjAct act = HG_ACT_NONE;
    unsigned i;

    if (!(atomic_load_explicit(&d->seen->inject.mask, memory_order_relaxed) & (1u << ev))) {
        return HG_ACT_NONE;
    }
    pthread_mutex_lock(&d->seen->inject.lock);
    for (i = 0; i < d->seen->inject.nrule; i++) {
        HgRule *r = &d->seen->inject.rule[i];
        bool hit = false;

        if (r->event != ev) {
            continue;
        }
        r->seen++;
        if (r->count && r->fired >= r->count) {
            continue;
        }
        switch (r->sel) {
        case HG_SEL_ALWAYS:
            hit = true;
            break;
        case HG_SEL_NTH:
            hit = r->seen >= r->nth;
            break;
        case HG_SEL_PROB:
            hit = (uint32_t)(hg_rand(&d->seen->inject.rng) >> 32) < r->prob;
            break;
        case HG_SEL_MATCH:
            hit = (key & r->mask) == (r->match & r->mask);
            break;
        }
        if (hit) {
            r->fired++;
            act = r->act;
            *arg = r->arg;
            break;
        }
    }
    pthread_mutex_unlock(&d->seen->inject.lock);
    if (act != HG_ACT_NONE) {
        hg_trace(d, HG_EV_INJECT, i, ev, 0, 0);
    }
    return act;
}

static bool inject_dma(HgDev *d, HgInjEvent ev, uint64_t addr)
{
    uint64_t arg = 0;

    return inject(d, ev, addr, &arg) == HG_ACT_ERROR;
}

static const HgObserver observer;

/* The rules are others. */
static void apply(HgDev *d, uint32_t mask)
{
    atomic_store_explicit(&d->seen->inject.mask, mask, memory_order_relaxed);
    hg_hook_want(d, &observer, HG_HOOK_NUM(inject), mask);
    hg_hook_want(d, &observer, HG_HOOK_NUM(dma),
                 mask & (1u << HG_INJ_DMA_READ | 1u << HG_INJ_DMA_WRITE));
}

/* A rule that did not come through the parser. */
static bool rule_ok(const HgRule *r)
{
    return r->act && (event[r->event].allowed & (1u << r->act));
}

typedef struct Cursor {
    const char *p, *end;
} Cursor;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool next_token(Cursor *c, const char **tok, size_t *len)
{
    while (c->p < c->end && is_space(*c->p)) {
        c->p++;
    }
    *tok = c->p;
    while (c->p < c->end && !is_space(*c->p)) {
        c->p++;
    }
    *len = c->p - *tok;
    return *len > 0;
}

static bool same(const char *tok, size_t len, const char *s)
{
    return strlen(s) == len && !memcmp(tok, s, len);
}

static bool names(const char *tok, size_t len, unsigned ev)
{
    return same(tok, len, event[ev].name) ||
           (event[ev].before && same(tok, len, event[ev].before));
}

/* Decimal, or hexadecimal with 0x or if hex; *rest is what follows. */
static bool number(const char *p, const char *end, bool hex, uint64_t *v, const char **rest)
{
    const char *start;

    if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        hex = true;
        p += 2;
    }
    start = p;
    *v = 0;
    for (; p < end; p++) {
        unsigned dgt, base = hex ? 16 : 10;
        if (*p >= '0' && *p <= '9') {
            dgt = *p - '0';
        } else if (hex && (*p | 32) >= 'a' && (*p | 32) <= 'f') {
            dgt = (*p | 32) - 'a' + 10;
        } else {
            break;
        }
        if (*v > (UINT64_MAX - dgt) / base) {
            return false;
        }
        *v = *v * base + dgt;
    }
    *rest = p;
    return p > start;
}

/* 0..1 with up to nine decimals, scaled to 2^32 - 1. */
static bool probability(const char *p, const char *end, uint32_t *v)
{
    uint64_t whole = 0, frac = 0, scale = 1;
    const char *rest;

    if (!number(p, end, false, &whole, &rest) || whole > 1) {
        return false;
    }
    if (rest < end && *rest == '.') {
        for (rest++; rest < end && *rest >= '0' && *rest <= '9' && scale < 1000000000; rest++) {
            frac = frac * 10 + (*rest - '0');
            scale *= 10;
        }
    }
    if (rest != end || (whole == 1 && frac)) {
        return false;
    }
    *v = whole ? UINT32_MAX : (uint32_t)(frac * UINT32_MAX / scale);
    return true;
}

/* Nanoseconds (or bytes); suffixes us, ms, s. */
static bool quantity(const char *p, const char *end, uint64_t *v)
{
    const char *rest;
    uint64_t mul = 1;

    if (!number(p, end, false, v, &rest)) {
        return false;
    }
    if (same(rest, end - rest, "us")) {
        mul = 1000;
    } else if (same(rest, end - rest, "ms")) {
        mul = 1000000;
    } else if (same(rest, end - rest, "s")) {
        mul = 1000000000;
    } else if (!same(rest, end - rest, "ns") && rest != end) {
        return false;
    }
    if (*v > UINT64_MAX / mul) {
        return false;
    }
    *v *= mul;
    return true;
}

static bool complain(char *err, size_t errlen, const char *what, const char *tok, size_t len)
{
    if (err && errlen) {
        snprintf(err, errlen, "injection rule: %s '%.*s'", what, (int)(len > 60 ? 60 : len), tok);
    }
    return false;
}

static bool parse_rule(const char *p, const char *end, HgRule *r, bool *empty,
                       char *err, size_t errlen)
{
    Cursor c = { p, end };
    const char *tok;
    size_t len;
    bool have_act = false, have_count = false;
    unsigned ev;

    *r = (HgRule) { .mask = UINT64_MAX };
    *empty = !next_token(&c, &tok, &len);
    if (*empty) {
        return true;
    }
    for (ev = 0; ev < HG_INJ_EVENTS && !names(tok, len, ev); ev++) {
    }
    if (ev == HG_INJ_EVENTS) {
        return complain(err, errlen, "unknown event", tok, len);
    }
    r->event = ev;
    while (next_token(&c, &tok, &len)) {
        const char *eq = memchr(tok, '=', len), *tend = tok + len, *rest;
        size_t klen = eq ? (size_t)(eq - tok) : len;
        bool sel = same(tok, klen, "nth") || same(tok, klen, "prob") || same(tok, klen, "match");

        if (have_act) {
            return complain(err, errlen, "text after the action", tok, len);
        }
        if (sel && r->sel != HG_SEL_ALWAYS) {
            return complain(err, errlen, "second selector", tok, len);
        }
        if (same(tok, klen, "nth")) {
            r->sel = HG_SEL_NTH;
            if (!eq || !number(eq + 1, tend, false, &r->nth, &rest) || rest != tend || !r->nth) {
                return complain(err, errlen, "bad number", tok, len);
            }
        } else if (same(tok, klen, "prob")) {
            r->sel = HG_SEL_PROB;
            if (!eq || !probability(eq + 1, tend, &r->prob)) {
                return complain(err, errlen, "probability must be 0..1:", tok, len);
            }
        } else if (same(tok, klen, "match")) {
            r->sel = HG_SEL_MATCH;
            if (by_address(ev)) {
                r->mask = ~(uint64_t)HG_PAGE_MASK;
            }
            if (!eq || !number(eq + 1, tend, true, &r->match, &rest) ||
                (rest < tend && (*rest != '/' ||
                                 !number(rest + 1, tend, true, &r->mask, &rest) ||
                                 rest != tend))) {
                return complain(err, errlen, "bad match", tok, len);
            }
        } else if (same(tok, klen, "count")) {
            if (have_count || !eq || !number(eq + 1, tend, false, &r->count, &rest) ||
                rest != tend || !r->count) {
                return complain(err, errlen, "bad count", tok, len);
            }
            have_count = true;
        } else {
            unsigned a;
            for (a = 1; a < HG_ACT_COUNT && !same(tok, klen, act_name[a]); a++) {
            }
            if (a == HG_ACT_COUNT) {
                return complain(err, errlen, "unknown word", tok, len);
            }
            if (!(event[ev].allowed & (1u << a))) {
                return complain(err, errlen, "this event has no action", tok, len);
            }
            r->act = a;
            have_act = true;
            if (eq) {
                bool takes = a == HG_ACT_DELAY || a == HG_ACT_DELAY_VALID || a == HG_ACT_PARTIAL ||
                             a == HG_ACT_REPEAT;
                if (!takes || !quantity(eq + 1, tend, &r->arg)) {
                    return complain(err, errlen, "bad argument", tok, len);
                }
                r->has_arg = true;
            } else if (a == HG_ACT_DELAY || a == HG_ACT_DELAY_VALID || a == HG_ACT_REPEAT) {
                return complain(err, errlen, "needs a time in ns:", tok, len);
            }
        }
    }
    if (!have_act) {
        return complain(err, errlen, "no action for", event[ev].name, strlen(event[ev].name));
    }
    if (r->sel == HG_SEL_NTH && !have_count) {
        r->count = 1;
    }
    return true;
}

int hg_inject(HgDev *d, const char *rules, char *err, size_t errlen)
{
    HgRule list[HG_MAX_RULES];
    unsigned n = 0;
    uint32_t mask = 0;

    for (const char *p = rules; *p; ) {
        size_t len = strcspn(p, ";\n");
        const char *hash = memchr(p, '#', len);
        bool empty;
        HgRule r;

        if (!parse_rule(p, hash ? hash : p + len, &r, &empty, err, errlen)) {
            return -1;
        }
        if (!empty) {
            if (n == HG_MAX_RULES) {
                complain(err, errlen, "more than 64 rules at", p, len);
                return -1;
            }
            list[n++] = r;
            mask |= 1u << r.event;
        }
        p += len;
        p += *p != 0;
    }
    hg_pause(d);                /* direct pointers must go if DMA rules come */
    if (mask & (1u << HG_INJ_DMA_READ | 1u << HG_INJ_DMA_WRITE)) {
        hg_posted_drain_idle(d, NULL);      /* who has no pointer looks at no queue either */
    }
    pthread_mutex_lock(&d->seen->inject.lock);
    memcpy(d->seen->inject.rule, list, n * sizeof(*list));
    d->seen->inject.nrule = n;
    apply(d, mask);
    pthread_mutex_unlock(&d->seen->inject.lock);
    hg_resolve_all(d);
    hg_resume(d);
    return 0;
}

size_t hg_inject_get(HgDev *d, char *buf, size_t len)
{
    size_t at = 0;

#define PUT(...)                                                                \
    do {                                                                        \
        int n_ = snprintf(at < len ? buf + at : NULL, at < len ? len - at : 0,  \
                          __VA_ARGS__);                                         \
        at += n_ > 0 ? (size_t)n_ : 0;                                          \
    } while (0)

    if (len) {
        buf[0] = 0;
    }
    pthread_mutex_lock(&d->seen->inject.lock);
    for (unsigned i = 0; i < d->seen->inject.nrule; i++) {
        const HgRule *r = &d->seen->inject.rule[i];
        PUT("%s", event[r->event].name);
        if (r->sel == HG_SEL_NTH) {
            PUT(" nth=%llu", (unsigned long long)r->nth);
        } else if (r->sel == HG_SEL_PROB) {
            if (r->prob == UINT32_MAX) {
                PUT(" prob=1");
            } else {
                PUT(" prob=0.%09llu",
                    (unsigned long long)(((uint64_t)r->prob * 1000000000 + UINT32_MAX - 1)
                                         / UINT32_MAX));
            }
        } else if (r->sel == HG_SEL_MATCH) {
            PUT(" match=%llx/%llx", (unsigned long long)r->match, (unsigned long long)r->mask);
        }
        if (r->count) {
            PUT(" count=%llu", (unsigned long long)r->count);
        }
        PUT(" %s", act_name[r->act]);
        if (r->has_arg) {
            PUT("=%llu", (unsigned long long)r->arg);
        }
        PUT(" # seen=%llu fired=%llu\n", (unsigned long long)r->seen,
            (unsigned long long)r->fired);
    }
    pthread_mutex_unlock(&d->seen->inject.lock);
#undef PUT
    return at;
}

/* -- the state -- */

static void io_rule(HgArchive *a, HgRule *r)
{
    IO(r->event);
    IO(r->act);
    IO(r->sel);
    IOB(r->has_arg);
    IO(r->arg);
    IO(r->nth);
    IO(r->match);
    IO(r->mask);
    IO(r->prob);
    IO(r->count);
    IO(r->seen);
    IO(r->fired);
    CHECK(r->event < HG_INJ_EVENTS && r->act < HG_ACT_COUNT && r->sel < HG_SEL_COUNT &&
          rule_ok(r), "injection rule");
}

static void inject_save(HgDev *d, HgArchive *a)
{
    HgInject *in = &d->seen->inject;

    hg_section(a, "INJC");
    IO(in->rng);
    IO(in->nrule);
    CHECK(in->nrule <= HG_MAX_RULES, "number of rules");
    for (unsigned i = 0; i < in->nrule && !a->bad; i++) {
        io_rule(a, &in->rule[i]);
    }
    hg_section_end(a);
}

static void inject_loaded(HgDev *d)
{
    uint32_t mask = 0;

    for (unsigned i = 0; i < d->seen->inject.nrule; i++) {
        mask |= 1u << d->seen->inject.rule[i].event;
    }
    apply(d, mask);
}

static void inject_load_failed(HgDev *d)
{
    d->seen->inject.nrule = 0;
    d->seen->inject.rng = d->cfg.seed;
    apply(d, 0);
}

static const HgObserver observer = {
    .loaded = inject_loaded,
    .load_failed = inject_load_failed,
    .save = inject_save,
    .inject = inject,
    .dma = inject_dma,
};

void hg_inject_observe(HgDev *d)
{
    d->seen->inject.rng = d->cfg.seed ^ 0x696e6a656374ull;
    hg_hooks_add(d, &observer);
    apply(d, 0);
}
