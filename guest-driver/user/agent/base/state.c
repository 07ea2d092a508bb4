// SPDX-License-Identifier: GPL-2.0-or-later
/* What the operations and the engine share: see state.h. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state.h"

struct shared *const sh = (struct shared *)SHARED_BASE;

static struct told nobody;
struct told *told = &nobody;

static unsigned self;		/* number of this process; set before its threads exist */

uint64_t region_addr(unsigned region, uint64_t off, uint64_t len)
{
	if (region >= HB_MAX_REGIONS || off > sh->region_size[region] ||
	    len > sh->region_size[region] - off)
		return 0;
	return sh->region_base[region] + off;
}

unsigned process_number(void)
{
	return self;
}

void process_is(unsigned number)
{
	self = number;
}

void under_way(unsigned number, int more)
{
	atomic_fetch_add(&told->under_way[number], more);
}

void kick(void)
{
	uint64_t one = 1;

	if (write(sh->kick_fd, &one, sizeof(one)) < 0)
		_exit(3);
}

bool announce(unsigned number, pid_t pid)
{
	struct slot *s = &sh->slot[number];
	uint32_t none = SLOT_NONE;

	atomic_store(&s->pid, pid);
	return atomic_compare_exchange_strong(&s->state, &none, SLOT_ALIVE) || none == SLOT_ALIVE;
}

void futex_wait(void *word, uint32_t value, uint32_t bits)
{
	syscall(SYS_futex, word, bits ? FUTEX_WAIT_BITSET : FUTEX_WAIT, value, NULL, NULL, bits);
}

void futex_wake_bits(void *word, uint32_t bits)
{
	syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, bits);
}

void futex_wake_all(void *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
