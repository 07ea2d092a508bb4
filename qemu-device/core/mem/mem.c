/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Access to guest memory and VRAM.
 *
 * Memory is shared with CPUs and other engines, so every access goes through
 * an atomic of its natural size: an aligned 1/2/4/8-byte access never tears,
 * also inside a block copy.  Directly reachable RAM is used through its
 * pointer; anything else goes through the host's callbacks.
 */
#include "device.h"
#include "mem/mem.h"

static unsigned chunk(uintptr_t a, uint32_t n)
{
    unsigned c = (a & 1) ? 1 : (a & 2) ? 2 : (a & 4) ? 4 : 8;

    while (c > n) {
        c >>= 1;
    }
    return c;
}

void hg_copy_in(void *dst, const uint8_t *s, uint32_t n)
{
    uint8_t *p = dst;

    while (n) {
        unsigned c = chunk((uintptr_t)s, n);
        switch (c) {
        case 8: {
            uint64_t v = __atomic_load_n((const hg_u64a *)s, __ATOMIC_RELAXED);
            memcpy(p, &v, 8);
            break;
        }
        case 4: {
            uint32_t v = __atomic_load_n((const hg_u32a *)s, __ATOMIC_RELAXED);
            memcpy(p, &v, 4);
            break;
        }
        case 2: {
            uint16_t v = __atomic_load_n((const hg_u16a *)s, __ATOMIC_RELAXED);
            memcpy(p, &v, 2);
            break;
        }
        default:
            *p = __atomic_load_n((const hg_u8a *)s, __ATOMIC_RELAXED);
        }
        s += c;
        p += c;
        n -= c;
    }
}

void hg_copy_out(uint8_t *s, const void *src, uint32_t n)
{
    const uint8_t *p = src;

    while (n) {
        unsigned c = chunk((uintptr_t)s, n);
        switch (c) {
        case 8: {
            uint64_t v;
            memcpy(&v, p, 8);
            __atomic_store_n((hg_u64a *)s, v, __ATOMIC_RELAXED);
            break;
        }
        case 4: {
            uint32_t v;
            memcpy(&v, p, 4);
            __atomic_store_n((hg_u32a *)s, v, __ATOMIC_RELAXED);
            break;
        }
        case 2: {
            uint16_t v;
            memcpy(&v, p, 2);
            __atomic_store_n((hg_u16a *)s, v, __ATOMIC_RELAXED);
            break;
        }
        default:
            __atomic_store_n((hg_u8a *)s, *p, __ATOMIC_RELAXED);
        }
        s += c;
        p += c;
        n -= c;
    }
}

void hg_copy_shared(uint8_t *dst, const uint8_t *src, uint32_t n)
{
    uint64_t tmp[64];

    if ((((uintptr_t)dst | (uintptr_t)src) & 7) == 0) {
        for (; n >= 8; n -= 8, dst += 8, src += 8) {
            uint64_t v = __atomic_load_n((const hg_u64a *)src, __ATOMIC_RELAXED);
            __atomic_store_n((hg_u64a *)dst, v, __ATOMIC_RELAXED);
        }
    }
    while (n) {
        uint32_t c = n < sizeof(tmp) ? n : sizeof(tmp);
        hg_copy_in(tmp, src, c);
        hg_copy_out(dst, tmp, c);
        dst += c;
        src += c;
        n -= c;
    }
}

/* The range that holds [addr, addr + len), or NULL. */
const HgRam *hg_ram_find(const HgDev *d, uint64_t addr, uint64_t len)
{
    unsigned lo = 0, hi = d->nram;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        const HgRam *r = &d->ram[mid];
        if (addr < r->base) {
            hi = mid;
        } else if (addr - r->base >= r->size) {
            lo = mid + 1;
        } else {
            return r->size - (addr - r->base) >= len ? r : NULL;
        }
    }
    return NULL;
}

static bool bus_refused(HgDev *d, HgInjEvent ev, uint64_t addr, uint32_t len)
{
    if (!d->bus_master || addr + len < addr) {
        return true;
    }
    for (uint32_t m = HG_HOOKED(d, dma); m; m &= m - 1) {
        if (d->hooks.who[__builtin_ctz(m)]->dma(d, ev, addr)) {
            return true;
        }
    }
    return false;
}

bool hg_peek(HgEngine *e, uint64_t addr, void *buf, uint32_t len)
{
    HgDev *d = e->d;
    const HgRam *r = hg_ram_find(d, addr, len);

    if (!d->bus_master || addr + len < addr) {
        return false;
    }
    if (r) {
        hg_copy_in(buf, r->ptr + (addr - r->base), len);
        return true;
    }
    return d->ops.read && d->ops.read(d->host, addr, buf, len) == 0;
}

/* The host refused it: nothing that a driver gave us lies there. */
static int refused(HgDev *d, uint64_t addr, uint32_t len, bool write)
{
    HG_HOOK(d, refused, d, addr, len, write);
    return -1;
}

int hg_bus_read(HgEngine *e, uint64_t addr, void *buf, uint32_t len)
{
    HgDev *d = e->d;
    const HgRam *r;

    if (bus_refused(d, HG_INJ_DMA_READ, addr, len)) {
        return -1;
    }
    r = hg_ram_find(d, addr, len);
    if (r) {
        const uint8_t *p = r->ptr + (addr - r->base);
        hg_copy_in(buf, p, len);
        if (d->ops.ram_read) {
            d->ops.ram_read(d->host, p, len);
        }
        return 0;
    }
    if (!d->ops.read || d->ops.read(d->host, addr, buf, len)) {
        return refused(d, addr, len, false);
    }
    return 0;
}

int hg_bus_write(HgEngine *e, uint64_t addr, const void *buf, uint32_t len)
{
    HgDev *d = e->d;
    const HgRam *r;

    if (bus_refused(d, HG_INJ_DMA_WRITE, addr, len)) {
        return -1;
    }
    r = hg_ram_find(d, addr, len);
    if (r) {
        uint8_t *p = r->ptr + (addr - r->base);
        if (r->ro) {
            return -1;
        }
        hg_copy_out(p, buf, len);
        if (d->ops.ram_written) {
            d->ops.ram_written(d->host, r->opaque, p, addr, len);
        }
        return 0;
    }
    if (!d->ops.write || d->ops.write(d->host, addr, buf, len)) {
        return refused(d, addr, len, true);
    }
    return 0;
}

#define ATOMIC_BODY(U, S)                                                       \
    U *q = p;                                                                   \
    U v = (U)operand, old;                                                      \
    switch (op) {                                                               \
    case HG_ATOMIC_SWAP: return __atomic_exchange_n(q, v, __ATOMIC_SEQ_CST);    \
    case HG_ATOMIC_ADD:  return __atomic_fetch_add(q, v, __ATOMIC_SEQ_CST);     \
    case HG_ATOMIC_XOR:  return __atomic_fetch_xor(q, v, __ATOMIC_SEQ_CST);     \
    case HG_ATOMIC_AND:  return __atomic_fetch_and(q, v, __ATOMIC_SEQ_CST);     \
    case HG_ATOMIC_OR:   return __atomic_fetch_or(q, v, __ATOMIC_SEQ_CST);      \
    case HG_ATOMIC_CAS:                                                         \
        old = (U)expected;                                                      \
        __atomic_compare_exchange_n(q, &old, v, false, __ATOMIC_SEQ_CST,        \
                                    __ATOMIC_SEQ_CST);                          \
        return old;                                                             \
    default:                                                                    \
        old = __atomic_load_n(q, __ATOMIC_SEQ_CST);                             \
        for (;;) {                                                              \
            U n = op == HG_ATOMIC_MIN ? ((S)old < (S)v ? old : v)               \
                : op == HG_ATOMIC_MAX ? ((S)old > (S)v ? old : v)               \
                : op == HG_ATOMIC_MINU ? (old < v ? old : v)                    \
                : (old > v ? old : v);                                          \
            if (__atomic_compare_exchange_n(q, &old, n, false, __ATOMIC_SEQ_CST,\
                                            __ATOMIC_SEQ_CST)) {                \
                return old;                                                     \
            }                                                                   \
        }                                                                       \
    }

static uint64_t host_atomic32(void *p, HgAtomicOp op, uint64_t operand, uint64_t expected)
{
    ATOMIC_BODY(hg_u32a, int32_t)
}

static uint64_t host_atomic64(void *p, HgAtomicOp op, uint64_t operand, uint64_t expected)
{
    ATOMIC_BODY(hg_u64a, int64_t)
}

/* The old value, zero extended. */
uint64_t hg_host_atomic(void *p, uint32_t size, HgAtomicOp op, uint64_t operand, uint64_t expected)
{
    return size == 4 ? host_atomic32(p, op, operand, expected)
                     : host_atomic64(p, op, operand, expected);
}

int hg_bus_atomic(HgEngine *e, uint64_t addr, uint32_t size, HgAtomicOp op,
                  uint64_t operand, uint64_t expected, uint64_t *old)
{
    HgDev *d = e->d;
    const HgRam *r;

    if (bus_refused(d, HG_INJ_DMA_READ, addr, size) ||
        bus_refused(d, HG_INJ_DMA_WRITE, addr, size)) {
        return -1;
    }
    r = hg_ram_find(d, addr, size);
    if (r) {
        uint8_t *p = r->ptr + (addr - r->base);
        if (r->ro) {
            return -1;
        }
        *old = hg_host_atomic(p, size, op, operand, expected);
        if (d->ops.ram_written) {
            d->ops.ram_written(d->host, r->opaque, p, addr, size);
        }
        return 0;
    }
    if (!d->ops.atomic || d->ops.atomic(d->host, addr, size, op, operand, expected, old)) {
        return refused(d, addr, size, true);
    }
    return 0;
}

/*
 * Tell the host which bytes were written.  Called at the latest at the end of
 * each instruction or copy piece: before any fence and before the engine can
 * park, so that a snapshot sees the page dirty.
 */
void hg_dirty_flush(HgEngine *e)
{
    HgDev *d = e->d;

    if (e->dirty.hi) {
        uint32_t lo = e->dirty.lo, len = e->dirty.hi - lo;
        if (e->dirty.vram) {
            if (d->ops.vram_written) {
                d->ops.vram_written(d->host, e->dirty.addr + lo, len);
            }
        } else if (d->ops.ram_written) {
            d->ops.ram_written(d->host, e->dirty.opaque, e->dirty.ptr + lo,
                               e->dirty.addr + lo, len);
        }
        e->dirty.hi = 0;
        e->dirty.ptr = NULL;
    }
}
