// SPDX-License-Identifier: GPL-2.0-or-later
/* The kernel's book of what was written: soft-dirty bits, cleared and read. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "op.h"
#include "pagemap.h"

#define MAX_LOOK	512	/* pages of one operation */

/* What was never read from: each page that is written there is in the book, if there is one. */
static bool has_book(void)
{
	volatile char *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;

	if (page == MAP_FAILED)
		return true;
	page[0] = 1;
	pagemap_read((const void *)page, &entry, 1);
	munmap((void *)page, PAGE_SIZE);
	return entry & PM_DIRTY;
}

/*
 * The book of the whole process is emptied.  Says of each page of the range whether
 * it will be in it if it is written: not what is elsewhere (an entry of VRAM that may
 * be written stays so), nor what is not there, nor the page of zeroes, for which
 * migration puts another in place that is not in the book.
 */
static int clear(uint8_t *data, const uint64_t *addr, uint64_t n)
{
	uint64_t entry[MAX_LOOK], zero;
	int ret = write_text("/proc/self/clear_refs", "4");

	if (ret)
		return ret;
	zero = pagemap_zero();
	ret = pagemap_read(addr, entry, n);
	for (uint64_t i = 0; !ret && i < n; i++)
		data[i] = entry[i] & PM_PRESENT && !(entry[i] & PM_DIRTY) && zero &&
			  PM_FRAME(entry[i]) != zero;
	return ret;
}

static int look(uint8_t *data, const uint64_t *addr, uint64_t n)
{
	uint64_t entry[MAX_LOOK];
	int ret = pagemap_read(addr, entry, n);

	for (uint64_t i = 0; !ret && i < n; i++)
		data[i] = (entry[i] & PM_DIRTY) != 0;
	return ret;
}

static int op_dirty(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	const uint64_t *addr = op_range(op);
	uint64_t n = op->len / PAGE_SIZE;
	uint8_t *data;
	int ret;

	if (!addr || !n || n > MAX_LOOK || op->off % PAGE_SIZE || op->len % PAGE_SIZE ||
	    op->arg > 1)
		return -EINVAL;
	if (!has_book())
		return -EOPNOTSUPP;
	data = op_data(call, n);
	if (!data)
		return -ENOSPC;
	ret = op->arg ? look(data, addr, n) : clear(data, addr, n);
	if (!ret)
		call->result->data_len = n;
	return ret;
}

static const struct op_kind dirty[] = {
	/*
	 * region off len; arg = 0: nothing of the process is written, 1: what is? -> data: a byte a
	 * page
	 */
	{ 81, "dirty", op_dirty, 0, NULL },
};
OP_FAMILY(dirty);
