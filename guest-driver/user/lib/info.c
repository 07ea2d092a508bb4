// SPDX-License-Identifier: GPL-2.0-or-later
/* libhmmgpu: attributes of the device, and errors in words. */
#include <errno.h>

#include "hmm_gpu_hw.h"
#include "internal.h"

/* Where a value comes from: a constant, or a parameter of the driver times a unit. */
static const struct {
	const char *name;
	int param;		/* HMM_GPU_PARAM_*, -1: none */
	uint64_t value;		/* or the unit */
} attrs[] = {
	[HMMGPU_ATTR_PAGEABLE_ACCESS] = { "pageable memory access", -1, 1 },
	[HMMGPU_ATTR_HOST_PAGE_TABLES] = { "uses the host's page tables", -1, 0 },
	[HMMGPU_ATTR_CONCURRENT_ACCESS] = { "concurrent access of CPU and GPU", -1, 1 },
	[HMMGPU_ATTR_NATIVE_ATOMICS] = { "atomics native to CPU and GPU", -1, 1 },
	[HMMGPU_ATTR_CPU_ACCESS_TO_VRAM] = { "CPU access to pages in VRAM", HMM_GPU_PARAM_COHERENT, 1 },
	[HMMGPU_ATTR_HUGE_MIGRATION] = { "migration of 2 MiB pages", HMM_GPU_PARAM_THP_MIGRATION, 1 },
	[HMMGPU_ATTR_SMS] = { "streaming multiprocessors", HMM_GPU_PARAM_SMS, 1 },
	[HMMGPU_ATTR_WARPS] = { "warps a multiprocessor", HMM_GPU_PARAM_WARPS, 1 },
	[HMMGPU_ATTR_LANES] = { "lanes a warp", HMM_GPU_PARAM_LANES, 1 },
	[HMMGPU_ATTR_THREADS] = { "threads at the same time", HMM_GPU_PARAM_THREAD_SLOTS, 1 },
	[HMMGPU_ATTR_MAX_BLOCK] = { "threads a block", -1, HG_MAX_BLOCK },
	[HMMGPU_ATTR_MAX_GRID] = { "blocks a launch", -1, UINT32_MAX },
	[HMMGPU_ATTR_MAX_SHARED] = { "bytes of shared memory a block", -1, HG_SHARED_MAX },
	[HMMGPU_ATTR_VRAM_BYTES] = { "bytes of VRAM", HMM_GPU_PARAM_VRAM_PAGES, 4096 },
	[HMMGPU_ATTR_VRAM_FREE_BYTES] = { "bytes of VRAM that are free", HMM_GPU_PARAM_VRAM_FREE, 4096 },
	[HMMGPU_ATTR_PAGE_BYTES] = { "bytes of a page", -1, 4096 },
	[HMMGPU_ATTR_MAX_COPY_BYTES] = { "bytes of one copy job", -1, HG_COPY_MAX_BYTES },
};

static int is_known(uint32_t attr)
{
	return attr < sizeof(attrs) / sizeof(*attrs) && attrs[attr].name;
}

int hmmgpu_get_attr(struct hmmgpu *gpu, enum hmmgpu_attr attr, uint64_t *value)
{
	uint64_t v, slots;
	int ret;

	if (!is_known(attr))
		return -EINVAL;
	if (attrs[attr].param >= 0) {
		ret = hmmgpu_get_param(gpu, (uint32_t)attrs[attr].param, &v);
		if (ret == 0)
			*value = v * attrs[attr].value;
		return ret;
	}
	v = attrs[attr].value;
	if (attr == HMMGPU_ATTR_MAX_BLOCK) {
		/* a block is on one SM */
		ret = hmmgpu_get_param(gpu, HMM_GPU_PARAM_WARPS, &slots);
		if (ret)
			return ret;
		if (slots * HG_LANES < v)
			v = slots * HG_LANES;
	}
	*value = v;
	return 0;
}

const char *hmmgpu_attr_name(enum hmmgpu_attr attr)
{
	return is_known(attr) ? attrs[attr].name : "unknown attribute";
}

const char *hmmgpu_error_text(int error)
{
	switch (error < 0 ? -error : error) {
	case 0: return "no error";
	case EPERM: return "the device was opened by another process: after fork(), open it again";
	case ENOENT: return "no such symbol, syncobj, context or file";
	case EINTR: return "interrupted";
	case EIO: return "the device was reset or failed, or a bus error";
	case ENOEXEC: return "not a GPU program that can be loaded";
	case ENOMEM: return "out of memory";
	case EACCES: return "no permission to open the render node";
	case EFAULT: return "access to memory that is not mapped or must not be accessed so";
	case EBUSY: return "busy";
	case EEXIST: return "the fixed addresses of the program are in use";
	case ENODEV: return "no GPU of the driver hmm_gpu, or it is gone";
	case EINVAL: return "an argument that the hardware or the driver cannot do";
	case ENOSPC: return "not so much VRAM, or no hardware context or address space is left";
	case EDQUOT: return "more than the driver allows one user";
	case ETIME: return "not done in time, or the instruction budget is used up";
	case EOPNOTSUPP: return "not on this kind of machine";
	case EPROTO: return "library and driver do not fit together";
	case EILSEQ: return "illegal instruction, misaligned jump or atomic, or breakpoint";
	case ENODATA: return "the result is too old and forgotten";
	case ECANCELED: return "the context was destroyed before the job ended";
	default: return "unknown error";
	}
}
