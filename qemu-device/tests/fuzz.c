/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: bytes become register accesses, ring contents, page tables,
 * programs and device states, on a deterministic device.  With libFuzzer
 * (clang -fsanitize=fuzzer) or, with -DHG_FUZZ_MAIN, from a seeded generator.
 *
 * Sizes are what registers and descriptors allow: lists of 4096 entries, copies of 1 GiB,
 * grids of 2^32, all contexts at once with rings of 4096, fault rings of 65536 used up to
 * their ends.  What was reached is told at the end (tests/core/test_fuzz.py).
 *
 * What must hold: no sanitizer report, each step ends, and an input within its time; one
 * hold of the device's lock looks at no more than base/lock.h says; memory outside RAM and
 * VRAM is never touched (the host callbacks abort), and after a reset the device is as new.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

#define RAM_BASE 0x100000ull
#define LOW      0x80000ull             /* of RAM: program, data, list; most addresses */
#define LIST     (RAM_BASE + 0x40000)   /* HG_COPY_LIST_MAX entries */
/* Rings, each with room for the largest there is; nobody pays for what is not touched. */
#define FAULT_ENTRIES 65536u
#define RING_ENTRIES  4096u
#define FAULT_RING(n) (RAM_BASE + LOW + (n) * (uint64_t)FAULT_ENTRIES * HG_FAULT_ENTRY_SIZE)
#define RING(n)       (FAULT_RING(2) + (n) * (uint64_t)RING_ENTRIES * HG_DESC_SIZE)
#define RAM_SIZE      (RING(HG_NUM_CTXS) - RAM_BASE)
#define VRAM     0x200000ull
/* That an input may take, under the sanitizers. */
#define SECONDS_MAX 10

/* The largest that inputs came to. */
static struct {
    uint64_t ctxs;              /* whose rings were read from */
    uint32_t at_once, ring, slot, fault_ring, fault_slot;
} reached;

typedef struct In {
    const uint8_t *p, *end;
} In;

static uint64_t take(In *in, unsigned n)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < n && in->p < in->end; i++) {
        v |= (uint64_t)*in->p++ << (8 * i);
    }
    return v;
}

#define MUST(x)                                                     \
    do {                                                            \
        if (!(x)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
            abort();                                                \
        }                                                           \
    } while (0)

/* Addresses that mean something, most of the time. */
static uint64_t address(In *in)
{
    uint64_t k = take(in, 1), v = take(in, 3), ram = k & 0x18 ? LOW : RAM_SIZE;

    switch (k & 7) {
    case 0: return RAM_BASE + (v % ram & ~7ull);
    case 1: return RAM_BASE + (v % ram & ~4095ull);
    case 2: return v % VRAM;
    case 3: return v << 12;
    case 4: return RAM_BASE + RAM_SIZE - (v & 0x7f);
    case 5: return UINT64_MAX - (v & 0xfff);
    case 6: return v << 40 | k;
    default: return v & 0x3fffff;
    }
}

static uint64_t reg(In *in)
{
    static const uint32_t base[] = {
        0, HG_REG_CTRL, HG_REG_INTR_STATUS, HG_REG_ASID, HG_REG_ASID, HG_REG_INVAL_ASID,
        HG_REG_FAULT, HG_REG_NRFAULT, HG_REG_REPLAY, HG_REG_CANCEL_ADDR, HG_REG_CTX,
        HG_REG_CTX + HG_CTX_STRIDE, HG_REG_COUNTER, HG_REG_DOORBELL,
        HG_REG_DOORBELL + HG_DOORBELL_STRIDE, HG_REG_CTX + 63 * HG_CTX_STRIDE,
        HG_REG_AUDIT_CTRL, HG_REG_AUDIT_ENC, HG_REG_AUDIT_ASID, HG_REG_TABLE_CTRL,
    };
    uint64_t b = take(in, 1), o = take(in, 1);

    if (b == 255) {
        return take(in, 3);
    }
    return base[b % (sizeof(base) / sizeof(*base))] + (o & 0x3c);
}

/* Of 32 bits, sizes among them: of those at random none is a power of two. */
static uint32_t value(In *in)
{
    unsigned k = take(in, 1);

    switch (k & 7) {
    case 0:
    case 1: return 1u << (k >> 3);
    case 2: return take(in, 1);
    case 3: return take(in, 2);
    default: return take(in, 4);
    }
}

static uint32_t ctx_read(HgDev *d, unsigned n, unsigned off)
{
    return hg_mmio_read(d, HG_REG_CTX + n * HG_CTX_STRIDE + off, 4);
}

/* An empty ring: mostly a small one, else the largest. */
static void context(HgDev *d, unsigned n, unsigned how)
{
    static const uint32_t size[] = { 16, 2, 16, RING_ENTRIES };
    uint64_t c = HG_REG_CTX + n * HG_CTX_STRIDE;

    hg_mmio_write(d, c + HG_CTX_CTRL, 0, 4);
    hg_mmio_write(d, c + HG_CTX_RING_BASE, RING(n), 8);
    hg_mmio_write(d, c + HG_CTX_RING_SIZE, size[how >> 1 & 3], 4);
    hg_mmio_write(d, c + HG_CTX_CTRL,
                  HG_CTX_ENABLE | (how & 1 ? HG_CTX_PRIV : 0) | (how & 8 ? HG_CTX_STALL : 0), 4);
}

/* how: bits 0-2 of context 0, 3-5 of context 1; 6, 7: the fault ring, and the other, is large */
static void setup(HgDev *d, ThHost *h, unsigned how)
{
    /* a sane start makes deep states reachable; the input then bends it */
    static const uint32_t prog[] = {
        0xcc0022f3,             /* csrr t0, tid */
        0x00329313,             /* slli t1, t0, 3 */
        0x00a30333,             /* add t1, t1, a0 */
        0x00533023,             /* sd t0, 0(t1) */
        0xd222f053,             /* fcvt.d.l ft0, t0 */
        0x1a0070d3,             /* fdiv.d ft1, ft0, ft0 */
        0x00133027,             /* fsd ft1, 0(t1) */
        0x0055302f,             /* amoadd.d zero, t0, (a0) */
        0x0200100b,             /* warp sync */
        0x0662a28b,             /* shuffle.xor t0, t0, t1 */
        0x0002b30b,             /* ballot t1, t0 */
        0x0000100b,             /* barrier */
        0x00156013,             /* prefetch.r 0(a0) */
        0x0000000b,             /* exit */
    };
    uint64_t *pt = (uint64_t *)(h->vram);
    memcpy(h->ram + 0x8000, prog, sizeof(prog));
    pt[0] = 0x1000 | HG_PTE_VALID;                      /* 0 -> 0x1000 -> 0x2000 -> 0x3000 */
    pt[512] = 0x2000 | HG_PTE_VALID;
    pt[1024] = 0x3000 | HG_PTE_VALID;
    pt[1536 + 16] = (RAM_BASE + 0x8000) | HG_PTE_VALID | HG_PTE_APER_SYS;
    pt[1536 + 17] = (RAM_BASE + 0x9000) | HG_PTE_VALID | HG_PTE_APER_SYS | HG_PTE_WRITE |
                    HG_PTE_ATOMIC;
    pt[1536 + 18] = 0x4000 | HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC | HG_PTE_CACHED;
    hg_mmio_write(d, HG_REG_ASID, HG_ROOT_ENABLE | HG_ROOT_VRAM, 8);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t ring = i ? HG_REG_NRFAULT : HG_REG_FAULT;
        context(d, i, how >> (3 * i));
        hg_mmio_write(d, ring + HG_FAULT_BASE, FAULT_RING(i), 8);
        hg_mmio_write(d, ring + HG_FAULT_SIZE, how >> (6 + i) & 1 ? FAULT_ENTRIES : 8, 4);
        hg_mmio_write(d, ring + HG_FAULT_CTRL, HG_FAULT_CTRL_ENABLE, 4);
    }
    /* the audit walks what the input writes to RAM */
    for (unsigned i = 0; i < HG_NUM_ENC; i++) {
        hg_mmio_write(d, HG_REG_AUDIT_ENC + i * 8, i == HG_ENC_PFN ? HG_PTE_FRAME_MASK :
                      i == HG_ENC_SWAP ? 59 | 5 << 8 | 9 << 16 | 50 << 24 : i + 1, 8);
    }
    hg_mmio_write(d, HG_REG_AUDIT_CTRL, HG_AUDIT_CTRL_READY, 4);
    hg_mmio_write(d, HG_REG_AUDIT_ASID, (RAM_BASE + 0x9000) | 4 << HG_AUDIT_LEVELS_SHIFT |
                  HG_AUDIT_ENABLE, 8);
    hg_audit_set(d, "access");
    hg_mmio_write(d, HG_REG_CTRL, HG_CTRL_ENABLE, 4);
}

/* A list as long as they get, of one or two entries. */
static void list(ThHost *h, In *in, uint64_t *w)
{
    static const unsigned spaces[] = { HG_SPACE_VIRT, HG_SPACE_VRAM, HG_SPACE_SYS };
    uint64_t seg[2][4];

    for (unsigned i = 0; i < 2; i++) {
        uint64_t f = take(in, 1);
        seg[i][0] = address(in);
        seg[i][1] = address(in);
        seg[i][2] = f & 0x80 ? HG_COPY_MAX_BYTES : take(in, 2) << (f >> 4 & 7);
        seg[i][3] = spaces[(f & 3) % 3] << HG_COPY_SRC_SHIFT |
                    spaces[(f >> 2 & 3) % 3] << HG_COPY_DST_SHIFT;
    }
    for (unsigned i = 0; i < HG_COPY_LIST_MAX; i++) {
        memcpy(h->ram + (LIST - RAM_BASE) + i * sizeof(seg[0]), seg[i & 1], sizeof(seg[0]));
    }
    w[1] = LIST;
    w[2] = HG_COPY_LIST_MAX;
}

static void submit(ThHost *h, unsigned n, uint32_t slot, const uint64_t w[8])
{
    memcpy(h->ram + (RING(n) - RAM_BASE) + slot * HG_DESC_SIZE, w, 8 * sizeof(*w));
}

static void doorbell(HgDev *d, unsigned n, uint32_t put)
{
    hg_mmio_write(d, HG_REG_DOORBELL + n * HG_DOORBELL_STRIDE, put, 4);
}

/* Of which context. */
static unsigned descriptor(HgDev *d, ThHost *h, In *in)
{
    uint64_t w[8] = { 0 }, op;
    unsigned n = take(in, 1), where = take(in, 1);
    uint32_t size, slot;

    n = n & 0x80 ? n % HG_NUM_CTXS : n & 1;
    if (!(ctx_read(d, n, HG_CTX_STATUS) & HG_CTX_ACTIVE)) {
        context(d, n, where >> 4);
    }
    size = ctx_read(d, n, HG_CTX_RING_SIZE);
    size = size ? size : 2;
    slot = (where & 8 ? take(in, 2) : where & 7) & (size - 1);
    op = take(in, 1);
    w[0] = op % 9;
    if (op & 0x80) {
        w[0] |= take(in, 2) << 8;
    } else if (w[0] == HG_OP_COPY) {
        w[0] |= (uint64_t)(op & 0x30) << 4 | (op & 0x40) << 4;
    }
    for (unsigned i = 1; i < 8; i++) {
        w[i] = address(in);
    }
    switch (w[0] & 0xff) {
    case HG_OP_LAUNCH:
        w[1] = op & 0x80 ? w[1] : 0x10000;
        w[2] = op & 0x40 ? w[2] : 0x11000;
        w[3] = (op & 0x20 ? take(in, 4) : take(in, 1) & 7) | (take(in, 2) & 0x7ff) << 32;
        w[6] = 2000;
        break;
    case HG_OP_COPY:            /* sometimes all that it can be */
        w[3] = op & 0x80 ? w[3] & (2ull * HG_COPY_MAX_BYTES - 1) : w[3] & 0x3fff;
        break;
    case HG_OP_COPY_LIST:
        if (op & 0x40) {
            list(h, in, w);
        } else {
            w[2] &= op & 0x80 ? 2 * HG_COPY_LIST_MAX - 1 : 0xf;
        }
        break;
    case HG_OP_INVALIDATE:
        w[1] = (w[1] & (3 | HG_INVAL_MEMBAR)) | (w[1] & 0xff) << 16;
        break;
    case HG_OP_FENCE:
        w[0] |= op & 0x40 ? HG_FENCE_MEMBAR : 0;
        break;
    case HG_OP_FLUSH:
        w[1] = op & 0x40 ? w[1] : 0x4000;
        break;
    }
    if (where >= 0xf8) {        /* as many of it as there is room for; long lists would take long */
        w[2] &= (w[0] & 0xff) == HG_OP_COPY_LIST ? 63 : UINT64_MAX;
        for (slot = 0; slot < size; slot++) {
            submit(h, n, slot, w);
        }
        doorbell(d, n, (ctx_read(d, n, HG_CTX_GET) - 1) & (size - 1));
        hg_step(d, 4 * size);
    } else {
        submit(h, n, slot, w);
        doorbell(d, n, (slot + 1) & (size - 1));
    }
    return n;
}

/* Contexts with a list each, which one copy engine has before it: the more there are to compare. */
static void many_lists(HgDev *d, ThHost *h, In *in)
{
    unsigned n = take(in, 1), all = take(in, 1);
    uint64_t w[8] = { HG_OP_COPY_LIST };

    all = 1 + all % (all & 0xc0 ? 4 : HG_NUM_CTXS);     /* mostly few: they take their time */
    list(h, in, w);
    for (; all; all--, n++) {
        context(d, n % HG_NUM_CTXS, 1);
        submit(h, n % HG_NUM_CTXS, 0, w);
        doorbell(d, n % HG_NUM_CTXS, 1);
    }
}

/* Save and load, with the state bent in between. */
static void reload(HgDev *d, In *in, void (*bend)(In *in, uint8_t *s, size_t n))
{
    char err[200] = "";
    size_t n;
    uint8_t *s;

    hg_stop(d);                 /* engines may stand anywhere */
    n = hg_save_size(d);
    s = malloc(n);
    MUST(hg_save(d, s, n) == n && n <= hg_save_max(d));
    bend(in, s, n);
    MUST(hg_load(d, s, n, err, sizeof(err)) == 0 || err[0]);
    free(s);
    hg_start(d);
}

static void bend_bytes(In *in, uint8_t *s, size_t n)
{
    for (unsigned k = take(in, 1) & 3; k; k--) {
        s[take(in, 3) % n] = take(in, 1);
    }
}

/* Fault rings that were in use for long: a few entries before their ends. */
static void bend_fault_rings(In *in, uint8_t *s, size_t n)
{
    uint8_t *r = memmem(s, n, "RING", 4);
    struct __attribute__((packed)) {
        uint64_t base;
        uint32_t base_lo, size, get, put;
        uint8_t enabled, overflow;
    } ring;

    for (unsigned i = 0; i < 2; i++) {
        uint8_t *at = r + 8 + i * sizeof(ring);
        memcpy(&ring, at, sizeof(ring));
        if (ring.enabled) {
            ring.get = ring.put = ring.size - 1 - take(in, 1) % 4 % ring.size;
            memcpy(at, &ring, sizeof(ring));
        }
    }
}

static void note_ring(HgDev *d, unsigned n)
{
    uint32_t get = ctx_read(d, n, HG_CTX_GET), size = ctx_read(d, n, HG_CTX_RING_SIZE);
    uint32_t put = hg_mmio_read(d, HG_REG_FAULT + HG_FAULT_PUT, 4);
    uint32_t faults = hg_mmio_read(d, HG_REG_FAULT + HG_FAULT_SIZE, 4);
    uint32_t ctxs = hg_counter(d, HG_CNT_ACTIVE_CTXS);

#define LARGEST(x, v) (reached.x = (v) > reached.x ? (v) : reached.x)
    LARGEST(at_once, ctxs);
    if (get && get < size) {    /* a bent state has any in one that is disabled */
        reached.ctxs |= 1ull << n;
        LARGEST(ring, size);
        LARGEST(slot, get);
    }
    if (put) {
        LARGEST(fault_ring, faults);
        LARGEST(fault_slot, put);
    }
}

static const char *const rules[] = {
    "", "fault prob=0.3 duplicate", "fault nth=2 delay_valid=5000", "fault prob=0.2 drop",
    "tlb_invalidate prob=0.5 delay=3000", "replay prob=0.5 delay=2000", "replay nth=1 lost",
    "copy partial=100", "copy delay=9us", "dma_write prob=0.1 error", "dma_read prob=0.1 error",
    "irq prob=0.5 delay=1us; doorbell prob=0.3 delay=2us; fence delay=1us; launch delay=1us",
    "walk prob=0.3 delay=4us", "fault prob=0.5 repeat=20us", "irq duplicate", "replay delay=1ms; tlb_invalidate delay=1ms",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* CPU time of this process, so that others on this host do not count. */
static double cpu_time(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    In in = { data, data + size };
    double begun = cpu_time();
    ThHost *h = th_new(RAM_BASE, RAM_SIZE, VRAM);
    unsigned ctx = 0, lists = 0, how;
    HgConfig cfg;
    char err[200];
    HgDev *d;

    hg_config_default(&cfg);
    cfg.deterministic = true;
    cfg.warps = 4;
    cfg.utlb_entries = 1 + take(&in, 1) % 8;
    cfg.utlb_misses = 1 + take(&in, 1) % 4;
    cfg.l2tlb_entries = 16;
    cfg.walk_entries = 8;
    cfg.big_pages = true;
    cfg.ce_faults = true;
    cfg.sms_per_utlb = 2;
    cfg.audit_wait_ns = take(&in, 1) * 100;
    cfg.audit_cmd = true;
    h->now_step = 100;
    how = take(&in, 1);
    cfg.data_pages = how & 2 ? hg_data_least(&cfg) : 0;
    d = th_device(h, &cfg, how & 1, err, sizeof(err));
    MUST(d);
    hg_start(d);
    setup(d, h, 1 | take(&in, 1));      /* two copies at a time have a lot to compare */
    for (; in.p < in.end; note_ring(d, ctx)) {
        switch (take(&in, 1) % 17) {
        case 0:
        case 1: {
            uint64_t r = reg(&in);
            hg_mmio_write(d, r, value(&in), 4);
            break;
        }
        case 2:
            hg_mmio_write(d, reg(&in), address(&in), 8);
            break;
        case 3:
            hg_mmio_read(d, reg(&in), take(&in, 1) & 1 ? 8 : 4);
            break;
        case 4:
        case 5:
            ctx = descriptor(d, h, &in);
            break;
        case 6: {
            uint64_t a = address(&in), v = take(&in, 8);
            if (a >= RAM_BASE && a <= RAM_BASE + RAM_SIZE - 8) {
                memcpy(h->ram + (a - RAM_BASE), &v, 8);
            } else {
                memcpy(h->vram + a % (VRAM - 8), &v, 8);
            }
            break;
        }
        case 7: {               /* a page-table entry */
            uint64_t i = take(&in, 1) & 31, v = address(&in) | take(&in, 1);
            memcpy(h->vram + 0x3000 + i * 8, &v, 8);
            break;
        }
        case 8: {               /* an instruction */
            uint32_t i = take(&in, 1) & 15, v = take(&in, 4);
            memcpy(h->ram + 0x8000 + i * 4, &v, 4);
            break;
        }
        case 9:
            hg_inject(d, rules[take(&in, 1) % (sizeof(rules) / sizeof(*rules))], err,
                      sizeof(err));
            break;
        case 10:
            reload(d, &in, bend_bytes);
            break;
        case 11:
            if (take(&in, 1) & 1) {
                hg_ram_remove(d, RAM_BASE, RAM_SIZE);
            } else {
                hg_ram_remove(d, RAM_BASE, RAM_SIZE);
                hg_ram_add(d, RAM_BASE, RAM_SIZE, h->ram, take(&in, 1) & 1, h);
            }
            break;
        case 12:
            hg_stop(d);
            MUST(!hg_step(d, 100));
            hg_start(d);
            break;
        case 13: {              /* one engine a little, the others where they are */
            unsigned e = take(&in, 1) % (hg_engines(d) + 1), n = 1 + take(&in, 1) % 40;
            bool able = e < hg_engines(d) && hg_engines_ready(d) >> e & 1;
            /* before: the clock goes on with each look, and what was due is over then */
            bool due = hg_deadline(d) != UINT64_MAX;
            uint32_t did = hg_step_engine(d, e, n);
            MUST(did <= n && (able || !did || due));
            continue;
        }
        case 14:
            reload(d, &in, bend_fault_rings);
            break;
        case 15:
            if (!lists++) {     /* enough for an input's time */
                many_lists(d, h, &in);
            }
            break;
        default:
            hg_step(d, 1 + take(&in, 1) * 8);
        }
        hg_step(d, 200);
    }
    hg_set_bus_master(d, true);     /* parks the engines */
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        hg_mmio_write(d, HG_REG_CTX + i * HG_CTX_STRIDE + HG_CTX_CTRL, 0, 4);
    }
    hg_inject(d, "", err, sizeof(err));
    hg_mmio_write(d, HG_REG_REPLAY, HG_REPLAY_START, 4);   /* what prefetches told of is till then */
    MUST(hg_counter(d, HG_CNT_STALLED_WARPS) == 0);
    MUST(hg_counter(d, HG_CNT_PENDING_FAULTS) == 0);
    MUST(hg_counter(d, HG_CNT_ACTIVE_CTXS) == 0);
    hg_reset(d);
    for (unsigned i = 0; i < HG_NUM_COUNTERS; i++) {
        MUST(i == HG_CNT_VIOLATIONS || hg_counter(d, i) == 0);
    }
    th_free(h);
    MUST(cpu_time() - begun < SECONDS_MAX);
    return 0;
}

#ifdef HG_FUZZ_MAIN
static uint64_t rnd(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* fuzz RUNS [SEED] | fuzz -f FILE */
int main(int argc, char **argv)
{
    static uint8_t buf[4096];

    if (argc == 3 && !strcmp(argv[1], "-f")) {
        FILE *f = fopen(argv[2], "rb");
        if (!f) {
            perror(argv[2]);
            return 2;
        }
        size_t n = fread(buf, 1, sizeof(buf), f);
        fclose(f);
        return LLVMFuzzerTestOneInput(buf, n);
    }
    unsigned long runs = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000;
    unsigned long seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
    for (unsigned long i = 0; i < runs; i++) {
        uint64_t s = (seed + i) * 0x9e3779b97f4a7c15ull | 1;
        size_t n = 16 + rnd(&s) % 1500;
        for (size_t k = 0; k < n; k++) {
            buf[k] = rnd(&s) >> 24;
        }
        FILE *f = getenv("HG_FUZZ_SAVE") ? fopen(getenv("HG_FUZZ_SAVE"), "wb") : NULL;
        if (f) {                /* the input that crashes is the last one here */
            fwrite(buf, 1, n, f);
            fclose(f);
        }
        alarm(20 * SECONDS_MAX);        /* one that never ends, on whatever host */
        LLVMFuzzerTestOneInput(buf, n);
    }
    printf("fuzz: %lu inputs from seed %lu\n", runs, seed);
    printf("reached: contexts %d, at once %u, ring %u, slot %u, fault ring %u, fault slot %u\n",
           __builtin_popcountll(reached.ctxs), reached.at_once, reached.ring, reached.slot,
           reached.fault_ring, reached.fault_slot);
    return 0;
}
#endif
