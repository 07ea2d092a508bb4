/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupts: hg_unlock() tells the host.
 */
#include "device.h"
#include "timer/irq.h"
#include "base/lock.h"
#include "base/time.h"
#include "timer/timer.h"

/* Behind the first one, counted from when the host sent that: pending they would merge. */
#define DUPLICATE_NS 10000

void hg_irq_message(HgDev *d, unsigned vector)
{
    if (d->intr_enable & (1u << vector)) {
        d->cnt[HG_CNT_IRQS]++;
        d->irq_out[vector]++;
        d->irq_any = true;
    }
}

/* Vectors that are not enabled only set their status bit. */
void hg_raise_now(HgDev *d, unsigned vector)
{
    d->intr_status |= 1u << vector;
    hg_irq_message(d, vector);
}

void hg_irq_again(HgDev *d, unsigned vector)
{
    hg_lock(d);
    /* no room: at once it would be one with the first */
    hg_timer_add(d, hg_later(hg_now(d), DUPLICATE_NS), HG_T_IRQ, vector, 1, 0);
    hg_unlock(d);
}

void hg_raise(HgDev *d, unsigned vector)
{
    uint64_t arg, now;

    switch (hg_injected(d, HG_INJ_IRQ, vector, &arg)) {
    case HG_ACT_LOST:
        d->intr_status |= 1u << vector;
        return;
    case HG_ACT_DUPLICATE:
        if (d->intr_enable & (1u << vector)) {
            d->irq_again |= 1u << vector;
        }
        break;
    case HG_ACT_DELAY:
        now = hg_now(d);
        d->intr_status |= 1u << vector;
        if (hg_timer_add(d, hg_later(now, arg), HG_T_IRQ, vector, 0, 0)) {
            return;
        }
        break;
    default:
        break;
    }
    hg_raise_now(d, vector);
}
