/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "host.h"

typedef uint32_t __attribute__((may_alias)) u32a;
typedef uint64_t __attribute__((may_alias)) u64a;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

/* The physical address of one on the bus: an IOMMU that knows each page by two. */
static uint64_t phys_of(const ThHost *h, uint64_t addr)
{
    return h->alias && addr >= h->alias ? addr - h->alias + h->ram_base : addr;
}

static uint8_t *at(ThHost *h, uint64_t bus, uint64_t len)
{
    uint64_t addr = phys_of(h, bus);

    if (addr < h->ram_base || len > h->ram_size || addr - h->ram_base > h->ram_size - len) {
        return NULL;
    }
    if (bus < h->bad_hi && h->bad_lo < bus + len) {
        return NULL;
    }
    return h->ram + (addr - h->ram_base);
}

static int th_read(void *host, uint64_t addr, void *buf, uint32_t len)
{
    ThHost *h = host;
    uint8_t *p = at(h, addr, len);

    __atomic_fetch_add(&h->bus_reads, 1, __ATOMIC_RELAXED);
    if (!p) {
        return -1;
    }
    if (!(len & 7) && !(addr & 7)) {    /* lists are long, and instrumented loops slow */
        for (uint32_t i = 0; i < len; i += 8) {
            uint64_t v = __atomic_load_n((u64a *)(p + i), __ATOMIC_RELAXED);
            memcpy((uint8_t *)buf + i, &v, 8);
        }
    } else if (len == 4 && !(addr & 3)) {
        uint32_t v = __atomic_load_n((u32a *)p, __ATOMIC_RELAXED);
        memcpy(buf, &v, 4);
    } else {
        for (uint32_t i = 0; i < len; i++) {
            ((uint8_t *)buf)[i] = __atomic_load_n(p + i, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

static int th_write(void *host, uint64_t addr, const void *buf, uint32_t len)
{
    ThHost *h = host;
    uint8_t *p = at(h, addr, len);

    __atomic_fetch_add(&h->bus_writes, 1, __ATOMIC_RELAXED);
    if (!p) {
        return -1;
    }
    if (len == 8 && !(addr & 7)) {
        uint64_t v;
        memcpy(&v, buf, 8);
        __atomic_store_n((u64a *)p, v, __ATOMIC_RELAXED);
    } else if (len == 4 && !(addr & 3)) {
        uint32_t v;
        memcpy(&v, buf, 4);
        __atomic_store_n((u32a *)p, v, __ATOMIC_RELAXED);
    } else {
        for (uint32_t i = 0; i < len; i++) {
            __atomic_store_n(p + i, ((const uint8_t *)buf)[i], __ATOMIC_RELAXED);
        }
    }
    return 0;
}

static int th_atomic(void *host, uint64_t addr, uint32_t size, HgAtomicOp op,
                     uint64_t operand, uint64_t expected, uint64_t *old)
{
    ThHost *h = host;
    uint8_t *p = at(h, addr, size);

    if (!p || (addr & (size - 1))) {
        return -1;
    }
    for (;;) {
        uint64_t v = size == 4 ? __atomic_load_n((u32a *)p, __ATOMIC_SEQ_CST)
                               : __atomic_load_n((u64a *)p, __ATOMIC_SEQ_CST);
        uint64_t x = size == 4 ? (uint32_t)operand : operand, n = v;
        int64_t sv = size == 4 ? (int32_t)v : (int64_t)v;
        int64_t sx = size == 4 ? (int32_t)x : (int64_t)x;
        switch (op) {
        case HG_ATOMIC_SWAP: n = x; break;
        case HG_ATOMIC_ADD:  n = v + x; break;
        case HG_ATOMIC_XOR:  n = v ^ x; break;
        case HG_ATOMIC_AND:  n = v & x; break;
        case HG_ATOMIC_OR:   n = v | x; break;
        case HG_ATOMIC_MIN:  n = sv < sx ? v : x; break;
        case HG_ATOMIC_MAX:  n = sv > sx ? v : x; break;
        case HG_ATOMIC_MINU: n = v < x ? v : x; break;
        case HG_ATOMIC_MAXU: n = v > x ? v : x; break;
        case HG_ATOMIC_CAS:  n = v == (size == 4 ? (uint32_t)expected : expected) ? x : v; break;
        }
        *old = v;
        if (size == 4) {
            uint32_t want = (uint32_t)v;
            if (__atomic_compare_exchange_n((u32a *)p, &want, (uint32_t)n, 0, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST)) {
                return 0;
            }
        } else if (__atomic_compare_exchange_n((u64a *)p, &v, n, 0, __ATOMIC_SEQ_CST,
                                               __ATOMIC_SEQ_CST)) {
            return 0;
        }
    }
}

static void th_ram_written(void *host, void *opaque, void *ptr, uint64_t addr, uint32_t len)
{
    ThHost *h = host;

    /* the pair must belong together: a core that mixes pages up is caught here */
    if (opaque != h || (uint8_t *)ptr != h->ram + (addr - h->ram_base) || !at(h, addr, len)) {
        abort();
    }
    if (!h->measured) {
        __atomic_fetch_add(&h->ram_written, len, __ATOMIC_RELAXED);
    }
}

static void th_vram_written(void *host, uint64_t offset, uint32_t len)
{
    ThHost *h = host;

    if (offset > h->vram_size || len > h->vram_size - offset) {
        abort();
    }
    __atomic_fetch_add(&h->vram_written, len, __ATOMIC_RELAXED);
}

static void th_irq(void *host, unsigned vector, bool again)
{
    ThHost *h = host;

    __atomic_fetch_add(&h->irq[vector], 1, __ATOMIC_SEQ_CST);
    if (again) {
        hg_irq_again(h->dev, vector);
    }
}

static uint64_t th_now(void *host)
{
    ThHost *h = host;

    if (h->manual) {
        return h->now;
    }
    if (h->now_step) {
        return __atomic_add_fetch(&h->now, h->now_step, __ATOMIC_RELAXED);
    }
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static uint64_t th_fair_now(void *host)
{
    return th_now(host) - ((ThHost *)host)->held;
}

static int th_frame(void *host, uint64_t addr, uint64_t *phys)
{
    *phys = phys_of(host, addr);
    return at(host, addr, 8) ? 0 : -1;
}

static int th_look(void *host, uint64_t phys, uint64_t *v)
{
    ThHost *h = host;

    if (phys < h->ram_base || phys - h->ram_base > h->ram_size - 8) {
        return -1;
    }
    *v = __atomic_load_n((u64a *)(h->ram + (phys - h->ram_base)), __ATOMIC_RELAXED);
    return 0;
}

static void th_trace(void *host, HgTraceEvent ev, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    ThHost *h = host;

    if (h->measured) {          /* or the engines wait for this lock and not for the device's */
        return;
    }
    pthread_mutex_lock(&log_lock);
    h->log[h->logged++ % TH_LOG] = (ThEvent) { ev, a, b, c, d };
    pthread_mutex_unlock(&log_lock);
}

static void th_kick(void *host)
{
    __atomic_fetch_add(&((ThHost *)host)->kicks, 1, __ATOMIC_RELAXED);
}

static void *th_thread_create(void *host, const char *name, void *(*fn)(void *), void *opaque)
{
    ThHost *h = host;
    pthread_t *t = malloc(sizeof(*t));

    (void)name;
    if (++h->threads == h->no_thread || pthread_create(t, NULL, fn, opaque)) {
        free(t);
        return NULL;
    }
    return t;
}

static void th_thread_join(void *host, void *thread)
{
    (void)host;
    pthread_join(*(pthread_t *)thread, NULL);
    free(thread);
}

static void *map(uint64_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

ThHost *th_new(uint64_t ram_base, uint64_t ram_size, uint64_t vram_size)
{
    ThHost *h = calloc(1, sizeof(*h));

    h->ram_base = ram_base;
    h->ram_size = ram_size;
    h->vram_size = vram_size;
    h->ram = map(ram_size);
    h->vram = map(vram_size);
    h->log = calloc(TH_LOG, sizeof(*h->log));
    return h;
}

HgDev *th_device(ThHost *h, HgConfig *cfg, int direct, char *err, size_t errlen)
{
    HgHostOps ops = {
        .read = th_read, .write = th_write, .atomic = th_atomic,
        .ram_written = th_ram_written, .vram_written = th_vram_written,
        .irq = th_irq, .now = th_now, .trace = th_trace, .kick = th_kick,
        .fair_now = th_fair_now,
        .thread_create = th_thread_create, .thread_join = th_thread_join,
    };

    if (h->alias) {
        ops.frame = th_frame;
        ops.look = th_look;
    }
    cfg->vram = h->vram;
    cfg->vram_size = h->vram_size;
    if (!cfg->bar2_size) {
        cfg->bar2_size = h->vram_size & -h->vram_size;
    }
    h->dev = hg_new(cfg, &ops, h, err, errlen);
#ifndef HG_UNOBSERVED
    if (h->dev && !hg_observe(h->dev)) {
        hg_free(h->dev);
        h->dev = NULL;
    }
#endif
    if (h->dev && direct) {
        hg_ram_add(h->dev, h->ram_base, h->ram_size, h->ram, false, h);
    }
    return h->dev;
}

void th_free(ThHost *h)
{
    hg_free(h->dev);
    munmap(h->ram, h->ram_size);
    munmap(h->vram, h->vram_size);
    free(h->log);
    free(h);
}
