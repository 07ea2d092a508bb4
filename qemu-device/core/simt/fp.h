/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * IEEE 754-2008 binary32 and binary64 in integers, as the RISC-V F and D
 * extensions define them: canonical NaNs, tininess after rounding, flags that
 * only accumulate.
 *
 * Values are bit patterns, a binary32 in the low half.  (NaN boxing is the
 * business of the registers: rvf.c.)  Pure functions of their arguments; the
 * host's floating point is not used.
 */
#ifndef HMM_GPU_FP_H
#define HMM_GPU_FP_H

#include <stdbool.h>
#include <stdint.h>

#include "access/ops.h"

/* As the bits of fflags. */
enum { HG_FF_NX = 1, HG_FF_UF = 2, HG_FF_OF = 4, HG_FF_DZ = 8, HG_FF_NV = 16 };

uint64_t hg_fp_nan(HgFpFmt f);

uint64_t hg_fp_add(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags);
uint64_t hg_fp_sub(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags);
uint64_t hg_fp_mul(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags);
uint64_t hg_fp_div(HgFpFmt f, uint64_t a, uint64_t b, HgFpRound rm, uint8_t *flags);
uint64_t hg_fp_sqrt(HgFpFmt f, uint64_t a, HgFpRound rm, uint8_t *flags);
/* (-)(a * b) (-) c with one rounding */
uint64_t hg_fp_fma(HgFpFmt f, uint64_t a, uint64_t b, uint64_t c, bool neg_product, bool neg_c,
                   HgFpRound rm, uint8_t *flags);

uint64_t hg_fp_sgnj(HgFpFmt f, uint64_t a, uint64_t b, HgFpSgnj how);
/* IEEE 754-2019 minimumNumber and maximumNumber */
uint64_t hg_fp_minmax(HgFpFmt f, uint64_t a, uint64_t b, bool max, uint8_t *flags);
bool hg_fp_cmp(HgFpFmt f, uint64_t a, uint64_t b, HgFpCmp what, uint8_t *flags);
/* One of ten bits, as FCLASS defines them */
uint32_t hg_fp_class(HgFpFmt f, uint64_t a);

/* From the other format to f */
uint64_t hg_fp_cvt(HgFpFmt f, uint64_t a, HgFpRound rm, uint8_t *flags);
/* An integer of 32 or 64 bits, sign-extended (also the unsigned one of 32) */
uint64_t hg_fp_to_int(HgFpFmt f, uint64_t a, unsigned bits, bool is_signed, HgFpRound rm,
                      uint8_t *flags);
uint64_t hg_fp_from_int(HgFpFmt f, uint64_t v, unsigned bits, bool is_signed, HgFpRound rm,
                        uint8_t *flags);

#endif /* HMM_GPU_FP_H */
