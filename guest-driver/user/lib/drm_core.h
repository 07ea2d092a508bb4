/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The few calls of the DRM core that the library needs: driver name, syncobjs,
 * the end of a buffer.  Spelled out here so that neither libdrm nor the kernel's drm/drm.h
 * (which distributions put into different packages) has to be installed.
 * Facts from include/uapi/drm/drm.h of Linux 6.1 to 7.3; the syncobj wait is
 * the 40-byte form that every one of them takes.
 */
#ifndef HMMGPU_DRM_CORE_H
#define HMMGPU_DRM_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

struct core_version {
	int major, minor, patch;
	size_t name_len;	/* in: room; out: real length, without a 0 byte */
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

struct core_gem_close {
	uint32_t handle;
	uint32_t pad;
};

struct core_syncobj_create {
	uint32_t handle;	/* out */
	uint32_t flags;		/* 1: signalled from the start */
};

struct core_syncobj_destroy {
	uint32_t handle;
	uint32_t pad;
};

struct core_syncobj_wait {
	uint64_t handles;	/* uint32_t [count] */
	int64_t timeout_ns;	/* absolute, CLOCK_MONOTONIC */
	uint32_t count;
	uint32_t flags;		/* 1: all of them; 2: also wait for one that has no fence yet */
	uint32_t first_signaled;
	uint32_t pad;
};

#define CORE_IOCTL_VERSION		_IOWR('d', 0x00, struct core_version)
#define CORE_IOCTL_GEM_CLOSE		_IOW('d', 0x09, struct core_gem_close)
#define CORE_IOCTL_SYNCOBJ_CREATE	_IOWR('d', 0xbf, struct core_syncobj_create)
#define CORE_IOCTL_SYNCOBJ_DESTROY	_IOWR('d', 0xc0, struct core_syncobj_destroy)
#define CORE_IOCTL_SYNCOBJ_WAIT		_IOWR('d', 0xc3, struct core_syncobj_wait)

#endif
