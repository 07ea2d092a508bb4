// SPDX-License-Identifier: GPL-2.0
/*
 * Limits by user: what there is of a device is little, and anybody may open its
 * node.  By default a user gets half of each, so that somebody else can work, too.
 * Who has CAP_SYS_RESOURCE is counted and not limited, as with the kernel's own.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "base/device.h"
#include "base/user.h"

static unsigned int user_files, user_contexts, user_buffers_mb;
module_param(user_files, uint, 0644);
MODULE_PARM_DESC(user_files, "open files that a user may have (0: half of the address spaces)");
module_param(user_contexts, uint, 0644);
MODULE_PARM_DESC(user_contexts, "contexts that a user may have (0: half of them)");
module_param(user_buffers_mb, uint, 0644);
MODULE_PARM_DESC(user_buffers_mb, "MiB of VRAM in buffers that a user may have (0: half of it)");

static unsigned int max_timeslice_us = 100000;
module_param(max_timeslice_us, uint, 0644);
MODULE_PARM_DESC(max_timeslice_us, "longest time slice of a context, in microseconds");

static unsigned long limit(struct hg_device *hdev, enum hg_of_user what)
{
	unsigned long given, all;

	switch (what) {
	case HG_USER_FILES:
		given = READ_ONCE(user_files);
		all = hdev->num_asids - 1;
		break;
	case HG_USER_CTXS:
		given = READ_ONCE(user_contexts);
		all = hdev->num_ctxs - 1;
		break;
	default:
		given = (unsigned long)READ_ONCE(user_buffers_mb) << (20 - PAGE_SHIFT);
		all = READ_ONCE(hdev->vram.limit);
		break;
	}
	return given ? given : max(all / 2, 1UL);
}

/* With user_lock held. */
static bool add(struct hg_device *hdev, struct hg_user *user, enum hg_of_user what,
		unsigned long n, bool unlimited)
{
	unsigned long max = limit(hdev, what);

	if (!unlimited && (n > max || user->has[what] > max - n))
		return false;
	user->has[what] += n;
	return true;
}

static struct hg_user *find(struct hg_device *hdev, kuid_t uid)
{
	struct hg_user *user;

	list_for_each_entry(user, &hdev->user_list, link)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/**
 * hg_user_open() - the caller opens a file
 * @hdev: device
 *
 * Return: the user, with one file more; ERR_PTR: -EDQUOT, -ENOMEM.
 */
struct hg_user *hg_user_open(struct hg_device *hdev)
{
	struct hg_user *user, *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	bool unlimited = capable(CAP_SYS_RESOURCE);

	if (!new)
		return ERR_PTR(-ENOMEM);
	new->uid = current_uid();
	spin_lock(&hdev->user_lock);
	user = find(hdev, new->uid);
	if (!user) {
		user = new;
		new = NULL;
		list_add_tail(&user->link, &hdev->user_list);
	}
	if (!add(hdev, user, HG_USER_FILES, 1, unlimited)) {
		if (!user->has[HG_USER_FILES]) {
			list_del(&user->link);
			new = user;
		}
		user = ERR_PTR(-EDQUOT);
	}
	spin_unlock(&hdev->user_lock);
	kfree(new);
	return user;
}

/**
 * hg_user_close() - the file is closed, and has nothing any more
 * @hdev: device
 * @user: its user
 */
void hg_user_close(struct hg_device *hdev, struct hg_user *user)
{
	bool last;

	spin_lock(&hdev->user_lock);
	last = !--user->has[HG_USER_FILES];
	if (last)
		list_del(&user->link);
	spin_unlock(&hdev->user_lock);
	if (last)
		kfree(user);
}

/**
 * hg_user_charge() - a file of a user gets something
 * @hdev: device
 * @user: user
 * @what: of it
 * @n: so many
 *
 * Return: 0; -EDQUOT: more than the user may have.
 */
int hg_user_charge(struct hg_device *hdev, struct hg_user *user, enum hg_of_user what,
		   unsigned long n)
{
	bool unlimited = capable(CAP_SYS_RESOURCE), ok;

	spin_lock(&hdev->user_lock);
	ok = add(hdev, user, what, n, unlimited);
	spin_unlock(&hdev->user_lock);
	return ok ? 0 : -EDQUOT;
}

void hg_user_uncharge(struct hg_device *hdev, struct hg_user *user, enum hg_of_user what,
		      unsigned long n)
{
	spin_lock(&hdev->user_lock);
	user->has[what] -= n;
	spin_unlock(&hdev->user_lock);
}

/**
 * hg_user_timeslice() - the time slice that a context gets
 * @us: that it asks for; 0: the device's default
 */
u32 hg_user_timeslice(u32 us)
{
	return min(us, READ_ONCE(max_timeslice_us));
}
