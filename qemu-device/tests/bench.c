/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Speed of the SIMT engine: elements a second of CPU time, one SM, hence
 * one host thread that works, whole warps.  `make bench` builds the kernels with clang
 * and runs all three.  A figure, not a test: nothing fails by being slow.
 *
 *   bench NAME KERNEL.bin [off|plain|avx2|avx512]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host.h"

#define RAM_BASE 0x100000ull
#define RAM_SIZE 0x1000000ull
#define VRAM     0x400000ull
#define VA       0x40000000ull  /* of RAM_BASE; one table a level is enough */
#define PT       RAM_BASE
#define CODE     (RAM_BASE + 0x10000)
#define ARGS     (RAM_BASE + 0x20000)
#define RING     (RAM_BASE + 0x21000)
#define REPORT   (RAM_BASE + 0x22000)
#define X        (RAM_BASE + 0x200000)
#define Y        (RAM_BASE + 0x400000)
#define Z        (RAM_BASE + 0x600000)
#define STACKS   (RAM_BASE + 0xc00000)
#define BLOCK    256
#define GRID     1              /* as many threads as an SM holds */
#define MATRIX   256

typedef uint64_t __attribute__((may_alias)) u64a;

static ThHost *h;

static void *bus(uint64_t a)
{
    return h->ram + (a - RAM_BASE);
}

static uint64_t va(uint64_t a)
{
    return a - RAM_BASE + VA;
}

static void put64(uint64_t a, uint64_t v)
{
    memcpy(bus(a), &v, 8);
}

static uint64_t get64(uint64_t a)
{
    return __atomic_load_n((u64a *)bus(a), __ATOMIC_ACQUIRE);
}

/* RAM at VA by 4 KiB leaves: three tables, then one for each 2 MiB. */
static void tables(void)
{
    uint64_t link = HG_PTE_VALID | HG_PTE_APER_SYS;

    put64(PT, (PT + 0x1000) | link);
    put64(PT + 0x1000 + (VA >> 30) * 8, (PT + 0x2000) | link);
    for (unsigned t = 0; t < RAM_SIZE >> 21; t++) {
        uint64_t leaf = PT + 0x3000 + t * 0x1000;
        put64(PT + 0x2000 + t * 8, leaf | link);
        for (unsigned i = 0; i < 512; i++) {
            put64(leaf + i * 8, (RAM_BASE + (t * 512ull + i) * 4096) | link | HG_PTE_WRITE |
                                HG_PTE_ATOMIC);
        }
    }
}

static double cpu(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    HgConfig cfg;
    HgDev *d;
    char err[200];
    uint64_t n, rounds = 1, base = HG_REG_CTX + HG_CTX_STRIDE;
    double elements, t;
    FILE *f = argc >= 3 ? fopen(argv[2], "rb") : NULL;

    if (!f) {
        fprintf(stderr, "usage: bench hash|saxpy|matmul KERNEL.bin [VECTORS]\n");
        return 2;
    }
    hg_config_default(&cfg);
    cfg.sms = 1;
    h = th_new(RAM_BASE, RAM_SIZE, VRAM);
    d = th_device(h, &cfg, 1, err, sizeof(err));
    if (!d || fread(bus(CODE), 1, 0x10000, f) == 0) {
        fprintf(stderr, "bench: cannot start\n");
        return 3;
    }
    fclose(f);
    if (argc > 3 && hg_vec_set(d, argv[3])) {
        fprintf(stderr, "bench: no %s here\n", argv[3]);
        return 2;
    }
    tables();
    for (unsigned i = 0; i < MATRIX * MATRIX; i++) {
        double v = (i * 2654435761u % 1000003u) / 1000.0;
        float s = (float)v;
        if (!strcmp(argv[1], "matmul")) {
            memcpy(bus(X + i * 8), &v, 8);
            memcpy(bus(Y + i * 8), &v, 8);
        } else {
            memcpy(bus(X + i * 4), &s, 4);
            memcpy(bus(Y + i * 4), &s, 4);
        }
    }
    if (!strcmp(argv[1], "hash")) {
        n = 300000;
        elements = (double)n * BLOCK * GRID;
    } else if (!strcmp(argv[1], "saxpy")) {
        n = MATRIX * MATRIX;
        rounds = 600;
        elements = (double)n * rounds;
    } else {
        n = MATRIX;
        rounds = 3;
        elements = (double)n * n * n * rounds;
    }
    uint64_t args[5] = { va(X), va(Y), va(Z), n, rounds };
    memcpy(bus(ARGS), args, sizeof(args));
    uint64_t job[8] = { HG_OP_LAUNCH, va(CODE), va(ARGS), GRID | (uint64_t)BLOCK << 32,
                        va(STACKS), 256, 0, REPORT };
    memcpy(bus(RING), job, sizeof(job));

    hg_start(d);
    hg_mmio_write(d, HG_REG_CTRL, HG_CTRL_ENABLE, 4);
    hg_mmio_write(d, HG_REG_ASID + HG_ASID_STRIDE, PT | HG_ROOT_ENABLE, 8);
    hg_mmio_write(d, base + HG_CTX_RING_BASE, RING, 8);
    hg_mmio_write(d, base + HG_CTX_RING_SIZE, 16, 4);
    hg_mmio_write(d, base + HG_CTX_ASID, 1, 4);
    hg_mmio_write(d, base + HG_CTX_CTRL, HG_CTX_ENABLE, 4);
    t = cpu();
    hg_mmio_write(d, HG_REG_DOORBELL + HG_DOORBELL_STRIDE, 1, 4);
    do {
        nanosleep(&(struct timespec) { 0, 1000000 }, NULL);
    } while (get64(REPORT + HG_RPT_DONE) != HG_RPT_DONE_MAGIC);
    t = cpu() - t;
    if ((uint32_t)get64(REPORT) != 0) {
        fprintf(stderr, "bench: the launch failed, status %u pc %llx\n", (uint32_t)get64(REPORT),
                (unsigned long long)get64(REPORT + HG_RPT_PC));
        return 1;
    }
    double instrs = (double)hg_counter(d, HG_CNT_INSTRS);
    uint64_t sum = 0;
    for (uint64_t a = X; a < X + 0x600000; a += 8) {    /* equal results of two builds */
        sum = (sum ^ get64(a)) * 0x9e3779b97f4a7c15ull;
    }
    printf("%-7s %8.1f M elements/s, %5.1f lane instructions an element, "
           "%5.1f ns a warp instruction (%.2f s, check %016llx)\n",
           argv[1], elements / t / 1e6, instrs / elements, t / (instrs / HG_LANES) * 1e9, t,
           (unsigned long long)sum);
    th_free(h);
    return 0;
}
