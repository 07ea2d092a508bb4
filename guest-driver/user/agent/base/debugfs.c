// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The driver's debugfs directory, /sys/kernel/debug/dri/<device>/, known by its
 * files `counters` and `evict` (docs/driver.md).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"

#define DRI	"/sys/kernel/debug/dri"

static bool known;

bool debugfs_known(void)
{
	return known;
}

const char *debugfs_dir(void)
{
	static char found[512];
	/* Elsewhere in tests, which run the agent on a host. */
	const char *dri = getenv("HMMBENCH_DRI");
	char path[600];
	struct dirent *e;
	DIR *dir;

	/* The driver may be unloaded and come back with another number. */
	if (found[0]) {
		snprintf(path, sizeof(path), "%s/counters", found);
		if (access(path, F_OK) == 0)
			return found;
		found[0] = 0;
	}
	dri = dri ? dri : DRI;
	dir = opendir(dri);
	if (!dir)
		return NULL;
	while (!found[0] && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/evict", dri, e->d_name);
		if (access(path, F_OK))
			continue;
		snprintf(path, sizeof(path), "%s/%s/counters", dri, e->d_name);
		if (access(path, F_OK) == 0)
			snprintf(found, sizeof(found), "%s/%s", dri, e->d_name);
	}
	closedir(dir);
	known |= found[0] != 0;
	return found[0] ? found : NULL;
}

ssize_t debugfs_read(const char *file, char *buf, size_t size)
{
	const char *dir = debugfs_dir();
	char path[600];
	size_t len = 0;
	ssize_t n;
	int fd;

	buf[0] = 0;
	if (!dir)
		return -ENODEV;
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		len += n;
	}
	close(fd);
	buf[len] = 0;
	return len;
}

int debugfs_write(const char *file, const char *text)
{
	const char *dir = debugfs_dir();
	char path[600];

	if (!dir)
		return -ENODEV;
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return write_text(path, text);
}

bool counters_live(const char *text)
{
	while (*text) {
		const char *end = strchrnul(text, '\n');

		if (strncmp(text, "live_", 5) == 0) {
			const char *number = text + strcspn(text, " :=\t\n");

			number += strspn(number, " :=\t");
			if (strtoull(number, NULL, 0))
				return true;
		}
		text = *end ? end + 1 : end;
	}
	return false;
}
