/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Speed of the SIMT engine: elements a second of CPU time, whole warps, one SM
 * unless -s says otherwise, hence one host thread that works.  `make bench` builds
 * the kernels with clang and runs all of them; `./hmmbench bench --only simt` compares
 * them with qemu-riscv64.  A figure, not a test: nothing fails by being slow.
 *
 *   bench [-v off|plain|avx2|avx512] [-s SMS] [-r ROUNDS] [-d STEPS] [-j] KERNEL KERNEL.bin
 *   KERNEL: hash, saxpy, strided or matmul
 *
 * -d: a deterministic device, so many steps a call, in place of threads.
 * -j: one line of JSON; `sum` is what bench_user.h prints of the same work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_work.h"
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
#define BLOCK    256            /* as many threads as an SM holds: one block each */

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

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench [-v VECTORS] [-s SMS] [-r ROUNDS] [-d STEPS] [-j] "
                    "hash|saxpy|strided|matmul KERNEL.bin\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const char *const names[WORKS] = { "hash", "saxpy", "strided", "matmul" };
    static const uint64_t usual[WORKS] = { 1500, 2000, 2000, 12 };     /* a second or so */
    const char *vectors = "best";
    bool json = false;
    HgConfig cfg;
    HgDev *d;
    char err[200];
    unsigned sms = 1, steps = 0;
    uint64_t rounds = 0, base = HG_REG_CTX + HG_CTX_STRIDE;
    double t, wall;
    int work = 0, opt;
    FILE *f;

    while ((opt = getopt(argc, argv, "v:s:r:d:j")) != -1) {
        switch (opt) {
        case 'v': vectors = optarg; break;
        case 's': sms = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'r': rounds = strtoull(optarg, NULL, 10); break;
        case 'd': steps = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'j': json = true; break;
        default: return usage();
        }
    }
    if (argc - optind != 2 || (sms & (sms - 1)) || sms < 1 || sms > 16) {
        return usage();
    }
    while (work < WORKS && strcmp(argv[optind], names[work])) {
        work++;
    }
    f = fopen(argv[optind + 1], "rb");
    if (work == WORKS || !f) {
        return usage();
    }
    rounds = rounds ? rounds : usual[work];
    hg_config_default(&cfg);
    cfg.sms = sms;
    cfg.deterministic = steps;
    h = th_new(RAM_BASE, RAM_SIZE, VRAM);
    h->measured = true;
    d = th_device(h, &cfg, 1, err, sizeof(err));
    if (!d || fread(bus(CODE), 1, 0x10000, f) == 0) {
        fprintf(stderr, "bench: cannot start\n");
        return 3;
    }
    fclose(f);
    if (hg_vec_set(d, vectors)) {
        fprintf(stderr, "bench: no %s here\n", vectors);
        return 2;
    }
    tables();
    work_fill(work, bus(X), bus(Y));
    uint64_t threads = (uint64_t)BLOCK * sms;
    uint64_t args[5] = { va(X), va(Y), va(Z), work_n(work, rounds, threads), rounds };
    memcpy(bus(ARGS), args, sizeof(args));
    uint64_t job[8] = { HG_OP_LAUNCH, va(CODE), va(ARGS), sms | (uint64_t)BLOCK << 32,
                        va(STACKS), 256, 0, REPORT };
    memcpy(bus(RING), job, sizeof(job));

    hg_start(d);
    hg_mmio_write(d, HG_REG_CTRL, HG_CTRL_ENABLE, 4);
    hg_mmio_write(d, HG_REG_ASID + HG_ASID_STRIDE, PT | HG_ROOT_ENABLE, 8);
    hg_mmio_write(d, base + HG_CTX_RING_BASE, RING, 8);
    hg_mmio_write(d, base + HG_CTX_RING_SIZE, 16, 4);
    hg_mmio_write(d, base + HG_CTX_ASID, 1, 4);
    hg_mmio_write(d, base + HG_CTX_CTRL, HG_CTX_ENABLE, 4);
    t = seconds(CLOCK_PROCESS_CPUTIME_ID);
    wall = seconds(CLOCK_MONOTONIC);
    hg_mmio_write(d, HG_REG_DOORBELL + HG_DOORBELL_STRIDE, 1, 4);
    do {
        if (steps) {
            hg_step(d, steps);
        } else {
            nanosleep(&(struct timespec) { 0, 1000000 }, NULL);
        }
    } while (get64(REPORT + HG_RPT_DONE) != HG_RPT_DONE_MAGIC);
    t = seconds(CLOCK_PROCESS_CPUTIME_ID) - t;
    wall = seconds(CLOCK_MONOTONIC) - wall;
    if ((uint32_t)get64(REPORT) != 0) {
        fprintf(stderr, "bench: the launch failed, status %u pc %llx\n", (uint32_t)get64(REPORT),
                (unsigned long long)get64(REPORT + HG_RPT_PC));
        return 1;
    }
    double instrs = (double)hg_counter(d, HG_CNT_INSTRS);
    double elements = (double)work_elements(work, rounds);
    unsigned long long sum = work_sum(work, bus(X), bus(Y), bus(Z), threads);
    if (json) {
        printf("{\"elements\": %.0f, \"cpu_s\": %.6f, \"wall_s\": %.6f, \"instructions\": %.0f, "
               "\"vectors\": \"%s\", \"sum\": \"%llu\"}\n",
               elements, t, wall, instrs, hg_vec_name(d), sum);
    } else {
        printf("%-7s %8.1f M elements/s, %5.1f lane instructions an element, "
               "%5.1f ns a warp instruction (%.2f s, wall %.2f s, sum %llu)\n",
               names[work], elements / t / 1e6, instrs / elements, t / (instrs / HG_LANES) * 1e9,
               t, wall, sum);
    }
    th_free(h);
    return 0;
}
