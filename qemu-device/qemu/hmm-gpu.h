/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: QEMU glue, shared by its files.
 *
 * Locking.  The glue has no lock of its own.  Every hg_*() call is made under
 * the big QEMU lock (BQL); host callbacks (hmm_gpu_host_ops) run in engine
 * threads without it, or inside an hg_*() call with it.  Some calls (stop, reset,
 * ram_add, ram_remove, set_bus_master, inject, load) wait for engine threads
 * while the BQL is held, so A HOST CALLBACK MUST NEVER WAIT FOR THE BQL.  That
 * is why DMA reaches RAM only (an access to anything else would take it), why
 * interrupts leave through a bottom half, and why accesses through an IOMMU,
 * which may need the BQL, take the detour of hmm-gpu-iommu.c: the calls that
 * wait go through hmm_gpu_blocking().
 */
#ifndef HW_MISC_HMM_GPU_H
#define HW_MISC_HMM_GPU_H

#include "hw/pci/pci_device.h"
#include "exec/memory.h"
#include "qemu/queue.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "qom/object.h"

#include "hmm-exact.h"
#include "hmm_gpu_core.h"
#include "observe/hmm_gpu_observe.h"

#define TYPE_HMM_GPU "hmm-gpu"
OBJECT_DECLARE_SIMPLE_TYPE(HmmGpuState, HMM_GPU)

/* An event of the core's, as written to a file, little endian */
typedef struct HmmGpuKept {
    uint64_t ns, arg[4];
    uint32_t what, pad;         /* HgTraceEvent */
} HmmGpuKept;

typedef struct HmmGpuRam HmmGpuRam;
typedef struct HmmGpuDma HmmGpuDma;

struct HmmGpuState {
    PCIDevice parent_obj;

    MemoryRegion regs;          /* BAR0 */
    MemoryRegion vram;          /* all of it: one migrated RAM block */
    MemoryRegion bar2;          /* alias of the first bar_size bytes of vram */

    HgDev *gpu;                 /* NULL before realize and after exit */
    HgConfig cfg;               /* properties; vram filled in by realize */

    char *inject;               /* rules given before realize; BQL */
    char *audit;                /* mode given before realize; BQL */
    uint64_t audit_compared;    /* by the last full audit; BQL */
    uint64_t frame;             /* that the last bus address asked for leads to; BQL */
    char *flr_vram;             /* property: "keep" or "lost" */

    /*
     * Vectors raised by the core and not yet sent.  Set from any thread by
     * atomic or, then irq_bh is scheduled; taken by atomic exchange under the
     * BQL.  An edge is therefore sent at least once after it was raised, and
     * edges of one vector may merge, as they do in the interrupt controller.
     * From HMM_GPU_IRQ_AGAIN on, a bit for each vector that the core sends again
     * when it has been sent: set together with the other, so that it is about this edge.
     */
#define HMM_GPU_IRQ_AGAIN 16
    uint32_t irq_pending;
    QEMUBH *irq_bh;

    QEMUTimer *step_timer;      /* deterministic mode; virtual clock */
    HmmExactEvent step_event, irq_event;        /* instead, in an exact machine */
    struct {
        int64_t step_ns, irq_ns;        /* INT64_MAX: not pending */
        bool irq_first;
    } saved;                    /* of them, for a snapshot within an example */
    bool quiet, resumes;        /* no kick of the core's counts; loaded from such a one */
    GArray *kept;               /* HmmGpuKept: the core's events; NULL: not kept; BQL */
    bool stand_at_violation;    /* BQL */
    VMChangeStateEntry *vmstate_entry;
    bool in_reset;              /* between reset enter and exit; BQL */
    bool bus_master;            /* as last told to the core; BQL */

    /*
     * RAM on the bus-master address space, given to the core by hg_ram_add().
     * BQL; engine threads only see an element through `opaque` of
     * ram_written(), which they cannot hold any more when hg_ram_remove() has
     * returned.
     */
    MemoryListener listener;
    QLIST_HEAD(, HmmGpuRam) ram;
    unsigned iommu_sections;    /* BQL */

    /*
     * Accesses through an IOMMU (hmm-gpu-iommu.c).  `iommu` is changed under
     * the BQL (cleared under dma_lock, too) and read anywhere; queue, flags in
     * it and dma_waiting belong to dma_lock; in_blocking and
     * what is below it to the BQL.
     */
    bool iommu;
    bool in_blocking;           /* accesses through an IOMMU are being served */
    bool in_audit;              /* ... for a full audit, which has the core's lock */
    bool owes_reset, owes_state;        /* asked for meanwhile */
    bool dma_waiting;           /* a BQL holder serves the queue, not dma_bh */
    QemuMutex dma_lock;
    QemuCond dma_work, dma_done;
    QSIMPLEQ_HEAD(, HmmGpuDma) dma_queue;
    QEMUBH *dma_bh;
};

/*
 * One access to the bus by address, or a look where one leads to; lives on the stack of who wants
 * it.
 */
struct HmmGpuDma {
    enum { HMM_GPU_DMA_READ, HMM_GPU_DMA_WRITE, HMM_GPU_DMA_ATOMIC,
           HMM_GPU_DMA_FRAME } kind;
    uint64_t addr;
    uint32_t len;               /* ATOMIC: 4 or 8 */
    void *buf;                  /* READ: to; WRITE: from */
    HgAtomicOp op;
    uint64_t operand, expected, old;    /* FRAME: old is its physical address */
    int ret;                    /* 0, or -1: bus error */
    bool done;
    QSIMPLEQ_ENTRY(HmmGpuDma) next;
};

typedef void HmmGpuCall(HmmGpuState *s, void *opaque);

/* hmm-gpu.c */
void hmm_gpu_irq_flush(HmmGpuState *s);
void hmm_gpu_irq_raise(HmmGpuState *s, unsigned vector, bool again);  /* any thread */
void hmm_gpu_kick(HmmGpuState *s);

void hmm_gpu_run(HmmGpuState *s);
void hmm_gpu_update_bus_master(HmmGpuState *s, bool force);
void hmm_gpu_reset_core(HmmGpuState *s);        /* stopped */

/* hmm-gpu-dma.c */
extern const HgHostOps hmm_gpu_host_ops;
void hmm_gpu_dma_init(HmmGpuState *s);
void hmm_gpu_dma_exit(HmmGpuState *s);
int hmm_gpu_dma_do(HmmGpuState *s, HmmGpuDma *dma);     /* here and now */
void hmm_gpu_apply_ram(HmmGpuState *s);     /* tell the core what changed */

/* hmm-gpu-iommu.c */
void hmm_gpu_iommu_init(HmmGpuState *s);
void hmm_gpu_iommu_exit(HmmGpuState *s);
void hmm_gpu_iommu_appears(HmmGpuState *s);
void hmm_gpu_iommu_update(HmmGpuState *s);
int hmm_gpu_dma(HmmGpuState *s, HmmGpuDma *dma);        /* any thread */
/*
 * An hg_*() call that waits for engines.  BQL.  Not inside another one: an access that is
 * served there can have effects of its own, and who comes by them asks
 * hmm_gpu_put_off() first.
 */
void hmm_gpu_blocking(HmmGpuState *s, HmmGpuCall *fn, void *opaque);
bool hmm_gpu_put_off(HmmGpuState *s, bool reset);
void hmm_gpu_stop(HmmGpuState *s);

/* hmm-gpu-dirty.c; any thread, inside an RCU read section or holding mr */
void hmm_gpu_mark_written(AddressSpace *as, MemoryRegion *mr, hwaddr off,
                          hwaddr len);

/* hmm-gpu-pause.c; BQL */
void hmm_gpu_yield_at_pause(void);

/* hmm-gpu-qom.c */
void hmm_gpu_class_add_properties(ObjectClass *oc);

/* hmm-gpu-trace.c; any thread */
void hmm_gpu_trace(void *host, HgTraceEvent ev, uint64_t a, uint64_t b,
                   uint64_t c, uint64_t d);
/* Of an exact machine; BQL.  Keeps from here on, without those of registers. */
void hmm_gpu_keep_events(HmmGpuState *s);
bool hmm_gpu_write_events(HmmGpuState *s, const char *path, Error **errp);

/* hmm-gpu-vmstate.c */
extern const VMStateDescription hmm_gpu_vmstate;
void hmm_gpu_vmstate_init(HmmGpuState *s);
void hmm_gpu_vmstate_exit(HmmGpuState *s);

#endif /* HW_MISC_HMM_GPU_H */
