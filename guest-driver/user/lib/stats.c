// SPDX-License-Identifier: GPL-2.0-or-later
/* libhmmgpu: what a context has done, and what the kernel counts for an open device. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

/*
 * The first job after `from` whose result is still known or yet to come.  The
 * driver forgets in order, so the forgotten ones come first.
 */
static uint64_t first_known(struct hmmgpu_ctx *ctx, uint64_t from, uint64_t last)
{
	uint64_t lo = from + 1, hi = last;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (hg_wait(ctx, mid, 0, NULL) == -ENODATA)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int hmmgpu_ctx_stats(struct hmmgpu_ctx *ctx, struct hmmgpu_ctx_stats *out)
{
	uint64_t last = __atomic_load_n(&ctx->last, __ATOMIC_RELAXED);
	struct hmmgpu_result r;
	int ret = 0;

	pthread_mutex_lock(&ctx->lock);
	while (ctx->collected.job < last && ret == 0) {
		ret = hg_wait(ctx, ctx->collected.job + 1, 0, &r);
		if (ret == 0) {
			ctx->collected.job++;
			ctx->collected.failed += r.error != 0;
			ctx->collected.instrs += r.instrs;
		} else if (ret == -ENODATA) {
			uint64_t known = first_known(ctx, ctx->collected.job, last);

			ctx->collected.unknown += known - 1 - ctx->collected.job;
			ctx->collected.job = known - 1;
			ret = 0;
		}
	}
	if (ret == 0 || ret == -ETIME) {
		*out = (struct hmmgpu_ctx_stats){
			.launches = __atomic_load_n(&ctx->launches, __ATOMIC_RELAXED),
			.copies = __atomic_load_n(&ctx->copies, __ATOMIC_RELAXED),
			.copy_bytes = __atomic_load_n(&ctx->copy_bytes, __ATOMIC_RELAXED),
			.done = ctx->collected.job, .failed = ctx->collected.failed,
			.unknown = ctx->collected.unknown, .instrs = ctx->collected.instrs,
		};
		ret = 0;
	}
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

int hmmgpu_ctx_sync(struct hmmgpu_ctx *ctx, int64_t timeout_ns)
{
	uint64_t last = __atomic_load_n(&ctx->last, __ATOMIC_RELAXED);
	int ret = last ? hmmgpu_wait(ctx, last, timeout_ns, NULL) : 0;

	return ret == -ENODATA ? 0 : ret;
}

int hmmgpu_usage(struct hmmgpu *gpu, struct hmmgpu_usage *out)
{
	static const struct {
		const char *name;
		size_t at;
		uint64_t unit;
	} fields[] = {
		{ "drm-engine-compute:", offsetof(struct hmmgpu_usage, compute_ns), 1 },
		{ "drm-engine-copy:", offsetof(struct hmmgpu_usage, copy_ns), 1 },
		{ "drm-resident-vram:", offsetof(struct hmmgpu_usage, vram_bytes), 1024 },
		{ "drm-resident-system:", offsetof(struct hmmgpu_usage, system_bytes), 1024 },
	};
	struct hmmgpu_usage u = { 0 };
	unsigned int found = 0;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", gpu->fd);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		for (unsigned int i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
			unsigned long long v;

			if (strncmp(line, fields[i].name, strlen(fields[i].name)) ||
			    sscanf(line + strlen(fields[i].name), "%llu", &v) != 1)
				continue;
			*(uint64_t *)((char *)&u + fields[i].at) = v * fields[i].unit;
			found |= 1u << i;
		}
	}
	fclose(f);
	if (found != (1u << (sizeof(fields) / sizeof(*fields))) - 1)
		return -EPROTO;
	*out = u;
	return 0;
}
