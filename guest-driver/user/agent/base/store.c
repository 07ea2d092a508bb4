// SPDX-License-Identifier: GPL-2.0-or-later
/* Files of programs: see store.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base.h"
#include "store.h"

/* A folder on the disk: the guest's init says where that is mounted. */
static int on_disk(void)
{
	const char *folder = getenv("HMMBENCH_DISK");

	return folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
}

static int at_server(unsigned number)
{
	int root = fuse_root();
	char name[12];

	if (root < 0) {
		errno = -root;
		return -1;
	}
	snprintf(name, sizeof(name), "%u", number);
	return openat(root, name, O_RDWR | O_TRUNC | O_CLOEXEC);
}

int store_open(unsigned store, unsigned number, uint64_t size)
{
	int fd;

	errno = EOPNOTSUPP;
	fd = store == STORE_TMPFS ? memfd_create("hmmbench", MFD_CLOEXEC) :
	     store == STORE_EXT4 ? on_disk() :
	     store == STORE_FUSE ? at_server(number) : -1;
	if (fd >= 0 && ftruncate(fd, size)) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd < 0 ? -errno : fd;
}
