// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Changes the machine's memory map while the CPUs use what is in it: map_change CONFIG TIMES
 *
 * The device whose configuration the file CONFIG is has its BARs switched on and off, and two
 * threads take a page away from each other, for which each CPU interrupts the other one through
 * its local APIC and waits for the answer.  Done when nothing got lost on the way.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define COMMAND		4	/* in the configuration */
#define MEMORY		2

static atomic_int done;

static void *taker(void *unused)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	while (!done) {
		atomic_store((_Atomic char *)page, 1);
		CHECK(!madvise(page, 4096, MADV_DONTNEED));
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	uint16_t command;
	int fd, i;

	CHECK(argc == 3);
	fd = open(argv[1], O_RDWR);
	CHECK(fd >= 0 && pread(fd, &command, 2, COMMAND) == 2);
	for (i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, taker, NULL));
	for (i = 0; i < atoi(argv[2]); i++) {
		command ^= MEMORY;
		CHECK(pwrite(fd, &command, 2, COMMAND) == 2);
	}
	done = 1;
	for (i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], NULL));
	return 0;
}
