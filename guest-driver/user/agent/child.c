// SPDX-License-Identifier: GPL-2.0-or-later
/* Functions run in a child of their own, with a time limit. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

static bool protected_from_oom;

void protect_agent(void)
{
	protected_from_oom = write_text("/proc/self/oom_score_adj", "-1000") == 0;
}

void set_expendable(void)
{
	if (protected_from_oom)
		write_text("/proc/self/oom_score_adj", "1000");
}

bool kill_group(pid_t pgid, unsigned grace_ms)
{
	uint64_t end = now_ns() + grace_ms * 1000000ull;
	long pause_ns = 50000;

	for (;;) {
		siginfo_t si = { 0 };

		kill(-pgid, SIGKILL);
		if (waitid(P_PGID, pgid, &si, WEXITED | WNOHANG) < 0)
			return errno == ECHILD;
		if (si.si_pid)
			continue;
		if (now_ns() >= end)
			return false;
		nanosleep(&(struct timespec){ .tv_nsec = pause_ns }, NULL);
		if (pause_ns < 2000000)
			pause_ns *= 2;
	}
}

ssize_t run_in_child(void (*fn)(int out, void *arg), void *arg, unsigned timeout_ms,
		     char *buf, size_t size)
{
	uint64_t end = now_ns() + timeout_ms * 1000000ull;
	int p[2], status = 0;
	size_t len = 0;
	ssize_t ret = 0;
	siginfo_t si = { 0 };
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0) {
		ret = -errno;
		close(p[0]);
		close(p[1]);
		return ret;
	}
	if (pid == 0) {
		setpgid(0, 0);
		close(p[0]);
		chan_forget();
		set_expendable();
		fn(p[1], arg);
		_exit(0);
	}
	setpgid(pid, pid);
	close(p[1]);
	while (len < size - 1) {
		struct pollfd pf = { .fd = p[0], .events = POLLIN };
		uint64_t now = now_ns();
		ssize_t n;

		if (now >= end || poll(&pf, 1, (end - now) / 1000000 + 1) == 0) {
			ret = -ETIMEDOUT;
			break;
		}
		n = read(p[0], buf + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += n;
	}
	buf[len] = 0;
	close(p[0]);
	if (ret == 0) {
		/* Its output has ended, so it is about to. */
		while (waitid(P_PID, pid, &si, WEXITED | WNOWAIT | WNOHANG) == 0 && !si.si_pid &&
		       now_ns() < end)
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		status = si.si_pid && si.si_code == CLD_EXITED ? si.si_status : -1;
	}
	kill_group(pid, 2000);
	if (ret == 0 && status)
		ret = -ECHILD;
	return ret ? ret : (ssize_t)len;
}
