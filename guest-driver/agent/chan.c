// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frames over the channel: a virtio-serial port, or a Unix socket or standard
 * input and output for tests on the host.
 *
 * The other side comes and goes.  A virtio port without one reads end of file
 * and polls as hung up; after a snapshot is restored the bytes come from a
 * different bench.  So a frame that stops in the middle is forgotten when the
 * peer leaves, and bytes that are no header are skipped until one is found.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

enum kind { PORT, SOCKET, STDIO };

static struct {
	enum kind kind;
	const char *path;
	int in, out;		/* -1: not open */
	int listener;
	uint8_t *buf;		/* HB_MAX_PAYLOAD + 1, memory is used as far as written */
	size_t dirty;		/* bytes of buf that hold memory */
} chan = { .in = -1, .out = -1, .listener = -1 };

/* A large payload's memory is given back, so that forks stay cheap. */
#define KEEP	(256 * 1024)

static void nap(long us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static void set_nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int chan_init(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct stat st;

	chan.path = path;
	chan.buf = mmap(NULL, HB_MAX_PAYLOAD + 1, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (chan.buf == MAP_FAILED) {
		perror("agent: mmap");
		return -1;
	}
	/* Children get what they need otherwise; copying its page tables would cost each fork. */
	madvise(chan.buf, HB_MAX_PAYLOAD + 1, MADV_DONTFORK);
	if (strcmp(path, "-") == 0) {
		chan.kind = STDIO;
		chan.in = 0;
		/* Replies are on a descriptor of their own: a stray print must not break the stream. */
		chan.out = fcntl(1, F_DUPFD_CLOEXEC, 10);
		dup2(2, 1);
		set_nonblock(chan.in);
		set_nonblock(chan.out);
		return 0;
	}
	if (strncmp(path, "/dev/", 5) == 0 || (stat(path, &st) == 0 && S_ISCHR(st.st_mode))) {
		chan.kind = PORT;
		return 0;
	}
	chan.kind = SOCKET;
	if (strlen(path) >= sizeof(sa.sun_path)) {
		fprintf(stderr, "agent: %s: socket path too long\n", path);
		return -1;
	}
	strcpy(sa.sun_path, path);
	chan.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(path);
	if (chan.listener < 0 || bind(chan.listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(chan.listener, 1)) {
		fprintf(stderr, "agent: %s: %s\n", path, strerror(errno));
		return -1;
	}
	return 0;
}

static void disconnect(void)
{
	if (chan.kind == SOCKET && chan.in >= 0) {
		close(chan.in);
		chan.in = chan.out = -1;
	}
	/* A port stays open: closing it would lose what a new bench has sent already. */
}

/* A peer to talk to; -1 = there will never be one again. */
static int connect_peer(void)
{
	while (chan.in < 0) {
		if (chan.kind == STDIO)
			return -1;
		if (chan.kind == PORT)
			chan.in = chan.out = open(chan.path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		else
			chan.in = chan.out = accept4(chan.listener, NULL, NULL,
						     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (chan.in < 0)
			nap(10000);
	}
	return 0;
}

/* Waits for the descriptor; false: the peer is gone. */
static bool wait_ready(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	while (poll(&p, 1, -1) < 0)
		if (errno != EINTR)
			return false;
	if (p.revents & events)
		return true;
	if (chan.kind == PORT)
		nap(2000);	/* hung up stays so until a bench connects: no event to sleep on */
	return false;
}

/* Exactly len bytes; false: the peer left in between. */
static bool get(void *to, size_t len)
{
	uint8_t *p = to;

	while (len) {
		ssize_t n = read(chan.in, p, len);

		if (n > 0) {
			p += n;
			len -= n;
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else if (n < 0 && errno == EAGAIN) {
			if (!wait_ready(chan.in, POLLIN))
				return false;
		} else {
			if (chan.kind == PORT)
				nap(2000);
			return false;
		}
	}
	return true;
}

static bool put(const void *from, size_t len)
{
	const uint8_t *p = from;

	while (len) {
		ssize_t n = write(chan.out, p, len);

		if (n > 0) {
			p += n;
			len -= n;
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else if (n < 0 && errno == EAGAIN) {
			if (!wait_ready(chan.out, POLLOUT))
				return false;
		} else {
			return false;
		}
	}
	return true;
}

/* A header, skipping what is none. */
static bool get_header(struct hb_header *h)
{
	if (!get(h, sizeof(*h)))
		return false;
	while (h->magic != HB_MAGIC) {
		memmove(h, (uint8_t *)h + 1, sizeof(*h) - 1);
		if (!get((uint8_t *)h + sizeof(*h) - 1, 1))
			return false;
	}
	return true;
}

static bool skip(size_t len)
{
	uint8_t waste[4096];

	while (len) {
		size_t n = len < sizeof(waste) ? len : sizeof(waste);

		if (!get(waste, n))
			return false;
		len -= n;
	}
	return true;
}

int chan_recv(struct message *m)
{
	if (chan.dirty > KEEP) {
		madvise(chan.buf, HB_MAX_PAYLOAD + 1, MADV_DONTNEED);
		chan.dirty = 0;
	}
	m->payload = chan.buf;
	for (;;) {
		if (connect_peer())
			return -1;
		if (!get_header(&m->header))
			goto gone;
		if (m->header.len > HB_MAX_PAYLOAD) {
			uint32_t len = m->header.len;

			chan_reply_error(m, "a payload of %u bytes is more than %u", len,
					 HB_MAX_PAYLOAD);
			if (!skip(len))
				goto gone;
			continue;
		}
		if (!get(chan.buf, m->header.len))
			goto gone;
		if (m->header.len + 1 > chan.dirty)
			chan.dirty = m->header.len + 1;
		chan.buf[m->header.len] = 0;
		return 0;
gone:
		disconnect();
		if (chan.kind == STDIO)
			return -1;
	}
}

void chan_reply(const struct message *m, const struct iovec *parts, int nparts)
{
	struct hb_header h = {
		.magic = HB_MAGIC, .id = m->header.id, .type = m->header.type | HB_MSG_REPLY,
	};
	uint64_t total = 0;
	bool ok;

	for (int i = 0; i < nparts; i++)
		total += parts[i].iov_len;
	if (total > HB_MAX_PAYLOAD) {
		chan_reply_error(m, "an answer of %llu bytes is more than %u",
				 (unsigned long long)total, HB_MAX_PAYLOAD);
		return;
	}
	h.len = total;
	ok = put(&h, sizeof(h));
	for (int i = 0; i < nparts && ok; i++)
		ok = put(parts[i].iov_base, parts[i].iov_len);
	if (!ok)
		disconnect();
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
	if (!put(&h, sizeof(h)) || !put(text, h.len))
		disconnect();
}

int chan_fd(void)
{
	return chan.in;
}

void chan_forget(void)
{
	if (chan.kind == STDIO)
		close(chan.out);
	else if (chan.in >= 0)
		close(chan.in);
	if (chan.listener >= 0)
		close(chan.listener);
	chan.in = chan.out = chan.listener = -1;
}
