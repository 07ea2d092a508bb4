/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Save and load.
 *
 * One function a structure walks its fields in both directions, so that the
 * two cannot disagree.  What can be computed from the rest (masks, reference
 * counts, gauges) is not stored but rebuilt, so a hostile string cannot make
 * it inconsistent; everything else is checked after loading, before any engine
 * can see it.  Only while all engines are parked: then no slice, no abort, no
 * posted request and no lock-free writer is under way.
 *
 * Not part of the state: VRAM, the RAM map and bus mastering (the host has
 * them), host pointers in TLBs.  Observers save what they want to (HgObserver.save).
 */
#include "device.h"
#include "state/state.h"
#include "access/decode.h"
#include "base/lock.h"
#include "base/pause.h"
#include "ce/ce.h"
#include "fault/fault.h"
#include "front/reset.h"
#include "mmu/tlb.h"
#include "mmu/walk_cache.h"
#include "ring/ring.h"
#include "simt/sm.h"
#include "state/archive.h"

#define STATE_MAGIC   0x54535f55504747ull   /* "GGPU_ST" */
#define HG_OBSERVED_MAX (64u << 10)
#define STATE_VERSION 18

static bool pow2(uint32_t v)
{
    return v && !(v & (v - 1));
}

/* In no section, so that what is older or newer can say so. */
static void io_format(HgArchive *a)
{
    uint64_t magic = STATE_MAGIC, version = STATE_VERSION;

    IO(magic);
    CHECK(magic == STATE_MAGIC, "magic: this is no state of hmm-gpu");
    IO(version);
    if (a->load && !a->bad && version != STATE_VERSION) {
        hg_ar_fail(a, "device state: version is %llu, this device has %u",
                   (unsigned long long)version, STATE_VERSION);
    }
}

static void io_config(HgArchive *a, HgDev *d)
{
    const struct {
        const char *what;
        uint64_t value;
    } want[] = {
        { "number of SMs", d->cfg.sms },
        { "number of warps", d->cfg.warps },
        { "number of copy engines", d->cfg.ces },
        { "micro-TLB size", d->cfg.utlb_entries },
        { "number of micro-TLB misses", d->cfg.utlb_misses },
        { "SMs of a miss table", d->cfg.sms_per_utlb },
        { "L2 TLB size", d->cfg.l2tlb_entries },
        { "walk cache size", d->cfg.walk_entries },
        { "data cache size", d->cfg.data_pages },
        { "prefetch faults", d->cfg.prefetch_faults },
        { "64 KiB pages", d->cfg.big_pages },
        { "faults of copy engines", d->cfg.ce_faults },
        { "VRAM size", d->cfg.vram_size },
        { "BAR 2 size", d->cfg.bar2_size },
        { "coherence", d->cfg.coherent },
        { "number of address spaces", d->cfg.asids },
        { "number of contexts", d->cfg.ctxs },
        { "loss of VRAM by a reset", d->cfg.reset_loses_vram },
    };

    for (unsigned i = 0; i < sizeof(want) / sizeof(*want); i++) {
        uint64_t v = want[i].value;
        IO(v);
        if (a->load && v != want[i].value) {
            hg_ar_fail(a, "device state: %s is %llu, this device has %llu", want[i].what,
                       (unsigned long long)v, (unsigned long long)want[i].value);
        }
    }
}

static void io_inval(HgArchive *a, HgInval *iv)
{
    IO(iv->first);
    IO(iv->last);
    IO(iv->asid);
    IO(iv->type);
    IOB(iv->membar);
    CHECK(iv->asid < HG_NUM_ASIDS && iv->type >= HG_INVAL_ALL && iv->type <= HG_INVAL_RANGE,
          "invalidation");
}

static bool order_ok(const HgDev *d, unsigned order)
{
    return order == 0 || order == HG_HUGE_ORDER || (order == HG_BIG_ORDER && d->cfg.big_pages);
}

static void io_tlb(HgArchive *a, HgDev *d, HgTlb *t, bool utlb)
{
    uint32_t total = t->sets * t->ways, n = 0;

    for (uint32_t i = 0; i < total; i++) {
        n += t->ent[i].valid;
    }
    hg_ar_io(a, t->next, t->sets);
    for (uint32_t i = 0; i < t->sets; i++) {
        CHECK(t->next[i] < t->ways, "TLB victim");
    }
    IO(n);
    CHECK(n <= total, "number of TLB entries");
    for (uint32_t i = 0, k = 0; k < n && !a->bad; k++, i++) {
        if (!a->load) {
            while (!t->ent[i].valid) {
                i++;
            }
        }
        uint32_t at = i;
        IO(at);
        if (a->bad || at >= total) {
            hg_ar_fail(a, "device state: bad TLB index");
            return;
        }
        HgTlbEnt *e = &t->ent[at];
        IO(e->vpn);
        IO(e->pte);
        IO(e->addr);
        IO(e->asid);
        IO(e->order);
        e->valid = true;
        if (a->load) {
            uint64_t aper = e->pte & HG_PTE_APER_MASK;
            e->host = NULL;
            if (e->asid >= HG_NUM_ASIDS || !order_ok(d, e->order) ||
                e->vpn >> (HG_VA_BITS - HG_PAGE_SHIFT) ||
                (e->addr & ~HG_PTE_FRAME_MASK) || (e->vpn & (t->sets - 1)) != at / t->ways ||
                (aper != HG_PTE_APER_VRAM && aper != HG_PTE_APER_SYS) ||
                (utlb && aper == HG_PTE_APER_VRAM &&
                 e->addr > d->cfg.vram_size - HG_PAGE_SIZE)) {
                hg_ar_fail(a, "device state: bad TLB entry");
                return;
            }
        }
    }
}

static void io_walks(HgArchive *a, HgWalkCache *w)
{
    uint32_t total = w->sets * w->ways;

    hg_ar_io(a, w->next, w->sets);
    for (uint32_t i = 0; i < w->sets; i++) {
        CHECK(w->next[i] < w->ways, "walk cache victim");
    }
    for (uint32_t i = 0; i < total && !a->bad; i++) {
        HgWalkEnt *x = &w->ent[i];

        IOB(x->valid);
        if (!x->valid) {
            continue;
        }
        IO(x->span);
        IO(x->table);
        IO(x->asid);
        IO(x->level);
        CHECK(x->level < HG_PT_LEVELS - 1 && x->asid < HG_NUM_ASIDS &&
              x->span >> (HG_VA_BITS - HG_PAGE_SHIFT - 9 * (x->level + 1)) == 0 &&
              !(x->table & ~(uint64_t)(HG_PTE_FRAME_MASK | HG_ROOT_VRAM)) &&
              hg_walk_cache_set(w, x->span, x->level) == i / w->ways, "walk cache");
    }
}

/* Two of one address: the second is not found, as long as the first is there. */
static void io_data(HgArchive *a, HgDev *d)
{
    HgDataCache *c = &d->data;

    IO(c->next);
    CHECK(c->next < c->n || !c->next, "data cache victim");
    for (unsigned i = 0; i < c->n && !a->bad; i++) {
        HgFrame *f = &c->frame[i];
        uint64_t dirty = atomic_load_explicit(&f->dirty, memory_order_relaxed);

        IOB(f->valid);
        if (!f->valid) {
            continue;
        }
        IO(f->addr);
        IO(dirty);
        CHECK(!(f->addr & HG_PAGE_MASK) && f->addr <= d->cfg.vram_size - HG_PAGE_SIZE,
              "data cache");
        hg_ar_io(a, f->data, HG_PAGE_SIZE);
        atomic_store_explicit(&f->dirty, a->bad ? 0 : dirty, memory_order_relaxed);
    }
}

static void io_posted(HgArchive *a, HgDev *d, HgPosted *q)
{
    uint8_t ctx = q->ctx ? q->ctx->id : 0xff;
    uint32_t bytes = 0;

    IO(ctx);
    IO(q->due);
    IO(q->n);
    CHECK((ctx == 0xff ? !q->n : ctx < HG_NUM_CTXS) && q->n <= HG_POSTED_RUNS, "posted writes");
    for (uint32_t i = 0; i < q->n && !a->bad; i++) {
        uint64_t addr = q->run[i].addr;
        uint32_t len = q->run[i].len;

        IO(addr);
        IO(len);
        CHECK(len && len <= HG_PAGE_SIZE - (addr & HG_PAGE_MASK) && len <= HG_POSTED_BYTES - bytes,
              "posted writes");
        q->run[i].addr = addr;
        q->run[i].len = len;
        bytes += len;
    }
    if (a->bad) {
        q->n = q->bytes = 0;
        return;
    }
    q->ctx = ctx < HG_NUM_CTXS ? &d->ctx[ctx] : NULL;
    q->bytes = bytes;
    hg_ar_io(a, q->data, bytes);
}

static void io_icache(HgArchive *a, HgEngine *e)
{
    for (unsigned i = 0; i < HG_IC_PAGES && !a->bad; i++) {
        HgIcPage *p = &e->ic[i];
        IOB(p->valid);
        if (!p->valid) {
            continue;
        }
        IO(p->vpn);
        IO(p->asid);
        IO(p->order);
        CHECK(p->asid < HG_NUM_ASIDS && p->vpn >> (HG_VA_BITS - HG_PAGE_SHIFT) == 0 &&
              order_ok(e->d, p->order) &&
              ((p->vpn ^ p->asid) & (HG_IC_PAGES - 1)) == i, "instruction cache");
        for (unsigned w = 0; w < HG_PAGE_INSNS / 32; w++) {
            uint32_t there = 0;
            for (unsigned b = 0; b < 32; b++) {
                there |= (uint32_t)(p->insn[w * 32 + b].op != 0) << b;
            }
            IO(there);
            for (unsigned b = 0; b < 32; b++) {
                HgInsn *in = &p->insn[w * 32 + b];
                uint32_t raw = in->raw;
                if (!(there >> b & 1)) {
                    in->op = 0;
                    continue;
                }
                IO(raw);
                if (a->load) {
                    hg_rv_decode(in, raw);
                }
            }
        }
    }
}

static void io_engine(HgArchive *a, HgDev *d, HgEngine *e)
{
    uint8_t cur = e->cur ? e->cur->id : 0xff;

    IO(cur);
    CHECK(cur == 0xff || cur < HG_NUM_CTXS, "scheduled context");
    if (a->load) {
        e->cur = cur < HG_NUM_CTXS ? &d->ctx[cur] : NULL;
    }
    IO(e->slice_end);
    IO(e->rr);
    CHECK(e->rr < HG_NUM_CTXS, "round robin");
    IO(e->cycles);
    for (unsigned n = 0; n < HG_NUM_COUNTERS; n++) {
        uint64_t v = atomic_load_explicit(&e->cnt[n], memory_order_relaxed);
        IO(v);
        atomic_store_explicit(&e->cnt[n], v, memory_order_relaxed);
    }
    if (e->kind == HG_ENG_FE || a->bad) {
        return;
    }
    io_tlb(a, d, &e->utlb, true);
    for (unsigned i = 0; e->pend && i < d->cfg.utlb_misses && !a->bad; i++) {
        HgPend *p = &e->pend[i];
        bool used = p->refs != 0;
        IOB(used);
        if (used) {
            IO(p->vpn);
            IO(p->asid);
            IO(p->access);
            IOB(p->hint);
            CHECK(p->access <= HG_ACCESS_PREFETCH && p->asid < HG_NUM_ASIDS &&
                  (!p->hint || e->kind == HG_ENG_SM), "miss table");
        }
        if (a->load) {
            p->hint &= used && !a->bad;
            p->refs = p->hint;  /* the others are counted again from the stalled accesses */
            e->npend += p->hint;
        }
    }
    if (e->kind == HG_ENG_SM) {
        io_icache(a, e);
    }
    if (e->posted) {
        io_posted(a, d, e->posted);
    }
}

/* A stalled access takes its reference again. */
static void io_fault(HgArchive *a, HgDev *d, HgEngine *e, unsigned asid, HgFault *f)
{
    IO(f->va);
    IO(f->access);
    IO(f->reason);
    IO(f->level);
    IO(f->lane);
    IO(f->pend);
    IOB(f->ahead);
    CHECK(f->access <= HG_ACCESS_PREFETCH && f->reason <= HG_REASON_POISON &&
          f->level < HG_PT_LEVELS && f->lane < HG_LANES && f->va >> HG_VA_BITS == 0,
          "stalled access");
    if (a->load && !a->bad && f->pend != HG_NO_PEND) {
        HgPend *p = f->pend < d->cfg.utlb_misses ? &e->misses->pend[f->pend] : NULL;
        if (!p || p->vpn != f->va >> HG_PAGE_SHIFT || p->asid != asid || p->refs == UINT16_MAX) {
            hg_ar_fail(a, "device state: stalled access without its miss");
            f->pend = HG_NO_PEND;
            return;
        }
        e->misses->npend += p->refs == 0;
        p->refs++;
    }
}

static void io_result(HgArchive *a, HgResult *r)
{
    IO(r->err);
    IO(r->reason);
    IO(r->addr);
    IO(r->pc);
    IO(r->block);
    IO(r->thread);
    IO(r->instrs);
    IOB(r->die);
}

/* Lanes that re-execute one instruction together: same pc, able to run. */
static bool one_insn(const HgWarp *w, uint32_t mask)
{
    if (mask & ~hg_warp_active(w)) {
        return false;
    }
    for (uint32_t m = mask; m; m &= m - 1) {
        if (w->pc[__builtin_ctz(m)] != w->pc[__builtin_ctz(mask)]) {
            return false;
        }
    }
    return true;
}

static void io_warp(HgArchive *a, HgDev *d, HgCtx *c, unsigned s, unsigned k)
{
    HgCtxSm *cs = &c->sm[s];
    HgWarp *w = &cs->warps[k];
    HgBlock *blk;
    uint32_t first, lanes;

    IO(w->state);
    CHECK(w->state <= HG_W_STALL, "warp state");
    if (a->bad || w->state == HG_W_FREE) {
        w->state = HG_W_FREE;
        return;
    }
    hg_ar_io(a, w->x, sizeof(uint64_t) * 32 * HG_LANES);
    IO(w->f);
    IO(w->fcsr);                /* any: a rounding mode that does not exist traps when used */
    IO(w->pc);
    IO(w->icount);
    IO(w->jump_pc);
    IO(w->jump_to);
    IO(w->res_addr);
    IO(w->res_val);
    IO(w->res_size);
    IO(w->live);
    IO(w->barrier);
    IO(w->wsync);
    IO(w->replay);
    IO(w->starve);
    IO(w->owed);
    IO(w->block);
    IO(w->index);
    IO(w->stall_mask);
    IO(w->nfault);
    if (a->load && (w->block >= d->cfg.warps || w->nfault > HG_STALL_MAX)) {
        hg_ar_fail(a, "device state: bad warp");
    }
    if (a->bad) {
        w->state = HG_W_FREE;
        return;
    }
    if (a->load) {
        memset(w->x[0], 0, sizeof(w->x[0]));
        blk = &cs->blocks[w->block];
        first = w->index * HG_LANES;
        lanes = blk->threads > first ? blk->threads - first : 0;
        lanes = lanes >= 32 ? UINT32_MAX : (1u << lanes) - 1;
        if (!blk->threads || (w->live & ~lanes) || (w->barrier & ~w->live) ||
            (w->wsync & ~(w->live & ~w->barrier)) ||
            !one_insn(w, w->replay) || !one_insn(w, w->stall_mask) ||
            (w->state == HG_W_STALL) != (w->nfault != 0) ||
            (w->state == HG_W_STALL) != (w->stall_mask != 0)) {
            hg_ar_fail(a, "device state: bad warp");
            w->state = HG_W_FREE;
            return;
        }
        for (unsigned l = 0; l < HG_LANES; l++) {
            CHECK(w->res_size[l] == 0 || w->res_size[l] == 4 || w->res_size[l] == 8,
                  "reservation");
        }
        blk->warps_left++;
        blk->warp_mask |= 1u << k;
        blk->live += __builtin_popcount(w->live);
        blk->arrived += __builtin_popcount(w->barrier);
        cs->free_mask &= ~(1u << k);
        d->stalled_warps += w->state == HG_W_STALL;
    }
    for (unsigned i = 0; i < w->nfault; i++) {
        io_fault(a, d, &d->eng[s], c->asid, &w->fault[i]);
        CHECK(i || !w->fault[i].ahead, "stalled access");
    }
}

static void io_launch(HgArchive *a, HgDev *d, HgCtx *c)
{
    uint32_t active = 0;

    IO(c->next_block);
    IO(c->blocks_done);
    CHECK(hg_launch_ok(d, c) && c->enabled, "launch");
    for (unsigned s = 0; s < d->nsm && !a->bad; s++) {
        HgCtxSm *cs = &c->sm[s];
        uint32_t run = atomic_load_explicit(&cs->run_mask, memory_order_relaxed), must = 0;

        IO(run);
        IO(cs->last);
        CHECK(cs->last < HG_MAX_WARPS, "last warp");
        IO(cs->instrs);
        for (unsigned b = 0; b < d->cfg.warps && !a->bad; b++) {
            HgBlock *blk = &cs->blocks[b];
            bool used = blk->warps_left != 0;
            IOB(used);
            if (used) {
                IO(blk->bid);
                CHECK(blk->bid < (uint32_t)c->desc[3], "block");
                blk->threads = c->desc[3] >> 32;
                active++;
                CHECK(b < hg_block_slots(d, c), "block");
                if (b < hg_block_slots(d, c)) {
                    hg_ar_io(a, cs->shared + b * hg_shared_step(c), hg_shared_bytes(c));
                }
            } else if (a->load) {
                memset(blk, 0, sizeof(*blk));
            }
            if (a->load) {
                blk->warps_left = 0;
                blk->warp_mask = blk->live = blk->arrived = 0;
            }
        }
        for (unsigned k = 0; k < d->cfg.warps && !a->bad; k++) {
            io_warp(a, d, c, s, k);
            HgWarp *w = &cs->warps[k];
            if (w->state != HG_W_ACTIVE) {
                run &= ~(1u << k);
            } else if ((w->live & ~w->barrier) || !w->live) {
                must |= 1u << k;
            }
        }
        if (a->load) {
            if (d->cfg.warps < 32) {
                run &= (1u << d->cfg.warps) - 1;
            }
            atomic_store_explicit(&cs->run_mask, run | must, memory_order_relaxed);
            for (unsigned b = 0; b < d->cfg.warps; b++) {
                HgBlock *blk = &cs->blocks[b];
                CHECK(!blk->threads == !blk->warps_left, "block without warps");
                /* two warps with one index would be the same threads twice */
                uint32_t seen = 0;
                for (uint32_t m = blk->warp_mask; m; m &= m - 1) {
                    uint32_t bit = 1u << (cs->warps[__builtin_ctz(m)].index & 31);
                    CHECK(!(seen & bit), "warp index");
                    seen |= bit;
                }
            }
        }
    }
    CHECK(c->next_block >= c->blocks_done && c->next_block <= (uint32_t)c->desc[3] &&
          c->next_block - c->blocks_done == active && c->blocks_done < (uint32_t)c->desc[3],
          "block count");
}

static void io_copy(HgArchive *a, HgDev *d, HgCtx *c)
{
    HgCopy *k = &c->copy;

    IO(k->nseg);
    IO(k->idx);
    IO(k->off);
    IO(k->done);
    IO(k->fail_at);
    IO(k->state);
    IO(k->eng);
    IO(k->nfault);
    IO(k->owed);
    IOB(k->replayed);
    IOB(k->waits);
    CHECK(k->nseg && k->nseg <= HG_COPY_LIST_MAX && k->idx <= k->nseg && k->nfault <= 2 &&
          k->eng < d->nce &&
          (k->state == HG_CP_RUN || (k->state == HG_CP_STALL && c->rs == HG_RS_COPY)) &&
          (k->state == HG_CP_STALL || (!k->nfault && !k->waits)) &&
          (!k->waits || (c->stall && k->nfault && !k->owed)), "copy");
    if (a->load && !a->bad && !hg_seg_alloc(c)) {
        hg_ar_fail(a, "out of memory");
    }
    if (a->bad) {
        k->state = HG_CP_NONE;
        k->nfault = 0;
        return;
    }
    hg_visit(d, k->nseg, 0);
    for (uint32_t i = 0; i < k->nseg && !a->bad; i++) {
        IO(k->seg[i]);
        CHECK(hg_copy_check(d, c, &k->seg[i]), "copy segment");
    }
    CHECK(k->idx == k->nseg || k->off <= k->seg[k->idx].bytes, "copy offset");
    for (unsigned i = 0; i < k->nfault; i++) {
        io_fault(a, d, &d->eng[d->nsm + k->eng], c->asid, &k->fault[i]);
        /* who waits for an answer has given its miss back with the entry */
        CHECK(!k->waits || k->fault[i].pend == HG_NO_PEND, "copy");
    }
}

static void io_ctx(HgArchive *a, HgDev *d, HgCtx *c)
{
    IO(c->ring_base);
    IO(c->ring_base_lo);
    IO(c->sync);
    IO(c->sync_lo);
    IO(c->ring_size);
    IO(c->asid);
    IO(c->timeslice);
    IOB(c->enabled);
    IOB(c->priv);
    IOB(c->stall);
    IOB(c->halted);
    IO(c->get);
    IO(c->put);
    IO(c->error);
    IO(c->error_addr);
    IO(c->rs);
    CHECK(c->asid < HG_NUM_ASIDS && c->rs < HG_RS_COUNT &&
          (!c->ring_size || (pow2(c->ring_size) && c->ring_size >= 2 && c->ring_size <= 4096)) &&
          (!c->enabled || (c->ring_size && c->get < c->ring_size && c->put < c->ring_size)) &&
          (c->enabled || c->rs == HG_RS_FETCH) && (!c->stall || d->cfg.ce_faults) &&
          hg_sync_ok(c->sync), "context");
    if (a->load && !a->bad && c->enabled && !hg_ctx_alloc(d, c)) {
        hg_ar_fail(a, "out of memory");
    }
    if (a->bad) {
        c->rs = HG_RS_FETCH;
        c->enabled = false;
        return;
    }
    if (c->rs == HG_RS_FETCH) {
        return;
    }
    IO(c->desc);
    IO(c->not_before);
    IO(c->wait_seq);
    IO(c->poll_at);
    IO(c->poll_gap);
    IO(c->job_start);
    io_result(a, &c->res);
    if (c->rs == HG_RS_LAUNCH) {
        io_launch(a, d, c);
    }
    /* a delayed copy is ready, but not started */
    bool copy = c->copy.state != HG_CP_NONE;
    IOB(copy);
    CHECK(copy ? c->rs == HG_RS_COPY || c->rs == HG_RS_DELAY : c->rs != HG_RS_COPY, "copy");
    if (copy && !a->bad) {
        io_copy(a, d, c);
    }
}

static void io_ring(HgArchive *a, HgRing *r)
{
    IO(r->base);
    IO(r->base_lo);
    IO(r->size);
    IO(r->get);
    IO(r->put);
    IOB(r->enabled);
    IOB(r->overflow);
    CHECK((!r->size || (pow2(r->size) && r->size >= 2 && r->size <= 65536)) &&
          (!r->enabled || r->size) && (!r->size ? !r->get && !r->put
                                       : r->get < r->size && r->put < r->size), "fault ring");
}

static void io_timer(HgArchive *a, HgDev *d, HgTimer *t)
{
    IO(t->due);
    IO(t->kind);
    IO(t->a);
    IO(t->b);
    IO(t->c);
    CHECK(t->kind >= HG_T_IRQ && t->kind < HG_T_COUNT, "timer");
    switch (t->kind) {
    case HG_T_IRQ:
        CHECK(t->a < HG_NUM_VECTORS && t->b <= 1, "timer");
        break;
    case HG_T_DOORBELL:
        CHECK(t->a < HG_NUM_CTXS, "timer");
        break;
    case HG_T_REPEAT:
        CHECK(hg_fault_repeat_ok(d, t), "timer");
        break;
    case HG_T_VALID:
        CHECK(t->a < 2, "timer");
        if (a->load && !a->bad) {
            d->ring[t->a].writers++;
        }
        break;
    }
}

static void io_device(HgArchive *a, HgDev *d)
{
    io_format(a);
    hg_section(a, "CONF");
    io_config(a, d);
    hg_section_end(a);
    hg_section(a, "REGS");
    IO(d->ctrl);
    IO(d->intr_status);
    IO(d->intr_enable);
    IO(d->scratch);
    CHECK(!(d->ctrl & ~(uint32_t)HG_CTRL_ENABLE) && !(d->intr_enable >> HG_NUM_VECTORS) &&
          !(d->intr_status >> HG_NUM_VECTORS), "control register");
    for (unsigned i = 0; i < HG_NUM_ASIDS; i++) {
        uint64_t root = atomic_load(&d->root[i]);
        uint32_t mode = atomic_load(&d->mode[i]);
        IO(root);
        IO(d->root_lo[i]);
        IO(mode);
        CHECK(mode == HG_ASID_MODE_REPLAY || mode == HG_ASID_MODE_FATAL, "address space mode");
        atomic_store(&d->root[i], root);
        atomic_store(&d->mode[i], a->bad ? HG_ASID_MODE_REPLAY : mode);
    }
    IO(d->inval_asid);
    IO(d->inval_start_lo);
    IO(d->inval_len_lo);
    IO(d->inval_start);
    IO(d->inval_len);
    IO(d->inval_seq);
    IO(d->inval_issued);
    IO(d->cancel_asid);
    IO(d->cancel_client);
    IO(d->cancel_addr_lo);
    IO(d->cancel_addr);
    IO(d->replay_seq);
    IO(d->replay_done);
    CHECK(d->inval_asid < HG_NUM_ASIDS && d->cancel_asid < HG_NUM_ASIDS &&
          d->inval_issued <= d->inval_seq && d->replay_done <= d->replay_seq, "register");
    if (a->load) {
        d->inval_done = d->inval_issued;    /* parked engines have served all */
    }
    IO(d->ninvq);
    CHECK(d->ninvq <= HG_INVAL_QUEUE, "invalidation queue");
    for (unsigned i = 0; i < d->ninvq && !a->bad; i++) {
        io_inval(a, &d->invq[i].iv);
        IO(d->invq[i].seq);
        IO(d->invq[i].due);
        CHECK(d->invq[i].seq > (i ? d->invq[i - 1].seq : d->inval_issued) &&
              d->invq[i].seq <= d->inval_seq, "invalidation queue");
    }
    IO(d->nrq);
    CHECK(d->nrq <= HG_REPLAY_QUEUE, "replay queue");
    for (unsigned i = 0; i < d->nrq && !a->bad; i++) {
        HgReplay *q = &d->rq[i];
        IO(q->key);
        IO(q->seq);
        IO(q->type);
        IOB(q->waiting);
        CHECK(q->key && q->seq > (i ? d->rq[i - 1].seq : d->replay_done) &&
              q->seq <= d->replay_seq &&
              (q->type == HG_REPLAY_START || q->type == HG_REPLAY_START_ACK_ALL),
              "replay queue");
        if (a->load) {
            q->owed = 0;        /* counted again below */
        }
    }
    hg_section_end(a);
    hg_section(a, "RING");
    io_ring(a, &d->ring[0]);
    io_ring(a, &d->ring[1]);
    IO(d->ntimer);
    CHECK(d->ntimer <= HG_TIMERS, "number of timers");
    for (unsigned i = 0; i < d->ntimer && !a->bad; i++) {
        io_timer(a, d, &d->timer[i]);
    }
    IO(d->rng);
    for (unsigned n = 0; n < HG_NUM_COUNTERS; n++) {
        IO(d->cnt[n]);
    }
    hg_section_end(a);
    hg_section(a, "L2TB");
    io_tlb(a, d, &d->l2, false);
    io_walks(a, &d->walks);
    hg_section_end(a);
    hg_section(a, "DATA");
    io_data(a, d);
    hg_section_end(a);
    hg_section(a, "ENGN");
    for (unsigned i = 0; i < d->neng && !a->bad; i++) {
        io_engine(a, d, &d->eng[i]);
    }
    hg_section_end(a);
    hg_section(a, "CTXS");
    for (unsigned i = 0; i < HG_NUM_CTXS && !a->bad; i++) {
        io_ctx(a, d, &d->ctx[i]);
    }
    hg_section_end(a);
    HG_HOOK(d, save, d, a);
}

/* What was loaded is in range; now what follows from it. */
static void settle(HgDev *d)
{
    for (unsigned i = 0; i < d->neng; i++) {
        HgEngine *e = &d->eng[i];
        e->inval_ack = d->inval_issued;
        for (unsigned k = 0; e->pend && k < d->cfg.utlb_misses; k++) {
            if (!e->pend[k].refs) {
                e->pend[k] = (HgPend) { 0 };
            }
        }
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        uint64_t *owed[HG_MAX_SMS * HG_MAX_WARPS + 1];
        unsigned n = 0;
        owed[n++] = &c->copy.owed;
        for (unsigned s = 0; c->rs == HG_RS_LAUNCH && s < d->nsm; s++) {
            for (unsigned k = 0; k < d->cfg.warps; k++) {
                if (c->sm[s].warps[k].state == HG_W_ACTIVE) {
                    owed[n++] = &c->sm[s].warps[k].owed;
                } else {
                    c->sm[s].warps[k].owed = 0;
                }
            }
        }
        for (unsigned k = 0; k < n; k++) {
            bool found = false;
            for (unsigned q = 0; *owed[k] && q < d->nrq; q++) {
                if (d->rq[q].key == *owed[k]) {
                    d->rq[q].owed++;
                    found = true;
                }
            }
            if (!found) {
                *owed[k] = 0;
            }
        }
    }
    HG_HOOK(d, loaded, d);
    hg_resolve_all(d);
}

/*
 * Every structure counted whole, every list full.  What observers save is little and
 * bounded by constants.
 */
size_t hg_save_max(HgDev *d)
{
    const HgConfig *c = &d->cfg;
    size_t engines = d->nsm + d->nce;
    size_t tlbs = (c->l2tlb_entries + engines * c->utlb_entries) * (sizeof(HgTlbEnt) + 1) +
                  c->walk_entries * (sizeof(HgWalkEnt) + 1) +
                  c->data_pages * (sizeof(HgBlock) + HG_PAGE_SIZE);
    size_t engine = sizeof(HgEngine) + c->utlb_misses * sizeof(HgPend) +
                    HG_IC_PAGES * sizeof(HgIcPage) + sizeof(HgPosted);
    size_t sm = sizeof(HgCtxSm) + HG_SHARED_MAX + c->warps * (sizeof(HgWarp) + sizeof(HgBlock));
    size_t context = sizeof(HgCtx) + HG_COPY_LIST_MAX * sizeof(HgSeg) + d->nsm * sm;

    return sizeof(HgDev) + tlbs + d->neng * engine + HG_NUM_CTXS * context + HG_OBSERVED_MAX;
}

size_t hg_save_size(HgDev *d)
{
    return hg_save(d, NULL, 0);
}

/* With len 0: the size (nothing is written). */
size_t hg_save(HgDev *d, void *buf, size_t len)
{
    HgArchive a = { .buf = buf, .len = len };

    hg_pause(d);
    hg_visit_state(d, len, hg_save_max(d));
    io_device(&a, d);
    hg_resume(d);
    return !len || a.at <= len ? a.at : 0;
}

int hg_load(HgDev *d, const void *buf, size_t len, char *err, size_t errlen)
{
    HgArchive a = {
        .buf = (uint8_t *)buf, .len = len, .end = len, .load = true, .err = err, .errlen = errlen,
    };

    hg_pause(d);
    hg_visit_state(d, len, hg_save_max(d));
    HG_HOOK(d, loading, d);
    hg_reset_locked(d);
    io_device(&a, d);
    if (!a.bad && a.at != len) {
        hg_ar_fail(&a, "device state: %zu bytes too many", len - a.at);
    }
    if (!a.bad) {
        settle(d);
    } else {
        HG_HOOK(d, load_failed, d);
        hg_reset_locked(d);
    }
    hg_resume(d);
    return a.bad ? -1 : 0;
}
