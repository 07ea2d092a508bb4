/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_DECODE_H
#define HG_DECODE_H

#include "types/warps.h"

void hg_rv_decode(HgInsn *i, uint32_t raw);

#endif /* HG_DECODE_H */
