// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A file system of HB_MAX_FILES files, "0", "1" ..., in the memory of a server process.
 *
 * The kernel keeps their pages and writes them back (writeback cache), so mappings of them
 * are shared, have their dirty pages tracked, and are filled by somebody who may be late: a
 * page fault waits for a process.  The protocol is that of include/uapi/linux/fuse.h, of
 * which 7.31 (Linux 5.4) has all that is used.
 *
 * The server is single-threaded and alone has its memory.  It needs nothing of those that it
 * serves: it has no descriptor of them, and no file of its own file system.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base.h"
#include "program.h"
#include "store.h"

#define MINOR		31
#define MAX_WRITE	0x20000u
#define FIRST_NODE	(FUSE_ROOT_ID + 1)	/* that of file 0 */
/* seconds: nobody but the kernel changes anything */
#define FOR_EVER	(1u << 30)

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER	57
#endif

/* Of the server. */
static int device;
static uint8_t *memory;				/* HB_REGION_SIZE for each file */
static uint64_t size[HB_MAX_FILES];

static uint8_t *memory_of(unsigned file)
{
	return memory + file * HB_REGION_SIZE;
}

/* [from, to) is zeroes; what is no whole page is written. */
static void clear(unsigned file, uint64_t from, uint64_t to)
{
	uint64_t first = (from + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1), end = to & ~(PAGE_SIZE - 1);

	if (first >= end) {
		memset(memory_of(file) + from, 0, to - from);
		return;
	}
	memset(memory_of(file) + from, 0, first - from);
	madvise(memory_of(file) + first, end - first, MADV_DONTNEED);
	memset(memory_of(file) + end, 0, to - end);
}

/* The answer to a request: an error (-errno) or 0 and @len bytes. */
static void answer(const struct fuse_in_header *in, int error, const void *data, size_t len)
{
	struct fuse_out_header out = {
		.len = sizeof(out) + (error ? 0 : len), .error = error, .unique = in->unique,
	};
	struct iovec parts[] = { { &out, sizeof(out) }, { (void *)data, error ? 0 : len } };

	/* who asked may have been killed: then nobody wants it */
	if (writev(device, parts, 2) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr a = { .ino = node, .nlink = 1, .blksize = PAGE_SIZE };

	if (node == FUSE_ROOT_ID) {
		a.mode = S_IFDIR | 0755;
		a.nlink = 2;
	} else {
		a.mode = S_IFREG | 0600;
		a.size = size[node - FIRST_NODE];
		a.blocks = a.size / 512;
	}
	return a;
}

static void answer_attributes(const struct fuse_in_header *in)
{
	struct fuse_attr_out out = { .attr_valid = FOR_EVER, .attr = attributes(in->nodeid) };

	answer(in, 0, &out, sizeof(out));
}

static void do_init(const struct fuse_in_header *in, const struct fuse_init_in *asked)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = MINOR,
		.max_readahead = asked->max_readahead,
		.flags = asked->flags & (FUSE_BIG_WRITES | FUSE_ASYNC_READ | FUSE_MAX_PAGES |
					 FUSE_WRITEBACK_CACHE),
		.max_write = MAX_WRITE,
		.max_pages = MAX_WRITE / PAGE_SIZE,
		.time_gran = 1,
	};

	answer(in, asked->major < FUSE_KERNEL_VERSION ? -EPROTO : 0, &out, sizeof(out));
}

static void do_lookup(const struct fuse_in_header *in, const char *name)
{
	struct fuse_entry_out out = { .entry_valid = FOR_EVER, .attr_valid = FOR_EVER };
	unsigned file = name[0] - '0';

	if (in->nodeid != FUSE_ROOT_ID || file >= HB_MAX_FILES || name[1]) {
		answer(in, -ENOENT, NULL, 0);
		return;
	}
	out.nodeid = FIRST_NODE + file;
	out.attr = attributes(out.nodeid);
	answer(in, 0, &out, sizeof(out));
}

static void do_setattr(const struct fuse_in_header *in, unsigned file,
		       const struct fuse_setattr_in *set)
{
	if (set->valid & FATTR_SIZE) {
		if (set->size > HB_REGION_SIZE) {
			answer(in, -EFBIG, NULL, 0);
			return;
		}
		if (set->size < size[file])
			clear(file, set->size, size[file]);
		size[file] = set->size;
	}
	answer_attributes(in);
}

static void do_read(const struct fuse_in_header *in, unsigned file, const struct fuse_read_in *r)
{
	uint64_t left = r->offset < size[file] ? size[file] - r->offset : 0;

	answer(in, 0, memory_of(file) + r->offset, left < r->size ? left : r->size);
}

static void do_write(const struct fuse_in_header *in, unsigned file,
		     const struct fuse_write_in *w, const void *data)
{
	struct fuse_write_out out = { .size = w->size };
	bool fits = w->offset <= HB_REGION_SIZE && w->size <= HB_REGION_SIZE - w->offset;

	if (fits) {
		memcpy(memory_of(file) + w->offset, data, w->size);
		if (w->offset + w->size > size[file])
			size[file] = w->offset + w->size;
	}
	answer(in, fits ? 0 : -EFBIG, &out, sizeof(out));
}

static void do_fallocate(const struct fuse_in_header *in, unsigned file,
			 const struct fuse_fallocate_in *f)
{
	uint64_t end = f->offset + f->length;

	if (f->mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) || end < f->offset) {
		answer(in, -EOPNOTSUPP, NULL, 0);
		return;
	}
	if (end > size[file])
		end = size[file];
	if (f->offset < end)
		clear(file, f->offset, end);
	answer(in, 0, NULL, 0);
}

static void handle(const struct fuse_in_header *in, const void *arg)
{
	unsigned file = in->nodeid - FIRST_NODE;
	bool is_file = in->nodeid >= FIRST_NODE && file < HB_MAX_FILES;

	switch (in->opcode) {
	case FUSE_INIT:
		do_init(in, arg);
		return;
	case FUSE_LOOKUP:
		do_lookup(in, arg);
		return;
	case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT:
		/* no answers to these */
		return;
	case FUSE_GETATTR:
		if (is_file || in->nodeid == FUSE_ROOT_ID) {
			answer_attributes(in);
			return;
		}
		break;
	case FUSE_OPEN:
		if (is_file) {
			answer(in, 0, &(struct fuse_open_out){ .fh = file },
			       sizeof(struct fuse_open_out));
			return;
		}
		break;
	case FUSE_STATFS:
		answer(in, 0, &(struct fuse_statfs_out){ .st.bsize = PAGE_SIZE, .st.namelen = 255 },
		       sizeof(struct fuse_statfs_out));
		return;
	case FUSE_RELEASE: case FUSE_FLUSH: case FUSE_FSYNC: case FUSE_DESTROY:
		answer(in, 0, NULL, 0);
		return;
	case FUSE_SETATTR:
		if (is_file) {
			do_setattr(in, file, arg);
			return;
		}
		break;
	case FUSE_READ:
		if (is_file) {
			do_read(in, file, arg);
			return;
		}
		break;
	case FUSE_WRITE:
		if (is_file) {
			do_write(in, file, arg, (const char *)arg + sizeof(struct fuse_write_in));
			return;
		}
		break;
	case FUSE_FALLOCATE:
		if (is_file) {
			do_fallocate(in, file, arg);
			return;
		}
		break;
	}
	answer(in, -ENOSYS, NULL, 0);
}

/* Only the device is ours, not what whoever made us has open. */
static void keep_the_device(int fd)
{
	int null = open("/dev/null", O_RDWR);

	for (int n = 0; n < 3; n++)
		dup2(null, n);
	device = fd == 3 ? fd : dup2(fd, 3);
	syscall(SYS_close_range, 4, ~0u, 0);
}

static void serve(int fd)
{
	static uint8_t request[MAX_WRITE + PAGE_SIZE] __attribute__((aligned(8)));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "hmmbench-files");
	/* What we allocate must not wait for what we serve; not everybody may ask for that. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	setsid();
	keep_the_device(fd);
	memory = mmap(NULL, HB_MAX_FILES * (size_t)HB_REGION_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		_exit(1);
	/* What a file loses is given back, a page at a time. */
	madvise(memory, HB_MAX_FILES * (size_t)HB_REGION_SIZE, MADV_NOHUGEPAGE);
	for (;;) {
		ssize_t n = read(device, request, sizeof(request));

		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			handle((struct fuse_in_header *)request,
			       request + sizeof(struct fuse_in_header));
		else if (n >= 0 || (errno != EINTR && errno != EAGAIN && errno != ENOENT))
			_exit(0);
	}
}

static int set(int fs, const char *key, const char *value)
{
	return syscall(SYS_fsconfig, fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key,
		       value, 0);
}

/* A mount that is in nobody's tree of folders, and goes with its descriptor. */
static int mount_device(int fd)
{
	int fs = syscall(SYS_fsopen, "fuse", FSOPEN_CLOEXEC), ret = -1;
	char number[12];

	if (fs < 0)
		return -1;
	snprintf(number, sizeof(number), "%d", fd);
	if (!set(fs, "fd", number) && !set(fs, "rootmode", "40000") && !set(fs, "user_id", "0") &&
	    !set(fs, "group_id", "0") && !set(fs, "allow_other", NULL) &&
	    !syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		ret = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return ret;
}

/* A hundredth of what may be dirty, as the kernel has it, makes each writer wait. */
static void let_pages_be_dirty(int root)
{
	struct stat st;
	char path[64];

	if (fstat(root, &st))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/max_ratio", major(st.st_dev),
		 minor(st.st_dev));
	write_text(path, "100");
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/strict_limit", major(st.st_dev),
		 minor(st.st_dev));
	write_text(path, "0");
}

int fuse_root(void)
{
	static int root = -1;
	pid_t pid;
	int fd;

	if (root >= 0)
		return root;
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -EOPNOTSUPP;
	root = mount_device(fd);
	if (root < 0) {
		close(fd);
		return -EOPNOTSUPP;
	}
	pid = fork();
	if (!pid)
		serve(fd);
	close(fd);
	if (pid < 0) {
		close(root);
		root = -1;
		return -EOPNOTSUPP;
	}
	let_pages_be_dirty(root);
	return root;
}
