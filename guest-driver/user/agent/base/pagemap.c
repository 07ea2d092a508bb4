// SPDX-License-Identifier: GPL-2.0-or-later
/* What the kernel says of this process's page table: see pagemap.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base.h"
#include "pagemap.h"

int pagemap_read(const void *addr, uint64_t *to, uint64_t n)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = pread(fd, to, n * 8, (uintptr_t)addr / PAGE_SIZE * 8);
	close(fd);
	return got == (ssize_t)(n * 8) ? 0 : -EIO;
}

uint64_t pagemap_zero(void)
{
	volatile char *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;

	if (page == MAP_FAILED)
		return 0;
	(void)page[0];
	if (pagemap_read((const void *)page, &entry, 1) || !(entry & PM_PRESENT))
		entry = 0;
	munmap((void *)page, PAGE_SIZE);
	return PM_FRAME(entry);
}
