// SPDX-License-Identifier: GPL-2.0-or-later
/* ops/poison.c, where a page moves under its hands: without a kernel that breaks memory. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define madvise(addr, len, advice)	0
#define fopen(path, mode)		fake_file(path)

static FILE *fake_file(const char *path);

#include "ops/poison.c"

#define CHECK(cond) do {							\
	if (!(cond)) {								\
		printf("%s:%d: %s\n", __func__, __LINE__, #cond);		\
		exit(1);							\
	}									\
} while (0)

#define FRAME	5	/* of the page when it is asked for */
#define OTHER	9	/* where it is when it breaks */

static struct shared state;
struct shared *const sh = &state;
_Thread_local bool access_told;

static unsigned taken_away;	/* so often before it stays */
static uint64_t frames[16];
static char meminfo[128];
static bool mended[16];

static FILE *fake_file(const char *path)
{
	unsigned broken = 0;

	if (!strcmp(path, FRAMES))
		return fmemopen(frames, sizeof(frames), "r");
	CHECK(!strcmp(path, MEMINFO));
	for (unsigned k = 0; k < ARRAY_SIZE(frames); k++)
		broken += !!(frames[k] & FRAME_BROKEN);
	snprintf(meminfo, sizeof(meminfo), "MemTotal: 4096 kB\nHardwareCorrupted: %6u kB\nX: 1\n",
		 4 * broken);
	return fmemopen(meminfo, strlen(meminfo), "r");
}

int write_text(const char *path, const char *text)
{
	unsigned long frame = strtoul(text, NULL, 0);

	CHECK(!strcmp(path, MEND) && frame < ARRAY_SIZE(frames));
	frames[frame] &= ~FRAME_BROKEN;
	mended[frame] = true;
	return 0;
}

uint32_t cpu_access(const struct hb_access *a, void *addr, uint64_t *value)
{
	return HB_AST_DONE;
}

int pagemap_read(const void *addr, uint64_t *to, uint64_t n)
{
	*to = taken_away ? PM_SWAP : PM_PRESENT | FRAME;
	taken_away -= !!taken_away;
	return 0;
}

uint64_t region_addr(unsigned region, uint64_t off, uint64_t len)
{
	return 0x1000;
}

int main(void)
{
	struct op_call call = {
		.op = &(struct hb_op){ .len = PAGE_SIZE }, .result = &state.op_results[0],
	};

	state.prog.nops = 1;
	state.kind[0] = &poisons[0];
	/* It went to VRAM again after it was touched, for a job that had ended. */
	taken_away = 2;
	CHECK(op_poison(&call) == 0);
	CHECK(call.result->aux0 == FRAME);
	/* And for ever: then something is wrong. */
	taken_away = ~0u;
	CHECK(op_poison(&call) == -EFAULT);
	/* Another frame broke than the one that was asked for. */
	frames[OTHER] = FRAME_BROKEN | 1;
	mend();
	CHECK(mended[FRAME] && mended[OTHER] && !mended[0]);
	/* Nothing is looked for where nothing is broken. */
	memset(mended, 0, sizeof(mended));
	mend();
	CHECK(mended[FRAME] && !mended[OTHER]);
	return 0;
}
