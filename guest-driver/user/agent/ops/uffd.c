// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Userfaultfd: faults that the process itself serves, whoever made them.
 *
 * A thread of the process, which is no actor, answers each fault at once: a missing
 * page comes filled with the pattern of its area, a minor fault has its page mapped,
 * a write to a protected page is noted and let through.  It has all signals blocked
 * and touches no memory of the program.
 *
 * uffd.lock: areas, which an actor adds while the thread looks for one.  `fd` is
 * written by the first actor that registers (in a phase of its own), before the
 * thread exists; `seen` is atomic.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "op.h"
#include "pagemap.h"

enum how { HOW_MISSING, HOW_MINOR, HOW_WRITES, HOW_PROTECT, HOW_LOOK, HOW_LEAVE };

#define PAGES_OF_REGION	(HB_REGION_SIZE / PAGE_SIZE)
#define REGIONS		8	/* those that programs map memory in and that have one base */
#define MAX_AREAS	64
#define MAX_LOOK	512	/* pages that one operation protects or looks at */

struct area {
	uint64_t start, end, pattern;
};

static struct {
	pthread_mutex_t lock;
	int fd;
	unsigned next;			/* the oldest of these goes */
	struct area area[MAX_AREAS];
	_Atomic uint8_t seen[REGIONS * PAGES_OF_REGION];	/* pages whose write was told of */
} uffd = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

static uint64_t pattern_at(uint64_t addr)
{
	uint64_t pattern = 0;

	pthread_mutex_lock(&uffd.lock);
	/* the newest that has it */
	for (unsigned i = 1; i <= MAX_AREAS; i++) {
		const struct area *a = &uffd.area[(uffd.next + MAX_AREAS - i) % MAX_AREAS];

		if (addr >= a->start && addr < a->end) {
			pattern = a->pattern;
			break;
		}
	}
	pthread_mutex_unlock(&uffd.lock);
	return pattern;
}

static _Atomic uint8_t *seen_at(uint64_t addr)
{
	uint64_t page = (addr - HB_REGION_BASE) / PAGE_SIZE;

	return addr >= HB_REGION_BASE && page < REGIONS * PAGES_OF_REGION ? &uffd.seen[page] : NULL;
}

/* Whoever waits for the page tries again, and finds what it finds. */
static void wake(int fd, uint64_t addr)
{
	struct uffdio_range range = { addr, PAGE_SIZE };

	ioctl(fd, UFFDIO_WAKE, &range);
}

static int give_page(int fd, uint64_t addr)
{
	static uint64_t page[PAGE_SIZE / 8] __attribute__((aligned(4096)));
	struct uffdio_copy copy = { .dst = addr, .src = (uintptr_t)page, .len = PAGE_SIZE };
	uint64_t pattern = pattern_at(addr);

	for (unsigned i = 0; i < ARRAY_SIZE(page); i++)
		page[i] = pattern;
	return ioctl(fd, UFFDIO_COPY, &copy);
}

static int map_page(int fd, uint64_t addr)
{
	struct uffdio_continue go_on = { .range = { addr, PAGE_SIZE } };

	return ioctl(fd, UFFDIO_CONTINUE, &go_on);
}

static int let_write(int fd, uint64_t addr)
{
	struct uffdio_writeprotect free = { .range = { addr, PAGE_SIZE } };
	_Atomic uint8_t *seen = seen_at(addr);

	if (seen)
		atomic_store(seen, 1);
	return ioctl(fd, UFFDIO_WRITEPROTECT, &free);
}

static void *serve(void *arg)
{
	int fd = (intptr_t)arg;
	struct uffd_msg m;

	while (read(fd, &m, sizeof(m)) == sizeof(m)) {
		uint64_t addr = m.arg.pagefault.address & ~(PAGE_SIZE - 1);
		uint64_t flags = m.arg.pagefault.flags;
		int ret;

		if (m.event != UFFD_EVENT_PAGEFAULT)
			continue;
		do {
			if (flags & UFFD_PAGEFAULT_FLAG_WP)
				ret = let_write(fd, addr);
			else if (flags & UFFD_PAGEFAULT_FLAG_MINOR)
				ret = map_page(fd, addr);
			else
				ret = give_page(fd, addr);
		} while (ret && errno == EAGAIN);
		/* It is there already, or the area is gone or another by now. */
		if (ret)
			wake(fd, addr);
	}
	return NULL;
}

/* 0; -EOPNOTSUPP: this kernel has nothing of it, or not for us; -errno. */
static int get_ready(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MINOR_SHMEM };
	sigset_t all, before;
	pthread_attr_t small;
	pthread_t t;
	int fd, err;

	if (uffd.fd >= 0)
		return 0;
	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fd < 0)
		return errno == ENOSYS || errno == EPERM ? -EOPNOTSUPP : -errno;
	if (ioctl(fd, UFFDIO_API, &api) || !(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP)) {
		close(fd);
		return -EOPNOTSUPP;
	}
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 * 1024);
	pthread_attr_setguardsize(&small, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&t, &small, serve, (void *)(intptr_t)fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		close(fd);
		return -err;
	}
	pthread_detach(t);
	uffd.fd = fd;
	return 0;
}

/*
 * A child of fork has neither the areas nor the thread.  If it had the descriptor,
 * who faults when its parent dies would wait for the child to end, too.
 */
static void forget(void)
{
	if (uffd.fd >= 0)
		close(uffd.fd);
	uffd.fd = -1;
	pthread_mutex_init(&uffd.lock, NULL);
	memset(uffd.area, 0, sizeof(uffd.area));
}

static void watch_forks(void) __attribute__((constructor));

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget);
}

static void add_area(uint64_t start, uint64_t len, uint64_t pattern)
{
	pthread_mutex_lock(&uffd.lock);
	uffd.area[uffd.next] = (struct area){ start, start + len, pattern };
	uffd.next = (uffd.next + 1) % MAX_AREAS;
	pthread_mutex_unlock(&uffd.lock);
}

/*
 * Registered first, given up then: a fault of the GPU that nobody waits for any more
 * may come between, and what it brings would not be the pattern.
 */
static int enter(const struct hb_op *op, uint64_t addr)
{
	static const uint64_t mode[] = {
		[HOW_MISSING] = UFFDIO_REGISTER_MODE_MISSING,
		[HOW_MINOR] = UFFDIO_REGISTER_MODE_MINOR,
		[HOW_WRITES] = UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_register r = { .range = { addr, op->len }, .mode = mode[op->arg] };
	int ret = get_ready();

	if (ret)
		return ret;
	if (op->arg == HOW_MISSING)
		add_area(addr, op->len, op->a);
	if (ioctl(uffd.fd, UFFDIO_REGISTER, &r))
		return -errno;
	if (op->arg == HOW_WRITES)
		return 0;
	return madvise((void *)addr, op->len, MADV_DONTNEED) ? -errno : 0;
}

/* As above, the other way round; @op->a: what is there stays. */
static int leave(const struct hb_op *op, uint64_t addr)
{
	struct uffdio_range range = { addr, op->len };

	if (ioctl(uffd.fd, UFFDIO_UNREGISTER, &range))
		return -errno;
	if (op->a)
		return 0;
	return madvise((void *)addr, op->len, MADV_DONTNEED) ? -errno : 0;
}

/* Says of each page whether a write to it will be told of. */
static int protect(const struct op_call *call, uint64_t addr)
{
	const struct hb_op *op = call->op;
	struct uffdio_writeprotect wp = {
		.range = { addr, op->len }, .mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	uint64_t entry[MAX_LOOK], zero, n = op->len / PAGE_SIZE;
	uint8_t *data = op_data(call, n);

	if (!data)
		return -ENOSPC;
	for (uint64_t i = 0; i < n; i++) {
		_Atomic uint8_t *seen = seen_at(addr + i * PAGE_SIZE);

		if (seen)
			atomic_store(seen, 0);
	}
	if (ioctl(uffd.fd, UFFDIO_WRITEPROTECT, &wp))
		return -errno;
	zero = pagemap_zero();
	if (pagemap_read((void *)addr, entry, n))
		return -EIO;
	/*
	 * Not of the page of zeroes that all share: whatever puts another page in its
	 * place forgets the protection (migrate_vma_insert_page()).
	 */
	for (uint64_t i = 0; i < n; i++)
		data[i] = entry[i] & PM_PROTECTED &&
			  !(entry[i] & PM_PRESENT && (!zero || PM_FRAME(entry[i]) == zero));
	call->result->data_len = n;
	return 0;
}

static int look(const struct op_call *call, uint64_t addr)
{
	uint64_t n = call->op->len / PAGE_SIZE;
	uint8_t *data = op_data(call, n);

	if (!data)
		return -ENOSPC;
	for (uint64_t i = 0; i < n; i++) {
		_Atomic uint8_t *seen = seen_at(addr + i * PAGE_SIZE);

		data[i] = seen && atomic_load(seen);
	}
	call->result->data_len = n;
	return 0;
}

static int op_uffd(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	uint64_t addr = (uintptr_t)op_range(op);

	if (!addr || op->region >= REGIONS || op->off % PAGE_SIZE || op->len % PAGE_SIZE ||
	    !op->len)
		return -EINVAL;
	if (op->arg <= HOW_WRITES)
		return enter(op, addr);
	/* Nothing was registered: there was none of it. */
	if (uffd.fd < 0)
		return -EOPNOTSUPP;
	if (op->arg == HOW_LEAVE)
		return leave(op, addr);
	if (op->len > MAX_LOOK * PAGE_SIZE)
		return -EINVAL;
	if (op->arg == HOW_PROTECT)
		return protect(call, addr);
	return op->arg == HOW_LOOK ? look(call, addr) : -EINVAL;
}

static const struct op_kind uffds[] = {
	/*
	 * region off len; arg = HOW_*; a = pattern of what is missing, or leave: 1 to keep what is
	 * there -> data: a byte a page
	 */
	{ 80, "uffd", op_uffd, 0, NULL },
};
OP_FAMILY(uffds);
