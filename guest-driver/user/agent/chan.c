// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The channel: requests in, answers out, whatever carries them (chan.h).
 *
 * A request's payload is the agent's own copy, so that it stays what it was
 * when the carrier's memory takes the answer or the next request.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "chan.h"
#include "state.h"

#define MAX_PARTS	16

static const struct carrier *carrier;
static uint8_t *buf;		/* HB_MAX_PAYLOAD + 1, memory is used as far as written */
static size_t dirty;		/* bytes of buf that hold memory */

/* A large payload's memory is given back, so that forks stay cheap. */
#define KEEP	(256 * 1024)

int chan_init(const char *path)
{
	bool failed = false;

	buf = mmap(NULL, HB_MAX_PAYLOAD + 1, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (buf == MAP_FAILED) {
		perror("agent: mmap");
		return -1;
	}
	/* Children get what they need otherwise; copying its page tables would cost each fork. */
	madvise(buf, HB_MAX_PAYLOAD + 1, MADV_DONTFORK);
	carrier = mailbox_open(path, &failed);
	if (!carrier && !failed)
		carrier = stream_open(path, &failed);
	return carrier ? 0 : -1;
}

int chan_recv(struct message *m)
{
	if (dirty > KEEP) {
		madvise(buf, HB_MAX_PAYLOAD + 1, MADV_DONTNEED);
		dirty = 0;
	}
	m->payload = buf;
	if (carrier->recv(m, buf))
		return -1;
	if (m->header.len + 1 > dirty)
		dirty = m->header.len + 1;
	buf[m->header.len] = 0;
	return 0;
}

void chan_reply(const struct message *m, const struct iovec *parts, int nparts)
{
	struct hb_header h = {
		.magic = HB_MAGIC, .id = m->header.id, .type = m->header.type | HB_MSG_REPLY,
	};
	struct iovec frame[MAX_PARTS + 1] = { { &h, sizeof(h) } };
	uint64_t total = 0;

	if (nparts > MAX_PARTS) {
		chan_reply_error(m, "an answer in %d parts", nparts);
		return;
	}
	for (int i = 0; i < nparts; i++) {
		total += parts[i].iov_len;
		frame[i + 1] = parts[i];
	}
	if (total > HB_MAX_PAYLOAD) {
		chan_reply_error(m, "an answer of %llu bytes is more than %u",
				 (unsigned long long)total, HB_MAX_PAYLOAD);
		return;
	}
	h.len = total;
	carrier->send(frame, nparts + 1);
}

void chan_reply_error(const struct message *m, const char *format, ...)
{
	struct hb_header h = { .magic = HB_MAGIC, .id = m->header.id, .type = HB_MSG_ERROR };
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	h.len = strlen(text);
	carrier->send((struct iovec[]){ { &h, sizeof(h) }, { text, h.len } }, 2);
}

void chan_refuse_length(const struct message *m)
{
	chan_reply_error(m, "a payload of %u bytes is more than %u", m->header.len, HB_MAX_PAYLOAD);
}

bool chan_stands(void)
{
	return carrier->stand;
}

void chan_stand(uint32_t why)
{
	if (carrier->stand)
		carrier->stand(why);
}

struct told *chan_told(void)
{
	static struct told nobody;

	return carrier->told ? carrier->told() : &nobody;
}

int chan_fd(void)
{
	return carrier->fd ? carrier->fd() : -1;
}

void chan_forget(void)
{
	if (carrier->forget)
		carrier->forget();
}
