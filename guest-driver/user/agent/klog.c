// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PRINTED: how far the bench has to read the console to have all of it.
 *
 * A kernel may leave the console to a thread of its own: the 8250 driver of
 * Linux 7.3 does, and a report that was printed before our answer appears after
 * it then.  So a mark is put behind it, and lines come out in order: who sees
 * the mark has seen the report.  A kernel that said nothing gets none, because
 * each character costs an exit.
 *
 * The descriptor's place in the log is the agent's alone: children inherit it
 * and do not read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"

static int log_fd = -1;

void klog_init(void)
{
	const char *path = getenv("HMMBENCH_KMSG");

	log_fd = open(path ? path : "/dev/kmsg", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	/* What there is by now the bench has read, or does not ask for. */
	if (log_fd >= 0)
		lseek(log_fd, 0, SEEK_END);
}

/* True if the console shows a record, "priority,number,time,flags;text", that is not a mark. */
static bool shown(const char *record)
{
	return (strtoul(record, NULL, 10) & 7) <= HB_CONSOLE_LEVEL && !strstr(record, HB_MARK);
}

/* Reads what is new in the log; true if any of it goes to the console. */
static bool something_new(void)
{
	static char record[0x4000];	/* the longest that /dev/kmsg gives is half of that */
	bool found = false;
	ssize_t n;

	while ((n = read(log_fd, record, sizeof(record) - 1)) != 0) {
		if (n < 0 && errno == EAGAIN)
			break;
		/* EPIPE: records were overwritten before we came to them. */
		if (n < 0 && errno != EPIPE && errno != EINTR)
			return true;
		if (n > 0)
			record[n] = 0;
		found |= n < 0 ? errno == EPIPE : shown(record);
	}
	return found;
}

int klog_mark(uint32_t *mark)
{
	static uint32_t marks;
	char line[64];
	ssize_t n;
	int len;

	*mark = 0;
	if (log_fd < 0)
		return -ENOENT;
	if (!something_new())
		return 0;
	*mark = ++marks;
	/* Of the highest level, which no console leaves out. */
	len = snprintf(line, sizeof(line), "<0>" HB_MARK "%u\n", *mark);
	n = write(log_fd, line, len);
	if (n == len)
		return 0;
	return n < 0 ? -errno : -EIO;
}

void serve_printed(const struct message *m)
{
	uint32_t mark;
	int ret = klog_mark(&mark);

	if (ret)
		chan_reply_error(m, "PRINTED: the kernel's log: %s", strerror(-ret));
	else
		chan_reply(m, &(struct iovec){ &mark, sizeof(mark) }, 1);
}
