// SPDX-License-Identifier: GPL-2.0-or-later
/* hw/hw.c: a device is given up; DMA that does not reach memory. */
struct iommu_domain { int type; };
#define IOMMU_DOMAIN_IDENTITY	4
#define dma_map_page(d, p, o, n, dir)	0x1000
#define dma_unmap_page(d, a, n, dir)	nop()
#define dma_mapping_error(d, a)		0
#define __free_page(p)			nop()
static struct iommu_domain *its_domain;
#define iommu_get_domain_for_dev(d)	its_domain
static int need_sync;
#define dma_need_sync(d, a)		need_sync

#include "hw/hw.c"

static struct hg_device hdev;
static struct pci_dev pdev;
static int master = 1;

/* Nobody may be told that there is nothing to invalidate while the device can access memory. */
int pci_clear_master(struct pci_dev *p)
{
	CHECK(p == &pdev && hdev.hw_live);
	master = 0;
	return 0;
}

static int check_dma(int sync, int type)
{
	struct iommu_domain d = { type };
	int ret;

	need_sync = sync;
	its_domain = type < 0 ? NULL : &d;
	ret = hg_hw_check_dma(&hdev);
	its_domain = NULL;
	return ret;
}

int main(int argc, char **argv)
{
	hdev.pdev = &pdev;
	hdev.hw_live = true;
	if (!strcmp(argv[argc - 1], "wedge")) {
		hg_wedge(&hdev, "test");
		CHECK(!hdev.hw_live && !master);
		hg_wedge(&hdev, "again");
	} else {
		CHECK(check_dma(0, -1) == 0);
		CHECK(check_dma(1, -1) == -EOPNOTSUPP);
		CHECK(check_dma(1, IOMMU_DOMAIN_IDENTITY) == -EOPNOTSUPP);
		CHECK(check_dma(1, IOMMU_DOMAIN_IDENTITY - 1) == 0);
	}
	return 0;
}
