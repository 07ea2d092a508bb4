/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Engines have something to do: all under d->lock.
 */
#ifndef HG_KICK_H
#define HG_KICK_H

#include "types/common.h"

void hg_kick(HgEngine *e);
void hg_kick_sms(HgDev *d);
void hg_kick_ces(HgDev *d);
void hg_kick_fe(HgDev *d);

#endif /* HG_KICK_H */
