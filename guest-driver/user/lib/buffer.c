// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: memory that lives in VRAM.
 *
 * The driver knows buffers by handle, programs by address; the list has both.
 * gpu->lock guards it, and the handle of a buffer that is on it is open: so of
 * two threads that free the same one takes it off, and the other is told.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "drm_core.h"
#include "internal.h"

struct buffer {
	struct buffer *next;
	uint64_t addr;
	uint32_t handle;
};

/* At hmmgpu_close(), which closes the handles. */
static void free_buffers(struct buffer *b)
{
	while (b) {
		struct buffer *next = b->next;

		free(b);
		b = next;
	}
}

int hmmgpu_malloc(struct hmmgpu *gpu, void **addr, uint64_t size)
{
	struct drm_hmm_gpu_bo_create c = { .size = size };
	struct buffer *b = malloc(sizeof(*b));
	int ret;

	if (!b)
		return -ENOMEM;
	ret = hg_call(gpu->fd, DRM_IOCTL_HMM_GPU_BO_CREATE, &c);
	if (ret) {
		free(b);
		return ret;
	}
	b->addr = c.addr;
	b->handle = c.handle;
	pthread_mutex_lock(&gpu->lock);
	b->next = gpu->buffers;
	gpu->buffers = b;
	gpu->buffers_free = free_buffers;
	pthread_mutex_unlock(&gpu->lock);
	*addr = (void *)(uintptr_t)c.addr;
	return 0;
}

int hmmgpu_free(struct hmmgpu *gpu, void *addr)
{
	struct core_gem_close c = { 0 };
	struct buffer **at, *b;

	if (!addr)
		return 0;
	/* the handles are the parent's */
	if (gpu->owner != getpid())
		return -EPERM;
	pthread_mutex_lock(&gpu->lock);
	for (at = &gpu->buffers; (b = *at) && b->addr != (uintptr_t)addr; at = &b->next)
		;
	if (b)
		*at = b->next;
	pthread_mutex_unlock(&gpu->lock);
	if (!b)
		return -EINVAL;
	c.handle = b->handle;
	free(b);
	return hg_call(gpu->fd, CORE_IOCTL_GEM_CLOSE, &c);
}
