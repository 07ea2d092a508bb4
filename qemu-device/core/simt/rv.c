/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RV64IMAFD + Zicsr + Zifencei, 32 lanes at a time (F and D: rvf.c).
 *
 * A warp issues for the lanes with the lowest pc together, so lanes that
 * diverged meet again.  So that a lane that spins at a low pc cannot keep the
 * lane it waits for from running, after HG_STARVE instructions with others
 * left behind the next group has HG_STARVE_QUANTUM instructions.
 *
 * A lane whose access faults keeps its pc; the others of the instruction go
 * on.  Both pages of a straddling access are translated before either half is
 * performed, so a lane's instruction happens once or not at all.
 */
#include "device.h"
#include "simt/rv.h"
#include "access/access.h"
#include "access/fetch.h"
#include "base/time.h"
#include "simt/ahead.h"
#include "simt/rvf.h"
#include "simt/vec.h"

/* -- memory -- */

/* Part of a load or store inside one page. */
static bool page_read(HgEngine *e, const HgTlbEnt *t, uint32_t off, void *buf, uint32_t n)
{
    hg_count_bytes(e, t, false, n);
    if (t->posted) {
        hg_posted_order(e);
    }
    if (t->host) {
        hg_copy_in(buf, t->host + off, n);
        return true;
    }
    return hg_bus_read(e, t->addr + off, buf, n) == 0;
}

static bool page_write(HgEngine *e, const HgTlbEnt *t, uint32_t off, const void *buf, uint32_t n)
{
    hg_count_bytes(e, t, true, n);
    if (t->posted) {
        hg_posted_order(e);     /* the same bytes may be on their way */
    }
    if (t->host) {
        if (t->host_ro) {
            return false;
        }
        hg_copy_out(t->host + off, buf, n);
        hg_dirty(e, t, off, n);
        return true;
    }
    return hg_bus_write(e, t->addr + off, buf, n) == 0;
}

/*
 * Both return 0, or the number of faults put in f[0..1].  All translations
 * come before the first byte is moved.
 */
static unsigned lane_load(HgEngine *e, unsigned asid, uint64_t va, unsigned size, uint64_t *val,
                          HgFault *f)
{
    uint32_t off = va & HG_PAGE_MASK;
    uint8_t *sh = hg_in_shared(e, va, size);
    HgTlbEnt *t;

    if (sh) {
        *val = 0;
        memcpy(val, sh, size);
        return 0;
    }
    t = hg_translate(e, asid, va, HG_ACCESS_READ, f);

    if (off + size <= HG_PAGE_SIZE) {
        if (!t) {
            return 1;
        }
        *val = 0;
        if (t->host && !(off & (size - 1))) {
            uint8_t *p = t->host + off;
            if (t->posted) {
                hg_posted_order(e);
            }
            hg_count_bytes(e, t, false, size);
            switch (size) {
            case 1: *val = __atomic_load_n(p, __ATOMIC_RELAXED); break;
            case 2: *val = __atomic_load_n((hg_u16a *)p, __ATOMIC_RELAXED); break;
            case 4: *val = __atomic_load_n((hg_u32a *)p, __ATOMIC_RELAXED); break;
            default: *val = __atomic_load_n((hg_u64a *)p, __ATOMIC_RELAXED);
            }
            return 0;
        }
        if (!page_read(e, t, off, val, size)) {
            hg_poison(f, va, HG_ACCESS_READ);
            return 1;
        }
        return 0;
    }
    /* straddles; copy the entries: filling the second may evict the first */
    unsigned n = t ? 0 : 1, first = HG_PAGE_SIZE - off;
    HgTlbEnt a, b, *t2;
    uint8_t buf[8] = { 0 };
    if (t) {
        a = *t;
        hg_frame_hold(a.frame);
    }
    t2 = hg_translate(e, asid, va + first, HG_ACCESS_READ, &f[n]);
    n += !t2;
    if (!n) {
        b = *t2;
        if (!page_read(e, &a, off, buf, first) ||
            !page_read(e, &b, 0, buf + first, size - first)) {
            hg_poison(f, va, HG_ACCESS_READ);
            n = 1;
        }
        memcpy(val, buf, 8);
    }
    hg_frame_put(t ? a.frame : NULL);
    return n;
}

static unsigned lane_store(HgEngine *e, unsigned asid, uint64_t va, unsigned size, uint64_t val,
                           HgFault *f)
{
    uint32_t off = va & HG_PAGE_MASK;
    uint8_t *sh = hg_in_shared(e, va, size);
    HgTlbEnt *t;

    if (sh) {
        memcpy(sh, &val, size);
        return 0;
    }
    t = hg_translate(e, asid, va, HG_ACCESS_WRITE, f);

    if (off + size <= HG_PAGE_SIZE) {
        if (!t) {
            return 1;
        }
        if (t->host && !t->host_ro && !(off & (size - 1))) {
            uint8_t *p = t->host + off;
            hg_count_bytes(e, t, true, size);
            if (t->posted) {
                hg_post(e, t->addr + off, val, size);
                return 0;
            }
            switch (size) {
            case 1: __atomic_store_n(p, (uint8_t)val, __ATOMIC_RELAXED); break;
            case 2: __atomic_store_n((hg_u16a *)p, (uint16_t)val, __ATOMIC_RELAXED); break;
            case 4: __atomic_store_n((hg_u32a *)p, (uint32_t)val, __ATOMIC_RELAXED); break;
            default: __atomic_store_n((hg_u64a *)p, val, __ATOMIC_RELAXED);
            }
            hg_dirty(e, t, off, size);
            return 0;
        }
        if (!page_write(e, t, off, &val, size)) {
            hg_poison(f, va, HG_ACCESS_WRITE);
            return 1;
        }
        return 0;
    }
    unsigned n = t ? 0 : 1, first = HG_PAGE_SIZE - off;
    HgTlbEnt a, b, *t2;
    if (t) {
        a = *t;
        hg_frame_hold(a.frame);
    }
    t2 = hg_translate(e, asid, va + first, HG_ACCESS_WRITE, &f[n]);
    n += !t2;
    if (!n) {
        b = *t2;
        if (!page_write(e, &a, off, &val, first) ||
            !page_write(e, &b, 0, (uint8_t *)&val + first, size - first)) {
            hg_poison(f, va, HG_ACCESS_WRITE);
            n = 1;
        }
    }
    hg_frame_put(t ? a.frame : NULL);
    return n;
}

/* Naturally aligned, so never straddles. */
static unsigned lane_atomic(HgEngine *e, unsigned asid, uint64_t va, unsigned size, HgAtomicOp op,
                            uint64_t operand, uint64_t expected, uint64_t *old, HgFault *f)
{
    uint32_t off = va & HG_PAGE_MASK;
    uint8_t *sh = hg_in_shared(e, va, size);
    HgTlbEnt *t;

    if (sh) {
        *old = hg_host_atomic(sh, size, op, operand, expected);
        return 0;
    }
    t = hg_translate(e, asid, va, HG_ACCESS_ATOMIC, f);
    if (!t) {
        return 1;
    }
    if (t->host && !t->host_ro) {
        *old = hg_host_atomic(t->host + off, size, op, operand, expected);
        hg_dirty(e, t, off, size);
    } else if (t->host || hg_bus_atomic(e, t->addr + off, size, op, operand, expected, old)) {
        hg_poison(f, va, HG_ACCESS_ATOMIC);
        return 1;
    }
    hg_count_bytes(e, t, false, size);
    hg_count_bytes(e, t, true, size);
    return 0;
}

/* LR needs the rights of an atomic: the SC to come will write. */
static unsigned lane_lr(HgEngine *e, unsigned asid, uint64_t va, unsigned size, uint64_t *val,
                        HgFault *f)
{
    uint8_t *sh = hg_in_shared(e, va, size);
    HgTlbEnt *t;

    *val = 0;
    if (sh) {
        memcpy(val, sh, size);
        return 0;
    }
    t = hg_translate(e, asid, va, HG_ACCESS_ATOMIC, f);
    if (!t) {
        return 1;
    }
    if (!page_read(e, t, va & HG_PAGE_MASK, val, size)) {
        hg_poison(f, va, HG_ACCESS_ATOMIC);
        return 1;
    }
    atomic_thread_fence(memory_order_seq_cst);
    return 0;
}

/* Remember lane l's n faults; one record a page. */
static void add_faults(HgWarp *w, unsigned l, const HgFault *f, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned j;
        bool same = false;
        for (j = 0; j < w->nfault && !same; j++) {
            /* a fatal reason must not hide behind an ordinary one */
            same = (w->fault[j].va >> HG_PAGE_SHIFT) == (f[i].va >> HG_PAGE_SHIFT) &&
                   w->fault[j].reason == f[i].reason;
        }
        if (!same) {
            w->fault[w->nfault] = f[i];
            w->fault[w->nfault].lane = l;
            w->nfault++;
        }
    }
    w->stall_mask |= 1u << l;
}

static bool read_csr(HgEngine *e, HgCtx *c, HgWarp *w, unsigned csr, unsigned l, uint64_t n,
                     uint64_t *v)
{
    switch (csr) {
    case HG_CSR_CYCLE:   *v = e->cycles; return true;
    case HG_CSR_TIME:    *v = hg_now(e->d); return true;
    case HG_CSR_INSTRET: *v = w->icount[l] + n; return true;
    case HG_CSR_TID:     *v = w->index * HG_LANES + l; return true;
    case HG_CSR_BID:     *v = c->sm[e->num].blocks[w->block].bid; return true;
    case HG_CSR_NTID:    *v = c->desc[3] >> 32; return true;
    case HG_CSR_NBID:    *v = (uint32_t)c->desc[3]; return true;
    case HG_CSR_LANE:    *v = l; return true;
    case HG_CSR_WARP:    *v = w - c->sm[e->num].warps; return true;
    case HG_CSR_SM:      *v = e->num; return true;
    case HG_CSR_ARGS:    *v = c->desc[2]; return true;
    case HG_CSR_SHARED:  *v = e->shared_bytes; return true;
    default:             return false;
    }
}

/* -- execute -- */

/* Every lane of `mask`; the full-warp form can be vectorised. */
#define EACH(body)                                              \
    do {                                                        \
        if (mask == UINT32_MAX) {                               \
            for (unsigned l = 0; l < HG_LANES; l++) {           \
                body;                                           \
            }                                                   \
        } else {                                                \
            for (uint32_t m_ = mask; m_; m_ &= m_ - 1) {        \
                unsigned l = __builtin_ctz(m_);                 \
                body;                                           \
            }                                                   \
        }                                                       \
    } while (0)

#define A (w->x[in->rs1][l])
#define B (w->x[in->rs2][l])
#define D (w->x[in->rd][l])
#define IMM ((uint64_t)(int64_t)in->imm)
#define SX(v) HG_SX(v)

static uint64_t div_s(uint64_t a, uint64_t b)
{
    if (!b) {
        return UINT64_MAX;
    }
    return b == UINT64_MAX ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
}

static uint64_t rem_s(uint64_t a, uint64_t b)
{
    if (!b) {
        return a;
    }
    return b == UINT64_MAX ? 0 : (uint64_t)((int64_t)a % (int64_t)b);
}

static uint64_t divw_s(uint64_t a, uint64_t b)
{
    return SX(div_s(SX(a), SX(b)));
}

static uint64_t remw_s(uint64_t a, uint64_t b)
{
    return SX(rem_s(SX(a), SX(b)));
}

static uint64_t mulh_s(uint64_t a, uint64_t b)
{
    return (uint64_t)(((__int128)(int64_t)a * (int64_t)b) >> 64);
}

static uint64_t mulh_su(uint64_t a, uint64_t b)
{
    return (uint64_t)(((__int128)(int64_t)a * (__int128)b) >> 64);
}

static uint64_t mulh_u(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
}

/* The lane that l takes from; HG_LANES or more: none. */
static unsigned shuffle_from(unsigned how, unsigned l, uint64_t by)
{
    switch (how) {
    case HG_SHUFFLE_IDX:  return by % HG_LANES;
    case HG_SHUFFLE_UP:   return by <= l ? l - by : HG_LANES;
    case HG_SHUFFLE_DOWN: return by < HG_LANES ? l + by : HG_LANES;
    default:              return by < HG_LANES ? l ^ by : HG_LANES;
    }
}

static inline unsigned load_size(unsigned op)
{
    switch (op) {
    case OP_LB: case OP_LBU: case OP_SB: return 1;
    case OP_LH: case OP_LHU: case OP_SH: return 2;
    case OP_LW: case OP_LWU: case OP_SW: case OP_FLW: case OP_FSW: return 4;
    default: return 8;
    }
}

static inline bool is_store(unsigned op)
{
    return (op >= OP_SB && op <= OP_SD) || op == OP_FSW || op == OP_FSD;
}

/* The lanes of a load or store, all of them: addresses and what they have in common. */
typedef struct Span {
    uint64_t va[HG_LANES];
    bool one_page;              /* and aligned, all */
    bool row;                   /* one_page, all 32, side by side */
} Span;

static inline void span_of(Span *s, const HgVec *vec, const HgWarp *w, const HgInsn *in, uint32_t mask,
                    unsigned size)
{
    HgVecSpan all = vec->address(s->va, w->x[in->rs1], IMM, __builtin_ctz(size));
    uint64_t first = s->va[__builtin_ctz(mask)];

    if (mask != UINT32_MAX) {   /* the others' say nothing */
        all.differ = vec->differ(s->va, first, mask);
        all.off_row = 1;
    }
    s->one_page = !(all.differ >> HG_PAGE_SHIFT) && !((all.differ | first) & (size - 1));
    s->row = s->one_page && !all.off_row;
}

/* The lanes of `left` from the lowest on that are aligned and in its page. */
static uint32_t span_run(const Span *s, uint32_t left, unsigned size)
{
    uint64_t vpn = s->va[__builtin_ctz(left)] >> HG_PAGE_SHIFT;
    uint32_t run = 0;

    if (s->one_page) {
        return left;
    }
    for (uint32_t m = left; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m);
        if (s->va[l] >> HG_PAGE_SHIFT != vpn || (s->va[l] & (size - 1))) {
            break;
        }
        run |= 1u << l;
    }
    return run;
}

static unsigned count_lanes(uint32_t mask)
{
    return mask == UINT32_MAX ? HG_LANES : (unsigned)__builtin_popcount(mask);
}

/*
 * A load or store of the first lanes of `left`, as many as are aligned and in
 * one page of hg_warp_entry(): translated once, then done lane by lane in their
 * order.  Those that were done; 0 if none.
 */
static inline __attribute__((always_inline)) uint32_t
span_access(HgEngine *e, unsigned asid, HgWarp *w, const HgInsn *in, const Span *s,
            uint32_t left, unsigned size, bool write)
{
    uint32_t mask = span_run(s, left, size);
    unsigned lanes = count_lanes(mask);
    const uint64_t *va = s->va;
    uint8_t *page;
    HgTlbEnt *t;

    if (!mask) {
        return 0;
    }
    t = hg_warp_entry(e, asid, va[__builtin_ctz(mask)], write, lanes, true);
    if (!t) {
        return 0;
    }
    page = t->host;
    hg_count_bytes(e, t, write, size * lanes);
    if (write) {
        const uint64_t *v = in->op >= OP_FP ? w->f[in->rs2] : w->x[in->rs2];
        uint32_t lo = HG_PAGE_SIZE, hi = 0;
        if (t->posted) {
            uint64_t frame = t->addr;
            EACH(hg_post(e, frame + (va[l] & HG_PAGE_MASK), v[l], size));
            return mask;
        }
#define STORE(type)                                                             \
        if (s->row && mask == UINT32_MAX) {                                     \
            type *p = (type *)(page + (va[0] & HG_PAGE_MASK));                  \
            for (unsigned l = 0; l < HG_LANES; l++) {                           \
                __atomic_store_n(p + l, (type)v[l], __ATOMIC_RELAXED);          \
            }                                                                   \
            lo = va[0] & HG_PAGE_MASK;                                          \
            hi = lo + (HG_LANES - 1) * size;                                    \
        } else {                                                                \
            EACH(uint32_t off = va[l] & HG_PAGE_MASK;                           \
                 __atomic_store_n((type *)(page + off), (type)v[l], __ATOMIC_RELAXED); \
                 lo = off < lo ? off : lo;                                      \
                 hi = off > hi ? off : hi);                                     \
        }                                                                       \
        break
        switch (size) {
        case 1: STORE(hg_u8a);
        case 2: STORE(hg_u16a);
        case 4: STORE(hg_u32a);
        default: STORE(hg_u64a);
        }
#undef STORE
        hg_dirty(e, t, lo, hi - lo + size);
        return mask;
    }
    uint64_t *d = in->op >= OP_FP ? w->f[in->rd] : w->x[in->rd];
#define LOAD(type, value)                                                       \
    {                                                                           \
        if (s->row && mask == UINT32_MAX) {                                     \
            type *p = (type *)(page + (va[0] & HG_PAGE_MASK));                  \
            for (unsigned l = 0; l < HG_LANES; l++) {                           \
                uint64_t v = __atomic_load_n(p + l, __ATOMIC_RELAXED);          \
                d[l] = value;                                                   \
            }                                                                   \
        } else {                                                                \
            EACH(uint64_t v = __atomic_load_n((type *)(page + (va[l] & HG_PAGE_MASK)), \
                                              __ATOMIC_RELAXED);                \
                 d[l] = value);                                                 \
        }                                                                       \
        break;                                                                  \
    }
    switch (in->op) {
    case OP_LB:  LOAD(hg_u8a, (uint64_t)(int64_t)(int8_t)v)
    case OP_LBU: LOAD(hg_u8a, v)
    case OP_LH:  LOAD(hg_u16a, (uint64_t)(int64_t)(int16_t)v)
    case OP_LHU: LOAD(hg_u16a, v)
    case OP_LW:  LOAD(hg_u32a, SX(v))
    case OP_LWU: LOAD(hg_u32a, v)
    case OP_FLW: LOAD(hg_u32a, v | HG_FP_BOX)
    default:     LOAD(hg_u64a, v)       /* LD, FLD */
    }
#undef LOAD
    return mask;
}

bool hg_warp_access(HgEngine *e, unsigned asid, HgWarp *w, const HgInsn *in)
{
    const HgVec *vec = e->d->vec;
    unsigned size = load_size(in->op);
    bool write = is_store(in->op);
    Span s;

    span_of(&s, vec, w, in, UINT32_MAX, size);
    if (!s.one_page || !span_access(e, asid, w, in, &s, UINT32_MAX, size, write)) {
        return false;
    }
    w->nfault = 0;
    w->stall_mask = 0;
    if (write) {
        hg_dirty_flush(e);
    }
    hg_cnt(e, write ? HG_CNT_STORES : HG_CNT_LOADS, HG_LANES);
    return true;
}

/*
 * A load, store or atomic for the lanes of mask.  w->stall_mask is the lanes
 * that faulted.  False: *r is an error of the first such lane.
 */
static bool memory_insn(HgEngine *e, HgCtx *c, HgWarp *w, const HgInsn *in, uint32_t mask,
                        HgResult *r)
{
    unsigned asid = c->asid, op = in->op, done = 0, cnt = HG_CNT_LOADS;
    bool amo = op >= OP_LR_W;
    unsigned size = amo ? ((in->raw >> 12 & 7) == 2 ? 4 : 8) : load_size(op);

    w->nfault = 0;
    w->stall_mask = 0;
    if (op == OP_SC_W || op == OP_SC_D || op == OP_AMO_W || op == OP_AMO_D ||
        op == OP_LR_W || op == OP_LR_D) {
        cnt = HG_CNT_ATOMICS;
        hg_posted_order(e);
        for (uint32_t m = mask; m; m &= m - 1) {
            unsigned l = __builtin_ctz(m);
            if (A & (size - 1)) {
                *r = (HgResult) { .err = HG_ERR_MISALIGNED, .addr = A, .thread = l };
                return false;
            }
        }
    } else if (is_store(op)) {
        cnt = HG_CNT_STORES;
    }
    const HgVec *vec = amo ? NULL : e->d->vec;
    Span span;
    if (vec) {
        span_of(&span, vec, w, in, mask, size);
    }
    for (uint32_t m = mask; m; m &= m - 1) {
        if (vec) {
            uint32_t did = span_access(e, asid, w, in, &span, m, size, cnt == HG_CNT_STORES);
            m &= ~did;
            done += did ? count_lanes(did) : 0;
            if (!m) {
                break;
            }
        }
        unsigned l = __builtin_ctz(m), n;
        HgFault f[2];
        uint64_t v = 0;
        switch (op) {
        case OP_LB: case OP_LH: case OP_LW: case OP_LD: case OP_LBU: case OP_LHU: case OP_LWU:
            n = lane_load(e, asid, A + IMM, size, &v, f);
            if (!n) {
                D = op == OP_LB ? (uint64_t)(int64_t)(int8_t)v
                  : op == OP_LH ? (uint64_t)(int64_t)(int16_t)v
                  : op == OP_LW ? SX(v) : v;
            }
            break;
        case OP_SB: case OP_SH: case OP_SW: case OP_SD:
            n = lane_store(e, asid, A + IMM, size, B, f);
            break;
        case OP_FLW: case OP_FLD:
            n = lane_load(e, asid, A + IMM, size, &v, f);
            if (!n) {
                w->f[in->rd][l] = op == OP_FLW ? v | HG_FP_BOX : v;
            }
            break;
        case OP_FSW: case OP_FSD:
            n = lane_store(e, asid, A + IMM, size, w->f[in->rs2][l], f);
            break;
        case OP_LR_W: case OP_LR_D:
            n = lane_lr(e, asid, A, size, &v, f);
            if (!n) {
                w->res_addr[l] = A;
                w->res_val[l] = v;
                w->res_size[l] = size;
                D = size == 4 ? SX(v) : v;
            }
            break;
        case OP_SC_W: case OP_SC_D:
            n = 0;
            if (w->res_size[l] == size && w->res_addr[l] == A) {
                /* the reservation is the value: it fails iff another value is there */
                n = lane_atomic(e, asid, A, size, HG_ATOMIC_CAS, B, w->res_val[l], &v, f);
                if (n) {
                    break;
                }
                D = v != w->res_val[l];
            } else {
                D = 1;
            }
            w->res_size[l] = 0;
            break;
        default:
            n = lane_atomic(e, asid, A, size, in->imm, B, 0, &v, f);
            if (!n) {
                D = size == 4 ? SX(v) : v;
            }
            break;
        }
        if (n) {
            add_faults(w, l, f, n);
        } else {
            done++;
        }
    }
    hg_dirty_flush(e);
    hg_cnt(e, cnt, done);
    return true;
}

/*
 * The instructions from `in` on, at most `most`, for some lanes of the warp, as
 * long as they have a vector form and nothing is to be said of any lane: no
 * access, no error, no branch.  Returns how many; the next one has not begun.
 * A safe point comes between any two.
 */
static __attribute__((noinline)) uint32_t
run_some(HgEngine *e, const HgVec *vec, HgWarp *w, const HgInsn *in, uint32_t mask, uint32_t most)
{
    uint32_t n = 0;

    do {
        HgVecAlu *alu = vec->alu[in->op];
        if (alu) {
            uint64_t all[HG_LANES];     /* the results of the other lanes are thrown away */
            alu(all, w->x[in->rs1], w->x[in->rs2], IMM);
            vec->blend(w->x[in->rd], all, mask);
        } else if (in->op != OP_FP || hg_rvf_run(e, w, in, mask) >= 0) {
            break;              /* an error of OP_FP is found again: it ends the launch */
        }
        in++;
    } while (++n < most && !hg_attn(e));
    return n;
}

static uint32_t branch_taken(const HgWarp *w, const HgInsn *in, uint32_t mask)
{
    uint32_t taken = 0;

    switch (in->op) {
#define X(name, cond)                                                   \
    case OP_##name:                                                     \
        EACH(uint64_t a = A; uint64_t b = B; taken |= (uint32_t)(cond) << l); \
        break;
    HG_LANE_TESTS(X)
#undef X
    }
    return taken;
}

/*
 * Choose the lanes to issue.  0: none can.  *limit: how many instructions they
 * may run before the choice is made again; *join: they stop when they reach
 * this pc.
 */
static uint32_t choose(const HgVec *vec, HgWarp *w, uint64_t *pc, uint64_t *join, uint32_t *limit)
{
    uint32_t active = hg_warp_active(w), mask = 0;
    uint64_t low = UINT64_MAX, next = UINT64_MAX;

    if (!active) {
        return 0;
    }
    if (w->replay) {            /* one instruction's lanes: same pc */
        *pc = w->pc[__builtin_ctz(w->replay)];
        *join = UINT64_MAX;
        *limit = 1;
        return w->replay;
    }
    *pc = w->pc[__builtin_ctz(active)];
    if (vec && !vec->differ(w->pc, *pc, active)) {      /* as below, sooner */
        *join = UINT64_MAX;
        w->starve = 0;
        return active;
    }
    for (uint32_t m = active; m; m &= m - 1) {
        unsigned l = __builtin_ctz(m);
        uint64_t p = w->pc[l];
        if (p < low) {
            next = low;
            low = p;
            mask = 1u << l;
        } else if (p == low) {
            mask |= 1u << l;
        } else if (p < next) {
            next = p;
        }
    }
    *pc = low;
    *join = next;
    if (mask == active) {
        w->starve = 0;
        return mask;
    }
    if (w->starve >= HG_STARVE) {
        w->starve = 0;
        mask = 0;
        for (uint32_t m = active; m; m &= m - 1) {
            unsigned l = __builtin_ctz(m);
            mask |= w->pc[l] == next ? 1u << l : 0;
        }
        *pc = next;
        *join = UINT64_MAX;
        *limit = *limit < HG_STARVE_QUANTUM ? *limit : HG_STARVE_QUANTUM;
        return mask;
    }
    if (*limit > HG_STARVE - w->starve) {
        *limit = HG_STARVE - w->starve;
    }
    return mask;
}

HgRun hg_rv_run(HgEngine *e, HgCtx *c, HgWarp *w, uint32_t *budget, HgResult *r)
{
    HgCtxSm *cs = &c->sm[e->num];
    uint64_t per_thread = c->desc[6];
    const HgVec *vec = e->d->vec;

    e->shared = cs->shared + w->block * hg_shared_step(c);
    e->shared_bytes = hg_shared_bytes(c);
    e->fp_ok = hg_vec_fp_ok();
    while (*budget) {
        uint64_t pc, join;
        uint32_t limit = *budget, n = 0, mask;
        HgRun res = HG_RUN_OK;
        bool again = false;     /* pcs were written lane by lane */
        bool good;
        const HgIcPage *code = NULL;

        if (hg_attn(e)) {
            return HG_RUN_OK;
        }
        if (w->wsync && !hg_warp_active(w)) {
            if (w->wsync != w->live) {      /* the others wait at the block's barrier */
                unsigned l = __builtin_ctz(w->wsync);
                *r = (HgResult) { .err = HG_ERR_BARRIER, .pc = w->pc[l] - 4, .thread = l };
                return HG_RUN_ERROR;
            }
            w->wsync = 0;
        }
        mask = choose(vec, w, &pc, &join, &limit);
        if (!mask) {
            return HG_RUN_IDLE;
        }
        if (pc & 3) {
            *r = (HgResult) { .err = HG_ERR_MISALIGNED, .addr = pc, .pc = pc,
                              .thread = __builtin_ctz(mask) };
            return HG_RUN_ERROR;
        }
        if (per_thread) {
            for (uint32_t m = mask; m; m &= m - 1) {
                unsigned l = __builtin_ctz(m);
                uint64_t rest = per_thread > w->icount[l] ? per_thread - w->icount[l] : 0;
                if (!rest) {
                    *r = (HgResult) { .err = HG_ERR_BUDGET, .pc = pc, .thread = l };
                    return HG_RUN_ERROR;
                }
                limit = rest < limit ? (uint32_t)rest : limit;
            }
        }

        /* straight line: all lanes of mask are at pc and stay together */
        while (n < limit && pc < join) {
            HgFault f;
            const HgInsn *in;

            if (n && hg_attn(e)) {
                break;          /* safe point */
            }
            /*
             * The page of decoded instructions that we are in stays what it is
             * until we leave it: it is this SM's own, others touch it only
             * while the SM is parked, and what removes it in a slice is
             * hg_rv_fetch() of another page, fence.i, and the safe point at which
             * requests are served; that one is not in this loop.
             */
            if (code && pc >> HG_PAGE_SHIFT == code->vpn && code->insn[pc / 4 % HG_PAGE_INSNS].op) {
                in = &code->insn[pc / 4 % HG_PAGE_INSNS];
            } else {
                in = hg_rv_fetch(e, c->asid, pc, &f);
                code = in ? hg_ic_page(e, c->asid, pc >> HG_PAGE_SHIFT) : NULL;
            }
            if (!in) {
                f.lane = __builtin_ctz(mask);
                w->fault[0] = f;
                w->nfault = 1;
                w->stall_mask = mask;
                res = HG_RUN_STALL;
                break;
            }
            hg_look(e, pc, w - cs->warps);
            if (vec) {
                uint32_t did;
                if (mask == UINT32_MAX) {
                    did = e->co
                        ? vec->run_stepped(e, w, c->asid, w - cs->warps, code, &pc,
                                           hg_steps_room(e, limit - n))
                        : vec->run(e, w, c->asid, w - cs->warps, code, &pc, limit - n);
                } else {
                    uint64_t most = code->insn + HG_PAGE_INSNS - in;
                    most = most < limit - n ? most : limit - n;
                    most = most < (join - pc + 3) / 4 ? most : (join - pc + 3) / 4;
                    did = run_some(e, vec, w, in, mask, hg_steps_room(e, most));
                    pc += 4 * (uint64_t)did;
                    if (did) {          /* none: not a safe point either */
                        hg_point_insns(e, did);
                    }
                }
                if (did) {
                    n += did;
                    e->cycles += did;
                    continue;
                }
            }
            switch (in->op) {
            case OP_AUIPC:  EACH(D = pc + IMM); break;
            case OP_JAL: {
                uint64_t to = pc + IMM;
                if (to & 3) {
                    *r = (HgResult) { .err = HG_ERR_MISALIGNED, .addr = to,
                                      .thread = __builtin_ctz(mask) };
                    res = HG_RUN_ERROR;
                    break;
                }
                EACH(D = pc + 4);
                pc = to - 4;
                break;
            }
            case OP_JALR: {
                uint64_t to[HG_LANES];
                for (uint32_t m = mask; m; m &= m - 1) {
                    unsigned l = __builtin_ctz(m);
                    to[l] = (A + IMM) & ~(uint64_t)1;
                    if (to[l] & 3) {
                        *r = (HgResult) { .err = HG_ERR_MISALIGNED, .addr = to[l], .thread = l };
                        res = HG_RUN_ERROR;
                        break;
                    }
                }
                if (res != HG_RUN_OK) {
                    break;
                }
                EACH(D = pc + 4);
                EACH(w->jump_pc[l] = pc; w->jump_to[l] = to[l]);
                EACH(w->pc[l] = to[l]);
                again = true;
                break;
            }
            case OP_BEQ: case OP_BNE: case OP_BLT: case OP_BGE: case OP_BLTU: case OP_BGEU: {
                uint32_t taken = vec ? vec->test[in->op - OP_BEQ](w->x[in->rs1], w->x[in->rs2])
                                     : branch_taken(w, in, mask);
                uint64_t to = pc + IMM;
                taken &= mask;
                if (taken && (to & 3)) {
                    *r = (HgResult) { .err = HG_ERR_MISALIGNED, .addr = to,
                                      .thread = __builtin_ctz(taken) };
                    res = HG_RUN_ERROR;
                } else if (taken == mask) {
                    pc = to - 4;
                } else if (taken) {
                    EACH(w->pc[l] = taken >> l & 1 ? to : pc + 4);
                    again = true;
                }
                break;
            }

#define X(name, expr)                                                   \
            case OP_##name:                                             \
                EACH(uint64_t a = A; uint64_t b = B; uint64_t imm = IMM; \
                     (void)a; (void)b; (void)imm; D = expr);            \
                break;
            HG_LANE_OPS(X)
#undef X
            case OP_MULH:   EACH(D = mulh_s(A, B)); break;
            case OP_MULHSU: EACH(D = mulh_su(A, B)); break;
            case OP_MULHU:  EACH(D = mulh_u(A, B)); break;
            case OP_DIV:    EACH(D = div_s(A, B)); break;
            case OP_DIVU:   EACH(D = B ? A / B : UINT64_MAX); break;
            case OP_REM:    EACH(D = rem_s(A, B)); break;
            case OP_REMU:   EACH(D = B ? A % B : A); break;
            case OP_DIVW:   EACH(D = divw_s(A, B)); break;
            case OP_DIVUW:  EACH(D = (uint32_t)B ? SX((uint32_t)A / (uint32_t)B) : UINT64_MAX);
                            break;
            case OP_REMW:   EACH(D = remw_s(A, B)); break;
            case OP_REMUW:  EACH(D = (uint32_t)B ? SX((uint32_t)A % (uint32_t)B) : SX(A));
                            break;

            case OP_LB: case OP_LH: case OP_LW: case OP_LD: case OP_LBU: case OP_LHU:
            case OP_LWU: case OP_SB: case OP_SH: case OP_SW: case OP_SD:
            case OP_FLW: case OP_FLD: case OP_FSW: case OP_FSD:
            case OP_LR_W: case OP_LR_D: case OP_SC_W: case OP_SC_D:
            case OP_AMO_W: case OP_AMO_D:
                good = memory_insn(e, c, w, in, mask, r);
                if (good && w->stall_mask) {
                    hg_look_ahead(e, c, w, in, pc, mask);
                }
                hg_point(e, HG_AT_DATA);
                hg_look(e, pc, w - cs->warps);
                if (!good) {
                    res = HG_RUN_ERROR;
                } else if (w->stall_mask) {
                    uint32_t ok = mask & ~w->stall_mask;
                    EACH(w->pc[l] = ok >> l & 1 ? pc + 4 : pc);
                    EACH(w->icount[l] += n + (ok >> l & 1));
                    cs->instrs += (uint64_t)__builtin_popcount(mask) * n + __builtin_popcount(ok);
                    hg_cnt(e, HG_CNT_INSTRS,
                           (uint64_t)__builtin_popcount(mask) * n + __builtin_popcount(ok));
                    e->cycles++;
                    *budget -= n + 1;
                    w->replay = 0;
                    return HG_RUN_STALL;
                }
                break;

            case OP_PREFETCH:
                hg_prefetch(e, c, w - cs->warps, in, mask);
                break;
            case OP_FENCE:
                hg_posted_order(e);
                atomic_thread_fence(memory_order_seq_cst);
                break;
            case OP_FENCE_I:
                hg_posted_order(e);
                atomic_thread_fence(memory_order_seq_cst);
                for (unsigned i = 0; i < HG_IC_PAGES; i++) {
                    e->ic[i].valid = false;
                }
                code = NULL;
                break;
            case OP_FP: {
                int bad = hg_rvf_run(e, w, in, mask);
                if (bad >= 0) {
                    *r = (HgResult) { .err = HG_ERR_ILLEGAL, .addr = in->raw, .thread = bad };
                    res = HG_RUN_ERROR;
                }
                break;
            }
            case OP_CSR: {
                unsigned f3 = in->raw >> 12 & 7;
                bool writes = (f3 & 3) == 1 || in->rs1 != 0;
                bool fp = hg_rvf_is_csr(in->imm);       /* all others are read-only */
                for (uint32_t m = mask; m && res == HG_RUN_OK; m &= m - 1) {
                    unsigned l = __builtin_ctz(m);
                    uint64_t v;
                    if (fp) {
                        D = hg_rvf_csr(w, l, in->raw, f3 & 4 ? in->rs1 : A);
                    } else if (writes || !read_csr(e, c, w, in->imm, l, n, &v)) {
                        *r = (HgResult) { .err = HG_ERR_ILLEGAL, .addr = in->raw, .thread = l };
                        res = HG_RUN_ERROR;
                    } else {
                        D = v;
                    }
                }
                break;
            }
            case OP_ECALL:
            case OP_EXIT:
                w->live &= ~mask;
                EACH(w->pc[l] = pc + 4);
                again = true;
                break;
            case OP_BARRIER:
                w->barrier |= mask;
                EACH(w->pc[l] = pc + 4);
                again = true;
                break;
            case OP_WARP_SYNC:
                w->wsync |= mask;
                EACH(w->pc[l] = pc + 4);
                again = true;
                break;
            case OP_SHUFFLE: {
                uint64_t v[HG_LANES];
                EACH(v[l] = A);
                EACH(unsigned s = shuffle_from(in->imm, l, B);
                     D = s < HG_LANES && mask >> s & 1 ? v[s] : v[l]);
                break;
            }
            case OP_VOTE: {
                uint32_t set = 0;
                EACH(set |= (uint32_t)(A != 0) << l);
                EACH(D = in->imm == HG_VOTE_BALLOT ? set
                       : in->imm == HG_VOTE_ANY ? set != 0 : set == mask);
                break;
            }
            case OP_EBREAK:
                *r = (HgResult) { .err = HG_ERR_BREAK, .thread = __builtin_ctz(mask) };
                res = HG_RUN_ERROR;
                break;
            default:
                *r = (HgResult) { .err = HG_ERR_ILLEGAL, .addr = in->raw,
                                  .thread = __builtin_ctz(mask) };
                res = HG_RUN_ERROR;
                break;
            }
            if (res != HG_RUN_OK) {
                break;
            }
            n++;
            e->cycles++;
            hg_point(e, HG_AT_SAFE);
            if (again) {
                break;
            }
            pc += 4;
        }

        if (!again) {
            EACH(w->pc[l] = pc);
        }
        EACH(w->icount[l] += n);
        cs->instrs += (uint64_t)__builtin_popcount(mask) * n;
        hg_cnt(e, HG_CNT_INSTRS, (uint64_t)__builtin_popcount(mask) * n);
        *budget -= n;
        if (mask != hg_warp_active(w)) {
            w->starve += n;
        }
        if (n || res == HG_RUN_STALL) {
            w->replay = 0;      /* the access sent again has its answer */
        }
        if (res == HG_RUN_ERROR) {
            r->pc = pc;
        }
        if (res != HG_RUN_OK) {
            return res;
        }
    }
    return HG_RUN_OK;
}
