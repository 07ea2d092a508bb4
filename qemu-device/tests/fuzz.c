/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: bytes become register accesses, ring contents, page tables,
 * programs and device states, on a deterministic device.  With libFuzzer
 * (clang -fsanitize=fuzzer) or, with -DHG_FUZZ_MAIN, from a seeded generator.
 *
 * Sizes are what registers and descriptors allow: lists of 4096 entries, copies of 1 GiB,
 * rings of 65536, grids of 2^32.
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
#define RAM_SIZE 0x80000ull
#define LIST     (RAM_BASE + 0x40000)   /* HG_COPY_LIST_MAX entries */
#define VRAM     0x200000ull
/* That an input may take, under the sanitizers. */
#define SECONDS_MAX 10

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
    uint64_t k = take(in, 1), v = take(in, 3);

    switch (k & 7) {
    case 0: return RAM_BASE + (v % RAM_SIZE & ~7ull);
    case 1: return RAM_BASE + (v % RAM_SIZE & ~4095ull);
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

static void setup(HgDev *d, ThHost *h, unsigned priv)
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
    pt[1536 + 18] = 0x4000 | HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC;
    hg_mmio_write(d, HG_REG_ASID, HG_ROOT_ENABLE | HG_ROOT_VRAM, 8);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t c = HG_REG_CTX + i * HG_CTX_STRIDE;
        hg_mmio_write(d, c + HG_CTX_RING_BASE, RAM_BASE + 0x1000 + i * 0x1000, 8);
        hg_mmio_write(d, c + HG_CTX_RING_SIZE, 16, 4);
        hg_mmio_write(d, c + HG_CTX_CTRL, HG_CTX_ENABLE | (priv >> i & 1 ? HG_CTX_PRIV : 0), 4);
    }
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_BASE, RAM_BASE + 0x3000, 8);
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_SIZE, 8, 4);
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_CTRL, 1, 4);
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

static void descriptor(HgDev *d, ThHost *h, In *in)
{
    uint64_t w[8] = { 0 }, ctx = take(in, 1) & 1, slot = take(in, 1) & 15;
    uint64_t op = take(in, 1);

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
        w[1] = (w[1] & 3) | (w[1] & 0xff) << 16;
        break;
    }
    memcpy(h->ram + 0x1000 + ctx * 0x1000 + slot * HG_DESC_SIZE, w, sizeof(w));
    hg_mmio_write(d, HG_REG_DOORBELL + ctx * HG_DOORBELL_STRIDE, (slot + 1) & 15, 4);
}

static const char *const rules[] = {
    "", "fault prob=0.3 duplicate", "fault nth=2 delay_valid=5000", "fault prob=0.2 drop",
    "tlb_invalidate prob=0.5 delay=3000", "replay prob=0.5 delay=2000", "replay nth=1 lost",
    "copy partial=100", "copy delay=9us", "dma_write prob=0.1 error", "dma_read prob=0.1 error",
    "irq prob=0.5 delay=1us; doorbell prob=0.3 delay=2us; fence delay=1us; launch delay=1us",
    "walk prob=0.3 delay=4us", "irq duplicate", "replay delay=1ms; tlb_invalidate delay=1ms",
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
    HgConfig cfg;
    char err[200];
    HgDev *d;

    hg_config_default(&cfg);
    cfg.deterministic = true;
    cfg.warps = 4;
    cfg.utlb_entries = 1 + take(&in, 1) % 8;
    cfg.utlb_misses = 1 + take(&in, 1) % 4;
    cfg.l2tlb_entries = 16;
    cfg.audit_wait_ns = take(&in, 1) * 100;
    cfg.audit_cmd = true;
    h->now_step = 100;
    d = th_device(h, &cfg, take(&in, 1) & 1, err, sizeof(err));
    MUST(d);
    hg_start(d);
    setup(d, h, 1 | take(&in, 1));      /* two copies at a time have a lot to compare */
    while (in.p < in.end) {
        switch (take(&in, 1) % 15) {
        case 0:
        case 1:
            hg_mmio_write(d, reg(&in), take(&in, 4), 4);
            break;
        case 2:
            hg_mmio_write(d, reg(&in), address(&in), 8);
            break;
        case 3:
            hg_mmio_read(d, reg(&in), take(&in, 1) & 1 ? 8 : 4);
            break;
        case 4:
        case 5:
            descriptor(d, h, &in);
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
        case 10: {
            size_t n;
            hg_stop(d);         /* engines may stand anywhere */
            n = hg_save_size(d);
            uint8_t *s = malloc(n);
            MUST(hg_save(d, s, n) == n && n <= hg_save_max(d));
            for (unsigned k = take(&in, 1) & 3; k; k--) {
                s[take(&in, 3) % n] = take(&in, 1);
            }
            err[0] = 0;
            MUST(hg_load(d, s, n, err, sizeof(err)) == 0 || err[0]);
            free(s);
            hg_start(d);
            break;
        }
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
            uint32_t did = hg_step_engine(d, e, n);
            MUST(did <= n && (able || !did || hg_deadline(d) != UINT64_MAX));
            continue;
        }
        default:
            hg_step(d, 1 + take(&in, 1) * 8);
        }
        hg_step(d, 200);
    }
    hg_set_bus_master(d, true);     /* parks the engines */
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        hg_mmio_write(d, HG_REG_CTX + i * HG_CTX_STRIDE + HG_CTX_CTRL, 0, 4);
    }
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
    return 0;
}
#endif
