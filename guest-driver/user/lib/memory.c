// SPDX-License-Identifier: GPL-2.0-or-later
/* libhmmgpu: copies and fills of any size and alignment, and what is where. */
#include <errno.h>
#include <string.h>

#include "hmm_gpu_hw.h"
#include "internal.h"

#define PAGE		4096ull
#define QUERY_PAGES	1024

/* Waits for a job that a call just made. */
static int finish(struct hmmgpu_ctx *ctx, int ret, uint64_t job, struct hmmgpu_result *r)
{
	if (ret == 0)
		ret = hmmgpu_wait(ctx, job, -1, r);
	return ret ? ret : r->error;
}

int hmmgpu_memcpy(struct hmmgpu_ctx *ctx, void *dst, const void *src, uint64_t len,
		  struct hmmgpu_result *result)
{
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;
	struct hmmgpu_result r = { 0 };
	uint64_t job = 0, off, n;
	int ret = 0;

	if (len > UINTPTR_MAX - d || len > UINTPTR_MAX - s || (d < s + len && s < d + len))
		ret = -EINVAL;
	for (off = 0; off < len && ret == 0; off += n) {
		n = len - off < HG_COPY_MAX_BYTES ? len - off : HG_COPY_MAX_BYTES;
		ret = hmmgpu_copy(ctx, (char *)dst + off, (const char *)src + off, n, 0, 0, &job);
		ret = finish(ctx, ret, job, &r);
	}
	if (result)
		*result = r;
	return ret;
}

int hmmgpu_memset(struct hmmgpu_ctx *ctx, void *dst, int byte, uint64_t len,
		  struct hmmgpu_result *result)
{
	uint64_t pattern = 0x0101010101010101ull * (uint8_t)byte, job = 0, off, n;
	struct hmmgpu_result r = { 0 };
	int ret = 0;

	if (len > UINTPTR_MAX - (uintptr_t)dst)
		ret = -EINVAL;
	/* Whole words are filled; what is left at both ends is copied from a word that is full of it. */
	for (off = 0; off < len && ret == 0; off += n) {
		char *to = (char *)dst + off;
		uint64_t odd = (uintptr_t)to & 7;

		if (odd || len - off < 8) {
			n = len - off < 8 - odd ? len - off : 8 - odd;
			ret = hmmgpu_copy(ctx, to, &pattern, n, 0, 0, &job);
		} else {
			n = (len - off) & ~7ull;
			n = n < HG_COPY_MAX_BYTES ? n : HG_COPY_MAX_BYTES;
			ret = hmmgpu_fill(ctx, to, pattern, n, 0, 0, &job);
		}
		ret = finish(ctx, ret, job, &r);
	}
	if (result)
		*result = r;
	return ret;
}

int hmmgpu_residency(struct hmmgpu *gpu, const void *addr, uint64_t len,
		     struct hmmgpu_residency *out)
{
	struct hmmgpu_residency sum = { 0 };
	uint64_t at = (uintptr_t)addr & ~(PAGE - 1), end;
	uint32_t bits[QUERY_PAGES];

	if (!len || len > UINT64_MAX - (uintptr_t)addr - PAGE)
		return -EINVAL;
	end = ((uintptr_t)addr + len + PAGE - 1) & ~(PAGE - 1);
	while (at < end) {
		uint64_t n = (end - at) / PAGE < QUERY_PAGES ? (end - at) / PAGE : QUERY_PAGES;
		int ret = hmmgpu_query(gpu, (const void *)(uintptr_t)at, n, bits);

		if (ret)
			return ret;
		for (uint64_t i = 0; i < n; i++) {
			if (bits[i] & HMM_GPU_Q_CPU_DEVICE)
				sum.vram++;
			else if (bits[i] & HMM_GPU_Q_CPU_READ)
				sum.system++;
			else
				sum.none++;
			sum.gpu_mapped += !!(bits[i] & HMM_GPU_Q_GPU_VALID);
			sum.gpu_writable += !!(bits[i] & HMM_GPU_Q_GPU_WRITE);
			sum.exclusive += !!(bits[i] & HMM_GPU_Q_GPU_EXCLUSIVE);
		}
		sum.pages += n;
		at += n * PAGE;
	}
	*out = sum;
	return 0;
}
