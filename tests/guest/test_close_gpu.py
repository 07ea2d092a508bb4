# SPDX-License-Identifier: GPL-2.0-or-later
"""CLOSE_GPU tells what the driver said: the model allows no error."""

from __future__ import annotations

from pathlib import Path

from gpu_program import INCLUDES, USER, run

#: A library whose calls end as they are told.
FAKE = r"""
#include <stdio.h>
#include <stdlib.h>
#include "gpu.h"
#include "state.h"

static struct shared memory;
struct shared *const sh = &memory;
static int destroyed, closed;

unsigned process_number(void) { return 0; }
void under_way(unsigned number, int more) { (void)number; (void)more; }
int hmmgpu_open(struct hmmgpu **gpu, const char *path)
{
	(void)path;
	*gpu = (void *)sh;
	return 0;
}
int hmmgpu_ctx_create(struct hmmgpu *gpu, uint32_t us, struct hmmgpu_ctx **ctx)
{
	(void)gpu;
	(void)us;
	*ctx = (void *)sh;
	return 0;
}
int hmmgpu_ctx_destroy(struct hmmgpu_ctx *ctx) { return ctx ? destroyed : 0; }
int hmmgpu_close(struct hmmgpu *gpu) { return gpu ? closed : 0; }
int hmmgpu_wait(struct hmmgpu_ctx *ctx, uint64_t job, int64_t ns, struct hmmgpu_result *r)
{
	(void)ctx;
	(void)job;
	(void)ns;
	(void)r;
	return 0;
}
int hmmgpu_get_param(struct hmmgpu *gpu, uint32_t param, uint64_t *value)
{
	(void)gpu;
	(void)param;
	(void)value;
	return 0;
}
int hmmgpu_copy(struct hmmgpu_ctx *ctx, void *dst, const void *src, uint64_t len,
		uint32_t in_syncobj, uint32_t out_syncobj, uint64_t *job)
{
	(void)ctx;
	(void)dst;
	(void)src;
	(void)len;
	(void)in_syncobj;
	(void)out_syncobj;
	(void)job;
	return 0;
}
int main(int argc, char **argv)
{
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx;

	destroyed = argc > 1 ? atoi(argv[1]) : 0;
	closed = argc > 2 ? atoi(argv[2]) : 0;
	if (gpu_get(&dev, 1, &ctx))
		return 1;
	printf("%d ", gpu_close());
	printf("%d\n", gpu_close());
	return 0;
}
"""


def test_what_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.c").write_text(FAKE)
    run("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *INCLUDES, tmp_path / "t.c",
        USER / "agent" / "base" / "gpu.c", "-lpthread", "-o", tmp_path / "t")  # fmt: skip
    for destroyed, closed, told in ((0, 0, 0), (-5, 0, -5), (0, -9, -9), (-5, -9, -5)):
        # Closed once more there is nothing to close.
        said = run(tmp_path / "t", str(destroyed), str(closed))
        assert said.split() == [str(told), "0"], (destroyed, closed)
