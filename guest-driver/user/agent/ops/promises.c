// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a driver promises beside safety, and what everything comes to at the end.
 *
 * A promise is tried on memory that nobody else has: mapped by the operation itself,
 * written by the CPU, of 4 KiB pages (MADV_NOHUGEPAGE: the pieces of a 2 MiB page
 * that is mapped in pieces never migrate, which is the kernel's doing), not shared
 * and not pinned.  What came of it is only told; the bench judges (model/ops/promises.py).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access.h"
#include "gpu.h"
#include "op.h"
#include "pagemap.h"

#define TRIES		3
#define MAX_PAGES	64
#define HUGE_SIZE	0x200000ull
#define HUGE_PAGES	(HUGE_SIZE / PAGE_SIZE)

/* In this order numbers of the bench. */
enum promise {
	PROMISE_MIGRATES, PROMISE_COMES_HOME, PROMISE_PREFETCHES, PROMISE_EVICTS, PROMISE_POLICY,
	PROMISE_STAYS, PROMISE_ALONE, PROMISE_HUGE, PROMISE_USAGE, PROMISE_NODE,
};

/* aux0 of the answer */
enum { PROMISE_TRIED, PROMISE_NO_ROOM, PROMISE_NO_HUGE_PAGE, PROMISE_NOT_COUNTED, PROMISE_ONE_NODE };

/* One look at the memory, behind the step of this number; an answer's data is some of these. */
struct seen {
	uint32_t step;
	uint32_t tries;		/* that the step took */
	uint32_t pages;
	uint32_t device;	/* in VRAM, as the driver answers a query */
	uint32_t system;	/* where the CPU has them, likewise */
	uint32_t mapped;	/* for the GPU, likewise */
	uint32_t mapped_vram;
	uint32_t mapped_huge;
	uint32_t gone;		/* that the CPU does not have where it is, as the kernel says; ~0: it does not */
	uint32_t wrong;		/* with other contents; ~0: not looked at */
	uint32_t faults;	/* of the GPU in the step, as driver or device count them */
	uint32_t flushes;	/* of its TLBs */
	uint32_t used;		/* that the kernel says the GPU has of the process, all in all */
	uint32_t home;		/* pages of it that are one of 2 MiB, or on the node that was asked for */
};
#define NOT_SEEN	UINT32_MAX

/* An operation's promise being tried. */
struct trial {
	const struct op_call *call;
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx;
	uint32_t n;		/* pages */
	struct seen seen[4];
	unsigned nseen;
};

static uint64_t content_of(uint32_t page)
{
	return 0x70726f6d00000000ull + page;
}

/* Fresh pages, each written; NULL: there is no memory. */
static uint8_t *fresh(uint32_t n)
{
	uint8_t *p = mmap(NULL, n * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* A kernel without them refuses. */
	madvise(p, n * PAGE_SIZE, MADV_NOHUGEPAGE);
	for (uint32_t i = 0; i < n; i++)
		*(volatile uint64_t *)(p + i * PAGE_SIZE) = content_of(i);
	return p;
}

static void give_back(uint8_t *p, uint32_t n)
{
	if (p)
		munmap(p, n * PAGE_SIZE);
}

/* What the kernel says of pages: 0, or -errno. */
static uint32_t count_gone(const void *addr, uint32_t n)
{
	uint64_t entry[HUGE_PAGES];
	uint32_t gone = 0;

	if (pagemap_read(addr, entry, n))
		return NOT_SEEN;
	for (uint32_t i = 0; i < n; i++)
		gone += !(entry[i] & PM_PRESENT) && entry[i] & PM_SWAP;
	return gone;
}

/* A counter of the driver's: whether there is one. */
static bool counter(const char *text, const char *name, uint64_t *value)
{
	size_t len = strlen(name);

	while (*text) {
		const char *end = strchrnul(text, '\n');

		if (strncmp(text, name, len) == 0 && text[len] == ' ') {
			*value = strtoull(text + len, NULL, 0);
			return true;
		}
		text = *end ? end + 1 : end;
	}
	return false;
}

struct counted {
	uint64_t faults, flushes;
	bool known;		/* the driver tells both */
};

static struct counted count(void)
{
	char *text = malloc(COUNTERS_SIZE);
	struct counted c = { 0 };

	c.known = text && debugfs_read("counters", text, COUNTERS_SIZE) > 0 &&
		  counter(text, "dev_faults", &c.faults) &&
		  counter(text, "dev_invals", &c.flushes);
	free(text);
	return c;
}

/* Pages; what the driver does not tell is not looked at. */
static uint32_t used(struct trial *t)
{
	struct hmmgpu_usage u;

	if (hmmgpu_usage(t->dev, &u))
		return NOT_SEEN;
	return (u.vram_bytes + u.system_bytes) / PAGE_SIZE;
}

/* Sets what is seen of the pages now: 0 or -errno. */
static int look(struct trial *t, struct seen *s, uint32_t step, void *addr, uint32_t n)
{
	uint32_t q[HUGE_PAGES];
	int ret = hmmgpu_query(t->dev, addr, n, q);

	if (ret)
		return ret;
	*s = (struct seen){ .step = step, .pages = n, .wrong = NOT_SEEN, .used = used(t) };
	for (uint32_t i = 0; i < n; i++) {
		s->device += !!(q[i] & HMM_GPU_Q_CPU_DEVICE);
		s->system += q[i] & HMM_GPU_Q_CPU_READ && !(q[i] & HMM_GPU_Q_CPU_DEVICE);
		s->mapped += !!(q[i] & HMM_GPU_Q_GPU_VALID);
		s->mapped_vram += q[i] & HMM_GPU_Q_GPU_VALID && q[i] & HMM_GPU_Q_GPU_VRAM;
		s->mapped_huge += q[i] & HMM_GPU_Q_GPU_VALID && q[i] & HMM_GPU_Q_GPU_HUGE;
	}
	s->gone = count_gone(addr, n);
	return 0;
}

static struct seen *next_seen(struct trial *t)
{
	return &t->seen[t->nseen++];
}

/* Pages whose first word is not what @filled (else the CPU) wrote there, or cannot be read. */
static uint32_t count_wrong(const uint8_t *addr, uint32_t n, const uint64_t *filled)
{
	const struct hb_access read = { .kind = HB_ACC_READ };
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t value;

		wrong += cpu_access(&read, (void *)(addr + i * PAGE_SIZE), &value) != HB_AST_DONE ||
			 value != (filled ? *filled : content_of(i));
	}
	return wrong;
}

static int fill(struct trial *t, void *addr, uint64_t pattern)
{
	struct hb_op_result unused = { 0 };
	uint64_t job;
	int ret = hmmgpu_fill(t->ctx, addr, pattern, t->n * PAGE_SIZE, 0, 0, &job);

	return ret ? ret : gpu_wait_job(t->ctx, job, &unused);
}

/* Asks for a migration until all are there, at most TRIES times; the last look goes to *s. */
static int move(struct trial *t, struct seen *s, uint32_t step, void *addr, uint32_t to, bool map)
{
	uint64_t migrated, failed;

	for (uint32_t tries = 1; ; tries++) {
		int ret = map ? hmmgpu_prefetch(t->dev, addr, t->n * PAGE_SIZE, to, &migrated, &failed) :
				hmmgpu_migrate(t->dev, addr, t->n * PAGE_SIZE, to, &migrated, &failed);

		if (!ret)
			ret = look(t, s, step, addr, t->n);
		if (ret)
			return ret;
		s->tries = tries;
		if (tries == TRIES || (
		    (to == HMM_GPU_MIGRATE_DEVICE ? s->device : s->system) == t->n &&
		    (!map || (to == HMM_GPU_MIGRATE_DEVICE ? s->mapped_vram : s->mapped) == t->n)))
			return 0;
	}
}

static int to_vram(struct trial *t, void *addr)
{
	return move(t, next_seen(t), t->nseen, addr, HMM_GPU_MIGRATE_DEVICE, false);
}

static int try_migrates(struct trial *t, uint8_t *p)
{
	struct seen *s;
	uint32_t wrong;
	int ret = to_vram(t, p);

	if (ret)
		return ret;
	wrong = count_wrong(p, t->n, NULL);
	s = next_seen(t);
	ret = look(t, s, 1, p, t->n);
	s->wrong = wrong;
	return ret;
}

static int try_comes_home(struct trial *t, uint8_t *p)
{
	int ret = to_vram(t, p);

	if (!ret)
		ret = move(t, next_seen(t), 1, p, HMM_GPU_MIGRATE_SYSTEM, false);
	t->seen[t->nseen - 1].wrong = count_wrong(p, t->n, NULL);
	return ret;
}

static int try_prefetches(struct trial *t, uint8_t *p)
{
	int ret = move(t, next_seen(t), 0, p, HMM_GPU_MIGRATE_DEVICE, true);

	if (!ret)
		ret = move(t, next_seen(t), 1, p, HMM_GPU_MIGRATE_SYSTEM, true);
	t->seen[t->nseen - 1].wrong = count_wrong(p, t->n, NULL);
	return ret;
}

static int try_evicts(struct trial *t, uint8_t *p)
{
	int ret = to_vram(t, p);
	struct seen *s = next_seen(t);

	for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
		ret = debugfs_write("evict", "all");
		if (!ret)
			ret = look(t, s, 1, p, t->n);
		s->tries = tries;
		if (s->system == t->n)
			break;
	}
	s->wrong = count_wrong(p, t->n, NULL);
	return ret;
}

/* The GPU touches fresh memory under each policy; at the end the one that is asked for holds. */
static int try_policy(struct trial *t, uint8_t *unused)
{
	const uint64_t pattern = 0x646c6c6966000001ull;
	int ret = 0, err;

	(void)unused;
	for (uint32_t step = 0; !ret && step < 4; step++) {
		/* what atomics do is another matter */
		const uint32_t atomics = step < 2 ? 0 : HMM_GPU_POLICY_EXCLUSIVE;
		const bool stays = step % 2;
		struct seen *s = next_seen(t);

		ret = hmmgpu_set_policy(t->dev, atomics | (stays ? HMM_GPU_POLICY_MAP :
								   HMM_GPU_POLICY_MIGRATE));
		for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
			uint8_t *p = fresh(t->n);

			if (!p)
				ret = -ENOMEM;
			if (!ret)
				ret = fill(t, p, pattern);
			if (!ret)
				ret = look(t, s, step, p, t->n);
			if (!ret)
				s->wrong = count_wrong(p, t->n, &pattern);
			s->tries = tries;
			give_back(p, t->n);
			if (s->wrong || (stays ? s->system : s->device) == t->n)
				break;
		}
	}
	err = hmmgpu_set_policy(t->dev, t->call->op->a);
	return ret ? ret : err;
}

/* What is in VRAM stays there while the GPU alone uses it. */
static int try_stays(struct trial *t, uint8_t *p)
{
	const uint64_t pattern = 0x7374617900000001ull;
	int ret = 0;
	struct seen *s;

	t->nseen = 2;
	s = &t->seen[1];
	for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
		ret = move(t, &t->seen[0], 0, p, HMM_GPU_MIGRATE_DEVICE, false);
		if (!ret)
			ret = fill(t, p, pattern);
		if (!ret)
			ret = look(t, s, 1, p, t->n);
		s->tries = tries;
		if (s->device == t->n && s->mapped_vram == t->n)
			break;
	}
	s->wrong = count_wrong(p, t->n, &pattern);
	return ret;
}

/* Other memory of the process changes, which the GPU never had: nothing here has to. */
static int try_alone(struct trial *t, uint8_t *p)
{
	const uint64_t pattern = 0x616c6f6e65000001ull;
	int ret = 0;

	t->nseen = 3;
	for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
		struct counted before = count(), filled, changed, again;
		uint8_t *other;

		ret = fill(t, p, pattern);
		filled = count();
		if (!ret)
			ret = look(t, &t->seen[0], 0, p, t->n);
		other = fresh(t->n);
		if (ret || !other) {
			give_back(other, t->n);
			return ret ? ret : -ENOMEM;
		}
		mprotect(other, t->n * PAGE_SIZE, PROT_READ);
		madvise(other, t->n * PAGE_SIZE, MADV_DONTNEED);
		give_back(other, t->n);
		changed = count();
		ret = look(t, &t->seen[1], 1, p, t->n);
		if (!ret)
			ret = fill(t, p, pattern);
		again = count();
		if (!ret)
			ret = look(t, &t->seen[2], 2, p, t->n);
		t->seen[0].faults = filled.faults - before.faults;
		t->seen[0].flushes = filled.flushes - before.flushes;
		t->seen[1].flushes = changed.flushes - filled.flushes;
		t->seen[2].faults = again.faults - changed.faults;
		for (unsigned i = 0; i < t->nseen; i++)
			t->seen[i].tries = tries;
		if (t->seen[1].mapped == t->n && !t->seen[2].faults)
			break;
	}
	t->seen[2].wrong = count_wrong(p, t->n, &pattern);
	return ret;
}

#define KPF_THP	22

/* Whether the kernel has one 2 MiB page at an address. */
static bool is_huge(const void *addr)
{
	uint64_t entry, flags = 0;
	int fd;

	if (pagemap_read(addr, &entry, 1) || !(entry & PM_PRESENT))
		return false;
	fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (pread(fd, &flags, 8, PM_FRAME(entry) * 8) != 8)
		flags = 0;
	close(fd);
	return flags >> KPF_THP & 1;
}

/* Once, at a place for one; whether it did. */
static int try_huge_page(struct trial *t, uint8_t *p, uint32_t tries, uint64_t *why, bool *kept)
{
	uint64_t migrated, failed;
	struct seen *s = t->seen;
	int ret;

	madvise(p, HUGE_SIZE, MADV_HUGEPAGE);
	*(volatile uint64_t *)p = content_of(0);
	t->nseen = is_huge(p);
	*why = t->nseen ? PROMISE_TRIED : PROMISE_NO_HUGE_PAGE;
	if (!t->nseen)
		return 0;
	ret = hmmgpu_prefetch(t->dev, p, HUGE_SIZE, HMM_GPU_MIGRATE_DEVICE, &migrated, &failed);
	if (!ret)
		ret = look(t, s, 0, p, HUGE_PAGES);
	if (ret)
		return ret;
	s->tries = tries;
	*kept = s->device == HUGE_PAGES && s->mapped_huge == HUGE_PAGES;
	if (!*kept) {
		s->wrong = count_wrong(p, 1, NULL);
		return 0;
	}
	/* and home again */
	ret = hmmgpu_migrate(t->dev, p, HUGE_SIZE, HMM_GPU_MIGRATE_SYSTEM, &migrated, &failed);
	t->nseen = 2;
	if (!ret)
		ret = look(t, &s[1], 1, p, HUGE_PAGES);
	if (ret)
		return ret;
	s[1].tries = tries;
	s[1].home = is_huge(p) ? HUGE_PAGES : 0;
	s[1].wrong = count_wrong(p, 1, NULL);
	*kept = s[1].home == HUGE_PAGES || s[1].wrong;
	return 0;
}

/* What the GPU has is counted, and what it has no more is not. */
static int try_usage_of(struct trial *t, uint8_t *p, uint32_t n, struct seen *s)
{
	const uint64_t pattern = 0x7573616765000001ull;
	struct hb_op_result unused = { 0 };
	uint64_t job;
	int ret = look(t, &s[0], 0, p, n);

	if (!ret)
		ret = hmmgpu_fill(t->ctx, p, pattern, n * PAGE_SIZE, 0, 0, &job);
	if (!ret)
		ret = gpu_wait_job(t->ctx, job, &unused);
	if (!ret)
		ret = look(t, &s[1], 1, p, n);
	if (!ret)
		s[1].wrong = count_wrong(p, n, &pattern);
	return ret;
}

/* Small pages, or if there is one and there is room a large one, prefetched. */
static int try_usage(struct trial *t, uint8_t *unused)
{
	const bool large = t->call->op->len > PAGE_SIZE;
	uint64_t migrated, failed;
	int ret = 0;

	(void)unused;
	t->nseen = 3;
	for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
		const size_t size = large ? 2 * HUGE_SIZE : t->n * PAGE_SIZE;
		uint8_t *area = mmap(NULL, size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		uint8_t *p = area;
		struct seen *s = t->seen;

		if (area == MAP_FAILED)
			return -ENOMEM;
		if (large) {
			p = (uint8_t *)(((uintptr_t)area + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
			madvise(p, HUGE_SIZE, MADV_HUGEPAGE);
		} else {
			madvise(p, size, MADV_NOHUGEPAGE);
		}
		*(volatile uint64_t *)p = content_of(0);
		if (large)
			ret = hmmgpu_migrate(t->dev, p, HUGE_SIZE, HMM_GPU_MIGRATE_DEVICE, &migrated,
					     &failed);
		if (!ret)
			ret = try_usage_of(t, p, large ? HUGE_PAGES : t->n, s);
		munmap(area, size);
		s[2] = (struct seen){ .step = 2, .wrong = NOT_SEEN, .used = used(t) };
		for (unsigned i = 0; i < t->nseen; i++)
			s[i].tries = tries;
		if (s[1].wrong || (s[2].used == s[0].used - s[0].mapped &&
				   s[1].used == s[2].used + s[1].mapped))
			break;
	}
	return ret;
}

#define BIND	2	/* MPOL_BIND */

static uint32_t count_on(uint8_t *p, uint32_t n, unsigned node)
{
	void *page[MAX_PAGES];
	int status[MAX_PAGES];
	uint32_t there = 0;

	for (uint32_t i = 0; i < n; i++)
		page[i] = p + i * PAGE_SIZE;
	if (syscall(SYS_move_pages, 0, (unsigned long)n, page, NULL, status, 0))
		return NOT_SEEN;
	for (uint32_t i = 0; i < n; i++)
		there += status[i] == (int)node;
	return there;
}

/* Memory that is bound to a node, another than this thread's, is there when it comes home. */
static int try_node(struct trial *t, uint8_t *unused)
{
	unsigned cpu, here = 0, node;
	unsigned long mask;
	int ret = 0;

	(void)unused;
	getcpu(&cpu, &here);
	node = (here + 1) % node_count();
	mask = 1ul << node;
	t->nseen = 2;
	for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
		uint8_t *p = mmap(NULL, t->n * PAGE_SIZE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct seen *s = t->seen;

		if (p == MAP_FAILED)
			return -ENOMEM;
		madvise(p, t->n * PAGE_SIZE, MADV_NOHUGEPAGE);
		if (syscall(SYS_mbind, p, t->n * PAGE_SIZE, BIND, &mask, MAX_NODES + 1, 0)) {
			munmap(p, t->n * PAGE_SIZE);
			return errno == ENOSYS ? -EOPNOTSUPP : -errno;
		}
		for (uint32_t i = 0; i < t->n; i++)
			*(volatile uint64_t *)(p + i * PAGE_SIZE) = content_of(i);
		ret = move(t, &s[0], 0, p, HMM_GPU_MIGRATE_DEVICE, false);
		/* half of them by the CPU's touch, which brings its neighbours, too */
		if (!ret)
			s[0].wrong = count_wrong(p, (t->n + 1) / 2, NULL);
		if (!ret)
			ret = move(t, &s[1], 1, p, HMM_GPU_MIGRATE_SYSTEM, false);
		if (!ret) {
			s[1].home = count_on(p, t->n, node);
			s[1].wrong = count_wrong(p, t->n, NULL);
		}
		s[0].tries = s[1].tries = tries;
		munmap(p, t->n * PAGE_SIZE);
		if (s[1].wrong || (s[0].device == t->n && s[1].home == t->n))
			break;
	}
	return ret;
}

/*
 * A 2 MiB page goes to VRAM in one piece, where the kernel can do that.  There is a
 * free piece of VRAM if less pages are used than there are such pieces.  Each try has
 * a page of its own: what was split once stays small.
 */
static int try_huge(struct trial *t, uint64_t *why)
{
	uint64_t can = 0, all = 0, free = 0, coherent = 0;
	uint8_t *area, *p;
	bool kept;
	int ret = 0;

	*why = PROMISE_NO_HUGE_PAGE;	/* that such a device and kernel keep */
	if (hmmgpu_get_param(t->dev, HMM_GPU_PARAM_THP_MIGRATION, &can) || !can ||
	    hmmgpu_get_param(t->dev, HMM_GPU_PARAM_COHERENT, &coherent) || coherent ||
	    hmmgpu_get_param(t->dev, HMM_GPU_PARAM_VRAM_PAGES, &all) ||
	    hmmgpu_get_param(t->dev, HMM_GPU_PARAM_VRAM_FREE, &free))
		return 0;
	if (all - free >= all / HUGE_PAGES || free < 2 * HUGE_PAGES) {
		*why = PROMISE_NO_ROOM;
		return 0;
	}
	for (uint32_t tries = 1; !ret && tries <= TRIES; tries++) {
		area = mmap(NULL, 2 * HUGE_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (area == MAP_FAILED)
			return -ENOMEM;
		p = (uint8_t *)(((uintptr_t)area + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
		kept = false;
		ret = try_huge_page(t, p, tries, why, &kept);
		munmap(area, 2 * HUGE_SIZE);
		if (kept)
			break;
	}
	return ret;
}

/* What was seen becomes the answer's data. */
static int tell(struct trial *t)
{
	uint32_t len = t->nseen * sizeof(t->seen[0]);
	uint32_t at = atomic_fetch_add(&sh->data_used, len);

	if (at + len > MAX_DATA)
		return -ENOSPC;
	memcpy(sh->data + at, t->seen, len);
	t->call->result->data_off = at;
	t->call->result->data_len = len;
	return 0;
}

static int op_promise(const struct op_call *call)
{
	static int (*const tries[])(struct trial *t, uint8_t *p) = {
		[PROMISE_MIGRATES] = try_migrates,
		[PROMISE_COMES_HOME] = try_comes_home,
		[PROMISE_PREFETCHES] = try_prefetches,
		[PROMISE_EVICTS] = try_evicts,
		[PROMISE_POLICY] = try_policy,
		[PROMISE_STAYS] = try_stays,
		[PROMISE_ALONE] = try_alone,
		[PROMISE_USAGE] = try_usage,
		[PROMISE_NODE] = try_node,
	};
	const struct hb_op *op = call->op;
	struct trial t = { .call = call, .n = op->len / PAGE_SIZE };
	uint64_t free = 0, why = PROMISE_TRIED, coherent = 0;
	uint8_t *p;
	int ret;

	if (op->len % PAGE_SIZE || !op->len || op->len > MAX_PAGES * PAGE_SIZE ||
	    op->arg > PROMISE_NODE)
		return -EINVAL;
	ret = gpu_get(&t.dev, 0, &t.ctx);
	if (ret)
		return ret;
	hmmgpu_get_param(t.dev, HMM_GPU_PARAM_COHERENT, &coherent);
	call->result->aux1 = coherent;
	if (op->arg == PROMISE_HUGE) {
		ret = try_huge(&t, &why);
		call->result->aux0 = why;
		return ret ? ret : tell(&t);
	}
	ret = hmmgpu_get_param(t.dev, HMM_GPU_PARAM_VRAM_FREE, &free);
	if (ret)
		return ret;
	if (free < 2 * t.n + 8) {
		call->result->aux0 = PROMISE_NO_ROOM;
		return op->arg == PROMISE_POLICY ? hmmgpu_set_policy(t.dev, op->a) : 0;
	}
	if ((op->arg == PROMISE_ALONE && !count().known) ||
	    (op->arg == PROMISE_USAGE && used(&t) == NOT_SEEN)) {
		call->result->aux0 = PROMISE_NOT_COUNTED;
		return 0;
	}
	if (op->arg == PROMISE_NODE && node_count() < 2) {
		call->result->aux0 = PROMISE_ONE_NODE;
		return 0;
	}
	p = fresh(t.n);
	if (!p)
		return -ENOMEM;
	ret = tries[op->arg](&t, p);
	give_back(p, t.n);
	return ret ? ret : tell(&t);
}

/* ---- everything read again ---- */

/* So many equal words from a place on, counted in words from the start of what is read. */
struct run {
	uint32_t first;
	uint32_t count;
	uint64_t value;
};
#define READ_PAGES	1024	/* at most, in one operation */
#define READ_RUNS	0x10000
#define UNREADABLE	(1u << 31)	/* in count: the value is HB_AST_* of an access of the page */
#define WORDS		(PAGE_SIZE / 8)

static bool put(struct run *runs, uint32_t *n, uint32_t first, uint32_t count, uint64_t value)
{
	struct run *last = runs + *n - 1;

	if (*n && !((last->count | count) & UNREADABLE) && last->value == value &&
	    last->first + last->count == first) {
		last->count += count;
		return true;
	}
	if (*n == READ_RUNS)
		return false;
	runs[(*n)++] = (struct run){ first, count, value };
	return true;
}

static bool read_page(struct run *runs, uint32_t *n, const uint8_t *page, uint32_t first)
{
	const struct hb_access read = { .kind = HB_ACC_READ };
	uint64_t value;

	for (uint32_t w = 0; w < WORDS; w++) {
		uint32_t status = cpu_access(&read, (void *)(page + w * 8), &value);

		if (status != HB_AST_DONE)
			return put(runs, n, first, UNREADABLE | 1, status);
		if (value && !put(runs, n, first + w, 1, value))
			return false;
	}
	return true;
}

/*
 * All words of a range that are not 0.  @sparse: it is private memory with nothing
 * behind it, so what the kernel has nothing for is 0, and is not touched.
 */
static int op_read_back(const struct op_call *call)
{
	static _Thread_local uint64_t entry[READ_PAGES];
	const struct hb_op *op = call->op;
	uint32_t pages = op->len / PAGE_SIZE, n = 0, at, len;
	const uint8_t *addr = op_range(op);
	struct run *runs;
	bool room = true;

	if (!addr || !pages || pages > READ_PAGES || op->off % PAGE_SIZE || op->len % PAGE_SIZE)
		return -EINVAL;
	if (!op->arg || pagemap_read(addr, entry, pages))
		memset(entry, 0xff, sizeof(entry));
	runs = malloc(READ_RUNS * sizeof(*runs));
	if (!runs)
		return -ENOMEM;
	for (uint32_t i = 0; room && i < pages; i++)
		if (entry[i] & (PM_PRESENT | PM_SWAP))
			room = read_page(runs, &n, addr + i * PAGE_SIZE, i * WORDS);
	len = n * sizeof(*runs);
	at = room ? atomic_fetch_add(&sh->data_used, len) : MAX_DATA;
	room = at + len <= MAX_DATA;
	if (room) {
		memcpy(sh->data + at, runs, len);
		call->result->data_off = at;
		call->result->data_len = len;
		call->result->aux0 = pages;
	}
	free(runs);
	return room ? 0 : -ENOSPC;
}

static const struct op_kind promises[] = {
	/* arg = what, len = of how much fresh memory, a = the policy that holds after `policy` -> data: struct seen each look; aux0: why none; aux1 = 1: the CPU has VRAM where it is */
	{ 70, "promise", op_promise, OP_GPU, NULL },
	/* region off len; arg = 1: what is not there is 0 -> data: struct run each; aux0 = pages */
	{ 71, "read_back", op_read_back, 0, NULL },
};
OP_FAMILY(promises);
