/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a warp would ask for next: misses under a miss.
 *
 * A GPU does not stop at a load: it notes the register, goes on, and stops at
 * the first instruction that needs it.  So a load that misses is followed in the
 * fault ring by the misses of the loads after it, which is why two loads of 32
 * pages fill a miss table of 56 at once.  Here a load that faults is done again
 * as a whole after the replay, and nothing after it has happened.  What is
 * left of the hardware's behaviour is what software can see of it: the faults
 * of the loads that follow, in program order, as far as they do not need the
 * result of a load.
 *
 * Such a fault is a hint and nothing else.  No register and no pc changes, nothing
 * is put in a TLB but for the fetch of the instructions, and memory is not read but
 * for them and the page tables; a cancel does not match it, and if it was right the
 * load faults by itself when its turn comes.  So reports are precise, and a hint
 * that comes to nothing costs a look at one page.  Only loads are looked at: a
 * store would make a page writable that the program may never write to.
 *
 * All this is between the faulting access and the safe point after it, by the
 * engine in whose slice the warp is: the same place as the access itself.
 */
#include "device.h"
#include "simt/ahead.h"
#include "access/access.h"
#include "access/fetch.h"
#include "fault/fault.h"
#include "mmu/walk.h"
#include "simt/vec.h"

#define AHEAD_INSNS 32

typedef struct Ahead {
    uint64_t x[33][HG_LANES];   /* as in HgWarp */
    uint64_t unknown;           /* registers that wait for a load */
} Ahead;

static unsigned load_bytes(unsigned op)
{
    switch (op) {
    case OP_LB: case OP_LBU: return 1;
    case OP_LH: case OP_LHU: return 2;
    case OP_LW: case OP_LWU: case OP_FLW: return 4;
    case OP_LD: case OP_FLD: return 8;
    default: return 0;
    }
}

static bool is_known(const Ahead *a, unsigned reg)
{
    return !(a->unknown >> reg & 1);
}

/* False: not one of these operations, or an operand is not known. */
static bool alu(Ahead *w, const HgInsn *in, uint64_t pc, uint32_t mask)
{
    uint64_t imm = (uint64_t)(int64_t)in->imm;
    bool two = in->op >= OP_ADD && in->op <= OP_REMUW;
    bool none = in->op == OP_LUI || in->op == OP_AUIPC;

    if ((!none && !is_known(w, in->rs1)) || (two && !is_known(w, in->rs2))) {
        return false;
    }
    for (uint32_t m = mask; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m);
        uint64_t a = w->x[in->rs1][l], b = w->x[in->rs2][l], *d = &w->x[in->rd][l];
        (void)b;
        switch (in->op) {
        case OP_AUIPC: *d = pc + imm; break;
#define X(name, expr) case OP_##name: *d = expr; break;
        HG_LANE_OPS(X)
#undef X
        default: return false;
        }
    }
    w->unknown &= ~((uint64_t)1 << in->rd);
    return true;
}

/* A page of lane l's load, unless it is noted already. */
static void note(HgEngine *e, HgCtx *c, HgWarp *w, unsigned l, uint64_t va)
{
    HgFault f = { 0 };

    for (unsigned i = 0; i < w->nfault; i++) {
        if (w->fault[i].va >> HG_PAGE_SHIFT == va >> HG_PAGE_SHIFT) {
            return;
        }
    }
    if (w->nfault < HG_STALL_MAX && hg_would_miss(e, c->asid, va, &f)) {
        f.lane = l;
        f.ahead = true;
        w->fault[w->nfault++] = f;
    }
}

/*
 * `in` at pc, a load of the lanes of mask, has faulted for some of them: add
 * the faults of the loads after it to w->fault.
 */
void hg_look_ahead(HgEngine *e, HgCtx *c, HgWarp *w, const HgInsn *in, uint64_t pc, uint32_t mask)
{
    Ahead a;
    HgFault f;

    if (!load_bytes(in->op)) {
        return;
    }
    a.unknown = 0;
    memcpy(a.x, w->x, sizeof(a.x));
    for (unsigned n = 0; in && w->nfault < HG_STALL_MAX; n++) {
        unsigned size = load_bytes(in->op);

        if (size) {
            if (!is_known(&a, in->rs1)) {
                return;
            }
            for (uint32_t m = n ? mask : 0; m; m &= m - 1) {
                unsigned l = __builtin_ctz(m);
                uint64_t va = a.x[in->rs1][l] + (uint64_t)(int64_t)in->imm;
                note(e, c, w, l, va);
                if ((va & HG_PAGE_MASK) + size > HG_PAGE_SIZE) {
                    note(e, c, w, l, va + size - 1);
                }
            }
            if (in->op != OP_FLW && in->op != OP_FLD && in->rd != 32) {
                a.unknown |= (uint64_t)1 << in->rd;
            }
        } else if (!alu(&a, in, pc, mask)) {
            return;
        }
        pc += 4;
        /* the page that the load is in is fetched from already; another may miss */
        if (n == AHEAD_INSNS || !(pc & HG_PAGE_MASK)) {
            return;
        }
        in = hg_rv_fetch(e, c->asid, pc, &f);
    }
}

void hg_prefetch(HgEngine *e, HgCtx *c, unsigned warp, const HgInsn *in, uint32_t mask)
{
    const HgWarp *w = &c->sm[e->num].warps[warp];
    HgFault list[HG_LANES], f;
    unsigned n = 0;

    for (uint32_t m = e->d->cfg.prefetch_faults ? mask : 0; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m), i = 0;
        uint64_t va = w->x[in->rs1][l] + (uint64_t)(int64_t)in->imm;

        while (i < n && list[i].va >> HG_PAGE_SHIFT != va >> HG_PAGE_SHIFT) {
            i++;
        }
        if (i == n && !hg_in_shared(e, va, 1) && hg_would_miss(e, c->asid, va, &f)) {
            f.access = HG_ACCESS_PREFETCH;
            f.lane = l;
            list[n++] = f;
        }
    }
    if (n) {
        hg_fault_prefetch(e, c, warp, list, n);
    }
}
