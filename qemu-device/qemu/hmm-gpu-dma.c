/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: the bus as the core sees it.
 *
 * Two ways lead to guest RAM.  Fast: a memory listener on the device's
 * bus-master address space hands each RAM section to the core, which then uses
 * the host pointer and reports writes (ram_written).  Turning bus mastering off
 * empties that address space and so takes the sections away again.  Slow, for
 * addresses in no such section (behind an IOMMU, or across two of them):
 * translate, access, piece by piece.  Both reach RAM only: registers of devices, this one included, give a
 * bus error, so that DMA can neither re-enter a device nor need the BQL.
 *
 * Guest atomics are host atomics on the same memory under TCG and KVM, so the
 * device's are, too.
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "qemu/main-loop.h"
#include "qemu/rcu.h"
#include "exec/address-spaces.h"
#include "hw/pci/pci.h"
#include "hmm-gpu.h"
#include "trace.h"

#if HOST_BIG_ENDIAN
#error "hmm-gpu: atomics and host pointers assume a little-endian host"
#endif

struct HmmGpuRam {
    MemoryRegion *mr;       /* referenced */
    hwaddr addr;            /* on the bus */
    hwaddr size;
    hwaddr offset;          /* of addr in mr */
    uint8_t *ptr;           /* host address of addr */
    bool readonly;
    bool added;             /* the core knows it */
    bool gone;              /* from the address space */
    QLIST_ENTRY(HmmGpuRam) next;
};

static bool hmm_gpu_is_plain_ram(MemoryRegion *mr)
{
    /* Not RAM devices (vfio BARs): a memcpy to them may be wrong. */
    return memory_region_is_ram(mr) && !memory_region_is_ram_device(mr);
}

/*
 * Translate @addr to plain RAM.  @len in: wanted, out: contiguous bytes.
 * NULL if there is something else or it may not be written.  Inside an RCU
 * read section, which keeps the region alive.
 */
static uint8_t *hmm_gpu_translate(HmmGpuState *s, uint64_t addr, hwaddr *len,
                                  bool is_write, MemoryRegion **mr,
                                  hwaddr *xlat)
{
    PCIDevice *pci = PCI_DEVICE(s);
    MemTxAttrs attrs = {
        .memory = 1,
        .requester_id = pci_requester_id(pci),
    };

    /* An IOMMU may take the BQL: not in an engine's thread (hmm-gpu-iommu.c). */
    assert(!qatomic_read(&s->iommu) || bql_locked());
    *mr = address_space_translate(pci_get_address_space(pci), addr, xlat, len,
                                  is_write, attrs);
    if (!*len || !hmm_gpu_is_plain_ram(*mr) || (is_write && (*mr)->readonly)) {
        trace_hmm_gpu_dma_refused(addr, *len, is_write);
        return NULL;
    }
    return (uint8_t *)memory_region_get_ram_ptr(*mr) + *xlat;
}

/*
 * Not address_space_rw() with attrs.memory: that refuses registers, but where RAM may not
 * be written, or is a device's, it takes the BQL (prepare_mmio_access()) and hands the
 * access on, and an engine must not wait for the BQL.
 */
static int hmm_gpu_copy(HmmGpuState *s, uint64_t addr, uint8_t *buf,
                        uint32_t len, bool is_write)
{
    if (addr + len < addr) {
        return -1;
    }
    RCU_READ_LOCK_GUARD();
    while (len) {
        hwaddr l = len, xlat;
        MemoryRegion *mr;
        uint8_t *ptr = hmm_gpu_translate(s, addr, &l, is_write, &mr, &xlat);

        if (!ptr) {
            return -1;
        }
        if (is_write) {
            memcpy(ptr, buf, l);
            hmm_gpu_mark_written(pci_get_address_space(PCI_DEVICE(s)), mr,
                                 xlat, l);
        } else {
            memcpy(buf, ptr, l);
        }
        buf += l;
        addr += l;
        len -= l;
    }
    return 0;
}

static int hmm_gpu_do_atomic(HmmGpuState *s, HmmGpuDma *dma)
{
    uint32_t size = dma->len;
    hwaddr len = size, xlat;
    MemoryRegion *mr;
    uint8_t *ptr;

    if ((size != 4 && size != 8) || (dma->addr & (size - 1))) {
        return -1;
    }
    RCU_READ_LOCK_GUARD();
    ptr = hmm_gpu_translate(s, dma->addr, &len, true, &mr, &xlat);
    /* A section may start at any byte; an atomic needs it aligned in RAM. */
    if (!ptr || len < size || !QEMU_PTR_IS_ALIGNED(ptr, size)) {
        return -1;
    }
    dma->old = hg_host_atomic(ptr, size, dma->op, dma->operand, dma->expected);
    hmm_gpu_mark_written(pci_get_address_space(PCI_DEVICE(s)), mr, xlat, size);
    return 0;
}

/* As an access would be translated, which may be a fault that the guest hears of. */
static int hmm_gpu_do_frame(HmmGpuState *s, HmmGpuDma *dma)
{
    PCIDevice *pci = PCI_DEVICE(s);
    MemTxAttrs attrs = {
        .memory = 1,
        .requester_id = pci_requester_id(pci),
    };
    IOMMUTLBEntry entry;

    /* About to be told to the core, which then asks for nothing. */
    if (!(pci_get_word(pci->config + PCI_COMMAND) & PCI_COMMAND_MASTER)) {
        return 1;
    }
    RCU_READ_LOCK_GUARD();
    entry = address_space_get_iotlb_entry(pci_get_address_space(pci), dma->addr,
                                          false, attrs);
    if (entry.target_as != &address_space_memory) {
        return -1;
    }
    dma->old = (entry.translated_addr & ~entry.addr_mask) |
               (dma->addr & entry.addr_mask);
    return 0;
}

int hmm_gpu_dma_do(HmmGpuState *s, HmmGpuDma *dma)
{
    if (dma->kind == HMM_GPU_DMA_ATOMIC) {
        return hmm_gpu_do_atomic(s, dma);
    }
    if (dma->kind == HMM_GPU_DMA_FRAME) {
        return hmm_gpu_do_frame(s, dma);
    }
    return hmm_gpu_copy(s, dma->addr, dma->buf, dma->len,
                        dma->kind == HMM_GPU_DMA_WRITE);
}

static int hmm_gpu_read(void *host, uint64_t addr, void *buf, uint32_t len)
{
    HmmGpuDma dma = {
        .kind = HMM_GPU_DMA_READ, .addr = addr, .buf = buf, .len = len,
    };

    return hmm_gpu_dma(host, &dma);
}

static int hmm_gpu_write(void *host, uint64_t addr, const void *buf,
                         uint32_t len)
{
    HmmGpuDma dma = {
        .kind = HMM_GPU_DMA_WRITE, .addr = addr, .buf = (void *)buf, .len = len,
    };

    return hmm_gpu_dma(host, &dma);
}

static int hmm_gpu_atomic(void *host, uint64_t addr, uint32_t size,
                          HgAtomicOp op, uint64_t operand, uint64_t expected,
                          uint64_t *old)
{
    HmmGpuDma dma = {
        .kind = HMM_GPU_DMA_ATOMIC, .addr = addr, .len = size, .op = op,
        .operand = operand, .expected = expected,
    };
    int ret = hmm_gpu_dma(host, &dma);

    *old = dma.old;
    return ret;
}

/* What no IOMMU changes is in a section that the core knows. */
static int hmm_gpu_frame(void *host, uint64_t addr, uint64_t *phys)
{
    HmmGpuState *s = host;
    HmmGpuDma dma = { .kind = HMM_GPU_DMA_FRAME, .addr = addr, .old = addr };
    int ret = qatomic_read(&s->iommu) ? hmm_gpu_dma(s, &dma) : 0;

    *phys = dma.old;
    return ret;
}

/* Memory as the machine has it, whatever the device's bus shows: any thread. */
static int hmm_gpu_look(void *host, uint64_t phys, uint64_t *v)
{
    hwaddr len = sizeof(*v), xlat;
    MemoryRegion *mr;

    RCU_READ_LOCK_GUARD();
    mr = address_space_translate(&address_space_memory, phys, &xlat, &len, false,
                                 MEMTXATTRS_UNSPECIFIED);
    if (len < sizeof(*v) || !hmm_gpu_is_plain_ram(mr)) {
        return -1;
    }
    *v = qatomic_load_acquire((uint64_t *)((uint8_t *)memory_region_get_ram_ptr(mr) +
                                           xlat));
    return 0;
}

static void hmm_gpu_ram_written(void *host, void *opaque, void *ptr,
                                uint64_t addr, uint32_t len)
{
    HmmGpuState *s = host;
    HmmGpuRam *ram = opaque;

    hmm_gpu_mark_written(pci_get_address_space(PCI_DEVICE(s)), ram->mr,
                         ram->offset + ((uint8_t *)ptr - ram->ptr), len);
    hmm_exact_gpu_touched(ptr, len);
}

static void hmm_gpu_ram_read(void *host, const void *ptr, uint32_t len)
{
    hmm_exact_gpu_touched(ptr, len);
}

static void hmm_gpu_vram_written(void *host, uint64_t offset, uint32_t len)
{
    HmmGpuState *s = host;

    /* Like RAM: the guest may even execute from the aperture. */
    hmm_gpu_mark_written(pci_get_address_space(PCI_DEVICE(s)), &s->vram,
                         offset, len);
}

static void hmm_gpu_irq(void *host, unsigned vector, bool again)
{
    hmm_gpu_irq_raise(host, vector, again);
}

static uint64_t hmm_gpu_now(void *host)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static uint64_t hmm_gpu_fair_now(void *host)
{
    return hmm_exact_on() ? hmm_exact_fair_ns() : hmm_gpu_now(host);
}

static void hmm_gpu_host_kick(void *host)
{
    hmm_gpu_kick(host);
}

/* QEMU ends with a message if there is none to be had. */
static void *hmm_gpu_thread_create(void *host, const char *name,
                                   void *(*fn)(void *), void *opaque)
{
    QemuThread *thread = g_new(QemuThread, 1);

    qemu_thread_create(thread, name, fn, opaque, QEMU_THREAD_JOINABLE);
    return thread;
}

static void hmm_gpu_thread_join(void *host, void *thread)
{
    qemu_thread_join(thread);
    g_free(thread);
}

static void hmm_gpu_thread_enter(void *host)
{
    rcu_register_thread();
}

static void hmm_gpu_thread_exit(void *host)
{
    rcu_unregister_thread();
}

const HgHostOps hmm_gpu_host_ops = {
    .read = hmm_gpu_read,
    .write = hmm_gpu_write,
    .atomic = hmm_gpu_atomic,
    .ram_written = hmm_gpu_ram_written,
    .vram_written = hmm_gpu_vram_written,
    .ram_read = hmm_gpu_ram_read,
    .irq = hmm_gpu_irq,
    .now = hmm_gpu_now,
    .trace = hmm_gpu_trace,
    .thread_create = hmm_gpu_thread_create,
    .thread_join = hmm_gpu_thread_join,
    .thread_enter = hmm_gpu_thread_enter,
    .thread_exit = hmm_gpu_thread_exit,
    .kick = hmm_gpu_host_kick,
    .fair_now = hmm_gpu_fair_now,
    .frame = hmm_gpu_frame,
    .look = hmm_gpu_look,
};

static void hmm_gpu_region_add(MemoryListener *listener,
                               MemoryRegionSection *section)
{
    HmmGpuState *s = container_of(listener, HmmGpuState, listener);
    HmmGpuRam *ram;

    if (memory_region_is_iommu(section->mr)) {
        s->iommu_sections++;
        hmm_gpu_iommu_appears(s);
        return;
    }
    if (!hmm_gpu_is_plain_ram(section->mr)) {
        return;
    }
    ram = g_new0(HmmGpuRam, 1);
    ram->mr = section->mr;
    ram->addr = section->offset_within_address_space;
    ram->size = int128_get64(section->size);
    ram->offset = section->offset_within_region;
    ram->ptr = (uint8_t *)memory_region_get_ram_ptr(ram->mr) + ram->offset;
    ram->readonly = section->readonly || ram->mr->readonly;
    memory_region_ref(ram->mr);
    QLIST_INSERT_HEAD(&s->ram, ram, next);
}

static void hmm_gpu_region_del(MemoryListener *listener,
                               MemoryRegionSection *section)
{
    HmmGpuState *s = container_of(listener, HmmGpuState, listener);
    HmmGpuRam *ram;

    if (memory_region_is_iommu(section->mr)) {
        s->iommu_sections--;
        return;
    }
    QLIST_FOREACH(ram, &s->ram, next) {
        if (!ram->gone &&
            ram->addr == section->offset_within_address_space) {
            ram->gone = true;
            break;
        }
    }
}

static void hmm_gpu_do_ram_add(HmmGpuState *s, void *opaque)
{
    HmmGpuRam *ram = opaque;

    hg_ram_add(s->gpu, ram->addr, ram->size, ram->ptr, ram->readonly, ram);
}

static void hmm_gpu_do_ram_remove(HmmGpuState *s, void *opaque)
{
    HmmGpuRam *ram = opaque;

    hg_ram_remove(s->gpu, ram->addr, ram->size);
}

static HmmGpuRam *hmm_gpu_next_change(HmmGpuState *s)
{
    HmmGpuRam *ram, *fresh = NULL;

    QLIST_FOREACH(ram, &s->ram, next) {
        if (ram->gone) {
            return ram;         /* before what may take its place */
        }
        if (!ram->added) {
            fresh = ram;
        }
    }
    return fresh;
}

void hmm_gpu_apply_ram(HmmGpuState *s)
{
    HmmGpuRam *ram;

    hmm_gpu_iommu_update(s);
    /* From the start each time: an access served meanwhile may change more. */
    while ((ram = hmm_gpu_next_change(s))) {
        if (!ram->gone) {
            trace_hmm_gpu_ram_add(ram->addr, ram->size,
                                  memory_region_name(ram->mr), ram->readonly);
            ram->added = true;
            hmm_gpu_blocking(s, hmm_gpu_do_ram_add, ram);
            continue;
        }
        QLIST_REMOVE(ram, next);
        if (ram->added) {
            trace_hmm_gpu_ram_remove(ram->addr, ram->size);
            hmm_gpu_blocking(s, hmm_gpu_do_ram_remove, ram);
        }
        memory_region_unref(ram->mr);
        g_free(ram);
    }
}

/*
 * All address spaces show the new memory map.  The core learns of it here, not
 * in region_add and region_del: it may have to wait for engines, their accesses
 * through an IOMMU are served meanwhile, and an IOMMU may change the memory map
 * when it translates, which must not happen inside a change.
 */
static void hmm_gpu_commit(MemoryListener *listener)
{
    HmmGpuState *s = container_of(listener, HmmGpuState, listener);

    /* Inside such a served access: hmm_gpu_blocking() comes back to it. */
    if (!s->in_blocking) {
        hmm_gpu_apply_ram(s);
    }
}

void hmm_gpu_dma_init(HmmGpuState *s)
{
    QLIST_INIT(&s->ram);
    s->listener = (MemoryListener) {
        .name = "hmm-gpu",
        .priority = MEMORY_LISTENER_PRIORITY_DEV_BACKEND,
        .region_add = hmm_gpu_region_add,
        .region_del = hmm_gpu_region_del,
        .commit = hmm_gpu_commit,
    };
    memory_listener_register(&s->listener,
                             pci_get_address_space(PCI_DEVICE(s)));
}

/* Engines are stopped. */
void hmm_gpu_dma_exit(HmmGpuState *s)
{
    memory_listener_unregister(&s->listener);   /* calls region_del for each */
    hmm_gpu_apply_ram(s);
    assert(QLIST_EMPTY(&s->ram));
}
