/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store beside a flush of its line, which others have made dirty before: the flush has it, or
 * the next one.  Natively, for what a processor does with a store and a load behind it no
 * sanitizer knows; and with two of them, or nothing is beside anything.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"
#include "mem/data_cache.h"

typedef uint64_t __attribute__((may_alias)) u64a;

static HgFrame *frame;
static unsigned long rounds;
static _Atomic unsigned long begun, stored;
/* Lines that both write: a store behind those waits for them in its processor. */
static struct { _Alignas(64) _Atomic unsigned long word; } contended[8];

static void contend(unsigned long i)
{
    for (unsigned k = 0; k < 8; k++) {
        atomic_store_explicit(&contended[k].word, i, memory_order_relaxed);
    }
}

static void pause_for(unsigned n)
{
    for (volatile unsigned k = 0; k < n; k++) {
    }
}

/* As an SM does it. */
static void *sm(void *unused)
{
    for (unsigned long i = 1; i <= rounds; i++) {
        while (atomic_load_explicit(&begun, memory_order_acquire) < i) {
        }
        hg_frame_written(frame, 0, 8);
        pause_for(i * 7 % 61);
        contend(i);
        __atomic_store_n((u64a *)frame->data, i, __ATOMIC_RELAXED);
        hg_frame_written(frame, 0, 8);
        atomic_store_explicit(&stored, i, memory_order_release);
    }
    return unused;
}

int main(int argc, char **argv)
{
    ThHost *h = th_new(0x100000, 0x100000, 0x400000);
    unsigned long lost = 0;
    HgConfig cfg;
    char err[200];
    pthread_t t;
    HgDev *d;

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000;
    hg_config_default(&cfg);
    cfg.utlb_entries = 1;
    cfg.data_pages = hg_data_least(&cfg);
    cfg.deterministic = true;   /* no threads but ours */
    d = th_device(h, &cfg, 1, err, sizeof(err));
    frame = hg_frame_get(d, 0);
    if (pthread_create(&t, NULL, sm, NULL)) {
        return 1;
    }
    for (unsigned long i = 1; i <= rounds; i++) {
        hg_frame_written(frame, 0, 8);
        contend(i);
        atomic_thread_fence(memory_order_seq_cst);
        atomic_store_explicit(&begun, i, memory_order_release);
        pause_for(i * 13 % 53);
        hg_data_flush(d, 0, HG_PAGE_SIZE - 1);
        while (atomic_load_explicit(&stored, memory_order_acquire) < i) {
        }
        hg_data_flush(d, 0, HG_PAGE_SIZE - 1);
        lost += *(u64a *)h->vram != i;
    }
    pthread_join(t, NULL);
    printf("flush: %lu of %lu stores are in no flush\n", lost, rounds);
    hg_frame_put(frame);
    th_free(h);
    return lost != 0;
}
