/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * hmm_gpu: the interface of the DRM driver to user space.
 *
 * Each open file has one address space: the mirror of the process that opened
 * it.  A process that inherits the file over fork() gets -EPERM from every
 * call that touches that address space or its contexts, and opens the node itself.
 * -EDQUOT of open() or CTX_CREATE: the user has as many as the driver allows one.
 * All structs are the same on 32 and 64 bit; pad and reserved fields must be 0
 * (-EINVAL), unknown flags as well.
 */
#ifndef _UAPI_HMM_GPU_DRM_H_
#define _UAPI_HMM_GPU_DRM_H_

#include <linux/types.h>
#include <linux/ioctl.h>

/* = DRM_COMMAND_BASE of <drm/drm.h>, spelled out so that libdrm's headers are not needed */
#define HMM_GPU_IOCTL_TYPE	'd'
#define HMM_GPU_IOCTL_BASE	0x40

#define HMM_GPU_PARAM_VERSION		0	/* of this interface: 1 */
#define HMM_GPU_PARAM_SMS		1
#define HMM_GPU_PARAM_WARPS		2	/* a SM */
#define HMM_GPU_PARAM_LANES		3
#define HMM_GPU_PARAM_VRAM_PAGES	4	/* that the driver may use for migration */
#define HMM_GPU_PARAM_VRAM_FREE		5
#define HMM_GPU_PARAM_THREAD_SLOTS	6	/* sms * warps * lanes: size of local memory */
#define HMM_GPU_PARAM_THP_MIGRATION	7	/* 1: 2 MiB migrate whole */
#define HMM_GPU_PARAM_COHERENT		8	/* 1: the CPU uses pages in VRAM where they are */

struct drm_hmm_gpu_get_param {
	__u32 param;
	__u32 pad;
	__u64 value;		/* out */
};

/* What a fault on a page that is not in VRAM does */
#define HMM_GPU_POLICY_MAP	0	/* maps the system page */
#define HMM_GPU_POLICY_MIGRATE	1	/* migrates it if it can, else maps it */
/* or'ed to one of them: atomics on a page of anonymous memory keep the CPU away from it */
#define HMM_GPU_POLICY_EXCLUSIVE	2

struct drm_hmm_gpu_policy {
	__u32 policy;
	__u32 pad;
};

struct drm_hmm_gpu_ctx_create {
	__u32 flags;		/* 0 */
	__u32 timeslice_us;	/* 0 = default; longer ones than the driver allows are shortened */
	__u32 ctx_id;		/* out */
	__u32 pad;
};

struct drm_hmm_gpu_ctx_destroy {
	__u32 ctx_id;		/* ends running jobs with -ECANCELED */
	__u32 pad;
};

/*
 * Syncobjs (DRM core ioctls) order jobs: the job starts after in_syncobj's fence, or
 * after the job of this GPU that in_syncobj is the out_syncobj of; 0 = none.
 * out_syncobj has no fence from here on until the job is over, however it ended, and
 * then a signalled one: to wait for it takes DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT.
 * A job may fault for as long as it likes, so no fence that others could wait for
 * within the kernel stands for it.  How it ended, WAIT says.
 */
struct drm_hmm_gpu_launch {
	__u32 ctx_id;
	__u32 flags;		/* 0 */
	__u64 entry;		/* address of the kernel's first instruction */
	__u64 args;
	__u32 grid;		/* blocks */
	__u32 block;		/* threads a block */
	__u64 local_base;	/* stacks: thread_slots * local_size bytes */
	__u32 local_size;	/* bytes a thread slot, multiple of 16 */
	__u32 shared_size;	/* bytes of memory that a block shares, up to 64 KiB */
	__u64 budget;		/* instructions a thread, 0 = none */
	__u32 in_syncobj;
	__u32 out_syncobj;
	__u64 job;		/* out: number in this context, from 1 */
};

#define HMM_GPU_COPY_FILL	1	/* src is a 64-bit pattern */

struct drm_hmm_gpu_copy {
	__u32 ctx_id;
	__u32 flags;
	__u64 dst;		/* virtual addresses */
	__u64 src;
	__u64 len;
	__u32 in_syncobj;
	__u32 out_syncobj;
	__u64 job;		/* out */
};

struct drm_hmm_gpu_wait {
	__u32 ctx_id;
	__u32 pad;
	__u64 job;		/* waits until this job is done */
	__s64 timeout_ns;	/* relative; < 0 = for ever; 0 = poll; -ETIME when it ends first */
	/* out: */
	/*
	 * 0 or -errno: EFAULT access, ENOMEM no memory for a page (tried for a while), EIO a
	 * page cannot be read from VRAM, or the device failed, EILSEQ illegal instruction,
	 * ETIME budget, ECANCELED, ENODEV
	 */
	__s32 error;
	__u32 status;		/* HG_ERR_* */
	__u32 reason;		/* HG_REASON_* */
	__u32 block;
	__u32 thread;
	__u32 pad2;
	__u64 addr;
	__u64 pc;
	__u64 instrs;
};

#define HMM_GPU_MIGRATE_SYSTEM	0
#define HMM_GPU_MIGRATE_DEVICE	1
#define HMM_GPU_MIGRATE_MAP	1	/* flag: also map what is there on the GPU (prefetch), read-only where the CPU may only read */

/*
 * Best effort, page by page, over all VMAs in the range; holes and pages that
 * cannot move are counted in failed.  -EINVAL: bad range; -EFAULT: nothing is
 * mapped in it; -EINTR.
 */
struct drm_hmm_gpu_migrate {
	__u64 addr;		/* page aligned */
	__u64 len;
	__u32 dst;
	__u32 flags;
	__u64 migrated;		/* out: pages that moved */
	__u64 failed;		/* out: pages that should have moved and did not */
};

/*
 * One __u32 a page: the driver's and the CPU's view.  Does not fault anything in.
 * What the GPU may do it could before the CPU's table was looked at, so that it may
 * write no page that the CPU was seen only to read.
 */
#define HMM_GPU_Q_GPU_VALID	0x01	/* GPU PTE */
#define HMM_GPU_Q_GPU_WRITE	0x02
#define HMM_GPU_Q_GPU_ATOMIC	0x04
#define HMM_GPU_Q_GPU_VRAM	0x08
#define HMM_GPU_Q_GPU_HUGE	0x10
#define HMM_GPU_Q_GPU_EXCLUSIVE	0x20	/* a CPU that touches the page takes it back first */
#define HMM_GPU_Q_CPU_NONE	0x000	/* nothing there, or swapped, or under migration */
#define HMM_GPU_Q_CPU_READ	0x100	/* present, or device memory of this GPU */
#define HMM_GPU_Q_CPU_WRITE	0x200
#define HMM_GPU_Q_CPU_DEVICE	0x400	/* the page lives in this GPU's VRAM */
#define HMM_GPU_Q_CPU_ERROR	0x800	/* access would be an error */

struct drm_hmm_gpu_query {
	__u64 addr;
	__u64 npages;
	__u64 ptr;		/* __u32 [npages] */
};

/*
 * A buffer: memory in VRAM that is always there, mapped on the GPU for the
 * address space of the file at an address that no CPU can use, readable,
 * writable, for atomics, all zero.  It is a GEM object: DRM_IOCTL_GEM_CLOSE of
 * its handle, or the end of the file, takes it away; jobs that still use it then
 * end with -EFAULT.  It cannot be exported, nor mapped with mmap().
 * -EINVAL: no size, or flags; -ENOSPC: there is not so much VRAM, or address
 * space, that is no buffer; -EDQUOT: more than a user may have; -ENOMEM, -EINTR, -EIO.
 */
struct drm_hmm_gpu_bo_create {
	__u64 size;		/* bytes, not 0; whole pages are made */
	__u32 flags;		/* 0 */
	__u32 handle;		/* out */
	__u64 addr;		/* out: on the GPU, a multiple of 2 MiB */
};

/* Where buffers are on the GPU: above the addresses of processes */
#define HMM_GPU_BO_START	0x0000800000000000ull
#define HMM_GPU_BO_END		0x0001000000000000ull

#define HMM_GPU_IO(nr, type)	_IOWR(HMM_GPU_IOCTL_TYPE, HMM_GPU_IOCTL_BASE + (nr), struct type)
#define DRM_IOCTL_HMM_GPU_GET_PARAM	HMM_GPU_IO(0, drm_hmm_gpu_get_param)
#define DRM_IOCTL_HMM_GPU_POLICY	HMM_GPU_IO(1, drm_hmm_gpu_policy)
#define DRM_IOCTL_HMM_GPU_CTX_CREATE	HMM_GPU_IO(2, drm_hmm_gpu_ctx_create)
#define DRM_IOCTL_HMM_GPU_CTX_DESTROY	HMM_GPU_IO(3, drm_hmm_gpu_ctx_destroy)
#define DRM_IOCTL_HMM_GPU_LAUNCH	HMM_GPU_IO(4, drm_hmm_gpu_launch)
#define DRM_IOCTL_HMM_GPU_COPY		HMM_GPU_IO(5, drm_hmm_gpu_copy)
#define DRM_IOCTL_HMM_GPU_WAIT		HMM_GPU_IO(6, drm_hmm_gpu_wait)
#define DRM_IOCTL_HMM_GPU_MIGRATE	HMM_GPU_IO(7, drm_hmm_gpu_migrate)
#define DRM_IOCTL_HMM_GPU_QUERY		HMM_GPU_IO(8, drm_hmm_gpu_query)
#define DRM_IOCTL_HMM_GPU_BO_CREATE	HMM_GPU_IO(9, drm_hmm_gpu_bo_create)

#endif
