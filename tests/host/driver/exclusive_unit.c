// SPDX-License-Identifier: GPL-2.0-or-later
/* mem/exclusive.c on mmu/mmu.c: a look at all of an address space. */
struct folio_stub;
#include "mmu/mmu.c"

static unsigned long looks;
static u64 counted_lookup(struct hg_vm *vm, unsigned long va)
{
	CHECK(++looks < 100000);
	return hg_mmu_lookup(vm, va);
}
#define hg_mmu_lookup	counted_lookup
#include "mem/exclusive.c"

static struct hg_device hdev;
static struct pci_dev pdev;

static void map(struct hg_svm *svm, unsigned long va, u64 pte)
{
	struct hg_pt_cache cache = {};
	struct hg_pt *pt;

	CHECK(hg_pt_cache_fill(&svm->vm, &cache) == 0);
	mutex_lock(&svm->vm.pt_lock);
	pt = pt_find_or_add(&svm->vm, &cache, va, 0);
	pt->used++;
	pt_write(pt, pt_index(va, 0), pte);
	mutex_unlock(&svm->vm.pt_lock);
}

int main(void)
{
	static struct hg_svm svm;
	u64 plain = HG_PTE_VALID | HG_PTE_WRITE | HG_PTE_APER_SYS, atomic = plain | HG_PTE_ATOMIC;
	unsigned long end = TASK_SIZE;

	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	hdev.pdev = &pdev;
	svm.vm.hdev = &hdev;
	CHECK(hg_mmu_init(&svm.vm) == 0);
	CHECK(!hg_svm_any_exclusive(&svm, 0, end));
	map(&svm, 0x7000000000, plain);
	map(&svm, end - PAGE_SIZE, plain);
	CHECK(!hg_svm_any_exclusive(&svm, 0, end));
	map(&svm, 0x555555555000, atomic);
	CHECK(hg_svm_any_exclusive(&svm, 0, end));
	CHECK(hg_svm_any_exclusive(&svm, 0x555555555000, 0x555555556000));
	CHECK(!hg_svm_any_exclusive(&svm, 0x555555556000, end));
	CHECK(!hg_svm_any_exclusive(&svm, 0, 0x555555555000));
	return 0;
}
