// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What one user, or one program, must not do to others: driver_user KERNELS.elf OTHER
 *
 *   unplug   a program waits for a job without end while the GPU at PCI address OTHER is unbound
 *   child    a child of fork() has no say in its parent's contexts
 *   syncobj  a job that is not over has no fence; one that was ended is over
 *   query    a look at all of the address space ends with a signal
 *   limits   a user without privileges gets half of the address spaces, contexts, buffers
 *
 * Prints what failed, or "user passed".  Exit status 0 or 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accesses.h"
#include "drm_core.h"
#include "hmm_gpu_drm.h"
#include "hmmgpu.h"

#define NODE	"/dev/dri/renderD128"
#define MIB	(1UL << 20)

struct to_fd {
	uint32_t handle, flags;
	int32_t fd;
	uint32_t pad;
};

#define TO_FD		_IOWR('d', 0xc1, struct to_fd)
#define TO_SYNC_FILE	1

static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels;

#define CHECK(cond) do {								\
	if (!(cond)) {									\
		printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #cond, errno);	\
		exit(1);								\
	}										\
} while (0)

/* A job that does not end by itself. */
static uint64_t spin(uint32_t out)
{
	static struct spin_args args;
	struct hmmgpu_launch l = { .args = (uintptr_t)&args, .grid = 1, .block = 32,
				   .out_syncobj = out };
	uint64_t job;

	CHECK(!hmmgpu_kernel_symbol(kernels, "spin", &l.entry));
	CHECK(!hmmgpu_launch(ctx, &l, &job));
	return job;
}

static void start(void)
{
	CHECK(!hmmgpu_open(&gpu, NODE) && !hmmgpu_ctx_create(gpu, 0, &ctx));
}

static void end(void)
{
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
}

static void *wait_for(void *job)
{
	struct hmmgpu_result r;

	return (void *)(long)hmmgpu_wait(ctx, (uint64_t)(uintptr_t)job, -1, &r);
}

static void unplug(const char *other)
{
	struct timespec began, now;
	uint64_t job = spin(0);
	pthread_t thread;
	void *ret;
	int fd;

	CHECK(!pthread_create(&thread, NULL, wait_for, (void *)(uintptr_t)job));
	usleep(200000);
	fd = open("/sys/bus/pci/drivers/hmm_gpu/unbind", O_WRONLY);
	CHECK(fd >= 0);
	clock_gettime(CLOCK_MONOTONIC, &began);
	alarm(60);		/* without a handler: the end of this program, and of its job */
	CHECK(write(fd, other, strlen(other)) == (ssize_t)strlen(other));
	alarm(0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	CHECK(now.tv_sec - began.tv_sec < 30);
	close(fd);
	/* not waited for: it still runs */
	CHECK(hmmgpu_wait(ctx, job, 0, NULL) == -ETIME);
	hmmgpu_ctx_destroy(ctx);
	pthread_join(thread, &ret);
	CHECK(!hmmgpu_ctx_create(gpu, 0, &ctx));
}

static void child(void)
{
	struct drm_hmm_gpu_wait w = { .job = spin(0) };
	struct drm_hmm_gpu_ctx_destroy d = { 0 };
	struct drm_hmm_gpu_bo_create bo = { .size = 4096 };
	struct core_gem_close buffer = { 0 };
	int status;

	/* the library keeps the number to itself, and there is one context */
	for (w.ctx_id = 1; ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_WAIT, &w); w.ctx_id++) {
		CHECK(w.ctx_id < 64);
		if (errno == ETIME)
			break;
	}
	d.ctx_id = w.ctx_id;
	CHECK(!ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_BO_CREATE, &bo));
	buffer.handle = bo.handle;
	if (!fork()) {
		CHECK(ioctl(hmmgpu_fd(gpu), CORE_IOCTL_GEM_CLOSE, &buffer) &&
		      errno == EPERM);
		CHECK(ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_WAIT, &w) && errno == EPERM);
		CHECK(ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_CTX_DESTROY, &d) && errno == EPERM);
		_exit(0);
	}
	wait(&status);
	CHECK(!status);
	CHECK(!ioctl(hmmgpu_fd(gpu), CORE_IOCTL_GEM_CLOSE, &buffer));
	CHECK(ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_WAIT, &w) && errno == ETIME);
}

static int wait_syncobj(uint32_t handle, uint32_t flags)
{
	struct core_syncobj_wait w = { .handles = (uintptr_t)&handle, .count = 1, .flags = flags };

	return ioctl(hmmgpu_fd(gpu), CORE_IOCTL_SYNCOBJ_WAIT, &w) ? -errno : 0;
}

static int export(uint32_t handle)
{
	struct to_fd a = { .handle = handle, .flags = TO_SYNC_FILE };
	int ret = ioctl(hmmgpu_fd(gpu), TO_FD, &a) ? -errno : 0;

	if (!ret)
		close(a.fd);
	return ret;
}

static void syncobj(void)
{
	uint32_t obj;

	CHECK(!hmmgpu_syncobj_create(gpu, 0, &obj));
	spin(obj);
	CHECK(wait_syncobj(obj, 1) == -EINVAL);
	CHECK(wait_syncobj(obj, 3) == -ETIME);
	CHECK(export(obj) == -EINVAL);
	hmmgpu_ctx_destroy(ctx);
	CHECK(!hmmgpu_syncobj_wait(gpu, obj, 10000000000));
	CHECK(wait_syncobj(obj, 1) == 0 && export(obj) == 0);
	CHECK(!hmmgpu_ctx_create(gpu, 0, &ctx));
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void query(void)
{
	struct sigaction act = { .sa_handler = on_alarm };
	static uint32_t out[512];
	/* each window's answer goes to the same pages: nothing else is mapped so far */
	struct drm_hmm_gpu_query q = { .npages = 1UL << 34 };
	size_t len = q.npages * sizeof(*out);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED);
	q.ptr = (uintptr_t)p;
	sigaction(SIGALRM, &act, NULL);
	alarm(1);
	CHECK(ioctl(hmmgpu_fd(gpu), DRM_IOCTL_HMM_GPU_QUERY, &q) && errno == EINTR);
	munmap(p, len);
}

static int open_node(void)
{
	int fd = open(NODE, O_RDWR);

	return fd < 0 ? -errno : fd;
}

static void limits(void)
{
	struct rlimit many = { 1024, 1024 };
	int fd, last = -1, files = 0, ctxs = 0, status;

	CHECK(!chmod(NODE, 0666) && !setrlimit(RLIMIT_NOFILE, &many));
	if (!fork()) {
		struct drm_hmm_gpu_get_param vram = { .param = HMM_GPU_PARAM_VRAM_PAGES };
		struct drm_hmm_gpu_bo_create bo;
		struct drm_hmm_gpu_ctx_create c = { 0 };

		CHECK(!setgid(1000) && !setuid(1000));
		for (; (fd = open_node()) >= 0; files++)
			last = fd;
		CHECK(fd == -EDQUOT && files == 127);
		while (!ioctl(last, DRM_IOCTL_HMM_GPU_CTX_CREATE, &c))
			ctxs++;
		CHECK(errno == EDQUOT && ctxs == 31);
		CHECK(!ioctl(last, DRM_IOCTL_HMM_GPU_GET_PARAM, &vram));
		bo = (struct drm_hmm_gpu_bo_create){ .size = (vram.value / 2 + 1) * 4096 };
		CHECK(ioctl(last, DRM_IOCTL_HMM_GPU_BO_CREATE, &bo) && errno == EDQUOT);
		bo.size = MIB;
		CHECK(!ioctl(last, DRM_IOCTL_HMM_GPU_BO_CREATE, &bo));
		_exit(0);
	}
	wait(&status);
	CHECK(!status);
	/* and what was given back may be had again */
	if (!fork()) {
		CHECK(!setgid(1000) && !setuid(1000));
		for (; (fd = open_node()) >= 0; files++)
			;
		CHECK(fd == -EDQUOT && files == 127);
		_exit(0);
	}
	wait(&status);
	CHECK(!status);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 && !hmmgpu_kernel_load_file(argv[1], &kernels));
	start();
	limits();
	syncobj();
	query();
	child();
	end();
	start();
	unplug(argv[2]);
	end();
	printf("user passed\n");
	return 0;
}
