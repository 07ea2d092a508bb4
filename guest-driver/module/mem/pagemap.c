// SPDX-License-Identifier: GPL-2.0
/*
 * VRAM as pages of the kernel, device-private or device-coherent.  The kernel
 * comes back through the two functions of the page map: the last reference of a
 * page is gone, and a CPU touches one.
 */
#include <linux/ioport.h>
#include <linux/memremap.h>
#include <linux/pci.h>

#include "base/compat.h"
#include "base/regs.h"
#include "mem/pagemap.h"
#include "mem/to_ram.h"
#include "mem/vram.h"

HG_DEFINE_PAGE_FREE(hg_vram_free)

static const struct dev_pagemap_ops vram_pagemap_ops = {
	HG_PAGEMAP_FREE_OP(hg_vram_free),
	.migrate_to_ram = hg_migrate_to_ram,
};

/* Addresses for the struct pages: those of the aperture, or some that nobody uses. */
static struct resource *get_range(struct hg_device *hdev, unsigned long size)
{
	struct resource *res;

	if (!hdev->coherent)
		return request_free_mem_region(&iomem_resource, size, "hmm_gpu-vram");
	res = request_mem_region(pci_resource_start(hdev->pdev, HG_BAR_VRAM), size,
				 "hmm_gpu-vram");
	return res ? res : ERR_PTR(-EBUSY);
}

/**
 * hg_pagemap_init() - VRAM as pages of the kernel
 * @hdev: device
 *
 * Return: 0 or -errno.
 */
int hg_pagemap_init(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;
	struct dev_pagemap *map = &vram->pagemap;
	void *addr;
	int ret;

	ret = hg_vram_init(hdev);
	if (ret)
		return ret;
	vram->res = get_range(hdev, (unsigned long)vram->nr_chunks << HG_HUGE_SHIFT);
	if (IS_ERR(vram->res)) {
		hg_vram_fini(hdev);
		return PTR_ERR(vram->res);
	}
	map->type = hdev->coherent ? MEMORY_DEVICE_COHERENT : MEMORY_DEVICE_PRIVATE;
	map->range.start = vram->res->start;
	map->range.end = vram->res->end;
	map->nr_range = 1;
	map->ops = &vram_pagemap_ops;
	map->owner = hdev;
	addr = memremap_pages(map, dev_to_node(&hdev->pdev->dev));
	if (IS_ERR(addr)) {
		release_mem_region(vram->res->start, resource_size(vram->res));
		hg_vram_fini(hdev);
		return PTR_ERR(addr);
	}
	vram->base_pfn = PHYS_PFN(map->range.start);
	hg_vram_show(hdev);
	vram->ready = true;
	return 0;
}

/**
 * hg_pagemap_fini() - give the struct pages back
 * @hdev: device; no VRAM page is in use
 */
void hg_pagemap_fini(struct hg_device *hdev)
{
	struct hg_vram *vram = &hdev->vram;

	if (!vram->ready)
		return;
	vram->ready = false;
	if (vram->map_dma) {	/* the device still runs: a probe that failed */
		hg_write64(hdev, HG_REG_VRAM_MAP, 0);
		hg_vram_hide(hdev);
	}
	memunmap_pages(&vram->pagemap);
	release_mem_region(vram->res->start, resource_size(vram->res));
	hg_vram_fini(hdev);
}
