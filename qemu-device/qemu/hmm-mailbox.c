/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-mailbox: memory that guest and host share by turns, and a register where
 * the guest says that it is the host's turn (include/hmm_mailbox_hw.h).
 *
 * It has nothing to do with the GPU: a reset or unplug of that leaves it alone,
 * and a machine without GPU has one too.  The device has no state but PCI's:
 * the memory is a host memory backend, which reset leaves as it is and which
 * travels in the stream as any RAM does, so that a snapshot brings it back.
 */
#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "qemu/log.h"
#include "qemu/module.h"
#include "qapi/error.h"
#include "hw/core/cpu.h"
#include "hw/pci/pci_device.h"
#include "hw/qdev-properties.h"
#include "migration/vmstate.h"
#include "system/cpus.h"
#include "system/hostmem.h"
#include "system/runstate.h"
#include "hmm-exact.h"
#include "hmm_mailbox_hw.h"
#include "trace.h"

#define TYPE_HMM_MAILBOX "hmm-mailbox"
OBJECT_DECLARE_SIMPLE_TYPE(HmmMailboxState, HMM_MAILBOX)

struct HmmMailboxState {
    PCIDevice parent_obj;

    HostMemoryBackend *memdev;
    MemoryRegion *ram;          /* of memdev; NULL before it is ours */
    MemoryRegion regs;
    MemoryRegion bar2;          /* holds ram; its size is a power of two */
};

static void hmm_mailbox_stand(uint32_t why)
{
    trace_hmm_mailbox_stand(why);
    if (hmm_exact_on() && qemu_in_vcpu_thread()) {
        hmm_exact_stand(why);
    } else {
        /* Asks only: other vCPUs may go on for a moment. */
        vm_stop(RUN_STATE_PAUSED);
    }
}

static uint64_t hmm_mailbox_read(void *opaque, hwaddr addr, unsigned size)
{
    HmmMailboxState *s = opaque;

    if (size == 4) {
        switch (addr) {
        case HM_REG_ID:
            return HM_ID_MAGIC;
        case HM_REG_VERSION:
            return HM_VERSION;
        case HM_REG_SIZE:
            return memory_region_size(s->ram);
        }
    }
    qemu_log_mask(LOG_GUEST_ERROR, "hmm-mailbox: read of %u bytes at 0x%"
                  HWADDR_PRIx "\n", size, addr);
    return 0;
}

static void hmm_mailbox_write(void *opaque, hwaddr addr, uint64_t val,
                              unsigned size)
{
    if (size == 4 && addr == HM_REG_STAND) {
        hmm_mailbox_stand(val);
        return;
    }
    qemu_log_mask(LOG_GUEST_ERROR, "hmm-mailbox: write of %u bytes at 0x%"
                  HWADDR_PRIx "\n", size, addr);
}

/* Every size and alignment comes here, so that no access is made of two. */
static const MemoryRegionOps hmm_mailbox_ops = {
    .read = hmm_mailbox_read,
    .write = hmm_mailbox_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

static void hmm_mailbox_realize(PCIDevice *pci, Error **errp)
{
    HmmMailboxState *s = HMM_MAILBOX(pci);
    struct hm_head *head;
    uint64_t size;

    if (!s->memdev) {
        error_setg(errp, "property 'memdev' is not set");
        return;
    }
    if (host_memory_backend_is_mapped(s->memdev)) {
        error_setg(errp, "memory backend '%s' is in use already",
                   object_get_canonical_path_component(OBJECT(s->memdev)));
        return;
    }
    size = memory_region_size(host_memory_backend_get_memory(s->memdev));
    if (size <= HM_FRAME || size > UINT32_MAX) {
        error_setg(errp, "a memory of %" PRIu64 " bytes is no mailbox", size);
        return;
    }
    s->ram = host_memory_backend_get_memory(s->memdev);
    host_memory_backend_set_mapped(s->memdev, true);
    vmstate_register_ram(s->ram, DEVICE(s));
    head = memory_region_get_ram_ptr(s->ram);
    hmm_exact_told(head->under_way, HM_PROCESSES, &head->phase);
    pci_config_set_interrupt_pin(pci->config, 0);
    memory_region_init_io(&s->regs, OBJECT(s), &hmm_mailbox_ops, s,
                          "hmm-mailbox.regs", HM_BAR0_SIZE);
    memory_region_init(&s->bar2, OBJECT(s), "hmm-mailbox.memory",
                       pow2ceil(size));
    memory_region_add_subregion(&s->bar2, 0, s->ram);
    pci_register_bar(pci, HM_BAR_REGS, PCI_BASE_ADDRESS_SPACE_MEMORY, &s->regs);
    pci_register_bar(pci, HM_BAR_MEMORY,
                     PCI_BASE_ADDRESS_SPACE_MEMORY |
                     PCI_BASE_ADDRESS_MEM_TYPE_64 |
                     PCI_BASE_ADDRESS_MEM_PREFETCH, &s->bar2);
}

static void hmm_mailbox_exit(PCIDevice *pci)
{
    HmmMailboxState *s = HMM_MAILBOX(pci);

    hmm_exact_told(NULL, 0, NULL);
    memory_region_del_subregion(&s->bar2, s->ram);
    vmstate_unregister_ram(s->ram, DEVICE(s));
    host_memory_backend_set_mapped(s->memdev, false);
}

static const VMStateDescription hmm_mailbox_vmstate = {
    .name = TYPE_HMM_MAILBOX,
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, HmmMailboxState),
        VMSTATE_END_OF_LIST()
    }
};

static const Property hmm_mailbox_properties[] = {
    DEFINE_PROP_LINK("memdev", HmmMailboxState, memdev, TYPE_MEMORY_BACKEND,
                     HostMemoryBackend *),
};

static void hmm_mailbox_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(oc);

    pc->realize = hmm_mailbox_realize;
    pc->exit = hmm_mailbox_exit;
    pc->vendor_id = HM_PCI_VENDOR_ID;
    pc->device_id = HM_PCI_DEVICE_ID;
    pc->class_id = HM_PCI_CLASS;
    pc->revision = HM_VERSION;
    dc->vmsd = &hmm_mailbox_vmstate;
    dc->desc = "memory for requests and answers while the machine stands";
    /* The host keeps the memory mapped as long as the machine lives. */
    dc->hotpluggable = false;
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    device_class_set_props(dc, hmm_mailbox_properties);
}

static const TypeInfo hmm_mailbox_types[] = {
    {
        .name = TYPE_HMM_MAILBOX,
        .parent = TYPE_PCI_DEVICE,
        .instance_size = sizeof(HmmMailboxState),
        .class_init = hmm_mailbox_class_init,
        .interfaces = (InterfaceInfo[]) {
            { INTERFACE_CONVENTIONAL_PCI_DEVICE },
            { },
        },
    },
};

DEFINE_TYPES(hmm_mailbox_types)
