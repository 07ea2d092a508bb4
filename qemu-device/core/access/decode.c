/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an instruction says: RV64IMAFD + Zicsr + Zifencei.
 */
#include "device.h"
#include "access/decode.h"
#include "access/ops.h"

static int32_t sext(uint32_t v, unsigned bits)
{
    return (int32_t)(v << (32 - bits)) >> (32 - bits);
}

static int amo_op(unsigned funct5)
{
    switch (funct5) {
    case 0x00: return HG_ATOMIC_ADD;
    case 0x01: return HG_ATOMIC_SWAP;
    case 0x04: return HG_ATOMIC_XOR;
    case 0x08: return HG_ATOMIC_OR;
    case 0x0c: return HG_ATOMIC_AND;
    case 0x10: return HG_ATOMIC_MIN;
    case 0x14: return HG_ATOMIC_MAX;
    case 0x18: return HG_ATOMIC_MINU;
    case 0x1c: return HG_ATOMIC_MAXU;
    default:   return -1;
    }
}

/* False: there is no such instruction. */
static bool fp_decode(HgInsn *i)
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

/* imm is what the operation needs: immediate, shift, CSR number, atomic or FP operation. */
void hg_rv_decode(HgInsn *i, uint32_t raw)
{
    unsigned f3 = (raw >> 12) & 7, f7 = raw >> 25;
    unsigned op = OP_ILLEGAL;

    i->raw = raw;
    i->rd = (raw >> 7) & 31;
    i->rs1 = (raw >> 15) & 31;
    i->rs2 = (raw >> 20) & 31;
    i->imm = sext(raw >> 20, 12);

    switch (raw & 0x7f) {
    case 0x37:
        op = OP_LUI;
        i->imm = (int32_t)(raw & 0xfffff000);
        break;
    case 0x17:
        op = OP_AUIPC;
        i->imm = (int32_t)(raw & 0xfffff000);
        break;
    case 0x6f:
        op = OP_JAL;
        i->imm = sext(((raw >> 31) << 20) | (((raw >> 12) & 0xff) << 12) |
                      (((raw >> 20) & 1) << 11) | (((raw >> 21) & 0x3ff) << 1), 21);
        break;
    case 0x67:
        op = f3 == 0 ? OP_JALR : OP_ILLEGAL;
        break;
    case 0x63: {
        static const uint8_t t[8] = { OP_BEQ, OP_BNE, OP_ILLEGAL, OP_ILLEGAL,
                                      OP_BLT, OP_BGE, OP_BLTU, OP_BGEU };
        op = t[f3];
        i->imm = sext(((raw >> 31) << 12) | (((raw >> 7) & 1) << 11) |
                      (((raw >> 25) & 0x3f) << 5) | (((raw >> 8) & 0xf) << 1), 13);
        break;
    }
    case 0x03: {
        static const uint8_t t[8] = { OP_LB, OP_LH, OP_LW, OP_LD, OP_LBU, OP_LHU, OP_LWU,
                                      OP_ILLEGAL };
        op = t[f3];
        break;
    }
    case 0x23: {
        static const uint8_t t[8] = { OP_SB, OP_SH, OP_SW, OP_SD, OP_ILLEGAL, OP_ILLEGAL,
                                      OP_ILLEGAL, OP_ILLEGAL };
        op = t[f3];
        i->imm = sext((f7 << 5) | ((raw >> 7) & 31), 12);
        break;
    }
    case 0x07:
        op = f3 == 2 ? OP_FLW : f3 == 3 ? OP_FLD : OP_ILLEGAL;
        break;
    case 0x27:
        op = f3 == 2 ? OP_FSW : f3 == 3 ? OP_FSD : OP_ILLEGAL;
        i->imm = sext((f7 << 5) | ((raw >> 7) & 31), 12);
        break;
    case 0x43: case 0x47: case 0x4b: case 0x4f: case 0x53:
        op = fp_decode(i) ? OP_FP : OP_ILLEGAL;
        break;
    case 0x13: {
        static const uint8_t t[8] = { OP_ADDI, OP_SLLI, OP_SLTI, OP_SLTIU, OP_XORI, OP_SRLI,
                                      OP_ORI, OP_ANDI };
        op = t[f3];
        if (op == OP_ORI && i->rd == 0 && ((raw >> 20 & 31) == 1 || (raw >> 20 & 31) == 3)) {
            op = OP_PREFETCH;   /* Zicbop: prefetch.r, prefetch.w */
            i->imm &= ~31;
            break;
        }
        if (f3 == 1 || f3 == 5) {
            unsigned f6 = raw >> 26;
            i->imm = (raw >> 20) & 63;
            if (f3 == 5 && f6 == 0x10) {
                op = OP_SRAI;
            } else if (f6 != 0) {
                op = OP_ILLEGAL;
            }
        }
        break;
    }
    case 0x1b:
        if (f3 == 0) {
            op = OP_ADDIW;
        } else if (f3 == 1 && f7 == 0) {
            op = OP_SLLIW;
            i->imm = i->rs2;
        } else if (f3 == 5 && (f7 == 0 || f7 == 0x20)) {
            op = f7 ? OP_SRAIW : OP_SRLIW;
            i->imm = i->rs2;
        }
        break;
    case 0x33: {
        static const uint8_t t[8] = { OP_ADD, OP_SLL, OP_SLT, OP_SLTU, OP_XOR, OP_SRL, OP_OR,
                                      OP_AND };
        if (f7 == 0) {
            op = t[f3];
        } else if (f7 == 1) {
            op = OP_MUL + f3;
        } else if (f7 == 0x20 && f3 == 0) {
            op = OP_SUB;
        } else if (f7 == 0x20 && f3 == 5) {
            op = OP_SRA;
        }
        break;
    }
    case 0x3b:
        if (f7 == 0) {
            op = f3 == 0 ? OP_ADDW : f3 == 1 ? OP_SLLW : f3 == 5 ? OP_SRLW : OP_ILLEGAL;
        } else if (f7 == 0x20) {
            op = f3 == 0 ? OP_SUBW : f3 == 5 ? OP_SRAW : OP_ILLEGAL;
        } else if (f7 == 1) {
            static const uint8_t t[8] = { OP_MULW, OP_ILLEGAL, OP_ILLEGAL, OP_ILLEGAL,
                                          OP_DIVW, OP_DIVUW, OP_REMW, OP_REMUW };
            op = t[f3];
        }
        break;
    case 0x0f:                  /* fields of fence that we do not know are ignored, as the ISA says */
        op = f3 == 0 ? OP_FENCE : f3 == 1 ? OP_FENCE_I : OP_ILLEGAL;
        break;
    case 0x73:
        if (raw == 0x00000073) {
            op = OP_ECALL;
        } else if (raw == 0x00100073) {
            op = OP_EBREAK;
        } else if (f3 != 0 && f3 != 4) {
            op = OP_CSR;
            i->imm = raw >> 20;
        }
        break;
    case 0x0b:
        if (raw == HG_INSN_EXIT) {
            op = OP_EXIT;
        } else if (raw == HG_INSN_BARRIER) {
            op = OP_BARRIER;
        } else if (raw == HG_INSN_WARP_SYNC) {
            op = OP_WARP_SYNC;
        } else if (f3 == 2 && f7 <= HG_SHUFFLE_XOR) {
            op = OP_SHUFFLE;
            i->imm = f7;
        } else if (f3 == 3 && f7 <= HG_VOTE_ALL && i->rs2 == 0) {
            op = OP_VOTE;
            i->imm = f7;
        }
        break;
    case 0x2f: {
        unsigned f5 = raw >> 27;
        if (f3 != 2 && f3 != 3) {
            break;
        }
        if (f5 == 2) {
            op = i->rs2 ? OP_ILLEGAL : f3 == 2 ? OP_LR_W : OP_LR_D;
        } else if (f5 == 3) {
            op = f3 == 2 ? OP_SC_W : OP_SC_D;
        } else if (amo_op(f5) >= 0) {
            op = f3 == 2 ? OP_AMO_W : OP_AMO_D;
            i->imm = amo_op(f5);
        }
        break;
    }
    }
    if (i->rd == 0 && !(op >= OP_FP && op <= OP_FLD)) {
        i->rd = 32;
    }
    i->op = op;
}
