// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/dri/N/: counters, evict, vram_limit, fail_*, delays, trip*.
 */
#include <linux/debugfs.h>
#include <linux/ktime.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>

#include "base/delay.h"
#include "base/regs.h"
#include "base/stats.h"
#include "hw/ce.h"
#include "hw/hw.h"
#include "jobs/jobs.h"
#include "mem/evict.h"
#include "test/debugfs.h"

static int counters_show(struct seq_file *m, void *unused)
{
	struct hg_device *hdev = m->private;
	unsigned int i;

	for (i = 0; i < HG_NUM_STATS; i++)
		seq_printf(m, "%s %lld\n", hg_counter_names[i],
			   atomic64_read(&hdev->stats.count[i]));
	for (i = 0; i < HG_NUM_LIVE; i++)
		seq_printf(m, "live_%s %ld\n", hg_gauge_names[i],
			   atomic_long_read(&hdev->stats.live[i]));
	seq_printf(m, "live_fences %ld\n", atomic_long_read(&hg_live_fences));

	down_read(&hdev->hw_sem);
	if (READ_ONCE(hdev->hw_live))
		for (i = 0; i < HG_NUM_COUNTERS; i++)
			seq_printf(m, "dev_%s %llu\n", hg_device_counter_names[i],
				   hg_read64(hdev, HG_REG_COUNTER + i * 8));
	up_read(&hdev->hw_sem);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static ssize_t evict_write(struct file *file, const char __user *ubuf, size_t len, loff_t *pos)
{
	struct hg_device *hdev = file->private_data;
	unsigned long n;
	char buf[32];
	int ret;

	if (!len || len >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, len))
		return -EFAULT;
	buf[len] = 0;
	if (sysfs_streq(buf, "all")) {
		n = ULONG_MAX;
	} else {
		ret = kstrtoul(strim(buf), 0, &n);
		if (ret)
			return ret;
	}
	hg_vram_evict(hdev, n);
	return len;
}

static const struct file_operations evict_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = evict_write,
	.llseek = noop_llseek,
};

static int vram_limit_get(void *data, u64 *val)
{
	struct hg_device *hdev = data;

	*val = READ_ONCE(hdev->vram.limit);
	return 0;
}

/* Pages above a new limit stay until the next allocation evicts them. */
static int vram_limit_set(void *data, u64 val)
{
	struct hg_device *hdev = data;
	struct hg_vram *vram = &hdev->vram;

	spin_lock_irq(&vram->lock);
	vram->limit = min_t(u64, val, (u64)vram->nr_chunks * HG_CHUNK_PAGES);
	spin_unlock_irq(&vram->lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(vram_limit_fops, vram_limit_get, vram_limit_set, "%llu\n");

static int delays_show(struct seq_file *m, void *unused)
{
	hg_delay_show(m);
	return 0;
}

static int delays_open(struct inode *inode, struct file *file)
{
	return single_open(file, delays_show, inode->i_private);
}

static ssize_t delays_write(struct file *file, const char __user *ubuf, size_t len, loff_t *pos)
{
	struct hg_device *hdev = ((struct seq_file *)file->private_data)->private;
	char *buf, *at, *line;
	int ret = 0;

	if (len > PAGE_SIZE)
		return -EINVAL;
	buf = memdup_user_nul(ubuf, len);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	at = buf;
	while (!ret && (line = strsep(&at, "\n;")))
		ret = hg_delay_set(hdev, line);
	kfree(buf);
	return ret ? ret : len;
}

static const struct file_operations delays_fops = {
	.owner = THIS_MODULE,
	.open = delays_open,
	.read = seq_read,
	.write = delays_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/* One that takes longer is none: no interrupt came, or the host had no time for us. */
#define HG_TRIP_MAX	(HZ / 10)
#define HG_TRIPS_LATE	32

/*
 * The least that a GPU's driver takes to say something to the device and to hear of it: a
 * fence alone on the kernel's own ring.  Nanoseconds from before the doorbell to when this
 * thread runs again, woken by the handler of the fence's interrupt; or, without one, to when
 * it sees the fence's word, for which it looks all the time.  One each time the file is read,
 * so that whoever measures something else can have one beside each of what he measures.
 */
static int show_trip(struct seq_file *m, bool back)
{
	struct hg_device *hdev = m->private;
	unsigned int late;

	for (late = 0; late < HG_TRIPS_LATE; late++) {
		unsigned long end;
		u64 begin, value, took;

		/* not for all of them: a reset, which lets no interrupt come, waits for us */
		if (!hg_hw_lock(hdev))
			return -ENODEV;
		end = jiffies + HG_TRIP_MAX;
		begin = ktime_get_ns();
		value = hg_ce_fence(hdev, back);
		if (back)
			wait_event_timeout(hdev->ce.wait, hg_ce_passed(hdev, value), HG_TRIP_MAX);
		else
			while (!hg_ce_passed(hdev, value) && time_before(jiffies, end))
				cpu_relax();
		took = ktime_get_ns() - begin;
		up_read(&hdev->hw_sem);
		if (time_before(jiffies, end)) {
			seq_printf(m, "%llu\n", took);
			return 0;
		}
	}
	return -EIO;
}

static int trip_show(struct seq_file *m, void *unused)
{
	return show_trip(m, true);
}
DEFINE_SHOW_ATTRIBUTE(trip);

static int trip_there_show(struct seq_file *m, void *unused)
{
	return show_trip(m, false);
}
DEFINE_SHOW_ATTRIBUTE(trip_there);

void hg_debugfs_init(struct drm_minor *minor)
{
	struct hg_device *hdev = to_hg(minor->dev);
	struct dentry *root = minor->debugfs_root;

	debugfs_create_file("counters", 0444, root, hdev, &counters_fops);
	debugfs_create_file("evict", 0200, root, hdev, &evict_fops);
	debugfs_create_file("vram_limit", 0600, root, hdev, &vram_limit_fops);
	debugfs_create_atomic_t("fail_tables", 0600, root, &hdev->fail_tables);
	debugfs_create_atomic_t("fail_exclusive", 0600, root, &hdev->fail_exclusive);
	debugfs_create_file("delays", 0600, root, hdev, &delays_fops);
	debugfs_create_file("trip", 0400, root, hdev, &trip_fops);
	debugfs_create_file("trip_there", 0400, root, hdev, &trip_there_fops);
}
