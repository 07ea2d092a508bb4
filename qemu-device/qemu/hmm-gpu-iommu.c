/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: DMA through an IOMMU.
 *
 * Translating may report a fault to the guest, an interrupt, and for that QEMU
 * takes the BQL.  An engine must not wait for the BQL, whose holder may be
 * waiting for that engine (hmm-gpu.h).  So while the bus-master address space
 * has IOMMU regions, an engine queues its access, and whoever has the BQL does
 * it: a bottom half, or, while an hg_*() call waits for engines, the waiting
 * thread itself, which lends the call to a helper thread.
 *
 * An IOMMU that refuses a translation may send the message that a guest has given it, and AMD's
 * sends it as a write to any address: of this device's configuration, say, where it
 * resets the function.  But a reset waits for the engines, and one of them waits for this
 * very access.  A full audit even has the core's lock meanwhile, so that no register of ours
 * answers then (in_audit).  So while accesses are served (in_blocking) the device does not answer
 * its configuration space and its slot does not let go of it (partially_hotplugged), commands of
 * its registers that wait are not taken, and what comes by other ways, a reset, a stop, bus
 * mastering, is put off until they are served.
 *
 * `iommu` is set, with all engines at rest, before such a region can be seen in
 * the address space, and cleared after the last can be seen no more.  So an
 * access that does not see it set never meets an IOMMU.
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "hmm-gpu.h"

/* Do and answer all queued accesses.  BQL and dma_lock; drops dma_lock. */
static void hmm_gpu_serve(HmmGpuState *s)
{
    HmmGpuDma *dma;

    while ((dma = QSIMPLEQ_FIRST(&s->dma_queue))) {
        QSIMPLEQ_REMOVE_HEAD(&s->dma_queue, next);
        qemu_mutex_unlock(&s->dma_lock);
        dma->ret = hmm_gpu_dma_do(s, dma);
        qemu_mutex_lock(&s->dma_lock);
        dma->done = true;       /* its thread may leave, and dma with it */
        qemu_cond_broadcast(&s->dma_done);
    }
}

/* What was put off: each of these may wait and so put off more. */
static void hmm_gpu_catch_up(HmmGpuState *s)
{
    while (s->owes_state && !s->in_blocking) {
        s->owes_state = false;
        hmm_gpu_stop(s);
        if (s->owes_reset) {
            s->owes_reset = false;
            hmm_gpu_reset_core(s);
        }
        hmm_gpu_update_bus_master(s, true);
        hmm_gpu_run(s);
    }
}

/* From here on accesses may be served, and must not come back to us. */
static void hmm_gpu_block(HmmGpuState *s)
{
    assert(!s->in_blocking);
    s->in_blocking = true;
    PCI_DEVICE(s)->partially_hotplugged = true;
}

static void hmm_gpu_unblock(HmmGpuState *s)
{
    PCI_DEVICE(s)->partially_hotplugged = false;
    s->in_blocking = false;
    /* What the accesses just served have changed. */
    hmm_gpu_apply_ram(s);
    hmm_gpu_catch_up(s);
}

static void hmm_gpu_dma_bh(void *opaque)
{
    HmmGpuState *s = opaque;

    hmm_gpu_block(s);
    WITH_QEMU_LOCK_GUARD(&s->dma_lock) {
        hmm_gpu_serve(s);
    }
    hmm_gpu_unblock(s);
}

int hmm_gpu_dma(HmmGpuState *s, HmmGpuDma *dma)
{
    /* With the BQL: inside an hg_*() call of the main loop or a CPU. */
    if (!qatomic_read(&s->iommu) || bql_locked()) {
        return hmm_gpu_dma_do(s, dma);
    }
    qemu_mutex_lock(&s->dma_lock);
    if (!s->iommu) {
        qemu_mutex_unlock(&s->dma_lock);
        return hmm_gpu_dma_do(s, dma);
    }
    dma->done = false;
    QSIMPLEQ_INSERT_TAIL(&s->dma_queue, dma, next);
    if (s->dma_waiting) {
        qemu_cond_signal(&s->dma_work);
    } else {
        qemu_bh_schedule(s->dma_bh);
    }
    while (!dma->done) {
        qemu_cond_wait(&s->dma_done, &s->dma_lock);
    }
    qemu_mutex_unlock(&s->dma_lock);
    return dma->ret;
}

typedef struct HmmGpuLent {
    HmmGpuState *s;
    HmmGpuCall *fn;
    void *opaque;
    bool done;                  /* dma_lock */
} HmmGpuLent;

static void *hmm_gpu_helper(void *opaque)
{
    HmmGpuLent *lent = opaque;
    HmmGpuState *s = lent->s;

    rcu_register_thread();
    lent->fn(s, lent->opaque);
    qemu_mutex_lock(&s->dma_lock);
    lent->done = true;
    qemu_cond_signal(&s->dma_work);
    qemu_mutex_unlock(&s->dma_lock);
    rcu_unregister_thread();
    return NULL;
}

static void hmm_gpu_lend(HmmGpuState *s, HmmGpuCall *fn, void *opaque)
{
    HmmGpuLent lent = { .s = s, .fn = fn, .opaque = opaque };
    QemuThread thread;

    qemu_mutex_lock(&s->dma_lock);
    s->dma_waiting = true;
    qemu_thread_create(&thread, "hmm-gpu/call", hmm_gpu_helper, &lent,
                       QEMU_THREAD_JOINABLE);
    for (;;) {
        hmm_gpu_serve(s);
        if (lent.done) {
            break;
        }
        qemu_cond_wait(&s->dma_work, &s->dma_lock);
    }
    s->dma_waiting = false;
    qemu_mutex_unlock(&s->dma_lock);
    qemu_thread_join(&thread);
}

void hmm_gpu_blocking(HmmGpuState *s, HmmGpuCall *fn, void *opaque)
{
    if (!qatomic_read(&s->iommu)) {
        fn(s, opaque);
        return;
    }
    hmm_gpu_block(s);
    if (s->cfg.deterministic) {
        fn(s, opaque);
    } else {
        hmm_gpu_lend(s, fn, opaque);
    }
    hmm_gpu_unblock(s);
}

/* True: not now, and not by the caller.  BQL. */
bool hmm_gpu_put_off(HmmGpuState *s, bool reset)
{
    if (s->in_blocking) {
        s->owes_state = true;
        s->owes_reset |= reset;
    }
    return s->in_blocking;
}

static void hmm_gpu_do_stop(HmmGpuState *s, void *opaque)
{
    hg_stop(s->gpu);
    if (s->cfg.deterministic) {
        hg_park(s->gpu);        /* hg_stop() leaves engines where they stand */
    }
}

void hmm_gpu_stop(HmmGpuState *s)
{
    if (hmm_gpu_put_off(s, false)) {
        return;
    }
    hmm_gpu_blocking(s, hmm_gpu_do_stop, NULL);
}

/* An IOMMU region is about to be seen.  No queue before, so nothing to serve. */
void hmm_gpu_iommu_appears(HmmGpuState *s)
{
    if (!s->iommu) {
        hg_stop(s->gpu);
        qatomic_set(&s->iommu, true);
        hmm_gpu_run(s);
    }
}

/* The memory map has changed. */
void hmm_gpu_iommu_update(HmmGpuState *s)
{
    if (s->iommu && !s->iommu_sections) {
        /* Nobody queues after this; whoever did is not forgotten. */
        QEMU_LOCK_GUARD(&s->dma_lock);
        qatomic_set(&s->iommu, false);
        hmm_gpu_serve(s);
    }
}

void hmm_gpu_iommu_init(HmmGpuState *s)
{
    qemu_mutex_init(&s->dma_lock);
    qemu_cond_init(&s->dma_work);
    qemu_cond_init(&s->dma_done);
    QSIMPLEQ_INIT(&s->dma_queue);
    s->dma_bh = qemu_bh_new_guarded(hmm_gpu_dma_bh, s,
                                    &DEVICE(s)->mem_reentrancy_guard);
}

/* Engines are gone. */
void hmm_gpu_iommu_exit(HmmGpuState *s)
{
    assert(QSIMPLEQ_EMPTY(&s->dma_queue));
    g_clear_pointer(&s->dma_bh, qemu_bh_delete);
    qemu_cond_destroy(&s->dma_done);
    qemu_cond_destroy(&s->dma_work);
    qemu_mutex_destroy(&s->dma_lock);
}
