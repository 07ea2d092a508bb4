// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a program of memory operations never does to the driver: driver_odd KERNELS.elf
 *
 *   fdinfo   what /proc says of an open device
 *   calls    each ioctl with arguments of all ones is refused; nothing is left behind
 *   swap     the GPU reads pages that were swapped out
 *   special  the GPU reads the kernel's own pages in the process, a hole, and memory that may
 *            not be read: the job fails, and the next one works
 *
 * Prints what failed, or "odd passed".  Exit status 0 or 1.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "accesses.h"
#include "gpu_test.h"
#include "hmm_gpu_drm.h"

#define WORDS	(PAGE / sizeof(uint64_t))
#define NODE	"/dev/dri/renderD128"

static int read_pages(const void *p, size_t n, uint64_t *sum)
{
	struct touch_args args = {
		.base = (uintptr_t)p, .npages = n, .sum = (uintptr_t)sum,
	};
	struct hmmgpu_launch launch = { .args = (uintptr_t)&args, .grid = 1, .block = 32 };

	need(hmmgpu_kernel_symbol(kernels, "touch", &launch.entry), "kernel touch");
	return hmmgpu_run(ctx, &launch, NULL);
}

static void *map(size_t n, int prot)
{
	void *p = mmap(NULL, n * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

static void fdinfo(void)
{
	char path[300], text[4096];
	struct dirent *entry;
	int found = 0;
	DIR *dir = opendir("/proc/self/fdinfo");

	while (dir && (entry = readdir(dir))) {
		ssize_t n;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", entry->d_name);
		fd = open(path, O_RDONLY);
		n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		close(fd);
		text[n < 0 ? 0 : n] = 0;
		found += strstr(text, "drm-engine-compute:") && strstr(text, "drm-driver:\thmm_gpu");
	}
	closedir(dir);
	CHECK(found == 1, "%d files of /proc/self/fdinfo are of the device", found);
}

static void calls(void)
{
	static const unsigned long all[] = {
		DRM_IOCTL_HMM_GPU_GET_PARAM, DRM_IOCTL_HMM_GPU_POLICY,
		DRM_IOCTL_HMM_GPU_CTX_CREATE, DRM_IOCTL_HMM_GPU_CTX_DESTROY,
		DRM_IOCTL_HMM_GPU_LAUNCH, DRM_IOCTL_HMM_GPU_COPY, DRM_IOCTL_HMM_GPU_WAIT,
		DRM_IOCTL_HMM_GPU_MIGRATE, DRM_IOCTL_HMM_GPU_QUERY,
		DRM_IOCTL_HMM_GPU_BO_CREATE,
	};
	static unsigned char ones[4096], none[4096];
	int fd = open(NODE, O_RDWR);

	CHECK(fd >= 0, NODE ": %s", strerror(errno));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		memset(ones, 0xff, sizeof(ones));
		CHECK(ioctl(fd, all[i], ones) < 0, "ioctl %zu takes all ones", i);
		CHECK(ioctl(fd, all[i], (void *)8) < 0 && errno == EFAULT,
		      "ioctl %zu of an address that is none: %s", i, strerror(errno));
		/* Zeroes mean something to some; whatever it is, closing the file ends it. */
		memset(none, 0, sizeof(none));
		ioctl(fd, all[i], none);
	}
	close(fd);
}

static void swap(void)
{
	size_t n = 64;
	uint64_t *p = map(n, PROT_READ | PROT_WRITE), sum = 0;

	for (size_t i = 0; i < n; i++)
		p[i * WORDS] = i + 7;
	if (madvise(p, n * PAGE, MADV_PAGEOUT)) {
		perror("MADV_PAGEOUT");
		exit(1);
	}
	CHECK(!read_pages(p, n, &sum), "job on swapped memory failed");
	CHECK(sum == n * (n - 1) / 2 + 7 * n, "the GPU sees %lu", sum);
	munmap(p, n * PAGE);
}

/* The first area of this name in the process, or NULL. */
static void *area(const char *name)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	int found = 0;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, name) && sscanf(line, "%lx-", &start) == 1;
	if (maps)
		fclose(maps);
	return found ? (void *)start : NULL;
}

static void refused(const void *p, const char *what)
{
	uint64_t sum = 0, *word = map(1, PROT_READ | PROT_WRITE);

	if (!p)
		return;	/* not every kernel has it */
	CHECK(read_pages(p, 1, &sum) < 0, "the GPU can read %s", what);
	hmmgpu_ctx_destroy(ctx);
	need(hmmgpu_ctx_create(gpu, 0, &ctx), "context");
	*word = 5;
	CHECK(!read_pages(word, 1, &sum) && sum == 5, "after %s nothing works: %lu", what, sum);
	munmap(word, PAGE);
}

static void special(void)
{
	char *hole = map(3, PROT_READ | PROT_WRITE);

	munmap(hole + PAGE, PAGE);
	refused(area("[vvar]"), "[vvar]");
	refused(hole + PAGE, "a hole");
	refused(map(1, PROT_NONE), "PROT_NONE");
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		printf("usage: driver_odd KERNELS.elf\n");
		return 2;
	}
	begin(argv[1]);
	fdinfo();
	calls();
	swap();
	special();
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	if (!failures)
		printf("odd passed\n");
	return failures != 0;
}
