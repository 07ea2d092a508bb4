/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One instruction for the 32 lanes of a warp at once, in the host's vector
 * instructions: a shortcut of what rv.c and rvf.c do lane by lane, with equal
 * results to the last bit and flag.  It can be switched off (hg_vec_set()), and
 * tests/core/test_vec.py compares both.
 *
 * The same loops (vec_body.h) are compiled for each instruction set, and the
 * best that the host has is chosen at run time.  HG_VEC_PLAIN needs nothing of
 * the host; it has no floating point.
 *
 * Nothing here has state: the tables are constant, the functions touch what
 * their pointers name, which belongs to the caller (the SM in whose slice the
 * warp is).  Which table a device uses (HgDev.vec) changes only while all
 * engines are parked.
 */
#ifndef HG_VEC_H
#define HG_VEC_H

#include <stdbool.h>
#include <stdint.h>

#include "access/ops.h"

struct HgEngine;
struct HgWarp;
struct HgIcPage;

/*
 * Operations that are one expression of a (rs1), b (rs2) and imm, all uint64_t.
 * rv.c makes the loop over some lanes of each, vec_body.h that over all.
 */
#define HG_SX(v) ((uint64_t)(int64_t)(int32_t)(uint32_t)(v))
#define HG_SRAW(v, n) ((uint64_t)(int64_t)((int32_t)(v) >> (n)))
#define HG_LANE_OPS(X)                                  \
    X(LUI, imm)                                         \
    X(ADDI, a + imm)                                    \
    X(SLTI, (int64_t)a < (int64_t)imm)                  \
    X(SLTIU, a < imm)                                   \
    X(XORI, a ^ imm)                                    \
    X(ORI, a | imm)                                     \
    X(ANDI, a & imm)                                    \
    X(SLLI, a << imm)                                   \
    X(SRLI, a >> imm)                                   \
    X(SRAI, (uint64_t)((int64_t)a >> imm))              \
    X(ADDIW, HG_SX(a + imm))                            \
    X(SLLIW, HG_SX((uint32_t)a << imm))                 \
    X(SRLIW, HG_SX((uint32_t)a >> imm))                 \
    X(SRAIW, HG_SRAW(a, imm))                           \
    X(ADD, a + b)                                       \
    X(SUB, a - b)                                       \
    X(SLL, a << (b & 63))                               \
    X(SLT, (int64_t)a < (int64_t)b)                     \
    X(SLTU, a < b)                                      \
    X(XOR, a ^ b)                                       \
    X(SRL, a >> (b & 63))                               \
    X(SRA, (uint64_t)((int64_t)a >> (b & 63)))          \
    X(OR, a | b)                                        \
    X(AND, a & b)                                       \
    X(ADDW, HG_SX(a + b))                               \
    X(SUBW, HG_SX(a - b))                               \
    X(SLLW, HG_SX((uint32_t)a << (b & 31)))             \
    X(SRLW, HG_SX((uint32_t)a >> (b & 31)))             \
    X(SRAW, HG_SRAW(a, b & 31))                         \
    X(MUL, a * b)                                       \
    X(MULW, HG_SX(a * b))

/* Branches: as they are in the enum. */
#define HG_LANE_TESTS(X)                                \
    X(BEQ, a == b)                                      \
    X(BNE, a != b)                                      \
    X(BLT, (int64_t)a < (int64_t)b)                     \
    X(BGE, (int64_t)a >= (int64_t)b)                    \
    X(BLTU, a < b)                                      \
    X(BGEU, a >= b)

/* F and D operations with a vector form, in the order of rvf.c's numbers. */
#define HG_VEC_FP 9

/* All lanes; d may be a or b. */
typedef void HgVecAlu(uint64_t *d, const uint64_t *a, const uint64_t *b, uint64_t imm);
/* The lanes, as bits, for which it holds. */
typedef uint32_t HgVecTest(const uint64_t *a, const uint64_t *b);
/*
 * Registers and fcsr of those lanes of mask whose result and flags are sure;
 * they are returned.  The other lanes are as they were.  rne: the instruction
 * rounds to nearest, whatever fcsr says.
 */
typedef uint32_t HgVecFp(uint64_t *d, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                         uint32_t mask, uint8_t *fcsr, bool rne);

/* va = a + imm: bits in which any is not va[0]; 0 if va[l] == va[0] + (l << shift). */
typedef struct HgVecSpan {
    uint64_t differ, off_row;
} HgVecSpan;

/*
 * All 32 lanes are at *pc, which is decoded: run on from there, at most `most`
 * instructions, as far as vec_run.h can.  Returns how many; *pc is the next.
 */
typedef uint32_t HgVecRun(struct HgEngine *e, struct HgWarp *w, unsigned asid, unsigned warp,
                          const struct HgIcPage *code, uint64_t *pc, uint32_t most);

typedef struct HgVec {
    const char *name;
    bool (*usable)(void);               /* by this host */
    HgVecAlu *alu[OP_COUNT];            /* NULL: lane by lane */
    HgVecTest *test[6];                 /* OP_BEQ ... OP_BGEU */
    HgVecFp *fp[HG_VEC_FP][2];          /* all NULL: no floating point */
    /* d of the lanes of mask = s; the others are stored as they were */
    void (*blend)(uint64_t *d, const uint64_t *s, uint32_t mask);
    HgVecSpan (*address)(uint64_t *va, const uint64_t *a, uint64_t imm, unsigned shift);
    /* the bits in which a lane of mask is not `first` */
    uint64_t (*differ)(const uint64_t *v, uint64_t first, uint32_t mask);
    HgVecRun *run;
    HgVecRun *run_stepped;              /* the same in deterministic mode: spends the steps, too */
} HgVec;

const HgVec *hg_vec_best(void);
/* The caller's thread has floating point as the vector forms need it. */
bool hg_vec_fp_ok(void);

#endif /* HG_VEC_H */
