// SPDX-License-Identifier: GPL-2.0-or-later
/* mmu/mmu.c: the memory of tables is the process's, also when a worker asks for it. */
struct mem_cgroup;
static struct mem_cgroup *active, *process = (struct mem_cgroup *)8;
static inline struct mem_cgroup *fake_set_active(struct mem_cgroup *m)
{
	struct mem_cgroup *old = active;

	active = m;
	return old;
}
#define get_mem_cgroup_from_mm(mm)	((mm) == &a_mm ? process : NULL)
#define set_active_memcg(m)		fake_set_active(m)
#include "mmu/mmu.c"

static void check_payer(void)
{
	CHECK(last_gfp & __GFP_ACCOUNT && active == process);
}

int main(void)
{
	static struct hg_device hdev;
	struct hg_vm vm = { .hdev = &hdev, .mm = &a_mm };
	struct hg_pt_cache cache = {};
	static struct pci_dev pdev;

	hdev.pdev = &pdev;
	at_alloc = check_payer;
	CHECK(hg_pt_cache_fill(&vm, &cache) == 0 && !active);
	CHECK(cache.free[0]);
	return 0;
}
