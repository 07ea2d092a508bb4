/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions, decoded.
 */
#ifndef HG_OPS_H
#define HG_OPS_H

/* What HgInsn.op says. */
enum {
    OP_NONE, OP_ILLEGAL,
    OP_LUI, OP_AUIPC, OP_JAL, OP_JALR,
    OP_BEQ, OP_BNE, OP_BLT, OP_BGE, OP_BLTU, OP_BGEU,
    OP_LB, OP_LH, OP_LW, OP_LD, OP_LBU, OP_LHU, OP_LWU,
    OP_SB, OP_SH, OP_SW, OP_SD,
    OP_ADDI, OP_SLTI, OP_SLTIU, OP_XORI, OP_ORI, OP_ANDI, OP_SLLI, OP_SRLI, OP_SRAI,
    OP_ADDIW, OP_SLLIW, OP_SRLIW, OP_SRAIW,
    OP_ADD, OP_SUB, OP_SLL, OP_SLT, OP_SLTU, OP_XOR, OP_SRL, OP_SRA, OP_OR, OP_AND,
    OP_ADDW, OP_SUBW, OP_SLLW, OP_SRLW, OP_SRAW,
    OP_MUL, OP_MULH, OP_MULHSU, OP_MULHU, OP_DIV, OP_DIVU, OP_REM, OP_REMU,
    OP_MULW, OP_DIVW, OP_DIVUW, OP_REMW, OP_REMUW,
    OP_FENCE, OP_FENCE_I, OP_ECALL, OP_EBREAK, OP_CSR, OP_EXIT, OP_BARRIER,
    OP_WARP_SYNC, OP_SHUFFLE, OP_VOTE, OP_PREFETCH,
    OP_FP, OP_FLW, OP_FLD, OP_FSW, OP_FSD,
    OP_LR_W, OP_LR_D, OP_SC_W, OP_SC_D, OP_AMO_W, OP_AMO_D,
    OP_COUNT,
};

/* In HgInsn.imm of an OP_FP. */
enum {
    F_MADD, F_MSUB, F_NMSUB, F_NMADD, F_ADD, F_SUB, F_MUL, F_DIV, F_SQRT,
    F_CVT, F_TO_INT, F_FROM_INT,
    F_ROUNDS,                   /* those before have a rounding mode */
    F_SGNJ = F_ROUNDS, F_MINMAX, F_CMP, F_CLASS, F_TO_X, F_FROM_X,
};

typedef enum { HG_FP_S, HG_FP_D } HgFpFmt;      /* as the fmt field of an instruction */

/* As the rm field. */
typedef enum { HG_RNE, HG_RTZ, HG_RDN, HG_RUP, HG_RMM } HgFpRound;

/* Sign of b, of -b, of the product of both, on the magnitude of a. */
typedef enum { HG_FP_SGNJ, HG_FP_SGNJN, HG_FP_SGNJX } HgFpSgnj;

/* EQ is a quiet comparison, LT and LE signal */
typedef enum { HG_FP_LE, HG_FP_LT, HG_FP_EQ } HgFpCmp;

#endif /* HG_OPS_H */
