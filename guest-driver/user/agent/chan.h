/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the channel: what carries frames.  chan.c is what both carriers share,
 * and the only one that knows which is in use.
 */
#ifndef HMMBENCH_CHAN_H
#define HMMBENCH_CHAN_H

#include "agent.h"

struct carrier {
	/*
	 * The next request's header, and its payload at `to`, where HB_MAX_PAYLOAD
	 * bytes have room; -1: the channel is over.  A request that is too long is
	 * refused (chan_reply_error()) and skipped.
	 */
	int (*recv)(struct message *m, uint8_t *to);
	/* A frame, header first; dropped if nobody is there to take it. */
	void (*send)(const struct iovec *parts, int nparts);
	/* As chan_stand(), chan_told(), chan_fd(), chan_forget(); NULL: nothing to do, nowhere, -1, nothing to do */
	void (*stand)(uint32_t why);
	struct told *(*told)(void);
	int (*fd)(void);
	void (*forget)(void);
};

/* Their carrier if `path` is theirs; else NULL, with `*failed` set and a message on stderr if it is but does not work. */
const struct carrier *mailbox_open(const char *path, bool *failed);
const struct carrier *stream_open(const char *path, bool *failed);

/* Refuses m because its payload is too long. */
void chan_refuse_length(const struct message *m);

#endif
