// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Accesses of the GPU that nobody can serve, in memory that the operation maps itself:
 * they are refused, and soon.  What was seen is only told; the bench judges
 * (model/ops/refusals.py).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu.h"
#include "op.h"

#define HUGE_SIZE	0x200000ull

/* In this order numbers of the bench. */
enum refusal_word { REFUSAL_HUGETLB_END, REFUSAL_PROTECTED_HUGE, REFUSAL_FILE_END };

/* aux0 of the answer */
enum { REFUSAL_TRIED, REFUSAL_NO_ROOM };

/* A job that wrote a word; an answer's data is one where it may, and one where it may not. */
struct look {
	int32_t status;
	uint32_t refused;	/* it has to be */
	uint64_t at;		/* of its fault, from the beginning of the memory */
	uint64_t wanted;	/* where it wrote */
};

static int write_at(struct hmmgpu_ctx *ctx, uint8_t *mem, uint64_t off, bool refused,
		    struct look *l)
{
	struct hb_op_result r = { 0 };
	uint64_t job;
	int ret = hmmgpu_fill(ctx, mem + off, 0x7265667573650001ull, 8, 0, 0, &job);

	if (ret)
		return ret;
	*l = (struct look){ .refused = refused, .wanted = off };
	l->status = gpu_wait_job(ctx, job, &r);
	l->at = r.fault_addr - (uintptr_t)mem;
	return 0;
}

/* A file of which less is left than is mapped. */
static uint8_t *shortened(unsigned flags, size_t half)
{
	int fd = memfd_create("refusal", MFD_CLOEXEC | flags);
	uint8_t *mem = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, 2 * half) == 0)
		mem = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem != MAP_FAILED && ftruncate(fd, half)) {
		munmap(mem, 2 * half);
		mem = MAP_FAILED;
	}
	close(fd);
	return mem;
}

/* Two large pages, if the kernel has them, the second of which nobody may write. */
static uint8_t *half_protected(void)
{
	uint8_t *mem = mmap(NULL, 3 * HUGE_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *first;

	if (mem == MAP_FAILED)
		return mem;
	first = (uint8_t *)(((uintptr_t)mem + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	if (first > mem)
		munmap(mem, first - mem);
	if (first + 2 * HUGE_SIZE < mem + 3 * HUGE_SIZE)
		munmap(first + 2 * HUGE_SIZE, mem + HUGE_SIZE - first);
	madvise(first, 2 * HUGE_SIZE, MADV_HUGEPAGE);
	first[0] = first[HUGE_SIZE] = 1;
	mprotect(first + HUGE_SIZE, HUGE_SIZE, PROT_READ);
	return first;
}

static int op_refusal(const struct op_call *call)
{
	const size_t half = call->op->arg == REFUSAL_FILE_END ? PAGE_SIZE : HUGE_SIZE;
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx;
	struct look *look;
	uint8_t *mem;
	int ret, err;

	if (call->op->arg > REFUSAL_FILE_END)
		return -EINVAL;
	look = (struct look *)op_data(call, 2 * sizeof(*look));
	if (!look)
		return -ENOSPC;
	ret = gpu_get(&dev, 0, NULL);
	if (ret)
		return ret;
	mem = call->op->arg == REFUSAL_PROTECTED_HUGE ? half_protected() :
	      shortened(call->op->arg == REFUSAL_HUGETLB_END ? MFD_HUGETLB : 0, half);
	if (mem == MAP_FAILED) {
		/* The pool of large pages is empty. */
		call->result->aux0 = REFUSAL_NO_ROOM;
		return 0;
	}
	ret = hmmgpu_ctx_create(dev, 0, &ctx);
	if (ret) {
		munmap(mem, 2 * half);
		if (ret != -ENOSPC && ret != -EDQUOT)
			return ret;
		call->result->aux0 = REFUSAL_NO_ROOM;
		return 0;
	}
	ret = write_at(ctx, mem, 8, false, &look[0]);
	if (!ret)
		ret = write_at(ctx, mem, half + 8, true, &look[1]);
	if (!ret)
		call->result->data_len = 2 * sizeof(*look);
	err = hmmgpu_ctx_destroy(ctx);
	munmap(mem, 2 * half);
	return ret ? ret : err;
}

static const struct op_kind refusals[] = {
	/* arg = what -> data: struct look of one job that may and one that may not; aux0: why none */
	{ 98, "refusal", op_refusal, OP_GPU, NULL },
};
OP_FAMILY(refusals);
