/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Programs under way: decoded instructions, warps, blocks, what becomes of a job.
 */
#ifndef HG_WARPS_H
#define HG_WARPS_H

#include "types/translation.h"

typedef struct HgInsn {
    uint32_t raw;
    int32_t imm;
    uint8_t op;                 /* 0 = not decoded yet */
    uint8_t rd, rs1, rs2;       /* rd 32 is a bin for x0; f0 is a register */
} HgInsn;

typedef struct HgIcPage {
    uint64_t vpn;
    uint16_t asid;
    bool valid;
    uint8_t order;              /* of the leaf that it was fetched by */
    HgInsn insn[HG_PAGE_INSNS + 1];     /* the last one is never decoded: a mark */
} HgIcPage;

enum { HG_W_FREE, HG_W_ACTIVE, HG_W_STALL };

/*
 * A warp slot.  `state` changes under d->lock only.  FREE and STALL: all fields
 * belong to d->lock.  ACTIVE: to the SM while it is in a slice with this
 * context, else to d->lock.
 */
typedef struct HgWarp {
    _Alignas(HG_LINE) uint64_t x[33][HG_LANES]; /* whole cache lines for vec.c */
    uint64_t f[32][HG_LANES];   /* a binary32 has ones above it */
    uint8_t fcsr[HG_LANES];     /* rounding mode and flags, as CSR fcsr */
    uint64_t pc[HG_LANES];
    uint64_t icount[HG_LANES];
    uint64_t jump_pc[HG_LANES], jump_to[HG_LANES];  /* the lane's last JALR, for reports */
    uint64_t res_addr[HG_LANES], res_val[HG_LANES];
    uint8_t res_size[HG_LANES]; /* 0 = no reservation */
    uint32_t live;              /* not ended */
    uint32_t barrier;           /* subset of live that waits for the block */
    uint32_t wsync;             /* another one that waits for the rest of the warp */
    uint32_t replay;            /* lanes whose access was sent again: they go first */
    uint32_t starve;
    uint64_t owed;              /* key of the replay that waits for `replay`, or 0 */
    uint8_t state;
    uint8_t block;              /* index in HgCtxSm.blocks */
    uint8_t index;              /* warp in block */
    uint32_t stall_mask;
    unsigned nfault;
    HgFault fault[HG_STALL_MAX];
} HgWarp;

typedef struct HgBlock {
    uint32_t bid;
    uint32_t threads;
    uint32_t live, arrived;
    uint8_t warps_left;         /* 0 = free */
    uint32_t warp_mask;
} HgBlock;

/* A context's part of one SM. */
typedef struct HgCtxSm {
    _Alignas(HG_LINE) HgWarp *warps;    /* so that no two SMs write the same line */
    HgBlock *blocks;            /* cfg.warps of them */
    uint8_t *shared;            /* HG_SHARED_MAX bytes: block b's at b * hg_shared_step() */
    _Atomic uint32_t run_mask;  /* warps that can issue */
    uint32_t free_mask;         /* d->lock */
    uint32_t last;              /* last warp issued */
    uint64_t instrs;            /* lane instructions of this launch */
} HgCtxSm;

typedef struct HgResult {
    uint32_t err, reason;
    uint64_t addr, pc;
    uint32_t block, thread;
    uint64_t instrs;
    bool die;                   /* the context halts after the report */
} HgResult;

/* Lanes that can issue. */
static inline uint32_t hg_warp_active(const HgWarp *w)
{
    return w->live & ~w->barrier & ~w->wsync;
}

#endif /* HG_WARPS_H */
