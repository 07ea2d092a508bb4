/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Engines in threads against a "driver" that evicts, invalidates, replays,
 * stops, resets contexts and takes RAM away.  Run under TSan, and natively.
 *
 * The check: each page's frame is swapped between two frames by the driver
 * (PTE write, invalidate, wait for DONE), and the retired frame is filled with
 * poison words afterwards.  GPU threads only ever store their own valid words
 * through the page.  If any access used the old translation after DONE, a
 * poison word is overwritten, or a kernel reads poison and reports it.
 *
 * The mirror audit looks at every access meanwhile: the "driver" keeps a CPU
 * page table and changes it as the kernel does, announced (after DONE) and, as
 * MADV_COLD does, cleared and written again unannounced.  It must stay silent,
 * and must not if the driver forgets to invalidate.
 *
 * With "posted" the device has a data cache, so that stores to RAM are on their way for a
 * while, and SMs share their misses; the "driver" invalidates with MEMBAR.
 *
 * So must the check of page tables, while the "driver" puts another table in the
 * place of the one that has all the leaves, and fills that with ways to poison.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host.h"

#define RAM_BASE 0x100000ull
#define RAM_SIZE 0x400000ull
#define VRAM     0x400000ull
#define PAGES    16
#define CODE_VA  0x10000ull
#define DATA_VA  0x100000ull
#define POISON   0xdeaddeaddeaddeadull
#define RWA      (HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_ATOMIC | HG_PTE_APER_SYS)

typedef uint64_t __attribute__((may_alias)) u64a;

static ThHost *h;
static HgDev *d;
static unsigned cur[PAGES];     /* which of its two frames a page has */
static bool retired[PAGES];     /* the other one is full of poison */
static unsigned long swaps, tables, violations, launches, faults;
static bool posted;

static void *bus(uint64_t a)
{
    return h->ram + (a - RAM_BASE);
}

static uint64_t get64(uint64_t a)
{
    return __atomic_load_n((u64a *)bus(a), __ATOMIC_ACQUIRE);
}

static void put64(uint64_t a, uint64_t v)
{
    __atomic_store_n((u64a *)bus(a), v, __ATOMIC_RELEASE);
}

#define PT   0x110000ull        /* four tables, and one to take the last one's place */
#define RING 0x120000ull        /* context rings, 4 KiB each */
#define FRING 0x130000ull
#define CODE 0x140000ull
#define REPORT 0x150000ull      /* 64 bytes a context */
#define FRAMES 0x200000ull      /* two a page */
#define CPT 0x160000ull         /* the CPU's four tables */
#define CPU_RW 3ull             /* PRESENT, WRITE */

static uint64_t leaves = PT + 3 * 4096;

static uint64_t frame(unsigned page, unsigned which)
{
    return FRAMES + (page * 2 + which) * 4096ull;
}

static void set_pte(unsigned page, uint64_t v)
{
    put64(leaves + ((DATA_VA >> 12) + page) % 512 * 8, v);
}

static void set_cpu(uint64_t va, uint64_t v)
{
    put64(CPT + 3 * 4096 + (va >> 12) % 512 * 8, v);
}

static void start_audit(void)
{
    uint64_t e[HG_NUM_ENC] = {
        [HG_ENC_PRESENT] = 1, [HG_ENC_WRITE] = 2, [HG_ENC_PSE] = 0x80, [HG_ENC_PROTNONE] = 0x100,
        [HG_ENC_PFN] = HG_PTE_FRAME_MASK, [HG_ENC_FLAGS] = HG_ENC_INVERT,
        [HG_ENC_SWAP] = 59 | 5 << 8 | 9 << 16 | 50 << 24, [HG_ENC_SWAP_PFN] = ~0ull,
        [HG_ENC_TYPES] = ~0ull,
    };
    for (unsigned i = 0; i < HG_NUM_ENC; i++) {
        hg_mmio_write(d, HG_REG_AUDIT_ENC + i * 8, e[i], 8);
    }
    hg_mmio_write(d, HG_REG_AUDIT_CTRL, HG_AUDIT_CTRL_READY, 4);
    for (unsigned l = 0; l < 3; l++) {
        put64(CPT + l * 4096, (CPT + (l + 1) * 4096) | CPU_RW);
    }
    set_cpu(CODE_VA, CODE | 1);
    for (unsigned p = 0; p < PAGES; p++) {
        set_cpu(DATA_VA + p * 4096, frame(p, 0) | CPU_RW);
    }
    hg_mmio_write(d, HG_REG_AUDIT_ASID + 8, CPT | 4 << HG_AUDIT_LEVELS_SHIFT | HG_AUDIT_ENABLE, 8);
    hg_audit_set(d, "access");
}

/*
 * Each thread, 1024 times: load its word of a page; if its high half is not
 * zero, that is poison: ebreak, the report says so.  Store, add atomically, go
 * to the next page (round robin).  a0 = DATA_VA.
 */
static const uint32_t code[] = {
    0xcc0022f3,                 /* 00 csrr t0, tid */
    0x00329293,                 /* 04 slli t0, t0, 3 */
    0x005502b3,                 /* 08 add t0, a0, t0 */
    0x40000313,                 /* 0c li t1, 1024 */
    0x0002be03,                 /* 10 ld t3, 0(t0) */
    0x020e5e93,                 /* 14 srli t4, t3, 32 */
    0x000e8463,                 /* 18 beqz t4, 20 */
    0x00100073,                 /* 1c ebreak */
    0x0062b023,                 /* 20 sd t1, 0(t0) */
    0x0062b02f,                 /* 24 amoadd.d x0, t1, (t0) */
    0xfff30313,                 /* 28 addi t1, t1, -1 */
    0x00001fb7,                 /* 2c lui t6, 1 */
    0x01f282b3,                 /* 30 add t0, t0, t6 */
    0x00f37f93,                 /* 34 andi t6, t1, 15 */
    0x000f9663,                 /* 38 bnez t6, 44 */
    0x00010fb7,                 /* 3c lui t6, 16 */
    0x41f282b3,                 /* 40 sub t0, t0, t6 */
    0xfc0316e3,                 /* 44 bnez t1, 10 */
    0x0000000b,                 /* 48 exit */
};

static void nap(long us)
{
    struct timespec ts = { 0, us * 1000 };
    nanosleep(&ts, NULL);
}

static void service(void)
{
    uint32_t get = hg_mmio_read(d, HG_REG_FAULT + HG_FAULT_GET, 4);
    uint32_t put = hg_mmio_read(d, HG_REG_FAULT + HG_FAULT_PUT, 4) & HG_FAULT_INDEX_MASK;
    uint32_t over = get & HG_FAULT_OVERFLOW;
    unsigned n = 0;

    get &= HG_FAULT_INDEX_MASK;
    while (get != put) {
        uint32_t *e = bus(FRING + get * 32);
        if (!(__atomic_load_n(&e[HG_FE_FLAGS], __ATOMIC_ACQUIRE) & HG_FE_VALID)) {
            break;
        }
        unsigned page = (__atomic_load_n(&e[0], __ATOMIC_RELAXED) - DATA_VA) >> 12;
        __atomic_store_n(&e[HG_FE_FLAGS], 0, __ATOMIC_RELEASE);
        if (page < PAGES && !get64(leaves + ((DATA_VA >> 12) + page) % 512 * 8)) {
            set_pte(page, frame(page, cur[page]) | RWA);
        }
        get = (get + 1) & 63;
        n++;
    }
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_GET, get | over, 4);
    if (n || over) {
        hg_mmio_write(d, HG_REG_REPLAY, 1 + (swaps & 1), 4);
    }
    faults += n;
}

static void invalidate(uint64_t start, uint64_t len)
{
    uint64_t seq;

    hg_mmio_write(d, HG_REG_INVAL_ASID, 1, 4);
    hg_mmio_write(d, HG_REG_INVAL_START, start, 8);
    hg_mmio_write(d, HG_REG_INVAL_LEN, len, 8);
    hg_mmio_write(d, HG_REG_INVAL_CMD, HG_INVAL_RANGE | (posted ? HG_INVAL_MEMBAR : 0), 4);
    seq = hg_mmio_read(d, HG_REG_INVAL_SEQ, 8);
    while (hg_mmio_read(d, HG_REG_INVAL_DONE, 8) < seq) {
        nap(1);
    }
}

static void fill(uint64_t f, uint64_t v)
{
    for (unsigned i = 0; i < 512; i++) {
        put64(f + i * 8, v);
    }
}

static void check_poison(uint64_t f)
{
    for (unsigned i = 0; i < 512; i++) {
        if (get64(f + i * 8) != POISON) {
            violations++;       /* written after DONE */
            return;
        }
    }
}

/* Retire the page's frame; every other time the GPU has to fault for the new one. */
static void swap_frame(unsigned page)
{
    uint64_t old = frame(page, cur[page]), new = frame(page, 1 - cur[page]);

    if (retired[page]) {
        check_poison(new);
    }
    fill(new, 0);
    cur[page] = 1 - cur[page];
    set_pte(page, 0);
    invalidate(DATA_VA + page * 4096, 4096);
    set_cpu(DATA_VA + page * 4096, new | CPU_RW);
    if (!(swaps & 1)) {
        set_pte(page, new | RWA);
    }
    fill(old, POISON);
    retired[page] = true;
    swaps++;
}

static void swap_table(void)
{
    uint64_t old = leaves;

    leaves = leaves == PT + 3 * 4096 ? PT + 4 * 4096 : PT + 3 * 4096;
    for (unsigned i = 0; i < 512; i++) {
        put64(leaves + i * 8, get64(old + i * 8));
    }
    put64(PT + 2 * 4096, leaves | HG_PTE_VALID | HG_PTE_APER_SYS);
    invalidate(0, 1 << 21);
    hg_mmio_write(d, HG_REG_TABLE_FREE, old, 8);
    fill(old, 0);
    for (unsigned p = 0; p < PAGES; p++) {
        if (retired[p]) {
            put64(old + ((DATA_VA >> 12) + p) % 512 * 8, frame(p, 1 - cur[p]) | RWA);
        }
    }
    tables++;
}

static void start_ctx(unsigned c)
{
    uint64_t b = HG_REG_CTX + c * HG_CTX_STRIDE;

    hg_mmio_write(d, b + HG_CTX_RING_BASE, RING + c * 4096, 8);
    hg_mmio_write(d, b + HG_CTX_RING_SIZE, 16, 4);
    hg_mmio_write(d, b + HG_CTX_ASID, 1, 4);
    hg_mmio_write(d, b + HG_CTX_TIMESLICE, 50, 4);
    hg_mmio_write(d, b + HG_CTX_CTRL, HG_CTX_ENABLE, 4);
}

static unsigned put[4];

static void submit(unsigned c)
{
    uint64_t w[8] = { HG_OP_LAUNCH, CODE_VA, DATA_VA, 2 | 64ull << 32, 0, 0, 0, REPORT + c * 64 };

    put64(REPORT + c * 64 + HG_RPT_DONE, 0);
    for (unsigned i = 0; i < 8; i++) {
        put64(RING + c * 4096 + put[c] * 64 + i * 8, w[i]);
    }
    put[c] = (put[c] + 1) & 15;
    hg_mmio_write(d, HG_REG_DOORBELL + c * HG_DOORBELL_STRIDE, put[c], 4);
    launches++;
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? atoi(argv[1]) : 2, seed = 1;
    /* skip waiting: the check must see it */
    bool stale_on_purpose = argc > 2 && !strcmp(argv[2], "stale");
    HgConfig cfg;
    char err[200];
    struct timespec t0, t;
    unsigned elapsed;
    bool enough;

    h = th_new(RAM_BASE, RAM_SIZE, VRAM);
    hg_config_default(&cfg);
    cfg.sms = 2;
    cfg.warps = 4;
    posted = argc > 2 && !strcmp(argv[2], "posted");
    cfg.data_pages = posted ? hg_data_least(&cfg) : 0;
    cfg.sms_per_utlb = posted ? 2 : 1;
    cfg.audit_wait_ns = 5000000000ull;  /* never reached by a sound driver */
    d = th_device(h, &cfg, 1, err, sizeof(err));
    memcpy(bus(CODE), code, sizeof(code));
    for (unsigned l = 0; l < 3; l++) {
        put64(PT + l * 4096, (PT + (l + 1) * 4096) | HG_PTE_VALID | HG_PTE_APER_SYS);
    }
    put64(leaves + (CODE_VA >> 12) * 8, CODE | HG_PTE_VALID | HG_PTE_APER_SYS);
    for (unsigned p = 0; p < PAGES; p++) {
        fill(frame(p, 0), 0);
        fill(frame(p, 1), 0);
    }
    start_audit();
    hg_start(d);
    hg_mmio_write(d, HG_REG_ASID + HG_ASID_STRIDE, PT | HG_ROOT_ENABLE, 8);
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_BASE, FRING, 8);
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_SIZE, 64, 4);
    hg_mmio_write(d, HG_REG_FAULT + HG_FAULT_CTRL, 1, 4);
    hg_mmio_write(d, HG_REG_INTR_ENABLE, 15, 4);
    hg_mmio_write(d, HG_REG_TABLE_CTRL, HG_TABLE_CTRL_SHOWN, 4);
    hg_mmio_write(d, HG_REG_CTRL, HG_CTRL_ENABLE, 4);
    for (unsigned c = 1; c < 4; c++) {
        start_ctx(c);
        submit(c);
    }
    clock_gettime(CLOCK_MONOTONIC, &t0);
    do {
        unsigned r = rand_r(&seed), page = r % PAGES;
        service();
        swap_frame(page);
        service();
        if (r % 7 == 0) {
            swap_table();
        }
        if (r % 3 == 0) {       /* MADV_COLD */
            unsigned other = (page + 5) % PAGES;
            set_cpu(DATA_VA + other * 4096, 0);
            if (r % 9 == 0) {
                nap(100);
            }
            set_cpu(DATA_VA + other * 4096, frame(other, cur[other]) | CPU_RW);
        }
        if (r % 71 == 0) {
            hg_audit_full(d);
        }
        if (r % 97 == 0) {      /* abort one context in the middle */
            uint64_t b = HG_REG_CTX + HG_CTX_STRIDE;
            hg_mmio_write(d, b + HG_CTX_CTRL, 0, 4);
            while (hg_mmio_read(d, b + HG_CTX_STATUS, 4) & HG_CTX_ACTIVE) {
                nap(1);
            }
            put[1] = 0;
            put64(REPORT + 64 + HG_RPT_DONE, 0);
            start_ctx(1);
            submit(1);
        } else if (r % 89 == 0) {
            size_t n;
            void *s;
            hg_stop(d);
            n = hg_save_size(d);
            s = malloc(n);
            if (hg_save(d, s, n) != n || hg_load(d, s, n, err, sizeof(err))) {
                printf("save/load: %s\n", err);
                return 1;
            }
            free(s);
            hg_start(d);
        } else if (r % 83 == 0) {
            hg_ram_remove(d, RAM_BASE, RAM_SIZE);
            nap(200);           /* the callbacks serve now */
            hg_ram_add(d, RAM_BASE, RAM_SIZE, h->ram, false, h);
        }
        for (unsigned c = 1; c < 4; c++) {
            if (get64(REPORT + c * 64 + HG_RPT_DONE) == HG_RPT_DONE_MAGIC) {
                /* atomic, for TSan does not see that the core's release fence orders it */
                uint32_t status = get64(REPORT + c * 64 + HG_RPT_STATUS);
                if (status != HG_ERR_NONE) {
                    violations++;
                }
                submit(c);
            }
        }
        if (stale_on_purpose && r % 5 == 0) {   /* a driver that forgets to invalidate */
            fill(frame(page, cur[page]), POISON);
            set_cpu(DATA_VA + page * 4096, frame(page, 1 - cur[page]) | CPU_RW);
        }
        clock_gettime(CLOCK_MONOTONIC, &t);
        elapsed = t.tv_sec - t0.tv_sec;
        enough = swaps > 100 && tables > 10 && launches > 5 && faults &&
                 ((violations && hg_violations(d)) || !stale_on_purpose);
    } while (elapsed < seconds || (!enough && elapsed < 120));
    printf("stress: %lu swaps, %lu of tables, %lu launches, %lu faults, %llu instructions, %lu violations, "
           "%llu seen by the device\n",
           swaps, tables, launches, faults, (unsigned long long)hg_counter(d, HG_CNT_INSTRS), violations,
           (unsigned long long)hg_violations(d));
    bool ok = enough && (violations != 0) == stale_on_purpose &&
              (hg_violations(d) != 0) == stale_on_purpose;
    th_free(h);
    return ok ? 0 : 1;
}
