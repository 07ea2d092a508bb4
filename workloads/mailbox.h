/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the mailboxes' two sides share. */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <stdint.h>

#define BOX_WORDS	120
/* Of `turn`: there will be no more questions. */
#define BOX_CLOSED	UINT64_MAX

/*
 * A KiB.  `turn` is even: the CPU's word is next, odd: the GPU's.  Whose turn it is owns the
 * message; storing `turn` (release) hands it over.
 */
struct box {
	uint64_t turn;
	uint64_t pad[7];
	uint64_t message[BOX_WORDS];
};

#endif
