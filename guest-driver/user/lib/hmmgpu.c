// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: device, contexts, jobs, memory.  The ELF loader is in kernel.c;
 * internal.h says what changes after creation, and what guards it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "drm_core.h"
#include "hmm_gpu_hw.h"
#include "hmmgpu.h"
#include "internal.h"

#define DRIVER_NAME	"hmm_gpu"
#define PRINT_EVERY_NS	20000000

int hg_call(int fd, unsigned long request, void *arg)
{
	int ret;

	do {
		ret = ioctl(fd, request, arg);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

static int64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* A point in time that much later, without overflow. */
static int64_t deadline_after(int64_t timeout_ns)
{
	int64_t now = clock_ns();

	return timeout_ns < 0 || timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

static int is_ours(int fd)
{
	char name[32];
	struct core_version v = { .name_len = sizeof(name), .name = name };

	return hg_call(fd, CORE_IOCTL_VERSION, &v) == 0 && v.name_len == strlen(DRIVER_NAME) &&
	       memcmp(name, DRIVER_NAME, v.name_len) == 0;
}

static int find_node(void)
{
	int fd = -1, denied = 0;
	struct dirent *e;
	DIR *dir = opendir("/dev/dri");

	if (!dir)
		return -ENODEV;
	while (fd < 0 && (e = readdir(dir))) {
		char path[300];

		if (strncmp(e->d_name, "renderD", 7) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/dri/%s", e->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0) {
			denied |= errno == EACCES || errno == EPERM;
		} else if (!is_ours(fd)) {
			close(fd);
			fd = -1;
		}
	}
	closedir(dir);
	if (fd < 0)
		return denied ? -EACCES : -ENODEV;
	return fd;
}

int hmmgpu_open(struct hmmgpu **out, const char *node)
{
	struct hmmgpu *gpu;
	uint64_t slots;
	int fd, ret;

	if (node) {
		fd = open(node, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		if (!is_ours(fd)) {
			close(fd);
			return -ENODEV;
		}
	} else {
		fd = find_node();
		if (fd < 0)
			return fd;
	}
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu) {
		close(fd);
		return -ENOMEM;
	}
	gpu->fd = fd;
	gpu->owner = getpid();
	pthread_mutex_init(&gpu->lock, NULL);
	ret = hmmgpu_get_param(gpu, HMM_GPU_PARAM_THREAD_SLOTS, &slots);
	if (ret == 0 && (slots == 0 || slots > HG_MAX_SMS * HG_MAX_WARPS * HG_LANES))
		ret = -EPROTO;
	if (ret) {
		hmmgpu_close(gpu);
		return ret;
	}
	gpu->thread_slots = (uint32_t)slots;
	*out = gpu;
	return 0;
}

int hmmgpu_close(struct hmmgpu *gpu)
{
	int ret;

	if (!gpu)
		return 0;
	if (gpu->events_free)
		gpu->events_free(gpu->events);
	if (gpu->buffers_free)
		gpu->buffers_free(gpu->buffers);
	pthread_mutex_destroy(&gpu->lock);
	ret = close(gpu->fd) ? -errno : 0;
	free(gpu);
	return ret;
}

int hmmgpu_fd(const struct hmmgpu *gpu)
{
	return gpu->fd;
}

int hmmgpu_get_param(struct hmmgpu *gpu, uint32_t param, uint64_t *value)
{
	struct drm_hmm_gpu_get_param p = { .param = param };
	int ret = hg_call(gpu->fd, DRM_IOCTL_HMM_GPU_GET_PARAM, &p);

	if (ret == 0)
		*value = p.value;
	return ret;
}

int hmmgpu_set_policy(struct hmmgpu *gpu, uint32_t policy)
{
	struct drm_hmm_gpu_policy p = { .policy = policy };

	return hg_call(gpu->fd, DRM_IOCTL_HMM_GPU_POLICY, &p);
}

int hmmgpu_ctx_create(struct hmmgpu *gpu, uint32_t timeslice_us, struct hmmgpu_ctx **out)
{
	struct drm_hmm_gpu_ctx_create c = { .timeslice_us = timeslice_us };
	struct hmmgpu_ctx *ctx = calloc(1, sizeof(*ctx));
	int ret;

	if (!ctx)
		return -ENOMEM;
	ret = hg_call(gpu->fd, DRM_IOCTL_HMM_GPU_CTX_CREATE, &c);
	if (ret) {
		free(ctx);
		return ret;
	}
	ctx->gpu = gpu;
	ctx->id = c.ctx_id;
	pthread_mutex_init(&ctx->lock, NULL);
	hg_print_add_ctx(ctx);
	*out = ctx;
	return 0;
}

int hmmgpu_ctx_destroy(struct hmmgpu_ctx *ctx)
{
	struct drm_hmm_gpu_ctx_destroy d;
	int ret = 0;

	if (!ctx)
		return 0;
	/* In a child of fork() the context is the parent's: only the memory here is ours. */
	if (ctx->gpu->owner == getpid()) {
		d = (struct drm_hmm_gpu_ctx_destroy){ .ctx_id = ctx->id };
		ret = hg_call(ctx->gpu->fd, DRM_IOCTL_HMM_GPU_CTX_DESTROY, &d);
	}
	/* The context is gone from the hardware, so nothing uses its memory any more. */
	hg_print_remove_ctx(ctx);
	if (ctx->args_free)
		ctx->args_free(ctx->args);
	while (ctx->local) {
		struct local_memory *l = ctx->local;

		ctx->local = l->next;
		munmap(l->base, l->len);
		free(l);
	}
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
	return ret;
}

/* Stacks of at least `size` bytes a thread slot. */
static int get_local(struct hmmgpu_ctx *ctx, uint32_t size, uint64_t *base)
{
	struct local_memory *l;
	int ret = 0;

	pthread_mutex_lock(&ctx->lock);
	l = ctx->local;
	if (!l || l->size < size) {
		l = calloc(1, sizeof(*l));
		if (!l) {
			ret = -ENOMEM;
			goto out;
		}
		l->size = size;
		l->len = (size_t)ctx->gpu->thread_slots * size;
		l->base = mmap(NULL, l->len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (l->base == MAP_FAILED) {
			free(l);
			ret = -ENOMEM;
			goto out;
		}
		l->next = ctx->local;
		ctx->local = l;
	}
	*base = (uintptr_t)l->base;
out:
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

/* Threads' calls may return in another order than the driver numbered them. */
static void submitted(struct hmmgpu_ctx *ctx, uint64_t job)
{
	uint64_t last = __atomic_load_n(&ctx->last, __ATOMIC_RELAXED);

	while (last < job &&
	       !__atomic_compare_exchange_n(&ctx->last, &last, job, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
}

int hmmgpu_launch(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *l, uint64_t *job)
{
	struct drm_hmm_gpu_launch d = {
		.ctx_id = ctx->id, .entry = l->entry, .args = l->args,
		.grid = l->grid, .block = l->block,
		.local_size = l->local_size ? l->local_size : HMMGPU_DEFAULT_LOCAL,
		.shared_size = l->shared_size, .budget = l->budget,
		.in_syncobj = l->in_syncobj, .out_syncobj = l->out_syncobj,
	};
	uint64_t base;
	int ret;

	/* A stack pointer on RISC-V is a multiple of 16. */
	if (d.local_size > 0x10000000)
		return -EINVAL;
	d.local_size = (d.local_size + 15) & ~15u;
	ret = get_local(ctx, d.local_size, &base);
	if (ret)
		return ret;
	d.local_base = base;
	/* print.c: either this or ctx->last tells of a job that runs */
	__atomic_fetch_add(&ctx->launching, 1, __ATOMIC_SEQ_CST);
	ret = hg_call(ctx->gpu->fd, DRM_IOCTL_HMM_GPU_LAUNCH, &d);
	if (ret == 0)
		submitted(ctx, d.job);
	__atomic_fetch_sub(&ctx->launching, 1, __ATOMIC_SEQ_CST);
	if (ret)
		return ret;
	__atomic_fetch_add(&ctx->launches, 1, __ATOMIC_RELAXED);
	if (job)
		*job = d.job;
	return 0;
}

static int copy_job(struct hmmgpu_ctx *ctx, uint32_t flags, void *dst, uint64_t src, uint64_t len,
		    uint32_t in_syncobj, uint32_t out_syncobj, uint64_t *job)
{
	struct drm_hmm_gpu_copy c = {
		.ctx_id = ctx->id, .flags = flags, .dst = (uintptr_t)dst, .src = src, .len = len,
		.in_syncobj = in_syncobj, .out_syncobj = out_syncobj,
	};
	int ret = hg_call(ctx->gpu->fd, DRM_IOCTL_HMM_GPU_COPY, &c);

	if (ret)
		return ret;
	submitted(ctx, c.job);
	__atomic_fetch_add(&ctx->copies, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&ctx->copy_bytes, len, __ATOMIC_RELAXED);
	if (job)
		*job = c.job;
	return 0;
}

int hmmgpu_copy(struct hmmgpu_ctx *ctx, void *dst, const void *src, uint64_t len,
		uint32_t in_syncobj, uint32_t out_syncobj, uint64_t *job)
{
	return copy_job(ctx, 0, dst, (uintptr_t)src, len, in_syncobj, out_syncobj, job);
}

int hmmgpu_fill(struct hmmgpu_ctx *ctx, void *dst, uint64_t pattern, uint64_t len,
		uint32_t in_syncobj, uint32_t out_syncobj, uint64_t *job)
{
	return copy_job(ctx, HMM_GPU_COPY_FILL, dst, pattern, len, in_syncobj, out_syncobj, job);
}

int hg_wait(struct hmmgpu_ctx *ctx, uint64_t job, int64_t timeout_ns,
	    struct hmmgpu_result *result)
{
	int64_t end = timeout_ns > 0 ? deadline_after(timeout_ns) : 0;
	struct drm_hmm_gpu_wait w;
	int ret;

	/* The driver's limit is relative: after a signal only the rest may be waited for. */
	for (;;) {
		w = (struct drm_hmm_gpu_wait){ .ctx_id = ctx->id, .job = job, .timeout_ns = timeout_ns };
		ret = ioctl(ctx->gpu->fd, DRM_IOCTL_HMM_GPU_WAIT, &w) < 0 ? -errno : 0;
		if (ret != -EINTR)
			break;
		if (timeout_ns > 0) {
			timeout_ns = end - clock_ns();
			if (timeout_ns < 0)
				timeout_ns = 0;
		}
	}
	if (ret == 0 && result) {
		*result = (struct hmmgpu_result){
			.error = w.error, .status = w.status, .reason = w.reason,
			.block = w.block, .thread = w.thread, .addr = w.addr, .pc = w.pc,
			.instrs = w.instrs,
		};
	}
	return ret;
}

int hmmgpu_wait(struct hmmgpu_ctx *ctx, uint64_t job, int64_t timeout_ns,
		struct hmmgpu_result *result)
{
	int64_t end = deadline_after(timeout_ns), left, slice;
	int ret;

	if (!hg_print_is_on())
		return hg_wait(ctx, job, timeout_ns, result);
	/* What a long job prints comes while it runs, and its buffer does not overflow. */
	do {
		left = timeout_ns > 0 ? end - clock_ns() : timeout_ns;
		slice = timeout_ns < 0 || left > PRINT_EVERY_NS ? PRINT_EVERY_NS : left > 0 ? left : 0;
		ret = hg_wait(ctx, job, slice, result);
		hmmgpu_print_flush();
	} while (ret == -ETIME && (timeout_ns < 0 || clock_ns() < end));
	return ret;
}

int hmmgpu_run(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch,
	       struct hmmgpu_result *result)
{
	struct hmmgpu_result r = { 0 };
	uint64_t job;
	int ret;

	ret = hmmgpu_launch(ctx, launch, &job);
	if (ret == 0)
		ret = hmmgpu_wait(ctx, job, -1, &r);
	if (result)
		*result = r;
	return ret ? ret : r.error;
}

static int migrate(struct hmmgpu *gpu, void *addr, uint64_t len, uint32_t dst, uint32_t flags,
		   uint64_t *migrated, uint64_t *failed)
{
	struct drm_hmm_gpu_migrate m = {
		.addr = (uintptr_t)addr, .len = len, .dst = dst, .flags = flags,
	};
	int ret = hg_call(gpu->fd, DRM_IOCTL_HMM_GPU_MIGRATE, &m);

	if (ret == 0 && migrated)
		*migrated = m.migrated;
	if (ret == 0 && failed)
		*failed = m.failed;
	return ret;
}

int hmmgpu_migrate(struct hmmgpu *gpu, void *addr, uint64_t len, uint32_t dst,
		   uint64_t *migrated, uint64_t *failed)
{
	return migrate(gpu, addr, len, dst, 0, migrated, failed);
}

int hmmgpu_prefetch(struct hmmgpu *gpu, void *addr, uint64_t len, uint32_t dst,
		    uint64_t *migrated, uint64_t *failed)
{
	return migrate(gpu, addr, len, dst, HMM_GPU_MIGRATE_MAP, migrated, failed);
}

int hmmgpu_query(struct hmmgpu *gpu, const void *addr, uint64_t npages, uint32_t *out)
{
	struct drm_hmm_gpu_query q = {
		.addr = (uintptr_t)addr, .npages = npages, .ptr = (uintptr_t)out,
	};

	return hg_call(gpu->fd, DRM_IOCTL_HMM_GPU_QUERY, &q);
}

int hmmgpu_syncobj_create(struct hmmgpu *gpu, int signaled, uint32_t *handle)
{
	struct core_syncobj_create c = { .flags = signaled ? 1 : 0 };
	int ret = hg_call(gpu->fd, CORE_IOCTL_SYNCOBJ_CREATE, &c);

	if (ret == 0)
		*handle = c.handle;
	return ret;
}

int hmmgpu_syncobj_destroy(struct hmmgpu *gpu, uint32_t handle)
{
	struct core_syncobj_destroy d = { .handle = handle };

	return hg_call(gpu->fd, CORE_IOCTL_SYNCOBJ_DESTROY, &d);
}

int hmmgpu_syncobj_wait(struct hmmgpu *gpu, uint32_t handle, int64_t timeout_ns)
{
	struct core_syncobj_wait w = {
		.handles = (uintptr_t)&handle, .count = 1, .flags = 3,
		.timeout_ns = deadline_after(timeout_ns),
	};
	int ret = hg_call(gpu->fd, CORE_IOCTL_SYNCOBJ_WAIT, &w);

	if (ret == 0)
		hmmgpu_print_flush();
	return ret;
}

const char *hmmgpu_status_name(uint32_t status)
{
	switch (status) {
	case HG_ERR_NONE: return "done";
	case HG_ERR_FAULT: return "access fault";
	case HG_ERR_ILLEGAL: return "illegal instruction";
	case HG_ERR_MISALIGNED: return "misaligned jump or atomic";
	case HG_ERR_BREAK: return "ebreak";
	case HG_ERR_BUDGET: return "instruction budget used up";
	case HG_ERR_DESC: return "bad descriptor";
	case HG_ERR_BUS: return "bus error";
	case HG_ERR_ABORTED: return "aborted";
	case HG_ERR_BARRIER: return "barrier that cannot complete";
	default: return "unknown status";
	}
}

const char *hmmgpu_reason_name(uint32_t reason)
{
	switch (reason) {
	case HG_REASON_PTE: return "not mapped";
	case HG_REASON_WRITE: return "not writable";
	case HG_REASON_ATOMIC: return "no atomics there";
	case HG_REASON_RANGE: return "address beyond 48 bits";
	case HG_REASON_ASID: return "address space not enabled";
	case HG_REASON_APERTURE: return "bad aperture";
	case HG_REASON_POISON: return "poisoned or bad memory";
	default: return "unknown reason";
	}
}

char *hmmgpu_result_text(const struct hmmgpu_result *r, char *buf, size_t size)
{
	if (r->status == HG_ERR_FAULT)
		snprintf(buf, size, "access fault at 0x%llx (%s), pc 0x%llx, block %u thread %u",
			 (unsigned long long)r->addr, hmmgpu_reason_name(r->reason),
			 (unsigned long long)r->pc, r->block, r->thread);
	else if (r->status != HG_ERR_NONE)
		snprintf(buf, size, "%s (0x%llx), pc 0x%llx, block %u thread %u",
			 hmmgpu_status_name(r->status), (unsigned long long)r->addr,
			 (unsigned long long)r->pc, r->block, r->thread);
	else if (r->error)
		snprintf(buf, size, "%s", strerror(-r->error));
	else
		snprintf(buf, size, "done, %llu instructions", (unsigned long long)r->instrs);
	return buf;
}

char *hmmgpu_result_report(const struct hmmgpu_result *r, const struct hmmgpu_kernel *kernel,
			   char *buf, size_t size)
{
	struct hmmgpu_location at;
	size_t len;

	hmmgpu_result_text(r, buf, size);
	if (!size || r->status == HG_ERR_NONE || !kernel ||
	    hmmgpu_kernel_locate(kernel, r->pc, &at))
		return buf;
	len = strlen(buf);
	if (at.symbol)
		snprintf(buf + len, size - len, ", in %s+0x%llx", at.symbol,
			 (unsigned long long)at.offset);
	len = strlen(buf);
	if (at.file)
		snprintf(buf + len, size - len, "%s%s%s%s:%u", at.symbol ? " at " : ", at ",
			 at.dir ? at.dir : "", at.dir ? "/" : "", at.file, at.line);
	return buf;
}
