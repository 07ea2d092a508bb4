// SPDX-License-Identifier: GPL-2.0-or-later
/* Time, texts into files, and what CPUs have put aside. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/*
 * Pages that a CPU puts on the LRU lists, or gives up, wait in a batch of that CPU
 * until there are enough.  MADV_FREE and reclaim pass over what waits on another
 * CPU, and the scheduler moves us between operations: so on each CPU the batch is
 * emptied, which is the first thing MADV_COLD does.  Of a page that nobody uses it
 * does no more.
 */
void drain_lru(void)
{
	static char unused[4096] __attribute__((aligned(4096)));
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0, left = CPU_COUNT(&all); left; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		left--;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (!sched_setaffinity(0, sizeof(one), &one))
			madvise(unused, sizeof(unused), MADV_COLD);
	}
	sched_setaffinity(0, sizeof(all), &all);
}

unsigned node_count(void)
{
	unsigned n = 0;
	char path[64];

	do
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", n);
	while (n < MAX_NODES && access(path, F_OK) == 0 && ++n);
	return n ? n : 1;
}
