// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs that the bench talks to: OPEN and PIPE.
 *
 * A program's standard input and output are pipes of the agent, and its
 * standard error is a file in memory, whose end is quoted when the program has
 * ended.  Only the agent's one thread touches the table.  An entry lives until
 * KILL, longer than its process: the next PIPE says how that ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

#define MAX_PIPED	16
#define PIPE_SIZE	(1 << 20)
#define MAX_WORDS	400		/* of its standard error: an answer of ERROR has 511 bytes */

static struct piped {
	pid_t pid;			/* 0: free */
	int in, out, err;
	bool ended;
	int status;			/* of waitpid(), once ended */
} piped[MAX_PIPED];

static struct piped *find(pid_t pid)
{
	for (unsigned i = 0; i < MAX_PIPED; i++)
		if (piped[i].pid == pid)
			return &piped[i];
	return NULL;
}

void pipe_ended(pid_t pid, int status)
{
	struct piped *p = find(pid);

	if (p) {
		p->ended = true;
		p->status = status;
	}
}

bool pipe_forget(pid_t pid)
{
	struct piped *p = pid > 0 ? find(pid) : NULL;

	if (!p)
		return false;
	close(p->in);
	close(p->out);
	close(p->err);
	p->pid = 0;
	return true;
}

void serve_open(const struct message *m)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, err = -1;
	struct piped *p = find(0);
	uint32_t answer;
	pid_t pid;

	if (m->header.len < 5 || !p) {
		chan_reply_error(m, "OPEN: %s", p ? "a time limit and a command are needed" :
				 "too many are running");
		return;
	}
	err = memfd_create("stderr", MFD_CLOEXEC);
	if (err < 0 || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
		chan_reply_error(m, "OPEN: %s", strerror(errno));
		goto fail;
	}
	/* Larger pipes are fewer turns; smaller ones work too. */
	fcntl(in[1], F_SETPIPE_SZ, PIPE_SIZE);
	fcntl(out[0], F_SETPIPE_SZ, PIPE_SIZE);
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	pid = run_shell(m, in[0], out[1], err);
	if (pid < 0 || !note_started(pid)) {
		chan_reply_error(m, "OPEN: %s", pid < 0 ? strerror(errno) : "too many are running");
		if (pid > 0)
			kill_group(pid, 2000);
		goto fail;
	}
	close(in[0]);
	close(out[1]);
	*p = (struct piped){ .pid = pid, .in = in[1], .out = out[0], .err = err };
	answer = pid;
	chan_reply(m, &(struct iovec){ &answer, 4 }, 1);
	return;
fail:
	for (unsigned i = 0; i < 2; i++) {
		if (in[i] >= 0)
			close(in[i]);
		if (out[i] >= 0)
			close(out[i]);
	}
	if (err >= 0)
		close(err);
}

/*
 * Moves len bytes by the end of time; 0, -ETIMEDOUT, -EPIPE: the program has closed
 * its side, or -EINTR: the bench does not wait any more (it was interrupted).
 */
static int move(int fd, bool writing, uint8_t *at, size_t len, uint64_t end)
{
	while (len) {
		ssize_t n = writing ? write(fd, at, len) : read(fd, at, len);
		struct pollfd pf[2] = {
			{ .fd = fd, .events = writing ? POLLOUT : POLLIN },
			{ .fd = chan_fd(), .events = POLLIN },
		};
		uint64_t now;

		if (n > 0) {
			at += n;
			len -= n;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return -EPIPE;
		now = now_ns();
		if (now >= end)
			return -ETIMEDOUT;
		/* It sends nothing while it waits: another request, or its end. */
		if (poll(pf, 2, (end - now) / 1000000 + 1) > 0 && pf[1].revents)
			return -EINTR;
	}
	return 0;
}

/* How a program ended, or that it closed its output, and its last words. */
static void reply_ended(const struct message *m, struct piped *p)
{
	char words[MAX_WORDS + 1], how[64] = "closed its output";
	off_t size = lseek(p->err, 0, SEEK_END);
	off_t from = size > MAX_WORDS ? size - MAX_WORDS : 0;
	ssize_t n = pread(p->err, words, MAX_WORDS, from);
	uint64_t end = now_ns() + 2000000000ull;
	int status;

	/* The pipe breaks a moment before the process can be waited for. */
	while (!p->ended && now_ns() < end) {
		if (waitpid(p->pid, &status, WNOHANG) == p->pid)
			pipe_ended(p->pid, status);
		else
			poll(NULL, 0, 1);
	}
	if (p->ended && WIFSIGNALED(p->status))
		snprintf(how, sizeof(how), "was ended by signal %d (%s)", WTERMSIG(p->status),
			 strsignal(WTERMSIG(p->status)));
	else if (p->ended)
		snprintf(how, sizeof(how), "ended with exit status %d", WEXITSTATUS(p->status));
	words[n > 0 ? n : 0] = 0;
	chan_reply_error(m, "the program %s%s%s", how, n > 0 ? ": " : "", words);
}

void serve_pipe(const struct message *m)
{
	uint32_t pid, timeout_ms, len;
	struct piped *p;
	uint8_t *answer = NULL;
	uint64_t end;
	int ret;

	if (m->header.len < 8) {
		chan_reply_error(m, "PIPE: pid and time limit are needed");
		return;
	}
	memcpy(&pid, m->payload, 4);
	memcpy(&timeout_ms, m->payload + 4, 4);
	p = (pid_t)pid > 0 ? find(pid) : NULL;
	if (!p) {
		chan_reply_error(m, "PIPE: %u was not made by OPEN, or is killed already", pid);
		return;
	}
	end = now_ns() + timeout_ms * 1000000ull;
	ret = move(p->in, true, m->payload + 8, m->header.len - 8, end);
	if (!ret)
		ret = move(p->out, false, (uint8_t *)&len, sizeof(len), end);
	if (!ret && len > HB_MAX_PAYLOAD) {
		chan_reply_error(m, "the program answered with a frame of %u bytes", len);
		return;
	}
	if (!ret) {
		answer = malloc(len ? len : 1);
		ret = answer ? move(p->out, false, answer, len, end) : -ENOMEM;
	}
	if (!ret)
		chan_reply(m, &(struct iovec){ answer, len }, 1);
	else if (ret == -EPIPE)
		reply_ended(m, p);
	else if (ret == -EINTR)
		chan_reply_error(m, "PIPE: given up for another request");
	else if (ret == -ENOMEM)
		chan_reply_error(m, "PIPE: no memory for %u bytes", len);
	else
		chan_reply_error(m, "the program did not answer in %u ms", timeout_ms);
	free(answer);
}
