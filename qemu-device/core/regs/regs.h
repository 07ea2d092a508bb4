/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this file has is part of the interface to the host.
 */
#ifndef HG_REGS_H
#define HG_REGS_H

#include "hmm_gpu_core.h"

#endif /* HG_REGS_H */
