/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rings of contexts: descriptors in order, reports, fences, waits.
 *
 * Any engine may execute a ring (hg_ring_run): the front end when a doorbell
 * or a timer calls for it, an SM or copy engine right after it finished the
 * job that the ring waits for.  fe_busy makes it one at a time.
 */
#include "device.h"
#include "ring/ring.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/slice.h"
#include "base/step.h"
#include "base/time.h"
#include "base/trace.h"
#include "ce/ce.h"
#include "mem/data_cache.h"
#include "mem/mem.h"
#include "mem/posted.h"
#include "mmu/inval.h"
#include "ring/contexts.h"
#include "simt/sm.h"
#include "timer/irq.h"

#define POLL_MIN_NS 20000
#define POLL_MAX_NS 1000000
#define RING_BURST  256         /* descriptors before others have their turn */

bool hg_ring_ready(HgDev *d, HgCtx *c, uint64_t now)
{
    if (!c->enabled || c->aborting || c->halted || c->fe_busy) {
        return false;
    }
    switch (c->rs) {
    case HG_RS_FETCH:
        return c->get != c->put;
    case HG_RS_DELAY:
        return now >= c->not_before;
    case HG_RS_WAIT:
        return now >= c->poll_at;
    case HG_RS_INVAL:
        return d->inval_done >= c->wait_seq;
    case HG_RS_REPORT:
        return !c->copy.busy;
    default:
        return false;
    }
}

static void advance(HgCtx *c)
{
    c->get = (c->get + 1) & (c->ring_size - 1);
    c->rs = HG_RS_FETCH;
}

static void bad_desc(HgDev *d, HgCtx *c, uint64_t what)
{
    hg_ctx_halt(d, c, HG_ERR_DESC, what);
    c->rs = HG_RS_FETCH;
}

/* 64 bytes; DONE last.  Lock not held. */
static int write_report(HgEngine *e, uint64_t addr, const HgResult *r, uint64_t ns)
{
    uint8_t b[HG_REPORT_SIZE] = { 0 };
    uint64_t magic = HG_RPT_DONE_MAGIC, instrs = r->instrs;

    memcpy(b + HG_RPT_STATUS, &r->err, 4);
    memcpy(b + HG_RPT_REASON, &r->reason, 4);
    memcpy(b + HG_RPT_ADDR, &r->addr, 8);
    memcpy(b + HG_RPT_PC, &r->pc, 8);
    memcpy(b + HG_RPT_BLOCK, &r->block, 4);
    memcpy(b + HG_RPT_THREAD, &r->thread, 4);
    memcpy(b + HG_RPT_INSTRS, &instrs, 8);
    memcpy(b + HG_RPT_TIME, &ns, 8);
    if (hg_bus_write(e, addr, b, sizeof(b))) {
        return -1;
    }
    atomic_thread_fence(memory_order_release);
    return hg_bus_write(e, addr + HG_RPT_DONE, &magic, 8);
}

/* Injected delay of the descriptor just fetched, in ns; 0 = none. */
static uint64_t desc_delay(HgDev *d, HgCtx *c, unsigned op)
{
    uint64_t arg = 0;
    HgInjEvent ev;

    if (op == HG_OP_FENCE) {
        ev = HG_INJ_FENCE;
    } else if (op == HG_OP_LAUNCH) {
        ev = HG_INJ_LAUNCH;
    } else {
        return 0;
    }
    return hg_injected(d, ev, c->desc[1], &arg) == HG_ACT_DELAY ? arg : 0;
}

static bool report_ok(const HgCtx *c)
{
    return !(c->desc[7] & 7) && c->desc[7] + HG_REPORT_SIZE >= c->desc[7] &&
           (!c->desc[7] || hg_sync_may(c, c->desc[7], HG_REPORT_SIZE));
}

bool hg_launch_ok(HgDev *d, HgCtx *c)
{
    uint32_t grid = (uint32_t)c->desc[3], block = c->desc[3] >> 32;

    return !(c->desc[0] >> 8) && grid && block && block <= HG_MAX_BLOCK &&
           block <= d->cfg.warps * HG_LANES && hg_shared_bytes(c) <= HG_SHARED_MAX &&
           report_ok(c);
}

/* Copies are ready to go; injected misbehaviour is decided here. */
static void copy_start(HgDev *d, HgCtx *c, uint64_t now)
{
    HgCopy *k = &c->copy;
    uint64_t arg = 0, total = 0;

    hg_visit(d, k->nseg, 0);
    for (uint32_t i = 0; i < k->nseg; i++) {
        total += k->seg[i].bytes;
    }
    k->idx = 0;
    k->off = k->done = 0;
    k->fail_at = UINT64_MAX;
    k->nfault = 0;
    k->replayed = k->waits = false;
    k->owed = 0;
    c->res = (HgResult) { 0 };
    hg_trace(d, HG_EV_COPY, c->id, k->seg[0].src, k->seg[0].dst, total);
    switch (hg_injected(d, HG_INJ_COPY, k->seg[0].dst, &arg)) {
    case HG_ACT_ERROR:
        k->fail_at = 0;
        break;
    case HG_ACT_PARTIAL:
        k->fail_at = arg ? arg : total / 2;
        break;
    case HG_ACT_DELAY:
        c->not_before = hg_later(now, arg);
        c->rs = HG_RS_DELAY;    /* dispatch() sees that the list is ready */
        k->state = HG_CP_RUN;
        return;
    default:
        break;
    }
    k->state = HG_CP_RUN;
    c->rs = HG_RS_COPY;
    HG_HOOK(d, copy_begin, d, c);
    hg_kick_ces(d);
}

/* The list was read to e->bounce-sized pieces by the caller; here it is checked. */
static bool list_ok(HgDev *d, HgCtx *c)
{
    hg_visit(d, c->copy.nseg, 0);
    for (uint32_t i = 0; i < c->copy.nseg; i++) {
        if (!hg_copy_check(d, c, &c->copy.seg[i])) {
            return false;
        }
    }
    return true;
}

/* WAIT: false = not yet, or the context halted. */
static void poll_wait(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    uint64_t v = 0, addr = c->desc[1];
    int r;

    hg_leave_lock(e);
    r = hg_bus_read(e, addr, &v, 8);
    atomic_thread_fence(memory_order_seq_cst);
    hg_retake_lock(e);
    if (c->aborting) {
        return;
    }
    if (r) {
        hg_ctx_halt(d, c, HG_ERR_BUS, addr);
        c->rs = HG_RS_FETCH;
    } else if (v >= c->desc[2]) {
        advance(c);
    } else {
        c->rs = HG_RS_WAIT;
        c->poll_gap = c->poll_gap ? c->poll_gap * 2 : POLL_MIN_NS;
        c->poll_gap = c->poll_gap > POLL_MAX_NS ? POLL_MAX_NS : c->poll_gap;
        c->poll_at = hg_later(hg_now(d), c->poll_gap);
    }
}

/* Others may wait for what was just written: look again at once. */
static void wake_waits(HgDev *d)
{
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        if (d->ctx[i].rs == HG_RS_WAIT) {
            d->ctx[i].poll_at = 0;
            hg_kick_fe(d);
        }
    }
}

static void do_fence(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    uint64_t addr = c->desc[1], v = c->desc[2];
    int r;

    if (c->desc[0] & HG_FENCE_MEMBAR) {
        hg_posted_drain_idle(d, c);     /* no SM runs the context: its job has ended */
    }
    hg_leave_lock(e);
    HG_HOOK(d, fence, e, c, addr, v);
    atomic_thread_fence(memory_order_seq_cst);
    r = hg_bus_write(e, addr, &v, 8);
    hg_retake_lock(e);
    hg_trace(d, HG_EV_FENCE, c->id, addr, v, 0);
    if (r) {
        if (!c->aborting) {
            hg_ctx_halt(d, c, HG_ERR_BUS, addr);
            c->rs = HG_RS_FETCH;
        }
        return;
    }
    d->cnt[HG_CNT_FENCES]++;
    wake_waits(d);
    if (!c->aborting) {
        if (c->desc[0] & HG_FENCE_IRQ) {
            hg_raise(d, HG_VEC_FENCE);
        }
        advance(c);
    }
}

static void do_copy_list(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    HgCopy *k = &c->copy;
    uint64_t addr = c->desc[1];
    uint32_t n = (uint32_t)c->desc[2];
    int r = 0;

    hg_leave_lock(e);
    for (uint32_t i = 0; i < n && !r; i += 64) {
        uint32_t part = n - i < 64 ? n - i : 64;
        r = hg_bus_read(e, addr + (uint64_t)i * sizeof(HgSeg), &k->seg[i], part * sizeof(HgSeg));
    }
    hg_retake_lock(e);
    if (c->aborting) {
        return;
    }
    k->nseg = n;
    if (r) {
        hg_ctx_halt(d, c, HG_ERR_BUS, addr);
        c->rs = HG_RS_FETCH;
    } else if (!list_ok(d, c)) {
        bad_desc(d, c, addr);
    } else {
        copy_start(d, c, hg_now(d));
    }
}

/* d->lock on entry and exit; c->desc is valid. */
static void dispatch(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    uint64_t now = hg_now(d), *w = c->desc;
    unsigned op = w[0] & 0xff;
    HgInval iv;

    if (c->copy.state == HG_CP_RUN && (op == HG_OP_COPY || op == HG_OP_COPY_LIST)) {
        c->rs = HG_RS_COPY;     /* was delayed */
        HG_HOOK(d, copy_begin, d, c);
        hg_kick_ces(d);
        return;
    }
    c->job_start = now;
    switch (op) {
    case HG_OP_NOP:
        if (w[0] >> 8) {
            bad_desc(d, c, w[0]);
        } else {
            advance(c);
        }
        break;
    case HG_OP_LAUNCH:
        if (!hg_launch_ok(d, c)) {
            bad_desc(d, c, w[0]);
        } else {
            hg_launch_start(d, c);
        }
        break;
    case HG_OP_COPY:
        if (!hg_seg_alloc(c) || !report_ok(c)) {
            bad_desc(d, c, w[0]);
            break;
        }
        c->copy.seg[0] = (HgSeg) { w[1], w[2], w[3], w[0] & ~(uint64_t)0xff };
        c->copy.nseg = 1;
        if (!hg_copy_check(d, c, &c->copy.seg[0])) {
            bad_desc(d, c, w[0]);
        } else {
            copy_start(d, c, now);
        }
        break;
    case HG_OP_COPY_LIST:
        if (w[0] >> 8 || !w[2] || w[2] > HG_COPY_LIST_MAX || (w[1] & 7) || !report_ok(c) ||
            !hg_seg_alloc(c)) {
            bad_desc(d, c, w[0]);
        } else {
            do_copy_list(e, c);
        }
        break;
    case HG_OP_FENCE:
        if ((w[0] & ~(uint64_t)(0xff | HG_FENCE_IRQ | (d->data.n ? HG_FENCE_MEMBAR : 0))) ||
            (w[1] & 7) || !hg_sync_may(c, w[1], 8)) {
            bad_desc(d, c, w[0]);
        } else {
            do_fence(e, c);
        }
        break;
    case HG_OP_WAIT:
        if (w[0] >> 8 || (w[1] & 7) || !hg_sync_may(c, w[1], 8)) {
            bad_desc(d, c, w[0]);
        } else {
            c->poll_gap = 0;
            poll_wait(e, c);
        }
        break;
    case HG_OP_INVALIDATE: {
        unsigned membar = d->data.n ? w[1] & HG_INVAL_MEMBAR : 0;
        unsigned type = w[1] & 3, asid = (w[1] >> 16) & 0xffff;
        if (w[0] >> 8 || !type || (w[1] & ~(uint64_t)(0xffff0003 | membar)) ||
            asid >= d->cfg.asids) {
            bad_desc(d, c, w[0]);
            break;
        }
        hg_inval_make(&iv, type | membar, asid, w[2], w[3]);
        c->wait_seq = hg_inval_submit(d, &iv);
        c->rs = HG_RS_INVAL;
        break;
    }
    case HG_OP_FLUSH:
        if (!d->data.n || w[0] >> 8 || !hg_span_ok(d, c, HG_SPACE_VRAM, w[1], w[2])) {
            bad_desc(d, c, w[0]);
        } else {
            if (w[2]) {
                hg_data_flush(d, w[1], w[1] + (w[2] - 1));
            }
            advance(c);
        }
        break;
    default:
        bad_desc(d, c, w[0]);
    }
}

static void do_report(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    HgResult r = c->res;
    uint64_t addr = c->desc[7], ns = hg_now(d) - c->job_start;
    int bad = 0;

    if (r.err) {
        c->error = r.err;
        c->error_addr = r.addr;
        hg_raise(d, HG_VEC_ERROR);
    }
    if (addr) {
        hg_leave_lock(e);
        bad = write_report(e, addr, &r, ns);
        hg_retake_lock(e);
        if (c->aborting) {
            return;
        }
    }
    advance(c);
    if (bad) {
        hg_ctx_halt(d, c, HG_ERR_BUS, addr);
    } else if (r.die) {
        hg_ctx_halt(d, c, r.err, r.addr);
    }
}

static void fetch(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;
    uint64_t addr = c->ring_base + (uint64_t)c->get * HG_DESC_SIZE, delay;
    uint64_t w[8];
    int r;

    hg_leave_lock(e);
    r = hg_bus_read(e, addr, w, sizeof(w));
    hg_retake_lock(e);
    if (c->aborting) {
        return;
    }
    if (r) {
        hg_ctx_halt(d, c, HG_ERR_BUS, addr);
        return;
    }
    memcpy(c->desc, w, sizeof(w));
    delay = desc_delay(d, c, w[0] & 0xff);
    if (delay) {
        c->not_before = hg_later(hg_now(d), delay);
        c->rs = HG_RS_DELAY;
        return;
    }
    dispatch(e, c);
}

/*
 * Execute descriptors until the ring is empty or waits for something.  e is
 * parked on entry and exit; d->lock on entry and exit.
 */
void hg_ring_run(HgEngine *e, HgCtx *c)
{
    HgDev *d = e->d;

    c->fe_busy = true;
    hg_slice_enter(e);
    for (unsigned i = 0; i < RING_BURST; i++) {
        if (hg_attn(e)) {
            hg_serve(e);
        }
        c->fe_busy = false;
        bool ready = hg_may_run(d) && hg_ring_ready(d, c, hg_now(d));
        c->fe_busy = true;
        if (!ready) {
            break;
        }
        switch (c->rs) {
        case HG_RS_FETCH:
            fetch(e, c);
            break;
        case HG_RS_DELAY:
            dispatch(e, c);
            break;
        case HG_RS_WAIT:
            poll_wait(e, c);
            break;
        case HG_RS_INVAL:
            advance(c);
            break;
        case HG_RS_REPORT:
            do_report(e, c);
            break;
        }
    }
    c->fe_busy = false;
    hg_serve(e);
    hg_slice_leave(e);
    hg_ctx_try_quiesce(d, c);
    /*
     * The front end may be asleep without a deadline: an SM or copy engine that
     * ran into a delay or an unsatisfied WAIT hands the ring over to it.
     */
    if (c->rs == HG_RS_DELAY || c->rs == HG_RS_WAIT || hg_ring_ready(d, c, hg_now(d))) {
        hg_kick_fe(d);
    }
}
