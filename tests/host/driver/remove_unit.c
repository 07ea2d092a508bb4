// SPDX-License-Identifier: GPL-2.0-or-later
/* pci/drv.c: devices are unplugged while programs wait in calls. */
#include <sys/ioctl.h>
#define module_pci_driver(d)
#define MODULE_DEVICE_TABLE(a, b)
#define MODULE_DESCRIPTION(d)
#define MODULE_LICENSE(l)
#define PCI_DEVICE(v, d)	0
#define DRM_IOCTL_DEF_DRV(n, f, fl) { f }
#define DRM_IOCTL_GEM_CLOSE	0x09
#define DRM_IOCTL_NR(c)		((c) & 0xff)
#define DRM_COMMAND_BASE	0x40
#define DRM_COMMAND_END		0xa0
#define DRM_RENDER_ALLOW	0
#define DRIVER_RENDER		0
#define DRIVER_SYNCOBJ		0
#define DRIVER_GEM		0
#define HG_DRM_DATE
#define DMA_BIT_MASK(n)		0
#define WQ_UNBOUND		0
#define WQ_HIGHPRI		0
#define pci_resource_len(p, b)	HG_BAR0_SIZE
#define FOP_UNSIGNED_OFFSET	0
#define wait_var_event(v, c)	CHECK(c)
#define module_put_and_kthread_exit(n) return (n)
struct inode;
struct file { void *private_data; };
struct pci_device_id { int n; };
typedef int drm_ioctl_t(struct drm_device *, void *, struct drm_file *);
struct drm_ioctl_desc { drm_ioctl_t *func; };
struct file_operations {
	void *owner;
	int (*open)(), (*release)(), (*poll)(), (*read)(), (*llseek)(), (*show_fdinfo)();
	long (*unlocked_ioctl)(struct file *, unsigned int, unsigned long);
	long (*compat_ioctl)(struct file *, unsigned int, unsigned long);
	int fop_flags;
};
struct drm_driver {
	int driver_features, num_ioctls, major, minor;
	int (*open)(struct drm_device *, struct drm_file *);
	void (*postclose)(struct drm_device *, struct drm_file *), (*release)(struct drm_device *);
	void (*debugfs_init)(struct drm_minor *);
	void (*show_fdinfo)();
	const struct drm_ioctl_desc *ioctls;
	const struct file_operations *fops;
	const char *name, *desc;
};
struct pci_driver {
	const char *name;
	const struct pci_device_id *id_table;
	int (*probe)(struct pci_dev *, const struct pci_device_id *);
	void (*remove)(struct pci_dev *);
	const void *err_handler;
};

long drm_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);
int drm_open(), drm_release(), drm_poll(), drm_read(), noop_llseek(), drm_show_fdinfo();
#define devm_drm_dev_alloc(d, r, s, m)	NULL
#define XA_FLAGS_ALLOC		0

#define synchronize_srcu(s)	do { if ((s)->readers) would_hang(); } while (0)
#define __init
#define __exit
#define module_init(f)
#define module_exit(f)
int pci_register_driver();
#include "pci/drv.c"

static struct hg_device one, other;
static struct hg_file hf;
static struct pci_dev pdevs[2];
static int calls;
/* whose memory for the arguments never comes; what goes while a call waits */
static struct hg_device *without_memory;
static struct pci_dev *goes;

/* The core: it fetches the arguments, then it calls. */
long drm_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct drm_file *file = filp->private_data;
	unsigned int nr = DRM_IOCTL_NR(cmd);

	if (to_hg(file->minor->dev) == without_memory)
		hg_remove(goes);
	if (nr < DRM_COMMAND_BASE)
		return 0;
	return hg_ioctls[nr - DRM_COMMAND_BASE].func(file->minor->dev, NULL, file);
}

/* A call of a program, in which it waits. */
int hg_get_param_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	calls++;
	hg_remove(goes);
	return 0;
}

static long call(struct hg_device *hdev, unsigned int nr)
{
	struct drm_minor minor = { &hdev->drm };
	struct drm_file file = { .minor = &minor, .driver_priv = &hf };
	struct file filp = { &file };

	return hg_ioctl(&filp, nr, 0);
}

int main(int argc, char **argv)
{
	static struct hg_svm svm = { .vm.mm = &a_mm };
	void *regs = calloc(1, HG_BAR0_SIZE);

	hf.svm = &svm;
	pdevs[0].dev.driver_data = &one;
	pdevs[1].dev.driver_data = &other;
	one.pdev = &pdevs[0];
	other.pdev = &pdevs[1];
	one.regs = other.regs = fake_regs = regs;
	one.hw_live = other.hw_live = true;
	if (!strcmp(argv[1], "other")) {
		goes = &pdevs[1];
		CHECK(call(&one, DRM_COMMAND_BASE) == 0 && calls == 1);
		/* the one that is gone takes no calls; the first one does */
		CHECK(call(&other, DRM_COMMAND_BASE) == -ENODEV && calls == 1);
		CHECK(call(&one, DRM_COMMAND_BASE) == 0 && calls == 2);
	} else if (!strcmp(argv[1], "calls")) {
		/* none but these goes to a device that is gone */
		one.gone = true;
		for (unsigned int i = 0; i < sizeof(hg_ioctls) / sizeof(*hg_ioctls); i++)
			if (hg_ioctls[i].func != hg_migrate_ioctl && hg_ioctls[i].func != hg_query_ioctl)
				CHECK(call(&one, DRM_COMMAND_BASE + i) == -ENODEV);
		CHECK(!calls);
	} else if (!strcmp(argv[1], "memory")) {
		without_memory = &one;
		goes = &pdevs[0];
		CHECK(call(&one, DRM_COMMAND_BASE) == -ENODEV && calls == 0);
	} else {
		/* a child's */
		svm.vm.mm = NULL;
		CHECK(call(&one, DRM_IOCTL_GEM_CLOSE) == -EPERM);
		svm.vm.mm = &a_mm;
		CHECK(call(&one, DRM_IOCTL_GEM_CLOSE) == 0);
	}
	return 0;
}
