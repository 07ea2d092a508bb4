/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of what Python cannot see well: memory primitives, the RAM map,
 * bookkeeping after aborts, hostile states, host calls in awkward moments.
 * Run under ASan and UBSan.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "access/decode.h"
#include "base/coro.h"
#include "mem/mem.h"
#include "simt/fp.h"
#include "host.h"

#define RAM_BASE 0x80000000ull
#define RAM_SIZE 0x100000ull
#define VRAM     0x400000ull

static unsigned checks;

#define CHECK(x)                                                            \
    do {                                                                    \
        checks++;                                                           \
        if (!(x)) {                                                         \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #x);  \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

typedef struct Fix {
    ThHost *h;
    HgDev *d;
} Fix;

static Fix setup(bool deterministic, bool direct)
{
    Fix f;
    HgConfig cfg;
    char err[200];

    hg_config_default(&cfg);
    cfg.deterministic = deterministic;
    f.h = th_new(RAM_BASE, RAM_SIZE, VRAM);
    f.h->now_step = deterministic ? 1000 : 0;
    f.d = th_device(f.h, &cfg, direct, err, sizeof(err));
    CHECK(f.d);
    hg_start(f.d);
    hg_mmio_write(f.d, HG_REG_CTRL, HG_CTRL_ENABLE, 4);
    return f;
}

/* VA 0x10000.. maps RAM pages 1..16 of a table at RAM page 32..35; pages in [hole, hole_end) do not. */
static void tables(Fix *f, unsigned hole, unsigned hole_end)
{
    uint64_t *pt = (uint64_t *)(f->h->ram + 32 * 4096);

    for (unsigned l = 0; l < 3; l++) {
        pt[l * 512] = (RAM_BASE + (33 + l) * 4096) | HG_PTE_VALID | HG_PTE_APER_SYS;
    }
    for (unsigned p = 0; p < 16; p++) {
        pt[3 * 512 + 16 + p] = p >= hole && p < hole_end ? 0 :
            (RAM_BASE + (1 + p) * 4096) | HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC |
            HG_PTE_APER_SYS;
    }
    hg_mmio_write(f->d, HG_REG_ASID, (RAM_BASE + 32 * 4096) | HG_ROOT_ENABLE, 8);
}

static void context(Fix *f, unsigned c)
{
    uint64_t b = HG_REG_CTX + c * HG_CTX_STRIDE;

    hg_mmio_write(f->d, b + HG_CTX_RING_BASE, RAM_BASE + (40 + c) * 4096, 8);
    hg_mmio_write(f->d, b + HG_CTX_RING_SIZE, 8, 4);
    hg_mmio_write(f->d, b + HG_CTX_CTRL, HG_CTX_ENABLE, 4);
}

static void launch(Fix *f, unsigned c, unsigned slot, uint32_t grid, uint32_t block)
{
    uint64_t w[8] = { HG_OP_LAUNCH, 0x10000, 0x11000, grid | (uint64_t)block << 32, 0, 0, 0,
                      RAM_BASE + 50 * 4096 + c * 64 };

    memset(f->h->ram + 50 * 4096 + c * 64, 0, 64);
    memcpy(f->h->ram + (40 + c) * 4096 + slot * 64, w, sizeof(w));
    hg_mmio_write(f->d, HG_REG_DOORBELL + c * HG_DOORBELL_STRIDE, slot + 1, 4);
}

static uint32_t status(Fix *f, unsigned c)
{
    uint32_t s;
    uint64_t done;

    memcpy(&done, f->h->ram + 50 * 4096 + c * 64 + HG_RPT_DONE, 8);
    memcpy(&s, f->h->ram + 50 * 4096 + c * 64, 4);
    return done == HG_RPT_DONE_MAGIC ? s : 999;
}

static void test_copies(void)
{
    static uint8_t a[200], b[200], want[200];

    for (unsigned s = 0; s < 16; s++) {
        for (unsigned t = 0; t < 16; t++) {
            for (unsigned n = 0; n < 70; n++) {
                for (unsigned i = 0; i < sizeof(a); i++) {
                    a[i] = i * 7 + 1;
                    b[i] = want[i] = i;
                }
                memcpy(want + t, a + s, n);
                hg_copy_shared(b + t, a + s, n);
                CHECK(!memcmp(b, want, sizeof(b)));
                memset(b + t, 0, n);
                hg_copy_in(b + t, a + s, n);
                CHECK(!memcmp(b, want, sizeof(b)));
                memset(b + t, 0, n);
                hg_copy_out(b + t, a + s, n);
                CHECK(!memcmp(b, want, sizeof(b)));
            }
        }
    }
}

static void test_atomics(void)
{
    uint64_t m = 0xffffffff80000005ull;
    uint32_t *w = (uint32_t *)&m;

    CHECK(hg_host_atomic(w, 4, HG_ATOMIC_MIN, 3, 0) == 0x80000005u);
    CHECK(m == 0xffffffff80000005ull);              /* it is negative in 32 bits */
    CHECK(hg_host_atomic(w, 4, HG_ATOMIC_MINU, 3, 0) == 0x80000005u);
    CHECK(m == 0xffffffff00000003ull);              /* the neighbour is untouched */
    CHECK(hg_host_atomic(&m, 8, HG_ATOMIC_MAX, 9, 0) == 0xffffffff00000003ull && m == 9);
    CHECK(hg_host_atomic(&m, 8, HG_ATOMIC_CAS, 1, 8) == 9 && m == 9);
    CHECK(hg_host_atomic(&m, 8, HG_ATOMIC_CAS, 1, 9) == 9 && m == 1);
}

static void test_ram_map(void)
{
    Fix f = setup(true, false);
    uint64_t top = UINT64_MAX - 0xfff;
    static _Alignas(4096) uint8_t page[3][4096];

    hg_ram_add(f.d, 0x3000, 0x1000, page[1], false, f.h);
    hg_ram_add(f.d, 0x1000, 0x1000, page[0], false, f.h);
    hg_ram_add(f.d, top, 0x1000, page[2], true, f.h);       /* ends at 2^64 */
    CHECK(f.d->nram == 3);
    CHECK(hg_ram_find(f.d, 0x1000, 0x1000)->ptr == page[0]);
    CHECK(!hg_ram_find(f.d, 0x1001, 0x1000));
    CHECK(!hg_ram_find(f.d, 0x2000, 1));
    CHECK(!hg_ram_find(f.d, 0xfff, 1));
    CHECK(hg_ram_find(f.d, 0x3fff, 1)->ptr == page[1]);
    CHECK(hg_ram_find(f.d, UINT64_MAX, 1)->ptr == page[2]);
    CHECK(!hg_ram_find(f.d, UINT64_MAX, 2));
    hg_ram_add(f.d, top, 0x2000, page[2], true, f.h);       /* wraps: refused */
    hg_ram_add(f.d, 0x9000, 0, page[2], true, f.h);
    CHECK(f.d->nram == 3);
    hg_ram_remove(f.d, 0x1000, 0x1000);
    CHECK(!hg_ram_find(f.d, 0x1000, 1) && f.d->nram == 2);
    hg_ram_remove(f.d, top, 0x1000);
    hg_ram_remove(f.d, 0x3000, 0x1000);
    CHECK(f.d->nram == 0);
    th_free(f.h);
}

/* Memory that goes away and comes back at another host address, with TLBs warm. */
static void test_ram_moves(void)
{
    static const uint32_t prog[] = { 0x00150513 /* addi a0, a0, 1 (dropped) */, 0x0000000b };
    Fix f = setup(true, true);
    uint8_t *old = f.h->ram, *copy;

    tables(&f, 16, 16);
    memcpy(f.h->ram + 4096, prog, sizeof(prog));
    context(&f, 1);
    launch(&f, 1, 0, 1, 32);
    while (hg_step(f.d, 1000)) {
    }
    CHECK(status(&f, 1) == 0);
    hg_ram_remove(f.d, RAM_BASE, RAM_SIZE);
    copy = aligned_alloc(4096, RAM_SIZE);
    memcpy(copy, old, RAM_SIZE);
    memset(old, 0xff, RAM_SIZE);
    f.h->ram = copy;
    hg_ram_add(f.d, RAM_BASE, RAM_SIZE, copy, false, f.h);
    launch(&f, 1, 1, 1, 32);
    while (hg_step(f.d, 1000)) {
    }
    CHECK(status(&f, 1) == 0);
    for (unsigned i = 0; i < RAM_SIZE; i++) {
        CHECK(old[i] == 0xff);              /* not one byte through the old pointer */
    }
    hg_ram_remove(f.d, RAM_BASE, RAM_SIZE);
    free(copy);
    f.h->ram = old;
    th_free(f.h);
}

static void test_read_only_ram(void)
{
    static const uint32_t prog[] = { 0x00a53023 /* sd a0, 0(a0) */, 0x0000000b };
    Fix f = setup(true, false);
    uint32_t reason;

    tables(&f, 16, 16);
    memcpy(f.h->ram + 4096, prog, sizeof(prog));
    hg_ram_add(f.d, RAM_BASE, 32 * 4096, f.h->ram, true, f.h);      /* code and data */
    context(&f, 1);
    launch(&f, 1, 0, 1, 1);
    while (hg_step(f.d, 1000)) {
    }
    CHECK(status(&f, 1) == HG_ERR_FAULT);
    memcpy(&reason, f.h->ram + 50 * 4096 + 64 + HG_RPT_REASON, 4);
    CHECK(reason == HG_REASON_POISON);
    CHECK(f.h->ram[2 * 4096] == 0);
    th_free(f.h);
}

/* Abort with everything in flight: no reference, gauge or slot stays behind. */
static void test_abort_leaves_nothing(void)
{
    static const uint32_t prog[] = {
        0xcc0022f3,             /* csrr t0, tid */
        0x00c29293,             /* slli t0, t0, 12 */
        0x005502b3,             /* add t0, a0, t0 */
        0x0052b023,             /* sd t0, 0(t0) */
        0x0000100b,             /* barrier */
        0x0000000b,
    };

    for (unsigned steps = 0; steps < 120; steps++) {
        Fix f = setup(true, true);
        tables(&f, 3, 9);
        memcpy(f.h->ram + 4096, prog, sizeof(prog));
        hg_mmio_write(f.d, HG_REG_FAULT + HG_FAULT_BASE, RAM_BASE + 60 * 4096, 8);
        hg_mmio_write(f.d, HG_REG_FAULT + HG_FAULT_SIZE, 8, 4);
        hg_mmio_write(f.d, HG_REG_FAULT + HG_FAULT_CTRL, 1, 4);
        context(&f, 1);
        context(&f, 2);
        launch(&f, 1, 0, 6, 8);
        launch(&f, 2, 0, 3, 40);
        for (unsigned i = 0; i < steps; i++) {
            for (unsigned k = 0; k < hg_engines(f.d); k++) {
                hg_step_engine(f.d, k, 7);      /* and so they stand anywhere */
            }
            if (i % 9 == 8) {
                hg_mmio_write(f.d, HG_REG_REPLAY, HG_REPLAY_START_ACK_ALL, 4);
            }
        }
        hg_mmio_write(f.d, HG_REG_CTX + HG_CTX_STRIDE + HG_CTX_CTRL, 0, 4);
        hg_mmio_write(f.d, HG_REG_CTX + 2 * HG_CTX_STRIDE + HG_CTX_CTRL, 0, 4);
        if (steps & 1) {
            hg_park(f.d);
        } else {
            while (hg_step(f.d, 100)) {
            }
        }
        CHECK(hg_counter(f.d, HG_CNT_STALLED_WARPS) == 0);
        CHECK(hg_counter(f.d, HG_CNT_PENDING_FAULTS) == 0);
        CHECK(f.d->nrq == 0 && f.d->replay_done == f.d->replay_seq);
        for (unsigned s = 0; s < f.d->nsm; s++) {
            for (unsigned p = 0; p < f.d->cfg.utlb_misses; p++) {
                CHECK(f.d->eng[s].pend[p].refs == 0);
            }
            for (unsigned c = 1; c < 3; c++) {
                CHECK(f.d->ctx[c].sm[s].free_mask == 0xff && !f.d->ctx[c].sm[s].run_mask);
            }
        }
        th_free(f.h);
    }
}

/* Every prefix and every single-byte change of a state with work in flight. */
static void test_hostile_states(void)
{
    static const uint32_t prog[] = {
        0xcc0022f3, 0x00c29293, 0x005502b3, 0x0052b023, 0x0000100b, 0x0000000b,
    };
    Fix f = setup(true, true);
    char err[200];

    tables(&f, 3, 9);
    memcpy(f.h->ram + 4096, prog, sizeof(prog));
    context(&f, 1);
    launch(&f, 1, 0, 6, 8);
    hg_step(f.d, 300);
    CHECK(hg_counter(f.d, HG_CNT_STALLED_WARPS));
    hg_stop(f.d);
    size_t n = hg_save_size(f.d);
    uint8_t *s = malloc(n), *m = malloc(n);
    CHECK(hg_save(f.d, s, n) == n);
    CHECK(hg_save(f.d, m, n - 1) == 0);
    for (size_t k = 0; k < n; k += k < 20000 ? 97 : 1009) {
        CHECK(hg_load(f.d, s, k, err, sizeof(err)) == -1 && err[0]);
        memcpy(m, s, n);
        m[k] ^= 1u << (k % 8);
        if (hg_load(f.d, m, n, err, sizeof(err)) == 0) {
            hg_start(f.d);
            for (unsigned i = 0; i < 8; i++) {
                hg_step(f.d, 100);
            }
            hg_mmio_write(f.d, HG_REG_REPLAY, HG_REPLAY_START, 4);
            hg_step(f.d, 300);
            hg_stop(f.d);
        }
    }
    memcpy(m, s, n);
    CHECK(hg_load(f.d, s, n, err, sizeof(err)) == 0);
    CHECK(hg_counter(f.d, HG_CNT_STALLED_WARPS));
    uint8_t *again = malloc(n + 1);
    CHECK(hg_save(f.d, again, n) == n && !memcmp(again, s, n));
    again[n] = 0;
    CHECK(hg_load(f.d, again, n + 1, err, sizeof(err)) == -1);
    free(again);
    free(s);
    free(m);
    th_free(f.h);
}

/* Random words must decode to something, and only legal ones to an operation. */
static void test_decode(void)
{
    uint64_t rng = 1;
    unsigned illegal = 0;

    for (unsigned i = 0; i < 200000; i++) {
        HgInsn in = { 0 };
        hg_rv_decode(&in, (uint32_t)hg_rand(&rng));
        CHECK(in.op && in.rd <= 32 && in.rs1 < 32 && in.rs2 < 32);
        illegal += in.op == 1;
    }
    CHECK(illegal > 100000);                /* 16-bit encodings alone are three quarters */
}

/* Whoever stands in the middle of something when the device goes: nothing leaks (LeakSanitizer). */
static void test_freed_anywhere(void)
{
    static const uint32_t prog[] = {
        0xcc0022f3, 0x00c29293, 0x005502b3, 0x0052b023, 0x0000100b, 0x0000000b,
    };
    unsigned met = 0;

    for (unsigned steps = 0; steps < 150; steps++) {
        Fix f = setup(true, steps & 1);
        tables(&f, 3, 9);
        memcpy(f.h->ram + 4096, prog, sizeof(prog));
        context(&f, 1);
        launch(&f, 1, 0, 6, 8);
        for (unsigned i = 0; i < steps; i++) {
            for (unsigned k = 0; k < hg_engines(f.d); k++) {
                hg_step_engine(f.d, k, 1);
            }
        }
        for (unsigned k = 0; k < hg_engines(f.d); k++) {
            met |= 1u << hg_engine_at(f.d, k);
        }
        if (steps % 3 == 0) {
            hg_stop(f.d);
        }
        th_free(f.h);
    }
    for (unsigned at = HG_AT_REST; at <= HG_AT_BUS; at++) {
        CHECK(at == HG_AT_AUDITED || (met >> at & 1));
    }
}

typedef struct Counting {
    HgCoro *co;
    unsigned n, end;
} Counting;

/* Deep enough to need the stack; yields at the bottom. */
static unsigned sink(Counting *c, unsigned depth)
{
    volatile uint8_t room[1000];

    room[0] = depth;
    if (depth) {
        return sink(c, depth - 1) + room[0];
    }
    hg_coro_yield(c->co);
    return 0;
}

static void count(void *arg)
{
    Counting *c = arg;

    while (c->n < c->end) {
        CHECK(sink(c, 50) == 50 * 51 / 2);
        c->n++;
    }
}

static void *resume(void *arg)
{
    hg_coro_run(arg);
    return NULL;
}

/* Several at a time, run by turns and by different threads. */
static void test_coroutines(void)
{
    Counting c[5];

    for (unsigned i = 0; i < 5; i++) {
        c[i] = (Counting) { .end = 10 * i };
        c[i].co = hg_coro_new(count, &c[i]);
        CHECK(c[i].co && !hg_coro_begun(c[i].co));
    }
    for (unsigned turn = 0; turn <= 40; turn++) {
        for (unsigned i = 1; i < 5; i++) {
            if (hg_coro_ended(c[i].co)) {
                continue;
            }
            if (turn % 4 == i) {
                pthread_t t;
                CHECK(!pthread_create(&t, NULL, resume, c[i].co) && !pthread_join(t, NULL));
            } else {
                hg_coro_run(c[i].co);
            }
            CHECK(c[i].n == turn && hg_coro_ended(c[i].co) == (turn == c[i].end));
        }
    }
    for (unsigned i = 0; i < 5; i++) {      /* the first one never ran */
        CHECK(hg_coro_ended(c[i].co) == (i != 0));
        hg_coro_free(c[i].co);
    }
    hg_coro_free(NULL);
}

static void test_life_cycle(void)
{
    for (unsigned i = 0; i < 10; i++) {
        Fix f = setup(false, true);
        tables(&f, 16, 16);
        memcpy(f.h->ram + 4096, (uint32_t[]) { 0x0000006f }, 4);    /* j . */
        context(&f, 1);
        launch(&f, 1, 0, 4, 64);
        hg_stop(f.d);
        hg_stop(f.d);
        hg_start(f.d);
        hg_start(f.d);
        hg_set_bus_master(f.d, false);
        hg_set_bus_master(f.d, true);
        hg_ram_remove(f.d, RAM_BASE, RAM_SIZE);
        if (i & 1) {
            hg_reset(f.d);
            CHECK(hg_mmio_read(f.d, HG_REG_CTRL, 4) == 0);
        }
        if (i & 2) {
            hg_mmio_write(f.d, HG_REG_CTRL, HG_CTRL_RESET, 4);
        }
        th_free(f.h);                       /* with engines at work */
    }
    hg_free(NULL);
}

/* A pattern of format f: extreme exponents, short and full fractions. */
static uint64_t fp_pattern(HgFpFmt f, uint64_t *rng)
{
    unsigned fb = f ? 52 : 23;
    uint64_t r = hg_rand(rng), frac = hg_rand(rng) & (((uint64_t)1 << fb) - 1);
    uint64_t top = f ? 2047 : 255, e = r >> 8;

    e = r & 1 ? top - (e & 3) : r & 2 ? e & 3 : r & 4 ? top / 2 + (e & 63) - 32 : e & top;
    frac = r & 8 ? frac : r & 16 ? frac & 3 : ~frac & (((uint64_t)1 << fb) - 4);
    return (r >> 63) << (f ? 63 : 31) | e << fb | (frac & (((uint64_t)1 << fb) - 1));
}

/*
 * All of fp.c under the sanitizers, and what any right arithmetic holds: a NaN
 * that comes out is the canonical one, rounding down is never above rounding
 * up and one of them is rounding to zero, flags go with each other.
 */
static void test_floating_point(void)
{
    uint64_t rng = 5;

    for (unsigned n = 0; n < 100000; n++) {
        HgFpFmt f = n & 1;
        uint64_t a = fp_pattern(f, &rng), b = fp_pattern(f, &rng), c = fp_pattern(f, &rng);
        uint64_t other = fp_pattern(f ^ 1, &rng), v[5];
        uint64_t inf = hg_fp_nan(f) & ~((uint64_t)1 << (f ? 51 : 22));
        uint64_t sign = (uint64_t)1 << (f ? 63 : 31);
        unsigned op = n / 2 % 9;

        for (HgFpRound rm = HG_RNE; rm <= HG_RMM; rm++) {
            uint8_t fl = 0;
            switch (op) {
            case 0: v[rm] = hg_fp_add(f, a, b, rm, &fl); break;
            case 1: v[rm] = hg_fp_sub(f, a, b, rm, &fl); break;
            case 2: v[rm] = hg_fp_mul(f, a, b, rm, &fl); break;
            case 3: v[rm] = hg_fp_div(f, a, b, rm, &fl); break;
            case 4: v[rm] = hg_fp_sqrt(f, a, rm, &fl); break;
            case 5: v[rm] = hg_fp_fma(f, a, b, c, a & 1, b & 1, rm, &fl); break;
            case 6: v[rm] = hg_fp_cvt(f, other, rm, &fl); break;
            case 7: v[rm] = hg_fp_from_int(f, a * b, b & 2 ? 64 : 32, a & 1, rm, &fl); break;
            default:
                v[rm] = hg_fp_minmax(f, a, b, a & 1, &fl);
                CHECK(!(fl & ~HG_FF_NV));
                break;
            }
            CHECK((v[rm] & ~sign) <= inf || v[rm] == hg_fp_nan(f));
            CHECK(!(fl & HG_FF_NV) || !(fl & HG_FF_NX));
            CHECK(!(fl & (HG_FF_OF | HG_FF_UF)) || (fl & HG_FF_NX));
            CHECK(!(fl & HG_FF_DZ) || fl == HG_FF_DZ);
            hg_fp_to_int(f, a, b & 2 ? 64 : 32, b & 1, rm, &fl);
        }
        if (v[0] != hg_fp_nan(f)) {
            uint8_t fl = 0;
            CHECK(hg_fp_cmp(f, v[HG_RDN], v[HG_RUP], HG_FP_LE, &fl) && !fl);
            CHECK(hg_fp_cmp(f, v[HG_RTZ], v[HG_RDN], HG_FP_EQ, &fl) ||
                  hg_fp_cmp(f, v[HG_RTZ], v[HG_RUP], HG_FP_EQ, &fl));
            CHECK(v[HG_RNE] == v[HG_RDN] || v[HG_RNE] == v[HG_RUP]);
            CHECK(v[HG_RMM] == v[HG_RDN] || v[HG_RMM] == v[HG_RUP]);
        }
        CHECK(__builtin_popcount(hg_fp_class(f, a)) == 1);
        CHECK(hg_fp_sgnj(f, hg_fp_sgnj(f, a, b, HG_FP_SGNJ), a, HG_FP_SGNJ) == a);
    }
}

int main(void)
{
    test_floating_point();
    test_copies();
    test_atomics();
    test_ram_map();
    test_ram_moves();
    test_read_only_ram();
    test_abort_leaves_nothing();
    test_hostile_states();
    test_decode();
    test_freed_anywhere();
    test_coroutines();
    test_life_cycle();
    printf("unit: %u checks passed\n", checks);
    return 0;
}
