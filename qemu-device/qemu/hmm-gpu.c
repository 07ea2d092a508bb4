/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: PCIe endpoint around the GPU core.
 *
 * This file is the life of the device: properties, BARs, capabilities, reset,
 * run and stop, interrupts.  GPU behaviour is in core/, the bus in
 * hmm-gpu-dma.c, migration in hmm-gpu-vmstate.c.
 *
 * When engines run: from VM run (hg_start) to VM stop (hg_stop), except between
 * the enter and exit phases of a reset.  They never run while the machine is
 * stopped, so what is saved is at rest.  In deterministic mode the engines of a
 * stopped machine stand where they are, so that a debugger changes nothing;
 * before memory is saved, loaded or reset they finish what they do to it
 * (hg_park).
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "exec/cpu-common.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "hw/pci/pcie_aer.h"
#include "hw/qdev-properties.h"
#include "hw/resettable.h"
#include "migration/vmstate.h"
#include "system/runstate.h"
#include "hmm-gpu.h"
#include "trace.h"

#define HMM_GPU_PM_CAP      0x40
#define HMM_GPU_EXP_CAP     0x80
#define HMM_GPU_AER_CAP     0x100

/* Deterministic mode: this much work every this many virtual nanoseconds. */
#define HMM_GPU_STEP_BUDGET 256
#define HMM_GPU_STEP_NS     (10 * SCALE_US)

/* -- interrupts -- */

void hmm_gpu_irq_flush(HmmGpuState *s)
{
    PCIDevice *pci = PCI_DEVICE(s);
    uint32_t pending = qatomic_xchg(&s->irq_pending, 0);
    uint32_t again = pending >> HMM_GPU_IRQ_AGAIN;

    pending = extract32(pending, 0, HMM_GPU_IRQ_AGAIN);
    while (pending) {
        unsigned vector = ctz32(pending);

        pending &= pending - 1;
        trace_hmm_gpu_msix(vector, msix_enabled(pci));
        /* Not enabled: nothing to send; INTR_STATUS keeps the event. */
        if (msix_enabled(pci)) {
            msix_notify(pci, vector);
        }
        if (again >> vector & 1) {
            hg_irq_again(s->gpu, vector);
        }
    }
}

static void hmm_gpu_irq_bh(void *opaque)
{
    hmm_gpu_irq_flush(opaque);
}

void hmm_gpu_irq_raise(HmmGpuState *s, unsigned vector, bool again)
{
    assert(vector < HG_NUM_VECTORS);    /* the core's own constants */
    qatomic_or(&s->irq_pending, 1u << vector |
               (uint32_t)again << (HMM_GPU_IRQ_AGAIN + vector));
    /*
     * Deterministic: the core only runs inside our calls, which flush when it
     * returns.  A bottom half would add a delay in host time.
     */
    if (!s->cfg.deterministic) {
        qemu_bh_schedule(s->irq_bh);
    }
}

/* After a call into the core that may have run engines. */
static void hmm_gpu_after_call(HmmGpuState *s)
{
    int64_t late;

    if (!s->cfg.deterministic || !s->irq_pending || s->irq_event.pending) {
        return;
    }
    late = hmm_exact_on() ? hmm_exact_irq_delay() : 0;
    if (!late) {
        hmm_gpu_irq_flush(s);
    } else {
        hmm_exact_event_at(&s->irq_event,
                           qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) + late);
    }
}

static void hmm_gpu_irq_late(void *opaque)
{
    HmmGpuState *s = opaque;

    hmm_exact_log_irq(extract32(s->irq_pending, 0, HMM_GPU_IRQ_AGAIN));
    hmm_gpu_irq_flush(s);
}

/* -- deterministic mode -- */

void hmm_gpu_kick(HmmGpuState *s)
{
    if (hmm_exact_on()) {
        /* Being saved or loaded is no reason to step; hg_start() is one. */
        if (s->cfg.deterministic && !s->quiet && !runstate_check(RUN_STATE_INMIGRATE)) {
            int64_t at = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) +
                         hmm_exact_engine_gap();

            /* What waits for a time may be further off. */
            if (!s->step_event.pending || s->step_event.due > at) {
                hmm_exact_event_at(&s->step_event, at);
            }
        }
        return;
    }
    if (s->step_timer && !timer_pending(s->step_timer)) {
        timer_mod(s->step_timer,
                  qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) + HMM_GPU_STEP_NS);
    }
}

/* The engines that can, from any of them on, each so far. */
static void hmm_gpu_do_step_exact(HmmGpuState *s, void *opaque)
{
    unsigned first = hmm_exact_engine_of(32);
    uint32_t ready = ror32(*(uint32_t *)opaque, first);

    while (ready) {
        unsigned i = (ctz32(ready) + first) % 32;

        ready &= ready - 1;
        hmm_exact_log_engine(i, hg_step_engine(s->gpu, i,
                                               hmm_exact_engine_steps()));
    }
}

/* In an exact machine. */
static void hmm_gpu_step_exact(void *opaque)
{
    HmmGpuState *s = opaque;
    uint32_t ready = hg_engines_ready(s->gpu);
    int64_t now = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
    uint64_t due;

    if (ready) {
        hmm_gpu_blocking(s, hmm_gpu_do_step_exact, &ready);
        hmm_gpu_after_call(s);
        hmm_exact_hold_nobody(hg_audit_waits(s->gpu));
    }
    if (s->step_event.pending) {
        return;                 /* kicked meanwhile */
    }
    if (hg_engines_ready(s->gpu)) {
        hmm_gpu_kick(s);
        return;
    }
    due = hg_deadline(s->gpu);
    if (due != UINT64_MAX) {
        hmm_exact_event_at(&s->step_event, MAX(due, now + 1));
    }
}

/* No engine waits for anything any more. */
static void hmm_gpu_no_events(HmmGpuState *s)
{
    hmm_exact_event_cancel(&s->step_event);
    hmm_exact_event_cancel(&s->irq_event);
    hmm_exact_hold_nobody(false);
}

static void hmm_gpu_do_step(HmmGpuState *s, void *opaque)
{
    *(bool *)opaque = hg_step(s->gpu, HMM_GPU_STEP_BUDGET);
}

static void hmm_gpu_step(void *opaque)
{
    HmmGpuState *s = opaque;
    bool more;

    hmm_gpu_blocking(s, hmm_gpu_do_step, &more);
    hmm_gpu_after_call(s);
    if (more) {
        hmm_gpu_kick(s);
    }
}

/* -- registers -- */

static uint64_t hmm_gpu_mmio_read(void *opaque, hwaddr addr, unsigned size)
{
    HmmGpuState *s = opaque;
    uint64_t val;

    /*
     * A CPU may still hold the old memory map just after an unplug.  In an audit
     * it is an IOMMU's message: hmm-gpu-iommu.c.
     */
    if (!s->gpu || s->in_audit) {
        return UINT64_MAX;
    }
    val = hg_mmio_read(s->gpu, addr, size);
    hmm_gpu_after_call(s);
    return val;
}

typedef struct HmmGpuMmio {
    hwaddr addr;
    uint64_t val;
    unsigned size;
} HmmGpuMmio;

static void hmm_gpu_do_mmio_write(HmmGpuState *s, void *opaque)
{
    HmmGpuMmio *w = opaque;

    hg_mmio_write(s->gpu, w->addr, w->val, w->size);
}

static void hmm_gpu_mmio_write(void *opaque, hwaddr addr, uint64_t val,
                               unsigned size)
{
    HmmGpuState *s = opaque;

    if (s->gpu && !s->in_audit) {
        HmmGpuMmio w = { .addr = addr, .val = val, .size = size };

        /*
         * Of the registers only CTRL, by a soft reset, and AUDIT_CMD wait for
         * engines.
         */
        if ((addr & ~7) == (HG_REG_CTRL & ~7) ||
            (addr & ~7) == HG_REG_AUDIT_CMD) {
            if (s->in_blocking) {
                return;         /* an IOMMU's message: hmm-gpu-iommu.c */
            }
            s->in_audit = (addr & ~7) == HG_REG_AUDIT_CMD;
            hmm_gpu_blocking(s, hmm_gpu_do_mmio_write, &w);
            s->in_audit = false;
        } else {
            hmm_gpu_do_mmio_write(s, &w);
        }
        hmm_gpu_after_call(s);
    }
}

/*
 * Every size and alignment goes to the core, which refuses what the hardware
 * interface does not have and counts it: software sees its own mistake.
 */
static const MemoryRegionOps hmm_gpu_mmio_ops = {
    .read = hmm_gpu_mmio_read,
    .write = hmm_gpu_mmio_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

/* -- configuration space -- */

static void hmm_gpu_do_set_bus_master(HmmGpuState *s, void *opaque)
{
    hg_set_bus_master(s->gpu, s->bus_master);
}

static void hmm_gpu_set_bus_master(HmmGpuState *s, bool on, bool force)
{
    if ((on != s->bus_master || force) && !hmm_gpu_put_off(s, false)) {
        trace_hmm_gpu_bus_master(on);
        s->bus_master = on;
        hmm_gpu_blocking(s, hmm_gpu_do_set_bus_master, NULL);
    }
}

/*
 * From the configuration: bus mastering enabled, and the device in D0.
 * @force: the core may think otherwise than we remember.
 */
void hmm_gpu_update_bus_master(HmmGpuState *s, bool force)
{
    PCIDevice *pci = PCI_DEVICE(s);
    uint16_t cmd = pci_get_word(pci->config + PCI_COMMAND);
    uint16_t pm = pci_get_word(pci->config + pci->pm_cap + PCI_PM_CTRL);

    hmm_gpu_set_bus_master(s, (cmd & PCI_COMMAND_MASTER) &&
                              !(pm & PCI_PM_CTRL_STATE_MASK), force);
}

static void hmm_gpu_write_config(PCIDevice *pci, uint32_t addr, uint32_t val,
                                 int len)
{
    HmmGpuState *s = HMM_GPU(pci);

    pci_default_write_config(pci, addr, val, len);
    pcie_cap_flr_write_config(pci, addr, val, len);     /* may reset us */
    hmm_gpu_update_bus_master(s, false);
}

/* -- run, stop, reset -- */

void hmm_gpu_run(HmmGpuState *s)
{
    if (runstate_is_running() && !s->in_reset) {
        /* Saved within an example, it has not stood for its engines. */
        s->quiet = s->resumes;
        hg_start(s->gpu);
        if (!s->quiet) {
            hmm_gpu_after_call(s);
        }
        s->quiet = s->resumes = false;
    }
}

/* Memory is about to be saved or replaced. */
static bool hmm_gpu_stop_is_for_state(RunState state)
{
    switch (state) {
    case RUN_STATE_SAVE_VM:
    case RUN_STATE_RESTORE_VM:
    case RUN_STATE_FINISH_MIGRATE:
    case RUN_STATE_COLO:
        return true;
    default:
        return false;
    }
}

static void hmm_gpu_vm_state_change(void *opaque, bool running, RunState state)
{
    HmmGpuState *s = opaque;

    trace_hmm_gpu_vm_state(running);
    if (running) {
        hmm_gpu_run(s);
    } else if (s->cfg.deterministic && !hmm_gpu_stop_is_for_state(state)) {
        /*
         * Nobody steps a machine that stands.  An exact one goes on as if it had
         * not stood: starting again would be a kick, which draws from the schedule.
         */
        if (!hmm_exact_on()) {
            hg_stop(s->gpu);
            hmm_gpu_irq_flush(s);
        }
    } else {
        hmm_gpu_stop(s);
        /* CPUs are stopped already; send what engines raised last. */
        if (!hmm_exact_on()) {
            hmm_gpu_irq_flush(s);
        }
    }
}

static void hmm_gpu_reset_enter(Object *obj, ResetType type)
{
    HmmGpuState *s = HMM_GPU(obj);

    trace_hmm_gpu_reset_phase("enter");
    s->in_reset = true;
    hmm_gpu_stop(s);                    /* no DMA from here on */
}

/* The content of VRAM goes with the function: what CPUs see of it, run and save, too. */
static void hmm_gpu_lose_vram(HmmGpuState *s)
{
    if (ram_block_discard_range(s->vram.ram_block, 0, s->cfg.vram_size)) {
        memset(s->cfg.vram, 0, s->cfg.vram_size);
    }
    hmm_gpu_mark_written(pci_get_address_space(PCI_DEVICE(s)), &s->vram, 0,
                         s->cfg.vram_size);
}

void hmm_gpu_reset_core(HmmGpuState *s)
{
    hg_reset(s->gpu);
    hg_stop(s->gpu);
    if (s->cfg.reset_loses_vram) {
        hmm_gpu_lose_vram(s);
    }
    /*
     * PCI clears the command register too, but for some resets only after our
     * exit phase; nobody tells us, so do it here.
     */
    s->bus_master = false;
    hmm_gpu_do_set_bus_master(s, NULL);         /* nobody to wait for */
    if (s->step_timer) {
        timer_del(s->step_timer);
    }
    hmm_gpu_no_events(s);
    qatomic_set(&s->irq_pending, 0);
}

static void hmm_gpu_reset_hold(Object *obj, ResetType type)
{
    HmmGpuState *s = HMM_GPU(obj);

    trace_hmm_gpu_reset_phase("hold");
    if (!hmm_gpu_put_off(s, true)) {
        hmm_gpu_reset_core(s);
    }
}

static void hmm_gpu_reset_exit(Object *obj, ResetType type)
{
    HmmGpuState *s = HMM_GPU(obj);

    trace_hmm_gpu_reset_phase("exit");
    s->in_reset = false;
    if (!hmm_gpu_put_off(s, false)) {
        hmm_gpu_run(s);
    }
}

/* -- creation and end -- */

static bool hmm_gpu_check_sizes(HmmGpuState *s, Error **errp)
{
    char err[256] = "";

    if (s->cfg.coherent) {
        s->cfg.bar2_size = s->cfg.vram_size;
    }
    if (s->flr_vram && strcmp(s->flr_vram, "keep")) {
        if (strcmp(s->flr_vram, "lost")) {
            error_setg(errp, "flr-vram: '%s' is neither keep nor lost",
                       s->flr_vram);
            return false;
        }
        s->cfg.reset_loses_vram = true;
    }
    if (!hg_core_fits(HG_CORE_VERSION, sizeof(HgConfig), sizeof(HgHostOps))) {
        error_setg(errp, "hmm-gpu was built for another core");
        return false;
    }
    if (!hg_memory_sizes_ok(&s->cfg, err, sizeof(err))) {
        error_setg(errp, "%s", err);
        return false;
    }
    return true;
}

static bool hmm_gpu_init_caps(PCIDevice *pci, Error **errp)
{
    int v;

    if (pcie_endpoint_cap_init(pci, HMM_GPU_EXP_CAP) < 0) {
        error_setg(errp, "PCI Express capability failed");
        return false;
    }
    pcie_cap_deverr_init(pci);
    pcie_cap_flr_init(pci);
    if (pci_pm_init(pci, HMM_GPU_PM_CAP, errp) < 0) {
        goto exp;
    }
    /* D0 and D3hot; state survives D3hot, as on discrete GPUs with power. */
    pci_set_word(pci->config + pci->pm_cap + PCI_PM_PMC, 0x3);
    pci_set_word(pci->config + pci->pm_cap + PCI_PM_CTRL,
                 PCI_PM_CTRL_NO_SOFT_RESET);
    pci_set_word(pci->wmask + pci->pm_cap + PCI_PM_CTRL,
                 PCI_PM_CTRL_STATE_MASK);
    if (pcie_aer_init(pci, PCI_ERR_VER, HMM_GPU_AER_CAP, PCI_ERR_SIZEOF,
                      errp) < 0) {
        goto exp;
    }
    if (msix_init_exclusive_bar(pci, HG_NUM_VECTORS, HG_BAR_MSIX, errp)) {
        goto aer;
    }
    for (v = 0; v < HG_NUM_VECTORS; v++) {
        msix_vector_use(pci, v);
    }
    return true;

aer:
    pcie_aer_exit(pci);
exp:
    pcie_cap_exit(pci);
    return false;
}

static void hmm_gpu_exit_caps(PCIDevice *pci)
{
    msix_unuse_all_vectors(pci);
    msix_uninit_exclusive_bar(pci);
    pcie_aer_exit(pci);
    pcie_cap_exit(pci);
}

static void hmm_gpu_realize(PCIDevice *pci, Error **errp)
{
    HmmGpuState *s = HMM_GPU(pci);
    Object *obj = OBJECT(s);
    char err[256] = "";

    if (!pci_bus_is_express(pci_get_bus(pci))) {
        error_setg(errp, TYPE_HMM_GPU " is a PCI Express device: plug it into "
                   "a pcie-root-port");
        return;
    }
    if (!hmm_gpu_check_sizes(s, errp)) {
        return;
    }
    hmm_gpu_yield_at_pause();
    pci->config_write = hmm_gpu_write_config;
    pci_config_set_interrupt_pin(pci->config, 0);       /* MSI-X only */

    memory_region_init_io(&s->regs, obj, &hmm_gpu_mmio_ops, s, "hmm-gpu.regs",
                          HG_BAR0_SIZE);
    if (!memory_region_init_ram(&s->vram, obj, "hmm-gpu.vram",
                                s->cfg.vram_size, errp)) {
        return;
    }
    memory_region_init_alias(&s->bar2, obj, "hmm-gpu.bar2", &s->vram, 0,
                             s->cfg.bar2_size);
    pci_register_bar(pci, HG_BAR_REGS, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &s->regs);
    pci_register_bar(pci, HG_BAR_VRAM,
                     PCI_BASE_ADDRESS_SPACE_MEMORY |
                     PCI_BASE_ADDRESS_MEM_TYPE_64 |
                     PCI_BASE_ADDRESS_MEM_PREFETCH, &s->bar2);
    if (!hmm_gpu_init_caps(pci, errp)) {
        return;
    }

    s->cfg.vram = memory_region_get_ram_ptr(&s->vram);
    hmm_gpu_iommu_init(s);
    s->irq_bh = qemu_bh_new_guarded(hmm_gpu_irq_bh, s,
                                    &DEVICE(s)->mem_reentrancy_guard);
    if (s->cfg.deterministic) {
        s->step_timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, hmm_gpu_step, s);
    }
    s->step_event = (HmmExactEvent) {
        .fn = hmm_gpu_step_exact, .opaque = s,
    };
    s->irq_event = (HmmExactEvent) { .fn = hmm_gpu_irq_late, .opaque = s };
    s->gpu = hg_new(&s->cfg, &hmm_gpu_host_ops, s, err, sizeof(err));
    if (!s->gpu) {
        error_setg(errp, "%s", err);
        goto fail;
    }
    if (!hg_observe(s->gpu)) {
        error_setg(errp, "hmm-gpu: out of memory");
        goto fail;
    }
    if (s->inject && hg_inject(s->gpu, s->inject, err, sizeof(err))) {
        error_setg(errp, "inject: %s", err);
        goto fail;
    }
    if (s->audit && hg_audit_set(s->gpu, s->audit)) {
        error_setg(errp, "audit: unknown mode '%s'", s->audit);
        goto fail;
    }
    hmm_gpu_dma_init(s);
    s->vmstate_entry =
        qdev_add_vm_change_state_handler(DEVICE(s), hmm_gpu_vm_state_change, s);
    hmm_gpu_vmstate_init(s);
    trace_hmm_gpu_realize(s->cfg.vram_size, s->cfg.bar2_size,
                          s->cfg.deterministic);
    return;

fail:
    g_clear_pointer(&s->gpu, hg_free);
    g_clear_pointer(&s->step_timer, timer_free);
    g_clear_pointer(&s->irq_bh, qemu_bh_delete);
    hmm_gpu_iommu_exit(s);
    hmm_gpu_exit_caps(pci);
}

static void hmm_gpu_exit(PCIDevice *pci)
{
    HmmGpuState *s = HMM_GPU(pci);

    trace_hmm_gpu_exit();
    hmm_gpu_vmstate_exit(s);
    qemu_del_vm_change_state_handler(s->vmstate_entry);
    hmm_gpu_stop(s);
    hmm_gpu_dma_exit(s);
    g_clear_pointer(&s->gpu, hg_free);
    hmm_gpu_no_events(s);       /* after all that may have made one */
    g_clear_pointer(&s->step_timer, timer_free);
    g_clear_pointer(&s->irq_bh, qemu_bh_delete);
    hmm_gpu_iommu_exit(s);
    hmm_gpu_exit_caps(pci);
}

static void hmm_gpu_finalize(Object *obj)
{
    g_free(HMM_GPU(obj)->inject);
    g_free(HMM_GPU(obj)->audit);
    g_clear_pointer(&HMM_GPU(obj)->kept, g_array_unref);
}

static const Property hmm_gpu_properties[] = {
    DEFINE_PROP_SIZE("vram-size", HmmGpuState, cfg.vram_size, 64 * MiB),
    DEFINE_PROP_SIZE("bar-size", HmmGpuState, cfg.bar2_size, 16 * MiB),
    DEFINE_PROP_UINT32("sms", HmmGpuState, cfg.sms, 2),
    DEFINE_PROP_UINT32("warps", HmmGpuState, cfg.warps, 8),
    DEFINE_PROP_UINT32("ces", HmmGpuState, cfg.ces, 2),
    DEFINE_PROP_UINT32("utlb-entries", HmmGpuState, cfg.utlb_entries, 64),
    DEFINE_PROP_UINT32("utlb-misses", HmmGpuState, cfg.utlb_misses, 56),
    DEFINE_PROP_UINT32("sms-per-utlb", HmmGpuState, cfg.sms_per_utlb, 1),
    DEFINE_PROP_UINT32("l2tlb-entries", HmmGpuState, cfg.l2tlb_entries, 512),
    DEFINE_PROP_UINT32("walk-entries", HmmGpuState, cfg.walk_entries, 32),
    DEFINE_PROP_UINT32("data-pages", HmmGpuState, cfg.data_pages, 0),
    DEFINE_PROP_UINT32("asids", HmmGpuState, cfg.asids, HG_NUM_ASIDS),
    DEFINE_PROP_UINT32("contexts", HmmGpuState, cfg.ctxs, HG_NUM_CTXS),
    DEFINE_PROP_BOOL("big-pages", HmmGpuState, cfg.big_pages, false),
    DEFINE_PROP_BOOL("prefetch-faults", HmmGpuState, cfg.prefetch_faults, true),
    DEFINE_PROP_BOOL("ce-faults", HmmGpuState, cfg.ce_faults, false),
    DEFINE_PROP_BOOL("coherent", HmmGpuState, cfg.coherent, false),
    DEFINE_PROP_STRING("flr-vram", HmmGpuState, flr_vram),
    DEFINE_PROP_BOOL("audit-cmd", HmmGpuState, cfg.audit_cmd, false),
    DEFINE_PROP_BOOL("deterministic", HmmGpuState, cfg.deterministic, false),
    DEFINE_PROP_UINT64("seed", HmmGpuState, cfg.seed, 0),
    DEFINE_PROP_UINT64("audit-wait-ns", HmmGpuState, cfg.audit_wait_ns,
                       500 * 1000 * 1000),
};

static void hmm_gpu_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(oc);
    ResettableClass *rc = RESETTABLE_CLASS(oc);

    pc->realize = hmm_gpu_realize;
    pc->exit = hmm_gpu_exit;
    pc->vendor_id = HG_PCI_VENDOR_ID;
    pc->device_id = HG_PCI_DEVICE_ID;
    pc->class_id = HG_PCI_CLASS;
    pc->revision = HG_VERSION;
    rc->phases.enter = hmm_gpu_reset_enter;
    rc->phases.hold = hmm_gpu_reset_hold;
    rc->phases.exit = hmm_gpu_reset_exit;
    dc->vmsd = &hmm_gpu_vmstate;
    dc->desc = "GPU for testing Linux heterogeneous memory management";
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    device_class_set_props(dc, hmm_gpu_properties);
    hmm_gpu_class_add_properties(oc);
}

static const TypeInfo hmm_gpu_types[] = {
    {
        .name = TYPE_HMM_GPU,
        .parent = TYPE_PCI_DEVICE,
        .instance_size = sizeof(HmmGpuState),
        .instance_finalize = hmm_gpu_finalize,
        .class_init = hmm_gpu_class_init,
        .interfaces = (InterfaceInfo[]) {
            { INTERFACE_PCIE_DEVICE },
            { },
        },
    },
};

DEFINE_TYPES(hmm_gpu_types)
