/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Posted writes.  On a device with a data cache a store of an SM to system memory is done
 * when it is in the SM's queue; the CPU, copy engines and other SMs see it when it is drained:
 * in order, together, and
 *
 * - before the SM's next load from system memory, atomic or fence, so that a program sees
 *   what RVWMO lets it see: nobody but the CPU's side of the bus knows that there is a queue;
 * - when the queue is full, and HG_POSTED_NS after the first of them at the latest;
 * - before the SM runs another context, so that a queue is of one context;
 * - by a FENCE of that context with HG_FENCE_MEMBAR, and by an invalidation with
 *   HG_INVAL_MEMBAR: without these software is told that a job is over, or that a
 *   translation is in use no more, while stores are still on their way;
 * - before the context reads inactive, the engines read parked, memory of the bus goes away,
 *   and by a reset.
 *
 * The queue has addresses of the bus and no pointers, so nothing of it is stale when RAM
 * comes and goes; it is part of the state.  Only what a direct pointer was there for is
 * posted, so draining calls no host that may wait, and may be done under d->lock.
 * What is not there any more when it is drained is lost, and counts as guest error.
 */
#include "device.h"
#include "mem/posted.h"
#include "base/lock.h"
#include "base/slice.h"
#include "base/time.h"
#include "mem/mem.h"

void hg_posted_drain(HgEngine *e)
{
    HgPosted *q = e->posted;
    HgDev *d = e->d;
    uint32_t at = 0;

    hg_visit(d, q->n, q->bytes);
    for (uint32_t i = 0; i < q->n; i++) {
        uint64_t addr = q->run[i].addr;
        uint32_t len = q->run[i].len;
        const HgRam *r = d->bus_master ? hg_ram_find(d, addr, len) : NULL;

        if (r && !r->ro) {
            uint8_t *p = r->ptr + (addr - r->base);
            hg_copy_out(p, q->data + at, len);
            if (d->ops.ram_written) {
                d->ops.ram_written(d->host, r->opaque, p, addr, len);
            }
        } else {
            hg_cnt(e, HG_CNT_GUEST_ERRORS, 1);
        }
        at += len;
    }
    q->n = q->bytes = 0;
    atomic_thread_fence(memory_order_seq_cst);
}

void hg_post(HgEngine *e, uint64_t addr, uint64_t value, unsigned size)
{
    HgPosted *q = e->posted;
    uint32_t n = q->n;

    if (q->bytes + size <= HG_POSTED_BYTES && n && (addr & HG_PAGE_MASK) &&
        q->run[n - 1].addr + q->run[n - 1].len == addr) {
        q->run[n - 1].len += size;
    } else {
        if (n == HG_POSTED_RUNS || q->bytes + size > HG_POSTED_BYTES) {
            hg_posted_drain(e);
            n = 0;
        }
        if (!n) {
            q->due = hg_later(hg_now(e->d), HG_POSTED_NS);
        }
        q->run[n].addr = addr;
        q->run[n].len = size;
        q->n = n + 1;
    }
    memcpy(q->data + q->bytes, &value, size);
    q->bytes += size;
}

static bool idle(const HgEngine *e)
{
    return !e->run && hg_any_posted(e);
}

void hg_posted_drain_idle(HgDev *d, const HgCtx *c)
{
    for (unsigned i = 0; i < d->nsm; i++) {
        if (idle(&d->eng[i]) && (!c || d->eng[i].posted->ctx == c)) {
            hg_posted_drain(&d->eng[i]);
        }
    }
}

void hg_posted_drain_due(HgDev *d, uint64_t now)
{
    for (unsigned i = 0; i < d->nsm; i++) {
        if (idle(&d->eng[i]) && d->eng[i].posted->due <= now) {
            hg_posted_drain(&d->eng[i]);
        }
    }
}

uint64_t hg_posted_deadline(HgDev *d)
{
    uint64_t at = UINT64_MAX;

    for (unsigned i = 0; i < d->nsm; i++) {
        if (idle(&d->eng[i]) && d->eng[i].posted->due < at) {
            at = d->eng[i].posted->due;
        }
    }
    return at;
}
