/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_RVF_H
#define HG_RVF_H

#include "types/warps.h"

#define HG_FP_BOX       ((uint64_t)0xffffffff << 32)   /* above a binary32 */
/* Arithmetic and moves; the lane whose rounding mode does not exist, or -1. */
int hg_rvf_run(HgEngine *e, HgWarp *w, const HgInsn *in, uint32_t mask);
/* fflags, frm and fcsr: the old value; arg is rs1 or the immediate. */
bool hg_rvf_is_csr(unsigned csr);
uint64_t hg_rvf_csr(HgWarp *w, unsigned l, uint32_t raw, uint64_t arg);

#endif /* HG_RVF_H */
