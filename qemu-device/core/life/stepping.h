/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deterministic mode: see hmm_gpu_core.h.
 */
#ifndef HG_STEPPING_H
#define HG_STEPPING_H

#include "types/engine.h"

bool hg_steps_new(HgEngine *e);                             /* false: no memory */

#endif /* HG_STEPPING_H */
