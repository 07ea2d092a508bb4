/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the mailboxes' two sides share. */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <stdint.h>

/* A cache line; `turn` is even: the GPU's word is next, odd: the CPU's. */
struct box {
	uint64_t turn;
	uint64_t value;
	uint64_t pad[6];
};

#endif
