/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The F and D extensions: decoding, NaN boxing, rounding mode and flags of a
 * lane.  The numbers themselves are fp.c's.
 *
 * A binary32 in a register has ones above it; one that has not counts as the
 * canonical NaN for all but moves and stores.
 */
#include "hg_internal.h"
#include "fp.h"
#include "vec.h"

/* In HgInsn.imm. */
enum {
    F_MADD, F_MSUB, F_NMSUB, F_NMADD, F_ADD, F_SUB, F_MUL, F_DIV, F_SQRT,
    F_CVT, F_TO_INT, F_FROM_INT,
    F_ROUNDS,                   /* those before have a rounding mode */
    F_SGNJ = F_ROUNDS, F_MINMAX, F_CMP, F_CLASS, F_TO_X, F_FROM_X,
};

/* False: there is no such instruction. */
bool hg_rvf_decode(HgInsn *i)
{
    unsigned f3 = i->raw >> 12 & 7, fmt = i->raw >> 25 & 3;
    bool to_x = false, ok = true;

    if (fmt > HG_FP_D) {
        return false;
    }
    switch (i->raw & 0x7f) {
    case 0x43: i->imm = F_MADD; break;
    case 0x47: i->imm = F_MSUB; break;
    case 0x4b: i->imm = F_NMSUB; break;
    case 0x4f: i->imm = F_NMADD; break;
    default:
        switch (i->raw >> 27) {
        case 0x00: i->imm = F_ADD; break;
        case 0x01: i->imm = F_SUB; break;
        case 0x02: i->imm = F_MUL; break;
        case 0x03: i->imm = F_DIV; break;
        case 0x04:
            i->imm = F_SGNJ;
            ok = f3 <= HG_FP_SGNJX;
            break;
        case 0x05:
            i->imm = F_MINMAX;
            ok = f3 <= 1;
            break;
        case 0x08:              /* rs2 is the format it comes from */
            i->imm = F_CVT;
            ok = i->rs2 == (fmt ^ 1);
            break;
        case 0x0b:
            i->imm = F_SQRT;
            ok = i->rs2 == 0;
            break;
        case 0x14:
            i->imm = F_CMP;
            ok = f3 <= HG_FP_EQ;
            to_x = true;
            break;
        case 0x18:              /* rs2: W, WU, L, LU */
            i->imm = F_TO_INT;
            ok = i->rs2 < 4;
            to_x = true;
            break;
        case 0x1a:
            i->imm = F_FROM_INT;
            ok = i->rs2 < 4;
            break;
        case 0x1c:
            i->imm = f3 ? F_CLASS : F_TO_X;
            ok = i->rs2 == 0 && f3 <= 1;
            to_x = true;
            break;
        case 0x1e:
            i->imm = F_FROM_X;
            ok = i->rs2 == 0 && f3 == 0;
            break;
        default:
            return false;
        }
    }
    if (i->imm < F_ROUNDS && (f3 == 5 || f3 == 6)) {
        return false;
    }
    if (to_x && i->rd == 0) {
        i->rd = 32;
    }
    return ok;
}

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
