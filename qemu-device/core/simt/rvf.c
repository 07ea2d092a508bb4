/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The F and D extensions: NaN boxing, rounding mode and flags of a
 * lane.  The numbers themselves are fp.c's.
 *
 * A binary32 in a register has ones above it; one that has not counts as the
 * canonical NaN for all but moves and stores.
 */
#include "device.h"
#include "simt/rvf.h"
#include "simt/fp.h"
#include "simt/vec.h"

static inline uint64_t operand(HgFpFmt f, uint64_t v)
{
    if (f == HG_FP_S) {
        return (v & HG_FP_BOX) == HG_FP_BOX ? (uint32_t)v : hg_fp_nan(f);
    }
    return v;
}

static __attribute__((noinline)) int lane_by_lane(HgWarp *w, const HgInsn *in, uint32_t mask)
{
    unsigned f3 = in->raw >> 12 & 7, op = in->imm, rs3 = in->raw >> 27;
    HgFpFmt f = in->raw >> 25 & 1;
    HgFpFmt from = op == F_CVT ? f ^ 1 : f;
    unsigned bits = in->rs2 & 2 ? 64 : 32;      /* of integers */
    bool is_signed = !(in->rs2 & 1);

    for (uint32_t m = mask; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m);
        unsigned rm = f3 == 7 ? w->fcsr[l] >> 5 : f3;
        uint64_t raw1 = w->f[in->rs1][l], v;
        uint64_t a = operand(from, raw1), b = operand(f, w->f[in->rs2][l]);
        uint64_t c = operand(f, w->f[rs3][l]);
        uint64_t x1 = w->x[in->rs1][l];
        uint8_t *fl = &w->fcsr[l];

        if (op < F_ROUNDS && rm > HG_RMM) {
            return (int)l;
        }
        switch (op) {
        case F_MADD:  v = hg_fp_fma(f, a, b, c, false, false, rm, fl); break;
        case F_MSUB:  v = hg_fp_fma(f, a, b, c, false, true, rm, fl); break;
        case F_NMSUB: v = hg_fp_fma(f, a, b, c, true, false, rm, fl); break;
        case F_NMADD: v = hg_fp_fma(f, a, b, c, true, true, rm, fl); break;
        case F_ADD:   v = hg_fp_add(f, a, b, rm, fl); break;
        case F_SUB:   v = hg_fp_sub(f, a, b, rm, fl); break;
        case F_MUL:   v = hg_fp_mul(f, a, b, rm, fl); break;
        case F_DIV:   v = hg_fp_div(f, a, b, rm, fl); break;
        case F_SQRT:  v = hg_fp_sqrt(f, a, rm, fl); break;
        case F_CVT:   v = hg_fp_cvt(f, a, rm, fl); break;
        case F_FROM_INT: v = hg_fp_from_int(f, x1, bits, is_signed, rm, fl); break;
        case F_SGNJ:  v = hg_fp_sgnj(f, a, b, f3); break;
        case F_MINMAX: v = hg_fp_minmax(f, a, b, f3, fl); break;
        case F_FROM_X: v = f == HG_FP_D ? x1 : (uint32_t)x1; break;
        case F_TO_INT: w->x[in->rd][l] = hg_fp_to_int(f, a, bits, is_signed, rm, fl); continue;
        case F_CMP:   w->x[in->rd][l] = hg_fp_cmp(f, a, b, f3, fl); continue;
        case F_CLASS: w->x[in->rd][l] = hg_fp_class(f, a); continue;
        default:      /* F_TO_X: the bits, boxed or not */
            w->x[in->rd][l] = f == HG_FP_D ? raw1 : (uint64_t)(int64_t)(int32_t)(uint32_t)raw1;
            continue;
        }
        w->f[in->rd][l] = f == HG_FP_D ? v : v | HG_FP_BOX;
    }
    return -1;
}

int hg_rvf_run(HgEngine *e, HgWarp *w, const HgInsn *in, uint32_t mask)
{
    const HgVec *vec = e->d->vec;
    unsigned f3 = in->raw >> 12 & 7, op = in->imm, rs3 = in->raw >> 27;
    HgFpFmt f = in->raw >> 25 & 1;

    if (vec && op < HG_VEC_FP && vec->fp[op][f] && e->fp_ok && (f3 == HG_RNE || f3 == 7)) {
        mask &= ~vec->fp[op][f](w->f[in->rd], w->f[in->rs1], w->f[in->rs2], w->f[rs3], mask,
                                w->fcsr, f3 == HG_RNE);
    }
    return mask ? lane_by_lane(w, in, mask) : -1;
}

bool hg_rvf_is_csr(unsigned csr)
{
    return csr == HG_CSR_FFLAGS || csr == HG_CSR_FRM || csr == HG_CSR_FCSR;
}

uint64_t hg_rvf_csr(HgWarp *w, unsigned l, uint32_t raw, uint64_t arg)
{
    unsigned csr = raw >> 20, how = raw >> 12 & 3;
    unsigned shift = csr == HG_CSR_FRM ? 5 : 0;
    unsigned field = csr == HG_CSR_FFLAGS ? 0x1f : csr == HG_CSR_FRM ? 7 : 0xff;
    unsigned old = w->fcsr[l] >> shift & field;
    unsigned v = how == 1 ? arg : how == 2 ? old | arg : old & ~arg;

    w->fcsr[l] = (w->fcsr[l] & ~(field << shift)) | (v & field) << shift;
    return old;
}
