// SPDX-License-Identifier: GPL-2.0-or-later
/* mem/svm.c on mmu/mmu.c: a mirror is opened while the device is reset. */
#include "mmu/mmu.c"
#include "mem/svm.c"

static struct hg_device hdev;
static struct pci_dev pdev;

static u64 root_of(u32 asid)
{
	return *(u64 *)(hdev.regs + HG_REG_ASID + asid * HG_ASID_STRIDE + HG_ASID_ROOT);
}

/* As hg_reset_end() does: what is in the table is programmed anew. */
static void reset(void)
{
	struct hg_svm *svm;
	unsigned long asid;

	memset(hdev.regs, 0, HG_BAR0_SIZE);
	xa_for_each(&hdev.svms, asid, svm)
		hg_mmu_program(&svm->vm);
}

int main(int argc, char **argv)
{
	struct hg_svm *svm;

	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	hdev.pdev = &pdev;
	hdev.hw_live = true;
	hdev.num_asids = 8;
	if (!strcmp(argv[argc - 1], "reset"))
		at_xa_store = reset;
	svm = hg_svm_create(&hdev);
	CHECK(!IS_ERR(svm));
	CHECK(root_of(svm->vm.asid) == (svm->vm.root->dma | HG_ROOT_ENABLE));
	reset();
	CHECK(root_of(svm->vm.asid) == (svm->vm.root->dma | HG_ROOT_ENABLE));
	return 0;
}
