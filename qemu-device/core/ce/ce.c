/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Copy engines.  A job is a list of segments, done in pieces that stay inside
 * one page of source and destination; a piece is one access, between two
 * pieces is a safe point.  A piece whose page is missing stalls the job and
 * the engine goes on with another context's.  Overlapping source and
 * destination give what ascending pieces give.
 */
#include "device.h"
#include "ce/ce.h"
#include "access/access.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/slice.h"
#include "base/step.h"
#include "base/trace.h"
#include "fault/fault.h"
#include "fault/replay.h"
#include "mem/data_cache.h"
#include "mem/mem.h"
#include "mmu/inval.h"
#include "timer/irq.h"

static unsigned src_space(const HgSeg *s)
{
    return (s->flags >> HG_COPY_SRC_SHIFT) & 3;
}

static unsigned dst_space(const HgSeg *s)
{
    return (s->flags >> HG_COPY_DST_SHIFT) & 3;
}

bool hg_span_ok(HgDev *d, HgCtx *c, unsigned space, uint64_t addr, uint64_t bytes)
{
    switch (space) {
    case HG_SPACE_VIRT:
        return addr + bytes >= addr;
    case HG_SPACE_VRAM:
        return c->priv && bytes <= d->cfg.vram_size && addr <= d->cfg.vram_size - bytes;
    case HG_SPACE_SYS:
        return c->priv && addr + bytes >= addr;
    default:
        return false;
    }
}

bool hg_copy_check(HgDev *d, HgCtx *c, const HgSeg *s)
{
    uint64_t known = 3u << HG_COPY_SRC_SHIFT | 3u << HG_COPY_DST_SHIFT | HG_COPY_FILL;

    if (s->bytes > HG_COPY_MAX_BYTES || (s->flags & ~known) ||
        !hg_span_ok(d, c, dst_space(s), s->dst, s->bytes)) {
        return false;
    }
    if (s->flags & HG_COPY_FILL) {
        return src_space(s) == 0 && !(s->bytes & 7) && !(s->dst & 7);
    }
    return hg_span_ok(d, c, src_space(s), s->src, s->bytes);
}

bool hg_seg_alloc(HgCtx *c)
{
    if (!c->copy.seg) {
        c->copy.seg = calloc(HG_COPY_LIST_MAX, sizeof(HgSeg));
    }
    return c->copy.seg != NULL;
}

static bool eligible(const HgEngine *e, const HgCtx *c)
{
    return c->enabled && !c->aborting && c->rs == HG_RS_COPY && c->copy.state == HG_CP_RUN &&
           !c->copy.busy && c->priv == (e->num == 0);
}

bool hg_ce_has_work(HgEngine *e)
{
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        if (eligible(e, &e->d->ctx[i])) {
            return true;
        }
    }
    return false;
}

HgCtx *hg_ce_pick(HgEngine *e)
{
    for (unsigned i = 1; i <= HG_NUM_CTXS; i++) {
        HgCtx *c = &e->d->ctx[(e->rr + i) % HG_NUM_CTXS];
        if (eligible(e, c)) {
            e->rr = c->id;
            return c;
        }
    }
    return NULL;
}

/* c->res is set; the ring reports it. */
void hg_copy_end(HgDev *d, HgCtx *c)
{
    HgCopy *k = &c->copy;

    if (k->state == HG_CP_STALL) {
        hg_pend_drop(&d->eng[d->nsm + k->eng], k->fault, k->nfault);
    }
    hg_replay_answer(d, &k->owed);
    HG_HOOK(d, copy_end, d, c);
    k->nfault = 0;
    k->replayed = k->waits = false;
    k->state = HG_CP_NONE;
    c->rs = HG_RS_REPORT;
    hg_trace(d, HG_EV_COPY_DONE, c->id, c->res.err, 0, 0);
    hg_kick_fe(d);
}

void hg_copy_faulted(HgDev *d, HgCtx *c, uint32_t how)
{
    HgCopy *k = &c->copy;

    if (c->rs != HG_RS_COPY || k->state != HG_CP_STALL || !k->waits || c->aborting) {
        return;                 /* over, or a cancel was first */
    }
    if (how == HG_FAULTED_GIVE_UP) {
        c->res = (HgResult) { .err = HG_ERR_FAULT, .reason = k->fault[0].reason,
                              .addr = k->fault[0].va };
        hg_copy_end(d, c);
        return;
    }
    k->nfault = 0;
    k->waits = false;
    k->state = HG_CP_RUN;
    hg_kick_ces(d);
}

/* One end of a piece: a direct pointer, or an address for the bus. */
typedef struct End {
    uint8_t *host;
    void *opaque;
    uint64_t addr;
    HgFrame *frame;             /* with a reference of its own */
    bool vram, ro;
} End;

/* False: f is set.  `space` VRAM was range-checked with the descriptor. */
static bool resolve(HgEngine *e, HgCtx *c, unsigned space, uint64_t addr, uint32_t n,
                    unsigned access, End *out, HgFault *f)
{
    HgDev *d = e->d;

    *out = (End) { .addr = addr };
    if (space == HG_SPACE_VRAM) {
        HG_HOOK(d, vram, e, c->asid, addr);
        out->host = d->vram + addr;
        out->vram = true;
    } else if (space == HG_SPACE_VIRT) {
        HgTlbEnt *t = hg_translate(e, c->asid, addr, access, f);
        if (!t) {
            f->lane = 0;
            return false;
        }
        uint32_t off = addr & HG_PAGE_MASK;
        out->addr = t->addr + off;
        out->vram = (t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM;
        out->opaque = t->opaque;
        out->ro = t->host_ro;
        out->host = t->host ? t->host + off : NULL;
        out->frame = t->frame;  /* the other end's translation may evict the entry */
        hg_frame_hold(out->frame);
    } else if (hg_direct_sys(d)) {
        const HgRam *r = hg_ram_find(d, addr, n);
        if (r) {
            out->host = r->ptr + (addr - r->base);
            out->opaque = r->opaque;
            out->ro = r->ro;
        }
    }
    return true;
}

static bool end_read(HgEngine *e, const End *s, void *buf, uint32_t n)
{
    if (s->host) {
        hg_copy_in(buf, s->host, n);
        return true;
    }
    return hg_bus_read(e, s->addr, buf, n) == 0;
}

/* By its pointer. */
static void end_written(HgDev *d, const End *t, uint32_t n)
{
    if (t->frame) {
        hg_frame_written(t->frame, t->addr & HG_PAGE_MASK, n);
    } else if (t->vram) {
        if (d->ops.vram_written) {
            d->ops.vram_written(d->host, t->addr, n);
        }
    } else if (d->ops.ram_written) {
        d->ops.ram_written(d->host, t->opaque, t->host, t->addr, n);
    }
}

static bool end_write(HgEngine *e, const End *t, const void *buf, uint32_t n)
{
    if (!t->host) {
        return hg_bus_write(e, t->addr, buf, n) == 0;
    }
    if (t->ro) {
        return false;
    }
    hg_copy_out(t->host, buf, n);
    end_written(e->d, t, n);
    return true;
}

static uint32_t piece_len(uint64_t addr, uint64_t left)
{
    uint64_t in_page = HG_PAGE_SIZE - (addr & HG_PAGE_MASK);

    return left < in_page ? left : in_page;
}

typedef enum { PIECE_OK, PIECE_STALL, PIECE_ERROR } Piece;

static Piece one_piece(HgEngine *e, HgCtx *c)
{
    HgCopy *k = &c->copy;
    const HgSeg *s = &k->seg[k->idx];
    uint64_t left = s->bytes - k->off, dst = s->dst + k->off, src = s->src + k->off;
    bool fill = s->flags & HG_COPY_FILL;
    uint32_t n = piece_len(dst, left);
    End a = { 0 }, b;
    bool bad;

    if (!fill) {
        n = piece_len(src, n);
    }
    if (k->fail_at != UINT64_MAX) {
        if (k->done >= k->fail_at) {
            k->fault[0].va = dst;
            return PIECE_ERROR;
        }
        uint64_t room = k->fail_at - k->done;
        n = n < room ? n : (uint32_t)room;
    }
    k->nfault = 0;
    if (!fill &&
        !resolve(e, c, src_space(s), src, n, HG_ACCESS_READ, &a, &k->fault[k->nfault])) {
        k->nfault++;
    }
    if (!resolve(e, c, dst_space(s), dst, n, HG_ACCESS_WRITE, &b, &k->fault[k->nfault])) {
        k->nfault++;
    }
    if (k->nfault) {
        hg_frame_put(a.frame);
        hg_frame_put(b.frame);
        return PIECE_STALL;
    }
    hg_point(e, HG_AT_HELD);
    if (fill) {
        for (uint32_t i = 0; i < n; i += 8) {
            memcpy(e->bounce + i, &s->src, n - i < 8 ? n - i : 8);
        }
        bad = !end_write(e, &b, e->bounce, n);
        k->fault[0].va = dst;
    } else if (a.host && b.host && !b.ro) {
        hg_copy_shared(b.host, a.host, n);
        end_written(e->d, &b, n);
        bad = false;
    } else {
        bad = !end_read(e, &a, e->bounce, n);
        k->fault[0].va = src;
        if (!bad) {
            bad = !end_write(e, &b, e->bounce, n);
            k->fault[0].va = dst;
        }
    }
    hg_frame_put(a.frame);
    hg_frame_put(b.frame);
    if (bad) {
        return PIECE_ERROR;
    }
    if (!fill) {
        hg_cnt(e, a.vram ? HG_CNT_READ_VRAM : HG_CNT_READ_SYS, n);
    }
    hg_cnt(e, b.vram ? HG_CNT_WRITE_VRAM : HG_CNT_WRITE_SYS, n);
    hg_cnt(e, HG_CNT_COPIES, 1);
    hg_cnt(e, HG_CNT_COPY_BYTES, n);
    k->off += n;
    k->done += n;
    return PIECE_OK;
}

/* The piece missed.  Lock not held. */
static void stalled(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    HgFaultBatch batch;
    HgResult r;

    hg_lock(d);
    if (hg_fault_copy(e, c, &batch, &r) == HG_FAULT_ENDS) {
        c->res = r;
        hg_copy_end(d, c);
        hg_raise(d, HG_VEC_ERROR);
    }
    hg_fault_write(e, &batch);
    hg_unlock(d);
}

bool hg_ce_slice(HgEngine *e, HgCtx *c, uint32_t budget)
{
    HgDev *d = e->d;
    HgCopy *k = &c->copy;
    uint32_t left = budget;

    hg_slice_enter(e);
    k->busy = true;
    for (;;) {
        if (hg_attn(e)) {
            hg_serve(e);
        }
        if (!hg_may_run(d) || c->aborting || k->state != HG_CP_RUN || !left) {
            break;
        }
        while (k->idx < k->nseg && k->off == k->seg[k->idx].bytes) {
            k->idx++;
            k->off = 0;
            hg_visit(d, 1, 0);
        }
        if (k->idx == k->nseg) {
            c->res = (HgResult) { 0 };
            hg_copy_end(d, c);
            break;
        }
        hg_unlock(d);
        Piece p = PIECE_OK;
        while (left && !hg_attn(e) && p == PIECE_OK && k->idx < k->nseg) {
            if (k->off == k->seg[k->idx].bytes) {
                k->idx++;
                k->off = 0;
                continue;
            }
            p = one_piece(e, c);
            hg_point(e, HG_AT_DATA);
            hg_look(e, 0, 0);
            left--;
            hg_point(e, HG_AT_SAFE);
            if (p != PIECE_STALL && k->replayed) {
                hg_lock(d);
                k->replayed = false;
                hg_replay_answer(d, &k->owed);
                hg_unlock(d);
            }
        }
        if (p == PIECE_STALL) {
            stalled(e, c);
        }
        hg_lock(d);
        if (p == PIECE_ERROR && k->state == HG_CP_RUN && !c->aborting) {
            c->res = (HgResult) { .err = HG_ERR_FAULT, .reason = HG_REASON_POISON,
                                  .addr = k->fault[0].va };
            hg_copy_end(d, c);
            hg_raise(d, HG_VEC_ERROR);
        }
    }
    k->busy = false;
    hg_serve(e);
    hg_slice_leave(e);
    return c->rs == HG_RS_REPORT;
}
