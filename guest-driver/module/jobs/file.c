// SPDX-License-Identifier: GPL-2.0
/* An open file: a mirror, and the contexts that execute in it. */
#include <linux/slab.h>

#include "base/delay.h"
#include "jobs/file.h"
#include "jobs/jobs.h"
#include "mem/fault.h"
#include "mem/svm.h"

/**
 * hg_file_create() - what an open file has: the mirror of the caller, no context yet
 * @hdev: device
 *
 * Return: the file or ERR_PTR.
 */
struct hg_file *hg_file_create(struct hg_device *hdev)
{
	struct hg_file *hf = ERR_PTR(-ENODEV);
	int ret, idx;

	if (!hg_enter(hdev, &idx))
		return hf;
	if (READ_ONCE(hdev->stopping))
		goto out;
	hf = kzalloc(sizeof(*hf), GFP_KERNEL_ACCOUNT);
	if (!hf) {
		hf = ERR_PTR(-ENOMEM);
		goto out;
	}
	mutex_init(&hf->lock);
	xa_init(&hf->ctxs);
	hf->user = hg_user_open(hdev);
	ret = PTR_ERR_OR_ZERO(hf->user);
	if (ret)
		goto err_free;
	hf->svm = hg_svm_create(hdev);
	ret = PTR_ERR_OR_ZERO(hf->svm);
	if (ret) {
		hg_user_close(hdev, hf->user);
		goto err_free;
	}
	hf->svm->user = hf->user;
	/* before the first context: nothing faults there yet */
	ret = hg_fault_attach(hdev, hf->svm->vm.asid);
	if (ret) {
		hg_svm_destroy(hf->svm);
		goto err_free;
	}
out:
	hg_exit(hdev, idx);
	return hf;

err_free:
	kfree(hf);
	hf = ERR_PTR(ret);
	goto out;
}

/**
 * hg_file_destroy() - the file is closed
 * @hf: file; the device may be gone
 */
void hg_file_destroy(struct hg_file *hf)
{
	hg_delay(release_begin);
	hg_ctx_destroy_all(hf);
	hg_svm_destroy(hf->svm);
	xa_destroy(&hf->ctxs);
	kfree(hf);
}
