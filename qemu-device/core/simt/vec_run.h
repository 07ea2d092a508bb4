/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The straight line and the loops of a warp whose 32 lanes are all together:
 * instruction after instruction without leaving this function, each for the
 * whole warp in whole vectors.  vec_body.h includes this, once for each
 * instruction set; it needs, of vec.c, in addition
 *   VB              bytes of a vector
 *   ANY(v)          any bit set in a vector of 64-bit elements
 *   SIGNS(v)        their signs as bits
 * and with VEC_FP
 *   HALF            unsigned 32-bit elements, as many as V has; ANY_HALF
 *   NUM_D, NUM_S    as many doubles (in a vector), floats (in half a vector)
 *   PIECES(p), HALF_PIECES(p)
 *                   a vector, half a vector from memory that others write: vec.c says how
 *   SPILL(p, v), HALF_SPILL(p, h)
 *                   the reverse
 *   NARROW(v), WIDEN(h), WIDEN_S(h)
 *                   low halves of the elements; halves with zeros, with signs above
 *   FMA_VD, FMA_VS  fused a * b + c
 *
 * What is done here is what rv.c would do, and counted the same.  It ends
 * before the first instruction that it does not do, or not in this case: a
 * branch that parts the lanes, an access that misses the micro-TLB or is not
 * regular, a floating point operation whose flags are not sure, a jump out of
 * the page.  rv.c does that one and comes back.  So no fault, no error, no
 * translation walk and no change of the decoded instructions happens here.
 *
 * Safe points.  attn is looked at between any two instructions; if it is set,
 * nothing further begins.  Each access looks its page up anew in the
 * micro-TLB, which nobody else touches while this engine is in its slice, and
 * is complete, with its audit, before the next look at attn.
 */

typedef uint64_t NAME(V) __attribute__((vector_size(VB), may_alias));
typedef int64_t NAME(VI) __attribute__((vector_size(VB), may_alias));

#define V NAME(V)
#define VN (HG_LANES * 8 / VB)          /* vectors of a register */
#define V_OF(p) ((const V *)(p))

/* Unrolled by hand, so that arrays of vectors become registers. */
#define ONE_V(n, ...) { enum { i = n }; __VA_ARGS__; }
#define EACH_V4(n, ...) ONE_V(n, __VA_ARGS__) ONE_V(n + 1, __VA_ARGS__) \
    ONE_V(n + 2, __VA_ARGS__) ONE_V(n + 3, __VA_ARGS__)
#if VB == 64
#define EACH_V(...) do { EACH_V4(0, __VA_ARGS__) } while (0)
#elif VB == 32
#define EACH_V(...) do { EACH_V4(0, __VA_ARGS__) EACH_V4(4, __VA_ARGS__) } while (0)
#else
#define EACH_V(...) do { EACH_V4(0, __VA_ARGS__) EACH_V4(4, __VA_ARGS__) \
    EACH_V4(8, __VA_ARGS__) EACH_V4(12, __VA_ARGS__) } while (0)
#endif

static TARGET inline V NAME(splat)(uint64_t v)
{
    return v - (V) { 0 };
}

static TARGET inline void NAME(put)(uint64_t *d, uint64_t v)
{
    V s = NAME(splat)(v);

    EACH_V(((V *)d)[i] = s);
}

/* -- branches -- */

#define TEST(name, type, op)                                                    \
static TARGET inline uint32_t NAME(name)(const uint64_t *a, const uint64_t *b)  \
{                                                                               \
    uint32_t m = 0;                                                             \
    EACH_V(m |= SIGNS((V)((type)V_OF(a)[i] op (type)V_OF(b)[i])) << i * (VB / 8)); \
    return m;                                                                   \
}
TEST(is_eq, V, ==)
TEST(is_lt, NAME(VI), <)
TEST(is_ltu, V, <)
#undef TEST

/* -- loads and stores -- */

enum { NAME(MIXED), NAME(SAME), NAME(ROW) };

/* How the lanes' addresses lie: all at one, or side by side, elements of 1 << shift bytes. */
static TARGET inline unsigned NAME(shape)(const uint64_t *a, unsigned shift)
{
    V first = NAME(splat)(a[0]), same = { 0 }, row = { 0 };
    const V *step = V_OF(hg_vec_steps[shift]);

    EACH_V(V off = V_OF(a)[i] - first; same |= off; row |= off ^ step[i]);
    return !ANY(row) ? NAME(ROW) : !ANY(same) ? NAME(SAME) : NAME(MIXED);
}

/*
 * `bytes` from va on, in one page, for all lanes: a pointer, or NULL.  *t is
 * NULL if they are in the block's shared memory.
 */
static TARGET inline uint8_t *NAME(reach)(HgEngine *e, unsigned asid, uint64_t va, uint32_t bytes,
                                          bool write, HgTlbEnt **t)
{
    uint32_t off = va & HG_PAGE_MASK;

    *t = NULL;
    if (hg_in_shared(e, va, bytes)) {
        return hg_in_shared(e, va, bytes);
    }
    if (off + bytes > HG_PAGE_SIZE) {
        return NULL;
    }
    *t = hg_warp_entry(e, asid, va, write, HG_LANES, false);
    return *t ? (*t)->host + off : NULL;
}

static inline void NAME(accessed)(HgEngine *e, HgWarp *w, HgTlbEnt *t, bool write, unsigned size)
{
    w->nfault = 0;
    w->stall_mask = 0;
    if (t) {
        hg_count_bytes(e, t, write, size * HG_LANES);
    }
    hg_cnt(e, write ? HG_CNT_STORES : HG_CNT_LOADS, HG_LANES);
}

/* False: not done, nothing has happened. */
static TARGET inline __attribute__((always_inline)) bool
NAME(load)(HgEngine *e, HgWarp *w, unsigned asid, const HgInsn *in, unsigned shift)
{
    const uint64_t *a = w->x[in->rs1];
    uint64_t *d = in->op >= OP_FP ? w->f[in->rd] : w->x[in->rd];
    uint64_t va = a[0] + (uint64_t)(int64_t)in->imm, v;
    unsigned size = 1u << shift, shape = NAME(shape)(a, shift);
    const uint8_t *p;
    HgTlbEnt *t;

    if (shape == NAME(SAME) && !(va & (size - 1))) {
        p = NAME(reach)(e, asid, va, size, false, &t);
        if (!p) {
            return false;
        }
        switch (in->op) {
        case OP_LB:  v = (uint64_t)(int64_t)(int8_t)__atomic_load_n(p, __ATOMIC_RELAXED); break;
        case OP_LBU: v = __atomic_load_n(p, __ATOMIC_RELAXED); break;
        case OP_LH:
            v = (uint64_t)(int64_t)(int16_t)__atomic_load_n((hg_u16a *)p, __ATOMIC_RELAXED);
            break;
        case OP_LHU: v = __atomic_load_n((hg_u16a *)p, __ATOMIC_RELAXED); break;
        case OP_LW:  v = HG_SX(__atomic_load_n((hg_u32a *)p, __ATOMIC_RELAXED)); break;
        case OP_LWU: v = __atomic_load_n((hg_u32a *)p, __ATOMIC_RELAXED); break;
        case OP_FLW: v = __atomic_load_n((hg_u32a *)p, __ATOMIC_RELAXED) | HG_FP_BOX; break;
        default:     v = __atomic_load_n((hg_u64a *)p, __ATOMIC_RELAXED); break;
        }
        NAME(put)(d, v);
        NAME(accessed)(e, w, t, false, size);
        return true;
    }
#if VEC_FP
    if (shape == NAME(ROW) && shift >= 2 && !(va & 15)) {
        p = NAME(reach)(e, asid, va, size * HG_LANES, false, &t);
        if (!p) {
            return false;
        }
        switch (in->op) {
        case OP_LW:
            EACH_V(((V *)d)[i] = WIDEN_S(HALF_PIECES(p + i * (VB / 2))));
            break;
        case OP_LWU:
            EACH_V(((V *)d)[i] = WIDEN(HALF_PIECES(p + i * (VB / 2))));
            break;
        case OP_FLW: {
            V box = NAME(splat)(HG_FP_BOX);
            EACH_V(((V *)d)[i] = WIDEN(HALF_PIECES(p + i * (VB / 2))) | box);
            break;
        }
        default:
            EACH_V(((V *)d)[i] = PIECES(p + i * VB));
        }
        NAME(accessed)(e, w, t, false, size);
        return true;
    }
#endif
    return hg_warp_access(e, asid, w, in);
}

static TARGET inline __attribute__((always_inline)) bool
NAME(store)(HgEngine *e, HgWarp *w, unsigned asid, const HgInsn *in, unsigned shift)
{
#if VEC_FP
    const uint64_t *a = w->x[in->rs1];
    const uint64_t *s = in->op >= OP_FP ? w->f[in->rs2] : w->x[in->rs2];
    uint64_t va = a[0] + (uint64_t)(int64_t)in->imm;
    unsigned size = 1u << shift;

    if (shift >= 2 && !(va & 15) && NAME(shape)(a, shift) == NAME(ROW)) {
        HgTlbEnt *t;
        uint8_t *p = NAME(reach)(e, asid, va, size * HG_LANES, true, &t);
        if (!p) {               /* posted, perhaps */
            return e->posted && hg_warp_access(e, asid, w, in);
        }
        if (shift == 2) {
            EACH_V(HALF_SPILL(p + i * (VB / 2), NARROW(V_OF(s)[i])));
        } else {
            EACH_V(SPILL(p + i * VB, V_OF(s)[i]));
        }
        if (t) {
            hg_dirty(e, t, va & HG_PAGE_MASK, size * HG_LANES);
            hg_dirty_flush(e);
        }
        NAME(accessed)(e, w, t, true, size);
        return true;
    }
#else
    (void)shift;
#endif
    return hg_warp_access(e, asid, w, in);
}

/* -- floating point -- */

#if VEC_FP

/*
 * All lanes have NX and round to nearest.  Then no result between the limits
 * of vec_body.h can change fcsr.
 */
static TARGET inline bool NAME(settled)(const uint8_t *fcsr)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)fcsr);

    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, _mm256_set1_epi8((char)0xe1)),
                          _mm256_set1_epi8(HG_FF_NX));
    return _mm256_movemask_epi8(v) == -1;
}

/* Exponents from 2 to 0x7fd, 0xfd; and, if small is set, those below: vec_body.h says when. */
#define UNSURE_D(v, small) ((V)(((V)(v) << 1) - ((small) ? 0 : 2ull << 53) >= \
                                (V) { 0 } + ((0x7feull - ((small) ? 0 : 2)) << 53)))
#define UNSURE_S(v, small) ((HALF)(((HALF)(v) << 1) - ((small) ? 0 : 2u << 24) >= \
                                   (HALF) { 0 } + ((0xfeu - ((small) ? 0 : 2)) << 24)))

/* False: a result is none of these, and nothing was written. */
#define FAST_D(name, small, result)                                             \
static TARGET inline bool NAME(fast_##name##_d)(uint64_t *d, const uint64_t *a_,       \
                                                const uint64_t *b_, const uint64_t *c_) \
{                                                                               \
    NUM_D r[VN];                                                                \
    V bad = { 0 };                                                              \
    EACH_V(NUM_D a = (NUM_D)V_OF(a_)[i], b = (NUM_D)V_OF(b_)[i], c = (NUM_D)V_OF(c_)[i]; \
           (void)b; (void)c;                                                    \
           r[i] = (result);                                                     \
           bad |= UNSURE_D(r[i], small));                                       \
    if (ANY(bad)) {                                                             \
        return false;                                                           \
    }                                                                           \
    EACH_V(((V *)d)[i] = (V)r[i]);                                              \
    return true;                                                                \
}

#define FAST_S(name, small, uses, result)                                       \
static TARGET inline bool NAME(fast_##name##_s)(uint64_t *d, const uint64_t *a_,       \
                                                const uint64_t *b_, const uint64_t *c_) \
{                                                                               \
    NUM_S r[VN];                                                                \
    V raw = ~(V) { 0 }, box = NAME(splat)(HG_FP_BOX);                           \
    HALF bad = { 0 };                                                           \
    EACH_V(V x = V_OF(a_)[i], y = V_OF(b_)[i], z = V_OF(c_)[i];                 \
           NUM_S a = (NUM_S)NARROW(x), b = (NUM_S)NARROW(y), c = (NUM_S)NARROW(z); \
           (void)b; (void)c;                                                    \
           raw &= uses;                                                         \
           r[i] = (result);                                                     \
           bad |= UNSURE_S(r[i], small));                                       \
    if (ANY_HALF(bad) || ANY(~raw & box)) {                                     \
        return false;                                                           \
    }                                                                           \
    EACH_V(((V *)d)[i] = WIDEN((HALF)r[i]) | box);                              \
    return true;                                                                \
}

FAST_D(madd, 0, FMA_VD(a, b, c))
FAST_D(msub, 0, FMA_VD(a, b, -c))
FAST_D(nmsub, 0, FMA_VD(-a, b, c))
FAST_D(nmadd, 0, FMA_VD(-a, b, -c))
FAST_D(add, 1, a + b)
FAST_D(sub, 1, a - b)
FAST_D(mul, 0, a * b)
FAST_D(div, 0, a / b)
FAST_S(madd, 0, x & y & z, FMA_VS(a, b, c))
FAST_S(msub, 0, x & y & z, FMA_VS(a, b, -c))
FAST_S(nmsub, 0, x & y & z, FMA_VS(-a, b, c))
FAST_S(nmadd, 0, x & y & z, FMA_VS(-a, b, -c))
FAST_S(add, 1, x & y, a + b)
FAST_S(sub, 1, x & y, a - b)
FAST_S(mul, 0, x & y, a * b)
FAST_S(div, 0, x & y, a / b)

#undef UNSURE_D
#undef UNSURE_S
#undef FAST_D
#undef FAST_S

static TARGET inline bool NAME(fast_fp)(HgWarp *w, const HgInsn *in)
{
    uint64_t *d = w->f[in->rd];
    const uint64_t *a = w->f[in->rs1], *b = w->f[in->rs2], *c = w->f[in->raw >> 27];

    switch (in->imm << 1 | (in->raw >> 25 & 1)) {
#define X(n, name)                                                              \
    case n << 1:     return NAME(fast_##name##_s)(d, a, b, c);                  \
    case n << 1 | 1: return NAME(fast_##name##_d)(d, a, b, c);
    X(0, madd) X(1, msub) X(2, nmsub) X(3, nmadd) X(4, add) X(5, sub) X(6, mul) X(7, div)
#undef X
    default:
        return false;
    }
}
#endif /* VEC_FP */

/* -- the loop -- */

/*
 * Stepped (deterministic mode), instructions are spent before an access begins, and
 * each access for itself, as rv.c does it: where an engine's steps end must
 * not depend on the vectors.  `unspent` is `left` where that was done last; there are
 * steps for all that is left, or it goes out to be asked for less.
 */
static TARGET inline __attribute__((always_inline)) uint32_t
NAME(run_any)(HgEngine *e, HgWarp *w, unsigned asid, unsigned warp, const HgIcPage *code,
              uint64_t *pc_, uint32_t most, const bool stepped)
{
    uint64_t page = *pc_ & ~(uint64_t)HG_PAGE_MASK;
    const HgInsn *in = &code->insn[(*pc_ & HG_PAGE_MASK) / 4];
    uint32_t left = most, unspent = most;
#if VEC_FP
    bool settled = e->fp_ok && NAME(settled)(w->fcsr);
#endif

#define PC (page + (uint64_t)(in - code->insn) * 4)
#define IMM ((uint64_t)(int64_t)in->imm)
#define SPEND_BEFORE                                                            \
    if (stepped && unspent != left) {                                           \
        hg_spend(e, HG_AT_SAFE, unspent - left);                                \
        unspent = left;                                                         \
        if (hg_attn(e) || e->steps < left) {                                    \
            goto out;                                                           \
        }                                                                       \
    }
    for (;;) {
        uint32_t taken;

        switch (in->op) {
#define X(op, expr)                                                             \
        case OP_##op:                                                           \
            NAME(op##_)(w->x[in->rd], w->x[in->rs1], w->x[in->rs2], IMM);       \
            break;
        HG_LANE_OPS(X)
#undef X
        case OP_AUIPC:
            NAME(put)(w->x[in->rd], PC + IMM);
            break;
        case OP_LB: case OP_LBU:
            SPEND_BEFORE
            if (!NAME(load)(e, w, asid, in, 0)) {
                goto out;
            }
            goto audit;
        case OP_LH: case OP_LHU:
            SPEND_BEFORE
            if (!NAME(load)(e, w, asid, in, 1)) {
                goto out;
            }
            goto audit;
        case OP_LW: case OP_LWU: case OP_FLW:
            SPEND_BEFORE
            if (!NAME(load)(e, w, asid, in, 2)) {
                goto out;
            }
            goto audit;
        case OP_LD: case OP_FLD:
            SPEND_BEFORE
            if (!NAME(load)(e, w, asid, in, 3)) {
                goto out;
            }
            goto audit;
        case OP_SB: case OP_SH:
            SPEND_BEFORE
            if (!hg_warp_access(e, asid, w, in)) {
                goto out;
            }
            goto audit;
        case OP_SW: case OP_FSW:
            SPEND_BEFORE
            if (!NAME(store)(e, w, asid, in, 2)) {
                goto out;
            }
            goto audit;
        case OP_SD: case OP_FSD:
            SPEND_BEFORE
            if (!NAME(store)(e, w, asid, in, 3)) {
                goto out;
            }
        audit:
            hg_point(e, HG_AT_DATA);
            hg_look(e, PC, warp);
            if (stepped) {
                in++;
                unspent = --left;
                hg_spend(e, HG_AT_SAFE, 1);
                if (!left || hg_attn(e) || e->steps < left) {
                    goto out;
                }
                continue;
            }
            break;
        case OP_FP:
#if VEC_FP
            if (settled && ((in->raw >> 12 & 7) == HG_RNE || (in->raw >> 12 & 7) == 7) &&
                NAME(fast_fp)(w, in)) {
                break;
            }
#endif
            if (hg_rvf_run(e, w, in, UINT32_MAX) >= 0) {
                goto out;       /* done again for the error, which ends the launch */
            }
#if VEC_FP
            settled = e->fp_ok && NAME(settled)(w->fcsr);
#endif
            break;
        case OP_BEQ:
            taken = NAME(is_eq)(w->x[in->rs1], w->x[in->rs2]);
            goto branch;
        case OP_BNE:
            taken = ~NAME(is_eq)(w->x[in->rs1], w->x[in->rs2]);
            goto branch;
        case OP_BLT:
            taken = NAME(is_lt)(w->x[in->rs1], w->x[in->rs2]);
            goto branch;
        case OP_BGE:
            taken = ~NAME(is_lt)(w->x[in->rs1], w->x[in->rs2]);
            goto branch;
        case OP_BLTU:
            taken = NAME(is_ltu)(w->x[in->rs1], w->x[in->rs2]);
            goto branch;
        case OP_BGEU:
            taken = ~NAME(is_ltu)(w->x[in->rs1], w->x[in->rs2]);
        branch:
            if (!taken) {
                break;
            }
            if (taken != UINT32_MAX) {
                goto out;
            }
            goto jump;
        case OP_JAL:
            taken = 0;
        jump: {
            /* jumps to nowhere and out of the page are rv.c's */
            int64_t to = (in - code->insn) + (in->imm >> 2);
            if (in->imm & 3 || to < 0 || to >= HG_PAGE_INSNS) {
                goto out;
            }
            if (!taken) {
                NAME(put)(w->x[in->rd], PC + 4);
            }
            in = &code->insn[to];
            goto next;
        }
        default:                /* also OP_NONE: not decoded, or the end of the page */
            goto out;
        }
        in++;
    next:
        if (!--left || hg_attn(e)) {
            break;
        }
    }
out:
    if (stepped && unspent != left) {   /* a safe point comes after an instruction only */
        hg_spend(e, HG_AT_SAFE, unspent - left);
    }
    *pc_ = PC;
    return most - left;
#undef PC
#undef IMM
#undef SPEND_BEFORE
}

static TARGET uint32_t NAME(run)(HgEngine *e, HgWarp *w, unsigned asid, unsigned warp,
                                 const HgIcPage *code, uint64_t *pc, uint32_t most)
{
    return NAME(run_any)(e, w, asid, warp, code, pc, most, false);
}

static TARGET uint32_t NAME(run_stepped)(HgEngine *e, HgWarp *w, unsigned asid, unsigned warp,
                                         const HgIcPage *code, uint64_t *pc, uint32_t most)
{
    return NAME(run_any)(e, w, asid, warp, code, pc, most, true);
}

#undef V
#undef VN
#undef V_OF
#undef ONE_V
#undef EACH_V4
#undef EACH_V
