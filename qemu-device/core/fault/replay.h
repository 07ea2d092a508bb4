/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replays.  d->lock.
 */
#ifndef HG_REPLAY_H
#define HG_REPLAY_H

#include "device.h"

uint64_t hg_replay(HgDev *d, unsigned type);
void hg_replay_perform(HgDev *d, uint64_t key);
void hg_replay_answer(HgDev *d, uint64_t *owed);

#endif /* HG_REPLAY_H */
