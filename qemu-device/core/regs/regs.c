/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * BAR0.  An 8-byte access is its two halves, low first; a 64-bit register
 * takes the latched low half when its high half is written.  Handlers take
 * d->lock only; nothing here waits for an engine but a soft reset and what
 * observers do at a command.
 */
#include "device.h"
#include "regs/regs.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/pause.h"
#include "base/time.h"
#include "base/trace.h"
#include "ce/ce.h"
#include "fault/replay.h"
#include "front/reset.h"
#include "mem/posted.h"
#include "mmu/inval.h"
#include "ring/cancel.h"
#include "ring/contexts.h"
#include "timer/irq.h"
#include "timer/timer.h"

static uint64_t status(HgDev *d)
{
    bool busy = false, work = false;

    for (unsigned i = 0; i < d->neng; i++) {
        busy |= d->eng[i].in_slice;
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        work |= c->enabled && !c->halted && (c->rs != HG_RS_FETCH || c->get != c->put);
    }
    bool writing = d->ring[0].writers || d->ring[1].writers;
    return (!busy && !work ? HG_STATUS_IDLE : 0) |
           (!busy && !writing && !(d->ctrl & HG_CTRL_ENABLE) ? HG_STATUS_PARKED : 0);
}

static bool ring_read(HgDev *d, unsigned n, unsigned off, uint64_t *v)
{
    HgRing *r = &d->ring[n];
    uint32_t ovf = r->overflow ? HG_FAULT_OVERFLOW : 0;

    switch (off) {
    case HG_FAULT_BASE: *v = r->base; return true;
    case HG_FAULT_SIZE:
        /* ENABLE reads 1 until the last entry is written: poll it before freeing the ring */
        *v = r->size | (uint64_t)(r->enabled || r->writers) << 32;
        return true;
    case HG_FAULT_GET: *v = (r->get | ovf) | (uint64_t)(r->put | ovf) << 32; return true;
    }
    return false;
}

static bool ctx_read(HgDev *d, unsigned n, unsigned off, uint64_t *v)
{
    HgCtx *c = &d->ctx[n];

    switch (off) {
    case HG_CTX_RING_BASE: *v = c->ring_base; return true;
    case HG_CTX_RING_SIZE: *v = c->ring_size | (uint64_t)c->asid << 32; return true;
    case HG_CTX_CTRL:
        *v = (c->enabled ? HG_CTX_ENABLE : 0) | (c->priv ? HG_CTX_PRIV : 0) |
             (c->stall ? HG_CTX_STALL : 0);
        *v |= (uint64_t)((c->enabled || c->aborting ? HG_CTX_ACTIVE : 0) |
                         (c->halted ? HG_CTX_HALTED : 0)) << 32;
        return true;
    case HG_CTX_GET: *v = c->get | (uint64_t)c->put << 32; return true;
    case HG_CTX_ERROR: *v = c->error | (uint64_t)c->copy.waits << 32; return true;
    case HG_CTX_ERROR_ADDR: *v = c->error_addr; return true;
    case HG_CTX_TIMESLICE: *v = c->timeslice; return true;
    case HG_CTX_SYNC: *v = c->sync; return true;
    }
    return false;
}

static bool observer_read(HgDev *d, uint64_t off, uint64_t *v)
{
    for (uint32_t m = HG_HOOKED(d, reg_read); m; m &= m - 1) {
        if (d->hooks.who[__builtin_ctz(m)]->reg_read(d, off, v)) {
            return true;
        }
    }
    return false;
}

/* The 8 bytes at off (8-aligned); false if no register is there.  d->lock. */
static bool read8(HgDev *d, uint64_t off, uint64_t *v)
{
    const HgConfig *k = &d->cfg;

    *v = 0;
    if (off >= HG_REG_ASID && off < HG_REG_ASID + d->cfg.asids * HG_ASID_STRIDE) {
        unsigned n = (off - HG_REG_ASID) / HG_ASID_STRIDE;
        *v = (off & 8) ? atomic_load_explicit(&d->mode[n], memory_order_relaxed)
                       : atomic_load_explicit(&d->root[n], memory_order_relaxed);
        return true;
    }
    if (off >= HG_REG_CTX && off < HG_REG_CTX + d->cfg.ctxs * HG_CTX_STRIDE) {
        return ctx_read(d, (off - HG_REG_CTX) / HG_CTX_STRIDE, off & (HG_CTX_STRIDE - 1), v);
    }
    if (off >= HG_REG_DOORBELL && off < HG_REG_DOORBELL + d->cfg.ctxs * HG_DOORBELL_STRIDE) {
        return (off & (HG_DOORBELL_STRIDE - 1)) == 0;
    }
    if (off >= HG_REG_FAULT && off < HG_REG_FAULT + 0x20) {
        return ring_read(d, 0, off - HG_REG_FAULT, v);
    }
    if (off >= HG_REG_NRFAULT && off < HG_REG_NRFAULT + 0x20) {
        return ring_read(d, 1, off - HG_REG_NRFAULT, v);
    }
    switch (off) {
    case HG_REG_ID: *v = HG_ID_MAGIC | (uint64_t)HG_VERSION << 32; break;
    case HG_REG_CAPS:
        *v = k->sms | k->warps << 8 | HG_LANES << 16 | k->ces << 24;
        *v |= (uint64_t)(k->asids | k->ctxs << 16) << 32;
        break;
    case HG_REG_VRAM_SIZE: *v = k->vram_size; break;
    case HG_REG_BAR2_SIZE: *v = k->bar2_size; break;
    case HG_REG_UTLB_MISSES:
        *v = k->utlb_misses;
        *v |= (uint64_t)((k->coherent ? HG_FEATURE_COHERENT : 0) |
                         (k->reset_loses_vram ? HG_FEATURE_RESET_LOSES_VRAM : 0) |
                         (k->walk_entries ? HG_FEATURE_WALK_CACHE : 0) |
                         (k->big_pages ? HG_FEATURE_BIG_PAGES : 0) |
                         (k->data_pages ? HG_FEATURE_DATA_CACHE : 0) |
                         (k->sms_per_utlb > 1 ? HG_FEATURE_SHARED_MISSES : 0) |
                         (k->ce_faults ? HG_FEATURE_CE_FAULTS : 0) |
                         (d->ops.frame ? HG_FEATURE_AUDIT_BUS : 0)) << 32;
        break;
    case HG_REG_TIME: *v = hg_now(d); break;
    case HG_REG_CTRL: *v = (d->ctrl & HG_CTRL_ENABLE) | status(d) << 32; break;
    case HG_REG_INTR_STATUS: *v = d->intr_status | (uint64_t)d->intr_enable << 32; break;
    case HG_REG_SCRATCH: *v = d->scratch; break;
    case HG_REG_INVAL_ASID: *v = d->inval_asid; break;
    case HG_REG_INVAL_START: *v = d->inval_start; break;
    case HG_REG_INVAL_LEN: *v = d->inval_len; break;
    case HG_REG_INVAL_CMD: break;
    case HG_REG_INVAL_SEQ: *v = d->inval_seq; break;
    case HG_REG_INVAL_DONE: *v = d->inval_done; break;
    case HG_REG_REPLAY: break;
    case HG_REG_REPLAY_SEQ: *v = d->replay_seq; break;
    case HG_REG_REPLAY_DONE: *v = d->replay_done; break;
    case HG_REG_CANCEL_ADDR: *v = d->cancel_addr; break;
    case HG_REG_CANCEL_ASID: *v = d->cancel_asid | (uint64_t)d->cancel_client << 32; break;
    case HG_REG_CANCEL_CMD: break;
    default: return observer_read(d, off, v);
    }
    return true;
}

static bool counter_off(uint64_t off)
{
    return off >= HG_REG_COUNTER && off < HG_REG_COUNTER + HG_NUM_COUNTERS * 8;
}

uint64_t hg_mmio_read(HgDev *d, uint64_t off, unsigned size)
{
    uint64_t v = 0;
    bool ok = (size == 4 || size == 8) && !(off & (size - 1)) && off < HG_BAR0_SIZE;

    if (ok && counter_off(off)) {
        v = hg_counter(d, (off - HG_REG_COUNTER) / 8);
        hg_lock(d);
    } else {
        hg_lock(d);
        ok = ok && read8(d, off & ~(uint64_t)7, &v);
    }
    if (!ok) {
        hg_guest_error(d, 0, off, 0);
    }
    if (size == 4) {
        v = (off & 4) ? v >> 32 : (uint32_t)v;
    }
    hg_trace(d, HG_EV_MMIO_READ, off, v, 0, 0);
    hg_unlock(d);
    return v;
}

static bool pow2(uint32_t v)
{
    return v && !(v & (v - 1));
}

static bool ring_write(HgDev *d, unsigned n, unsigned off, uint32_t v)
{
    HgRing *r = &d->ring[n];
    bool locked = r->enabled || r->writers;

    switch (off) {
    case HG_FAULT_BASE:
        r->base_lo = v;
        return !locked;
    case HG_FAULT_BASE + 4:
        if (locked || (r->base_lo & HG_PAGE_MASK)) {
            return false;
        }
        r->base = (uint64_t)v << 32 | r->base_lo;
        return true;
    case HG_FAULT_SIZE:
        if (locked || !pow2(v) || v < 2 || v > 65536) {
            return false;
        }
        r->size = v;
        return true;
    case HG_FAULT_CTRL:
        if (v & ~(uint32_t)HG_FAULT_CTRL_ENABLE) {
            return false;
        }
        if (v && !r->enabled) {
            if (r->writers || !r->size) {
                return false;
            }
            r->enabled = true;
            r->get = r->put = 0;
            r->overflow = false;
        } else if (!v && r->enabled) {
            r->enabled = false;
            r->writers -= hg_timers_drop(d, HG_T_VALID, n, 0);  /* late VALIDs never come */
        }
        return true;
    case HG_FAULT_GET: {
        uint32_t idx = v & HG_FAULT_INDEX_MASK;
        if (!r->enabled || idx >= r->size) {
            return false;
        }
        HG_HOOK(d, fault_get, d, n, idx);
        r->get = idx;
        if (v & HG_FAULT_OVERFLOW) {
            r->overflow = false;
        }
        if (r->get != r->put || r->overflow) {
            hg_raise(d, n ? HG_VEC_ERROR : HG_VEC_FAULT);
        }
        return true;
    }
    }
    return false;
}

static bool ctx_write(HgDev *d, unsigned n, unsigned off, uint32_t v)
{
    HgCtx *c = &d->ctx[n];
    bool locked = c->enabled || c->aborting;

    switch (off) {
    case HG_CTX_RING_BASE:
        c->ring_base_lo = v;
        return !locked;
    case HG_CTX_RING_BASE + 4:
        if (locked || (c->ring_base_lo & HG_PAGE_MASK)) {
            return false;
        }
        c->ring_base = (uint64_t)v << 32 | c->ring_base_lo;
        return true;
    case HG_CTX_RING_SIZE:
        if (locked || !pow2(v) || v < 2 || v > 4096) {
            return false;
        }
        c->ring_size = v;
        return true;
    case HG_CTX_ASID:
        if (locked || v >= d->cfg.asids) {
            return false;
        }
        c->asid = v;
        return true;
    case HG_CTX_CTRL:
        if (v & ~(HG_CTX_ENABLE | HG_CTX_PRIV | (d->cfg.ce_faults ? HG_CTX_STALL : 0u))) {
            return false;
        }
        if (v & HG_CTX_ENABLE) {
            if (!c->enabled) {
                hg_ctx_enable(d, c, v & HG_CTX_PRIV, v & HG_CTX_STALL);
            } else if (c->priv != !!(v & HG_CTX_PRIV) || c->stall != !!(v & HG_CTX_STALL)) {
                return false;
            }
        } else {
            hg_ctx_disable(d, c);
        }
        return true;
    case HG_CTX_FAULTED:
        if (!d->cfg.ce_faults || (v != HG_FAULTED_GO_ON && v != HG_FAULTED_GIVE_UP)) {
            return false;
        }
        hg_copy_faulted(d, c, v);
        return true;
    case HG_CTX_TIMESLICE:
        c->timeslice = v;
        return true;
    case HG_CTX_SYNC:
        c->sync_lo = v;
        return !locked;
    case HG_CTX_SYNC + 4:
        if (locked || !hg_sync_ok((uint64_t)v << 32 | c->sync_lo)) {
            return false;
        }
        c->sync = (uint64_t)v << 32 | c->sync_lo;
        return true;
    }
    return false;
}

/* False = refused, or no such register. */
static bool observer_write(HgDev *d, uint64_t off, uint32_t v)
{
    HgRegAnswer a = HG_REG_NONE;

    for (uint32_t m = HG_HOOKED(d, reg_write); m && a == HG_REG_NONE; m &= m - 1) {
        a = d->hooks.who[__builtin_ctz(m)]->reg_write(d, off, v);
    }
    return a == HG_REG_DONE;
}

static void inval_cmd(HgDev *d, uint32_t type)
{
    HgInval iv;

    hg_inval_make(&iv, type, d->inval_asid, d->inval_start, d->inval_len);
    hg_inval_submit(d, &iv);
}

/* One 32-bit write; false = refused.  d->lock. */
static bool write4(HgDev *d, uint64_t off, uint32_t v)
{
    if (off >= HG_REG_ASID && off < HG_REG_ASID + d->cfg.asids * HG_ASID_STRIDE) {
        unsigned n = (off - HG_REG_ASID) / HG_ASID_STRIDE;
        switch (off & (HG_ASID_STRIDE - 1)) {
        case HG_ASID_ROOT:
            d->root_lo[n] = v;
            return true;
        case HG_ASID_ROOT + 4:
            HG_HOOK(d, root, d, n, (uint64_t)v << 32 | d->root_lo[n]);
            atomic_store_explicit(&d->root[n], (uint64_t)v << 32 | d->root_lo[n],
                                  memory_order_release);
            return true;
        case HG_ASID_CTRL:
            if (v != HG_ASID_MODE_REPLAY && v != HG_ASID_MODE_FATAL) {
                return false;
            }
            atomic_store_explicit(&d->mode[n], v, memory_order_relaxed);
            return true;
        case HG_ASID_CTRL + 4:
            return v == 0;
        }
        return false;
    }
    if (off >= HG_REG_CTX && off < HG_REG_CTX + d->cfg.ctxs * HG_CTX_STRIDE) {
        return ctx_write(d, (off - HG_REG_CTX) / HG_CTX_STRIDE, off & (HG_CTX_STRIDE - 1), v);
    }
    if (off >= HG_REG_FAULT && off < HG_REG_FAULT + 0x20) {
        return ring_write(d, 0, off - HG_REG_FAULT, v);
    }
    if (off >= HG_REG_NRFAULT && off < HG_REG_NRFAULT + 0x20) {
        return ring_write(d, 1, off - HG_REG_NRFAULT, v);
    }
    if (off >= HG_REG_DOORBELL && off < HG_REG_DOORBELL + d->cfg.ctxs * HG_DOORBELL_STRIDE) {
        HgCtx *c = &d->ctx[(off - HG_REG_DOORBELL) / HG_DOORBELL_STRIDE];
        uint64_t arg, due;
        if (off & (HG_DOORBELL_STRIDE - 1)) {
            return false;
        }
        HG_HOOK(d, doorbell, d, c, v);
        switch (hg_injected(d, HG_INJ_DOORBELL, c->id, &arg)) {
        case HG_ACT_LOST:
            return true;
        case HG_ACT_DELAY:
            due = hg_later(hg_now(d), arg);
            hg_timers_drop(d, HG_T_DOORBELL, c->id, due);   /* later than this one: likewise */
            if (c->enabled && hg_timer_add(d, due, HG_T_DOORBELL, c->id, v, 0)) {
                return true;
            }
            break;
        default:
            break;
        }
        hg_timers_drop(d, HG_T_DOORBELL, c->id, 0); /* late ones say what was before */
        hg_doorbell(d, c, v);
        return true;
    }
    switch (off) {
    case HG_REG_CTRL:
        if (v & ~(uint32_t)(HG_CTRL_ENABLE | HG_CTRL_RESET)) {
            return false;
        }
        if ((v ^ d->ctrl) & HG_CTRL_ENABLE) {
            HG_HOOK(d, enable, d);
            d->ctrl = v & HG_CTRL_ENABLE;
            for (unsigned i = 0; i < d->neng; i++) {
                if (d->eng[i].in_slice && !d->ctrl) {
                    atomic_store_explicit(&d->eng[i].attn, 1, memory_order_relaxed);
                }
                hg_kick(&d->eng[i]);
            }
            if (!d->ctrl) {
                hg_posted_drain_idle(d, NULL);
            }
        }
        return true;
    case HG_REG_INTR_STATUS:
        d->intr_status &= ~v;
        return true;
    case HG_REG_INTR_ENABLE: {
        uint32_t fresh = v & ~d->intr_enable & d->intr_status;
        if (v >> HG_NUM_VECTORS) {
            return false;
        }
        d->intr_enable = v;
        for (unsigned i = 0; i < HG_NUM_VECTORS; i++) {
            if (fresh & (1u << i)) {
                hg_raise(d, i);
            }
        }
        return true;
    }
    case HG_REG_SCRATCH:
        d->scratch = v;
        return true;
    case HG_REG_INVAL_ASID:
        if (v >= d->cfg.asids) {
            return false;
        }
        d->inval_asid = v;
        return true;
    case HG_REG_INVAL_START:
        d->inval_start_lo = v;
        return true;
    case HG_REG_INVAL_START + 4:
        d->inval_start = (uint64_t)v << 32 | d->inval_start_lo;
        return true;
    case HG_REG_INVAL_LEN:
        d->inval_len_lo = v;
        return true;
    case HG_REG_INVAL_LEN + 4:
        d->inval_len = (uint64_t)v << 32 | d->inval_len_lo;
        return true;
    case HG_REG_INVAL_CMD: {
        uint32_t type = v & ~(d->data.n ? HG_INVAL_MEMBAR : 0u);
        if (type < HG_INVAL_ALL || type > HG_INVAL_RANGE) {
            return false;
        }
        inval_cmd(d, v);
        return true;
    }
    case HG_REG_REPLAY:
        if (v != HG_REPLAY_START && v != HG_REPLAY_START_ACK_ALL) {
            return false;
        }
        hg_replay(d, v);
        return true;
    case HG_REG_CANCEL_ADDR:
        d->cancel_addr_lo = v;
        return true;
    case HG_REG_CANCEL_ADDR + 4:
        d->cancel_addr = (uint64_t)v << 32 | d->cancel_addr_lo;
        return true;
    case HG_REG_CANCEL_ASID:
        if (v >= d->cfg.asids) {
            return false;
        }
        d->cancel_asid = v;
        return true;
    case HG_REG_CANCEL_CLIENT:
        d->cancel_client = v;
        return true;
    case HG_REG_CANCEL_CMD: {
        unsigned type = v & 0xf, scope = v & 0xf0;
        if (type < HG_CANCEL_ADDR || type > HG_CANCEL_GLOBAL || v > 0xff ||
            (scope != HG_CANCEL_SCOPE_ALL && scope != HG_CANCEL_SCOPE_WRITE &&
             scope != HG_CANCEL_SCOPE_ATOMIC)) {
            return false;
        }
        hg_cancel(d, type, scope);
        return true;
    }
    }
    return observer_write(d, off, v);
}

/* The low half of a writable 64-bit register. */
static bool is_wide(HgDev *d, uint64_t off)
{
    if (off >= HG_REG_ASID && off < HG_REG_ASID + d->cfg.asids * HG_ASID_STRIDE) {
        return (off & (HG_ASID_STRIDE - 1)) == HG_ASID_ROOT;
    }
    if (off >= HG_REG_CTX && off < HG_REG_CTX + d->cfg.ctxs * HG_CTX_STRIDE) {
        return (off & (HG_CTX_STRIDE - 1)) == HG_CTX_RING_BASE ||
               (off & (HG_CTX_STRIDE - 1)) == HG_CTX_SYNC;
    }
    for (uint32_t m = HG_HOOKED(d, reg_wide); m; m &= m - 1) {
        if (d->hooks.who[__builtin_ctz(m)]->reg_wide(d, off)) {
            return true;
        }
    }
    return off == HG_REG_FAULT + HG_FAULT_BASE || off == HG_REG_NRFAULT + HG_FAULT_BASE ||
           off == HG_REG_INVAL_START || off == HG_REG_INVAL_LEN || off == HG_REG_CANCEL_ADDR;
}

void hg_mmio_write(HgDev *d, uint64_t off, uint64_t val, unsigned size)
{
    bool ok = (size == 4 || size == 8) && !(off & (size - 1)) && off < HG_BAR0_SIZE;

    if (ok && (off & ~(uint64_t)7) == HG_REG_CTRL && !(off & 4) && (val & HG_CTRL_RESET)) {
        hg_pause(d);
        hg_trace(d, HG_EV_MMIO_WRITE, off, val, 0, 0);
        hg_reset_written(d);
        hg_resume(d);
        return;
    }
    for (uint32_t m = ok ? HG_HOOKED(d, command) : 0; m; m &= m - 1) {
        if (d->hooks.who[__builtin_ctz(m)]->command(d, off, val)) {
            return;
        }
    }
    hg_lock(d);
    hg_trace(d, HG_EV_MMIO_WRITE, off, val, 0, 0);
    if (ok && size == 8) {
        /* next to a 32-bit register there may be nothing: zero is no error there */
        bool low = write4(d, off, (uint32_t)val), high = write4(d, off + 4, val >> 32);
        ok = low && (high || (!(val >> 32) && !is_wide(d, off)));
    } else if (ok) {
        ok = write4(d, off, (uint32_t)val);
    }
    if (!ok) {
        hg_guest_error(d, 0, off, val);
    }
    hg_unlock(d);
}
