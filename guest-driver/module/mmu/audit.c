// SPDX-License-Identifier: GPL-2.0
/*
 * The mirror audit: telling the device where the CPU's page tables are and how
 * this kernel writes their entries, so that it can compare.  It is for checking
 * alone; driver and device work the same without.
 *
 * The device walks by guest physical address, and compares GPU entries, which
 * hold bus addresses, with frames.  It may know where a bus address leads to.
 * If it does not, both are the same only if no IOMMU and no bounce buffer is
 * between, so the audit of an address space begins off where the DMA API
 * translates, and ends for good when a page's two addresses differ.
 *
 * What guarantees that the device does not look at a page table that is gone:
 * the root lives as long as the mm_struct, which the mirror holds (mmgrab())
 * until hg_mmu_fini() is through; everything below it lives until exit_mmap(),
 * which first calls mmu_notifier_release().  Both take the root out of the
 * device and then invalidate the whole address space: the device compares only
 * translations whose invalidation it has not completed.
 *
 * Every GPU address of a mirror is an address of its process, or from
 * hg_bo_start() on a buffer's, which the device does not compare.  The kernel's own
 * copies (context 0) are physical and have no address space, so none is exempt.
 */
#include <linux/pci.h>
#include <linux/pgtable.h>

#include "base/compat.h"
#include "base/regs.h"
#include "hw/hw.h"
#include "mmu/audit.h"
#include "mmu/mmu.h"

#ifdef CONFIG_X86_64

static u64 swap_types(void)
{
	u8 t[8] = { [0 ... 7] = 0xff };
	u64 v = 0;
	int i;

	t[HG_ENC_T_DEV_READ] = SWP_DEVICE_READ;
	t[HG_ENC_T_DEV_WRITE] = SWP_DEVICE_WRITE;
	t[HG_ENC_T_EXCL_A] = HG_SWP_EXCLUSIVE_A;
	t[HG_ENC_T_EXCL_B] = HG_SWP_EXCLUSIVE_B;
#ifdef CONFIG_MIGRATION
	t[HG_ENC_T_MIG_READ] = SWP_MIGRATION_READ;
	t[HG_ENC_T_MIG_READ_EXCL] = SWP_MIGRATION_READ_EXCLUSIVE;
	t[HG_ENC_T_MIG_WRITE] = SWP_MIGRATION_WRITE;
#endif
	for (i = 0; i < 8; i++)
		v |= (u64)t[i] << (8 * i);
	return v;
}

static void enc(struct hg_device *hdev, unsigned int n, u64 v)
{
	hg_write64(hdev, HG_REG_AUDIT_ENC + n * 8, v);
}

/**
 * hg_audit_hw_program() - give the device the kernel's encodings
 * @hdev: device; at probe, and again after a reset; VRAM pages exist
 */
void hg_audit_hw_program(struct hg_device *hdev)
{
	hg_write(hdev, HG_REG_AUDIT_CTRL, 0);
	enc(hdev, HG_ENC_PRESENT, _PAGE_PRESENT);
	enc(hdev, HG_ENC_WRITE, _PAGE_RW);
	enc(hdev, HG_ENC_PSE, _PAGE_PSE);
	enc(hdev, HG_ENC_PROTNONE, _PAGE_PROTNONE);
	enc(hdev, HG_ENC_PFN, PTE_PFN_MASK);
	enc(hdev, HG_ENC_NONE_IGNORE, _PAGE_KNL_ERRATUM_MASK);
	/* arch/x86/include/asm/pgtable-invert.h, __swp_offset() */
	enc(hdev, HG_ENC_FLAGS, HG_ENC_INVERT);
	enc(hdev, HG_ENC_SWAP, (64 - SWP_TYPE_BITS) | SWP_TYPE_BITS << 8 |
	    SWP_OFFSET_FIRST_BIT << 16 | (64 - SWP_OFFSET_SHIFT) << 24);
	enc(hdev, HG_ENC_SWAP_PFN, SWP_PFN_MASK);
	enc(hdev, HG_ENC_TYPES, swap_types());
	enc(hdev, HG_ENC_DEV_PFN, hdev->vram.base_pfn);
	hg_write(hdev, HG_REG_AUDIT_CTRL, HG_AUDIT_CTRL_READY);
}

static void write_root(struct hg_vm *vm, u64 v)
{
	if (READ_ONCE(vm->hdev->hw_live))
		hg_write64(vm->hdev, HG_REG_AUDIT_ASID + vm->asid * 8, v);
}

/**
 * hg_audit_program() - let the device compare this mirror with its process
 * @vm: address space; hw_sem is held and the device is there
 *
 * Also after a reset: an audit that ended does not begin again.
 */
void hg_audit_program(struct hg_vm *vm)
{
	u64 levels = pgtable_l5_enabled() ? 5 : 4;

	if (vm->audit_over)
		return;
	/* a write to a shadow stack page needs no _PAGE_RW: the device has no rule for it */
	if ((hg_hw_translated(vm->hdev) && !vm->hdev->audits_bus) ||
	    cpu_feature_enabled(X86_FEATURE_USER_SHSTK)) {
		dev_warn_once(vm->hdev->drm.dev,
			      "mirror audit off: an IOMMU translates, or there are shadow stacks\n");
		return;
	}
	hg_write64(vm->hdev, HG_REG_AUDIT_ASID + vm->asid * 8,
		   virt_to_phys(vm->mm->pgd) | levels << HG_AUDIT_LEVELS_SHIFT | HG_AUDIT_ENABLE);
}

/**
 * hg_audit_end() - the process's page tables are about to go away
 * @vm: address space; pt_lock and hw_sem (read) are held; the caller then invalidates
 */
void hg_audit_end(struct hg_vm *vm)
{
	lockdep_assert_held(&vm->pt_lock);
	if (vm->audit_over)
		return;
	vm->audit_over = true;
	write_root(vm, 0);
}

/**
 * hg_audit_not_physical() - a page's bus address is not its physical address
 * @vm: address space; pt_lock and hw_sem (read) are held, the entry is not written yet
 */
void hg_audit_not_physical(struct hg_vm *vm)
{
	if (vm->hdev->audits_bus)
		return;
	dev_warn_once(vm->hdev->drm.dev, "mirror audit off: DMA addresses are not physical\n");
	hg_audit_end(vm);
}

#else

void hg_audit_hw_program(struct hg_device *hdev)
{
	dev_info_once(hdev->drm.dev, "mirror audit: not on this architecture\n");
}

void hg_audit_program(struct hg_vm *vm)
{
}

void hg_audit_end(struct hg_vm *vm)
{
}

void hg_audit_not_physical(struct hg_vm *vm)
{
}

#endif
