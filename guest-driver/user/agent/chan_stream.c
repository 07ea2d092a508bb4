// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frames over a stream: a virtio-serial port, or a Unix socket or standard
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "chan.h"

enum kind { PORT, SOCKET, STDIO };

static struct {
	enum kind kind;
	const char *path;
	int in, out;		/* -1: not open */
	int listener;
} chan = { .in = -1, .out = -1, .listener = -1 };

static void nap(long us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static void set_nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
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

static int stream_recv(struct message *m, uint8_t *to)
{
	for (;;) {
		if (connect_peer())
			return -1;
		if (!get_header(&m->header))
			goto gone;
		if (m->header.len > HB_MAX_PAYLOAD) {
			chan_refuse_length(m);
			if (!skip(m->header.len))
				goto gone;
			continue;
		}
		if (get(to, m->header.len))
			return 0;
gone:
		disconnect();
		if (chan.kind == STDIO)
			return -1;
	}
}

static void stream_send(const struct iovec *parts, int nparts)
{
	bool ok = true;

	for (int i = 0; i < nparts && ok; i++)
		ok = put(parts[i].iov_base, parts[i].iov_len);
	if (!ok)
		disconnect();
}

static int stream_fd(void)
{
	return chan.in;
}

static void stream_forget(void)
{
	if (chan.kind == STDIO)
		close(chan.out);
	else if (chan.in >= 0)
		close(chan.in);
	if (chan.listener >= 0)
		close(chan.listener);
	chan.in = chan.out = chan.listener = -1;
}

static const struct carrier stream = {
	.recv = stream_recv,
	.send = stream_send,
	.fd = stream_fd,
	.forget = stream_forget,
};

const struct carrier *stream_open(const char *path, bool *failed)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct stat st;

	chan.path = path;
	if (strcmp(path, "-") == 0) {
		chan.kind = STDIO;
		chan.in = 0;
		/* Replies are on a descriptor of their own: a stray print must not break the stream. */
		chan.out = fcntl(1, F_DUPFD_CLOEXEC, 10);
		dup2(2, 1);
		set_nonblock(chan.in);
		set_nonblock(chan.out);
		return &stream;
	}
	if (strncmp(path, "/dev/", 5) == 0 || (stat(path, &st) == 0 && S_ISCHR(st.st_mode))) {
		chan.kind = PORT;
		return &stream;
	}
	chan.kind = SOCKET;
	*failed = true;
	if (strlen(path) >= sizeof(sa.sun_path)) {
		fprintf(stderr, "agent: %s: socket path too long\n", path);
		return NULL;
	}
	strcpy(sa.sun_path, path);
	chan.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(path);
	if (chan.listener < 0 || bind(chan.listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(chan.listener, 1)) {
		fprintf(stderr, "agent: %s: %s\n", path, strerror(errno));
		return NULL;
	}
	*failed = false;
	return &stream;
}
