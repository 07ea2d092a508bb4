// SPDX-License-Identifier: GPL-2.0
/* /proc/PID/fdinfo. */
#include <drm/drm_file.h>
#include <drm/drm_print.h>

#include "drm/bo.h"
#include "drm/fdinfo.h"
#include "jobs/file.h"

void hg_show_fdinfo(struct drm_printer *p, struct drm_file *file)
{
	struct hg_file *hf = file->driver_priv;
	struct hg_svm *svm = hf->svm;
	unsigned long sys, vram;

	mutex_lock(&svm->vm.pt_lock);
	sys = svm->vm.gpu_sys;
	vram = svm->vm.gpu_vram;
	mutex_unlock(&svm->vm.pt_lock);
	drm_printf(p, "drm-engine-compute:\t%llu ns\n", atomic64_read(&hf->engine_ns[0]));
	drm_printf(p, "drm-engine-copy:\t%llu ns\n", atomic64_read(&hf->engine_ns[1]));
	/* what the GPU's page tables of this file map */
	drm_printf(p, "drm-resident-vram:\t%lu KiB\n", vram << (PAGE_SHIFT - 10));
	drm_printf(p, "drm-resident-system:\t%lu KiB\n", sys << (PAGE_SHIFT - 10));
	drm_printf(p, "hmm_gpu-buffers:\t%lu KiB\n", hg_bo_pages(svm) << (PAGE_SHIFT - 10));
	drm_printf(p, "hmm_gpu-asid:\t%u\n", svm->vm.asid);
}
