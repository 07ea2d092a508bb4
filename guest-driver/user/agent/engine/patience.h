/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How long something may take that has to end: what does no work any more has
 * failed after its limit; what does is slow (a busy host, delay points) and
 * gets HB_BUSY_TIMES of it.  Time says nothing else: a virtual machine among
 * others may be ten times slower than alone.
 *
 * Used by the supervisor alone; what it reads to see work (the driver's
 * file, the states of the operations) is atomic where others write it.
 */
#ifndef HMMBENCH_PATIENCE_H
#define HMMBENCH_PATIENCE_H

#include <stdint.h>

enum patience_verdict {
	PATIENCE_WAIT,		/* look again at `next` */
	PATIENCE_STILL,		/* the limit is over, no work in the last two fifths of it or longer */
	PATIENCE_BUSY,		/* it works, and has had HB_BUSY_TIMES the limit */
};

struct patience {
	uint64_t begun_ns;
	uint64_t limit_ns;
	uint64_t next_ns;	/* when patience_look() is due, by now_ns() */
	uint64_t worked_ns;	/* when work was seen last; 0: not looked yet */
	uint64_t seen;		/* what was seen then */
};

/* The limit begins now. */
void patience_begin(struct patience *p, uint32_t limit_ms);
enum patience_verdict patience_look(struct patience *p);

#endif
