/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: QEMU glue, shared by its files.
 *
 * Locking.  The glue has no lock of its own.  Every hg_*() call is made under
 * the big QEMU lock (BQL); host callbacks (hmm_gpu_host_ops) run in engine
 * threads without it, or inside an hg_*() call with it.  hg_stop(), hg_reset(),
 * hg_free() and hg_ram_remove() wait for engine threads while the BQL is held,
 * so A HOST CALLBACK MUST NEVER TAKE THE BQL.  That is why DMA reaches RAM
 * only (an access to anything else would take it), and why interrupts leave
 * through a bottom half.
 */
#ifndef HW_MISC_HMM_GPU_H
#define HW_MISC_HMM_GPU_H

#include "hw/pci/pci_device.h"
#include "exec/memory.h"
#include "qemu/timer.h"
#include "qom/object.h"

#include "hmm_gpu_core.h"

#define TYPE_HMM_GPU "hmm-gpu"
OBJECT_DECLARE_SIMPLE_TYPE(HmmGpuState, HMM_GPU)

typedef struct HmmGpuRam HmmGpuRam;

struct HmmGpuState {
    PCIDevice parent_obj;

    MemoryRegion regs;          /* BAR0 */
    MemoryRegion vram;          /* all of it: one migrated RAM block */
    MemoryRegion bar2;          /* alias of the first bar_size bytes of vram */

    HgDev *gpu;                 /* NULL before realize and after exit */
    HgConfig cfg;               /* properties; vram filled in by realize */

    /*
     * Rules given before realize (NULL afterwards: the core has them).
     * BQL.
     */
    char *inject;

    /*
     * Vectors raised by the core and not yet sent.  Set from any thread by
     * atomic or, then irq_bh is scheduled; taken by atomic exchange under the
     * BQL.  An edge is therefore sent at least once after it was raised, and
     * edges of one vector may merge, as they do in the interrupt controller.
     */
    uint32_t irq_pending;
    QEMUBH *irq_bh;

    QEMUTimer *step_timer;      /* deterministic mode; virtual clock */
    VMChangeStateEntry *vmstate_entry;
    bool in_reset;              /* between reset enter and exit; BQL */
    bool bus_master;            /* as last told to the core; BQL */

    /*
     * RAM on the bus-master address space, given to the core by hg_ram_add().
     * Changed by the memory listener under the BQL; engine threads only see
     * an element through `opaque` of ram_written(), which they cannot hold
     * any more when hg_ram_remove() has returned.
     */
    MemoryListener listener;
    QLIST_HEAD(, HmmGpuRam) ram;
};

/* hmm-gpu.c */
void hmm_gpu_irq_flush(HmmGpuState *s);
void hmm_gpu_irq_raise(HmmGpuState *s, unsigned vector);    /* any thread */
void hmm_gpu_kick(HmmGpuState *s);

/* hmm-gpu-dma.c */
extern const HgHostOps hmm_gpu_host_ops;
void hmm_gpu_dma_init(HmmGpuState *s);
void hmm_gpu_dma_exit(HmmGpuState *s);

/* hmm-gpu-dirty.c; any thread, inside an RCU read section or holding mr */
void hmm_gpu_mark_written(AddressSpace *as, MemoryRegion *mr, hwaddr off,
                          hwaddr len);

/* hmm-gpu-qom.c */
void hmm_gpu_class_add_properties(ObjectClass *oc);

/* hmm-gpu-trace.c; any thread */
void hmm_gpu_trace(void *host, HgTraceEvent ev, uint64_t a, uint64_t b,
                   uint64_t c, uint64_t d);

/* hmm-gpu-vmstate.c */
extern const VMStateDescription hmm_gpu_vmstate;

#endif /* HW_MISC_HMM_GPU_H */
