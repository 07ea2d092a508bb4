// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Shell commands and files.
 *
 * EXEC's exit status: that of the shell; -n if signal n ended it; -110
 * (-ETIMEDOUT) if it did not end in time, and its process group was killed.
 * What runs in the background after the shell has ended is left running.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

#define MAX_OUTPUT	(8u << 20)
#define MAX_STARTED	256

/* Groups made by START and not yet killed; only the agent's one thread touches it. */
static pid_t started[MAX_STARTED];

static uint32_t get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

/*
 * Forks a shell in a process group of its own; a stream that is -1 goes nowhere.
 * Its pid, or -1.
 */
pid_t run_shell(const struct message *m, int in, int out, int err)
{
	/* The message's buffer is not in the child. */
	char *command = strdup((char *)m->payload + 4);
	pid_t pid = command ? fork() : -1;
	int null;

	if (pid != 0) {
		free(command);
		if (pid > 0)
			setpgid(pid, pid);
		return pid;
	}
	null = open("/dev/null", O_RDWR);
	setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	set_expendable();
	dup2(in >= 0 ? in : null, 0);
	dup2(out >= 0 ? out : null, 1);
	dup2(err >= 0 ? err : null, 2);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	fprintf(stderr, "agent: cannot run /bin/sh: %s\n", strerror(errno));
	_exit(127);
}

void serve_exec(const struct message *m)
{
	uint32_t timeout_ms;
	uint64_t end;
	int p[2];
	int32_t status = -ETIMEDOUT;
	bool ended = false, eof = false;
	char *out = NULL;
	size_t len = 0, room = 0;
	pid_t pid;

	if (m->header.len < 5) {
		chan_reply_error(m, "EXEC: a time limit and a command are needed");
		return;
	}
	timeout_ms = get_u32(m->payload);
	end = now_ns() + timeout_ms * 1000000ull;
	if (pipe2(p, O_CLOEXEC)) {
		chan_reply_error(m, "EXEC: pipe: %s", strerror(errno));
		return;
	}
	pid = run_shell(m, -1, p[1], p[1]);
	close(p[1]);
	if (pid < 0) {
		close(p[0]);
		chan_reply_error(m, "EXEC: fork: %s", strerror(errno));
		return;
	}
	fcntl(p[0], F_SETFL, O_NONBLOCK);

	/*
	 * It is over when the shell has ended and its output is read as far as it
	 * is there; a background process may hold the pipe open for ever.
	 */
	for (;;) {
		struct pollfd pf = { .fd = p[0], .events = POLLIN };
		siginfo_t si = { 0 };
		ssize_t n = 0;

		if (!ended && waitid(P_PID, pid, &si, WEXITED | WNOHANG) == 0 && si.si_pid) {
			ended = true;
			status = si.si_code == CLD_EXITED ? si.si_status : -si.si_status;
		}
		if (room - len < 65536 && room < MAX_OUTPUT) {
			char *more = realloc(out, room = room ? room * 2 : 131072);

			if (!more)
				break;
			out = more;
		}
		if (!eof) {
			char waste[4096];

			n = len < room ? read(p[0], out + len, room - len)
				       : read(p[0], waste, sizeof(waste));
			if (n > 0)
				len += len < room ? n : 0;
			eof = n == 0;
		}
		if (n > 0)
			continue;
		if (ended)
			break;
		if (now_ns() >= end)
			break;
		if (eof)
			nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		else
			poll(&pf, 1, 5);
	}
	if (!ended)
		kill_group(pid, 2000);
	close(p[0]);
	chan_reply(m, (struct iovec[]){ { &status, 4 }, { out, len } }, 2);
	free(out);
}

bool note_started(pid_t pid)
{
	for (unsigned i = 0; i < MAX_STARTED; i++)
		if (!started[i]) {
			started[i] = pid;
			return true;
		}
	return false;
}

void serve_start(const struct message *m)
{
	uint32_t answer;
	pid_t pid;

	if (m->header.len < 5) {
		chan_reply_error(m, "START: a time limit and a command are needed");
		return;
	}
	pid = run_shell(m, -1, -1, -1);
	if (pid < 0) {
		chan_reply_error(m, "START: fork: %s", strerror(errno));
		return;
	}
	if (!note_started(pid)) {
		kill_group(pid, 2000);
		chan_reply_error(m, "START: too many are running");
		return;
	}
	answer = pid;
	chan_reply(m, &(struct iovec){ &answer, 4 }, 1);
}

void serve_kill(const struct message *m)
{
	uint32_t sig;
	bool known;
	pid_t pid;

	if (m->header.len != 8) {
		chan_reply_error(m, "KILL: pid and signal are needed");
		return;
	}
	pid = get_u32(m->payload);
	sig = get_u32(m->payload + 4);
	/* The pipes of a program that ended by itself are still there. */
	known = sig == SIGKILL && pipe_forget(pid);
	/* Only groups made here: a pid that was used again would hit somebody else. */
	for (unsigned i = 0; i < MAX_STARTED; i++) {
		if (pid <= 0 || started[i] != pid)
			continue;
		if (sig == SIGKILL) {
			if (!kill_group(pid, 5000)) {
				chan_reply_error(m, "KILL: group %d does not die", pid);
				return;
			}
			started[i] = 0;
		} else if (kill(-pid, sig) && errno != ESRCH) {
			chan_reply_error(m, "KILL: %s", strerror(errno));
			return;
		}
		chan_reply(m, NULL, 0);
		return;
	}
	if (known)
		chan_reply(m, NULL, 0);
	else
		chan_reply_error(m, "KILL: %d was not made by START, or is killed already", pid);
}

void reap_orphans(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		pipe_ended(pid, status);
	/* A group that is empty needs no entry; its number may be used again. */
	for (unsigned i = 0; i < MAX_STARTED; i++)
		if (started[i] && kill(-started[i], 0) && errno == ESRCH)
			started[i] = 0;
}

void serve_read_file(const struct message *m)
{
	const char *path = (char *)m->payload;
	size_t len = 0, room = 65536;
	char *buf = malloc(room);
	struct stat st;
	ssize_t n;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || !buf) {
		chan_reply_error(m, "%s: %s", path, strerror(fd < 0 ? errno : ENOMEM));
		goto out;
	}
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		chan_reply_error(m, "%s: %s", path, strerror(EISDIR));
		goto out;
	}
	/* Files of proc and sysfs have no size: read until the end. */
	while ((n = read(fd, buf + len, room - len)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno == EAGAIN)
				break;
			chan_reply_error(m, "%s: %s", path, strerror(errno));
			goto out;
		}
		len += n;
		if (len > HB_MAX_PAYLOAD) {
			chan_reply_error(m, "%s: longer than %u bytes", path, HB_MAX_PAYLOAD);
			goto out;
		}
		if (len == room) {
			char *more = realloc(buf, room *= 2);

			if (!more) {
				chan_reply_error(m, "%s: %s", path, strerror(ENOMEM));
				goto out;
			}
			buf = more;
		}
	}
	chan_reply(m, &(struct iovec){ buf, len }, 1);
out:
	free(buf);
	if (fd >= 0)
		close(fd);
}

void serve_write_file(const struct message *m)
{
	uint32_t mode, path_len;
	const uint8_t *content;
	size_t left;
	char *path;
	int fd;

	if (m->header.len < 8) {
		chan_reply_error(m, "WRITE_FILE: too short");
		return;
	}
	mode = get_u32(m->payload);
	path_len = get_u32(m->payload + 4);
	if (path_len > m->header.len - 8 || path_len > 4096) {
		chan_reply_error(m, "WRITE_FILE: path of %u bytes", path_len);
		return;
	}
	path = strndup((char *)m->payload + 8, path_len);
	if (!path) {
		chan_reply_error(m, "WRITE_FILE: %s", strerror(ENOMEM));
		return;
	}
	content = m->payload + 8 + path_len;
	left = m->header.len - 8 - path_len;
	/* Not blocking: a FIFO that nobody reads is an error, not the end of the agent. */
	if (mode)
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, mode & 07777);
	else
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		chan_reply_error(m, "%s: %s", path, strerror(errno));
		free(path);
		return;
	}
	if (mode)
		fchmod(fd, mode & 07777);
	/* A file of debugfs or sysfs takes one write as one command: no splitting unless asked to. */
	while (left) {
		ssize_t n = write(fd, content, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			chan_reply_error(m, "%s: %s", path, strerror(n < 0 ? errno : EIO));
			goto out;
		}
		content += n;
		left -= n;
	}
	chan_reply(m, NULL, 0);
out:
	close(fd);
	free(path);
}
