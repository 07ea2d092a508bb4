/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Observers and what they want: see hooks.h.
 */
#include "device.h"
#include "hooks.h"

static uint32_t bit_of(const HgDev *d, const HgObserver *who)
{
    for (unsigned i = 0; i < d->hooks.n; i++) {
        if (d->hooks.who[i] == who) {
            return 1u << i;
        }
    }
    return 0;
}

static void want(_Atomic uint32_t *mask, uint32_t bit, bool wants)
{
    if (wants) {
        atomic_fetch_or_explicit(mask, bit, memory_order_relaxed);
    } else {
        atomic_fetch_and_explicit(mask, ~bit, memory_order_relaxed);
    }
}

void hg_hook_want(HgDev *d, const HgObserver *who, size_t event, bool wants)
{
    want(&d->hooks.want[event], bit_of(d, who), wants);
}

void hg_hook_lanes(HgDev *d, const HgObserver *who, bool wants)
{
    want(&d->hooks.lanes, bit_of(d, who), wants);
}

void hg_hooks_add(HgDev *d, const HgObserver *who)
{
    void (*fn[HG_NUM_HOOKS])(void);

    if (d->hooks.n == HG_MAX_OBSERVERS) {
        abort();                /* a mistake of the one who built this */
    }
    d->hooks.who[d->hooks.n++] = who;
    memcpy(fn, who, sizeof(fn));
    for (size_t i = 0; i < HG_NUM_HOOKS; i++) {
        if (fn[i]) {
            hg_hook_want(d, who, i, true);
        }
    }
}

HgInjAct hg_injected(HgDev *d, HgInjEvent ev, uint64_t key, uint64_t *arg)
{
    HgInjAct act = HG_ACT_NONE;

    *arg = 0;
    for (uint32_t m = HG_HOOKED(d, inject); m && act == HG_ACT_NONE; m &= m - 1) {
        act = d->hooks.who[__builtin_ctz(m)]->inject(d, ev, key, arg);
    }
    return act;
}
