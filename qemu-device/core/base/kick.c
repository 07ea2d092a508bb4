/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Waking engines.
 */
#include "device.h"
#include "base/kick.h"

void hg_kick(HgEngine *e)
{
    HgDev *d = e->d;

    if (d->cfg.deterministic) {
        d->kick_out = true;
    } else {
        pthread_cond_signal(&e->cv);
    }
}

void hg_kick_sms(HgDev *d)
{
    for (unsigned i = 0; i < d->nsm; i++) {
        hg_kick(&d->eng[i]);
    }
}

void hg_kick_ces(HgDev *d)
{
    for (unsigned i = 0; i < d->nce; i++) {
        hg_kick(&d->eng[d->nsm + i]);
    }
}

void hg_kick_fe(HgDev *d)
{
    hg_kick(&d->eng[d->neng - 1]);
}
