// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory that is said to be broken (hwpoison), or about to break (soft offline). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "access.h"
#include "op.h"
#include "pagemap.h"

#define HWPOISON	100
#define SOFT_OFFLINE	101
#define MAX_BROKEN	2	/* pages of one operation; their frames are aux0 and aux1 */
#define MEND		"/sys/kernel/debug/hwpoison/unpoison-pfn"
#define MEMINFO		"/proc/meminfo"
#define FRAMES		"/proc/kpageflags"
#define FRAME_BROKEN	(1ull << 19)	/* of FRAMES: KPF_HWPOISON */
#define TRIES		100

/*
 * One page.  It is written before, without changing it: so it is in system memory, it
 * is no page that others have, and its contents are nowhere else.  A fault of a job that
 * has ended may take it to VRAM again; it is not the last then, but there are few.
 */
static int break_page(void *addr, int advice, uint64_t *frame, uint8_t *gone)
{
	const struct hb_access touch = { .kind = HB_ACC_ADD }, read = { .kind = HB_ACC_READ };
	uint64_t entry = 0, value;
	int ret = 0;

	for (unsigned k = 0; k < TRIES && !(entry & PM_PRESENT); k++)
		if (cpu_access(&touch, addr, &value) != HB_AST_DONE ||
		    pagemap_read(addr, &entry, 1))
			return -EFAULT;
	if (!(entry & PM_PRESENT))
		return -EFAULT;
	access_told = true;
	if (madvise(addr, PAGE_SIZE, advice))
		ret = -errno;
	access_told = false;
	if (!ret)
		*frame = PM_FRAME(entry);
	*gone = cpu_access(&read, addr, &value) == HB_AST_SIGBUS;
	return ret;
}

static bool has_failures(void)
{
	void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	/* Nothing is there, and of nothing nothing breaks. */
	bool has = page == MAP_FAILED || madvise(page, 0, SOFT_OFFLINE) == 0;

	if (page != MAP_FAILED)
		munmap(page, PAGE_SIZE);
	return has;
}

static int op_poison(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	uint64_t n = op->len / PAGE_SIZE;
	char *addr = op_range(op);
	uint64_t *frame[MAX_BROKEN] = { &call->result->aux0, &call->result->aux1 };
	uint8_t *data;
	int ret = 0;

	if (!addr || !n || n > MAX_BROKEN || op->off % PAGE_SIZE || op->len % PAGE_SIZE ||
	    op->arg > 1)
		return -EINVAL;
	if (!has_failures())
		return -EOPNOTSUPP;
	data = op_data(call, n);
	if (!data)
		return -ENOSPC;
	/* also of pages that it does not come to */
	memset(data, 0, n);
	for (uint64_t i = 0; !ret && i < n; i++)
		ret = break_page(addr + i * PAGE_SIZE, op->arg ? SOFT_OFFLINE : HWPOISON,
				 frame[i], &data[i]);
	call->result->data_len = n;
	return ret;
}

static void mend_frame(uint64_t frame)
{
	char text[32];

	snprintf(text, sizeof(text), "%#llx", (unsigned long long)frame);
	write_text(MEND, text);
}

/* Whether the kernel counts broken memory. */
static bool some_broken(void)
{
	FILE *f = fopen(MEMINFO, "re");
	unsigned long kb = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f) &&
	       sscanf(line, "HardwareCorrupted: %lu", &kb) != 1)
		;
	if (f)
		fclose(f);
	return kb;
}

static void mend_all(void)
{
	FILE *f = fopen(FRAMES, "re");
	uint64_t flags;

	for (uint64_t frame = 0; f && fread(&flags, sizeof(flags), 1, f); frame++)
		if (flags & FRAME_BROKEN)
			mend_frame(frame);
	if (f)
		fclose(f);
}

/*
 * The processes are gone: what broke is as good as new.  Also a frame that nobody
 * knows: the page moved after its frame was asked for, and broke elsewhere.
 */
static void mend(void)
{
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op_result *r = &sh->op_results[i];
		const uint64_t frame[MAX_BROKEN] = { r->aux0, r->aux1 };

		for (unsigned k = 0; sh->kind[i]->run == op_poison && k < MAX_BROKEN; k++)
			if (frame[k])
				mend_frame(frame[k]);
	}
	if (some_broken())
		mend_all();
}

static const struct op_kind poisons[] = {
	/*
	 * region off len; arg = 0: broken, 1: about to be -> data: a byte a page, 1: it gives
	 * SIGBUS; aux0, aux1 = frames
	 */
	{ 90, "poison", op_poison, 0, mend },
};
OP_FAMILY(poisons);
