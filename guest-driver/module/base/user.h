/* SPDX-License-Identifier: GPL-2.0 */
/* What each user has of a device, and may have. */
#ifndef HMM_GPU_BASE_USER_H
#define HMM_GPU_BASE_USER_H

#include <linux/list.h>
#include <linux/types.h>
#include <linux/uidgid.h>

struct hg_device;

enum hg_of_user {
	HG_USER_FILES,		/* open files, each an address space */
	HG_USER_CTXS,
	HG_USER_BO_PAGES,
	HG_USER_NUM
};

/**
 * struct hg_user - what the open files of a user have
 * @link: in hg_device.user_list
 * @uid: who opened them
 * @has: by enum hg_of_user
 *
 * All under hg_device.user_lock; lives while it has files.
 */
struct hg_user {
	struct list_head link;
	kuid_t uid;
	unsigned long has[HG_USER_NUM];
};

struct hg_user *hg_user_open(struct hg_device *hdev);
void hg_user_close(struct hg_device *hdev, struct hg_user *user);
int hg_user_charge(struct hg_device *hdev, struct hg_user *user, enum hg_of_user what,
		   unsigned long n);
void hg_user_uncharge(struct hg_device *hdev, struct hg_user *user, enum hg_of_user what,
		      unsigned long n);
u32 hg_user_timeslice(u32 us);

#endif
