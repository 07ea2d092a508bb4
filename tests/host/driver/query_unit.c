// SPDX-License-Identifier: GPL-2.0-or-later
/* drm/query.c: a program that asks for all of its address space is told to stop; the device goes. */
#define copy_to_user(d, s, n)	0
#define u64_to_user_ptr(p)	((void *)(p))
#define HMM_PFN_ERROR		4UL
#define HMM_PFN_VALID		8UL
#define HMM_PFN_WRITE		16UL
#include "drm/query.c"

static unsigned long windows;

int hg_snapshot_lock(struct hg_svm *svm, unsigned long start, unsigned long end,
		     unsigned long *pfns)
{
	CHECK(++windows < 1000);
	signals = windows == 10;
	memset(pfns, 0, (end - start) >> PAGE_SHIFT << 3);
	mutex_lock(&svm->vm.pt_lock);
	return 0;
}

int main(int argc, char **argv)
{
	static struct hg_svm svm = { .vm.mm = &a_mm };
	static struct hg_device hdev;
	struct hg_file hf = { .svm = &svm };
	struct drm_file file = { .driver_priv = &hf };
	struct drm_hmm_gpu_query args = { .npages = 512 * 5 };

	CHECK(hg_query_ioctl(&hdev.drm, &args, &file) == 0 && windows == 5);
	if (!strcmp(argv[1], "gone")) {
		hdev.gone = true;
		CHECK(hg_query_ioctl(&hdev.drm, &args, &file) == -ENODEV);
	} else {
		args.npages = TASK_SIZE >> PAGE_SHIFT;
		CHECK(hg_query_ioctl(&hdev.drm, &args, &file) == -EINTR && windows == 10);
	}
	return 0;
}
