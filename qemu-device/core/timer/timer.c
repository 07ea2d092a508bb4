/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timers are kept here; front/front.c runs them.
 */
#include "device.h"
#include "timer/timer.h"
#include "base/kick.h"

bool hg_timer_add(HgDev *d, uint64_t due, uint8_t kind, uint32_t a, uint64_t b, uint32_t c)
{
    if (d->ntimer == HG_TIMERS) {
        return false;
    }
    d->timer[d->ntimer++] = (HgTimer) { .due = due, .kind = kind, .a = a, .b = b, .c = c };
    hg_kick_fe(d);
    return true;
}

void hg_timers_drop_all(HgDev *d, uint8_t kind)
{
    for (unsigned i = 0; i < d->ntimer; ) {
        if (d->timer[i].kind == kind) {
            d->timer[i] = d->timer[--d->ntimer];
        } else {
            i++;
        }
    }
}

unsigned hg_timers_drop(HgDev *d, uint8_t kind, uint32_t a, uint64_t from)
{
    unsigned dropped = 0;

    for (unsigned i = 0; i < d->ntimer; ) {
        if (d->timer[i].kind == kind && d->timer[i].a == a && d->timer[i].due >= from) {
            d->timer[i] = d->timer[--d->ntimer];
            dropped++;
        } else {
            i++;
        }
    }
    return dropped;
}
