/* SPDX-License-Identifier: GPL-2.0 */
/* An open file. */
#ifndef HMM_GPU_JOBS_FILE_H
#define HMM_GPU_JOBS_FILE_H

#include <linux/atomic.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/xarray.h>

#include "base/user.h"
#include "mem/svm.h"

/* One open file. */
struct hg_file {
	struct hg_svm *svm;
	struct hg_user *user;		/* who opened it: what it has is charged to */
	struct mutex lock;		/* creation and removal in @ctxs */
	struct xarray ctxs;		/* by id; lookup takes a reference under its lock */
	atomic64_t engine_ns[2];	/* launches, copies */
};

/**
 * hg_check_mm() - whether the caller may use a file
 * @hf: file
 *
 * The address space of a file is that of the process that opened it.
 *
 * Return: 0 or -EPERM.
 */
static inline int hg_check_mm(struct hg_file *hf)
{
	return current->mm == hf->svm->vm.mm ? 0 : -EPERM;
}

struct hg_file *hg_file_create(struct hg_device *hdev);
void hg_file_destroy(struct hg_file *hf);

#endif
