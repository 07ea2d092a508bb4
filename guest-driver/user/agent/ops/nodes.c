// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory of several nodes, or of one: pages move between them, and blocks of it go. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "op.h"

#define MAX_MOVED	512	/* pages of one operation */
#define OF_OTHERS	4	/* MPOL_MF_MOVE_ALL */
#define OWN		2	/* MPOL_MF_MOVE */
#define PREFERRED	1	/* MPOL_PREFERRED */

#define BLOCKS		"/sys/devices/system/memory"
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define HUGE_PAGES	"/proc/sys/vm/nr_hugepages"
#define SCAN		"/sys/kernel/debug/sched/numa_balancing/"

/* So long the kernel may try to empty a block. */
#define OFFLINE_S	2

static bool read_word(const char *path, char *word, size_t size)
{
	FILE *f = fopen(path, "re");
	bool got = f && fgets(word, size, f);

	if (f)
		fclose(f);
	if (got)
		word[strcspn(word, "\n")] = 0;
	return got;
}

static int op_move_pages(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	char *addr = op_range(op);
	uint64_t n = op->len / PAGE_SIZE;
	void *page[MAX_MOVED];
	int node[MAX_MOVED], *status;
	unsigned have = node_count();
	long left;

	if (!addr || !n || n > MAX_MOVED)
		return -EINVAL;
	status = (int *)op_data(call, n * sizeof(*status));
	if (!status)
		return -ENOSPC;
	for (uint64_t i = 0; i < n; i++) {
		page[i] = addr + i * PAGE_SIZE;
		node[i] = op->arg % have;
		status[i] = -EAGAIN;
	}
	left = syscall(SYS_move_pages, 0, n, page, node, status, op->a ? OF_OTHERS : OWN);
	if (left < 0)
		return errno == ENOSYS ? -EOPNOTSUPP : -errno;
	call->result->data_len = n * sizeof(*status);
	call->result->aux0 = have;
	call->result->aux1 = left;
	return 0;
}

static int op_bind(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	void *addr = op_range(op);
	unsigned long mask = 1ul << op->arg % node_count();

	if (!addr)
		return -EINVAL;
	if (syscall(SYS_mbind, addr, op->len, PREFERRED, &mask, MAX_NODES + 1, OWN) == 0)
		return 0;
	return errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

/* As it was: see vm/kinds.py.  How it looks at memory is nothing while it is off. */
static void stop_balancing(void)
{
	write_text(BALANCING, "0");
}

/* Looks at all memory often, instead of once a minute. */
static int op_numa_balance(const struct op_call *call)
{
	int ret;

	if (!call->op->arg)
		ret = write_text(BALANCING, "0");
	else
		ret = write_text(BALANCING, "1");
	if (ret == -ENOENT)
		return -EOPNOTSUPP;
	if (call->op->arg) {
		write_text(SCAN "scan_delay_ms", "1");
		write_text(SCAN "scan_period_min_ms", "10");
	}
	return ret;
}

/* Pages of the hugetlb pool go with their block: there are as many again as at the start. */
static char pool[32];

static void look_at_pool(void) __attribute__((constructor));

static void look_at_pool(void)
{
	if (!read_word(HUGE_PAGES, pool, sizeof(pool)))
		pool[0] = 0;
}

static void fill_pool(void)
{
	if (pool[0])
		write_text(HUGE_PAGES, pool);
}

/* What takes a block out, and brings it back, is a process that an alarm may end. */
struct block {
	char state[128];
	int ret;
};

static int take_out(void *arg)
{
	struct block *b = arg;

	signal(SIGALRM, SIG_DFL);
	alarm(OFFLINE_S);
	b->ret = write_text(b->state, "offline");
	alarm(0);
	/* A third: online, where nothing that stays may lie. */
	if (!b->ret)
		b->ret = write_text(b->state, "online_movable");
	fill_pool();
	return 0;
}

/*
 * The first block after @skip others that is, as a whole, in @state: online, and may
 * go, or offline; false: there is none.
 */
static bool find_block(const char *state, unsigned skip, struct block *b)
{
	DIR *dir = opendir(BLOCKS);
	struct dirent *e;
	bool found = false;

	while (dir && !found && (e = readdir(dir))) {
		char path[512], word[64];

		if (strncmp(e->d_name, "memory", 6))
			continue;
		snprintf(path, sizeof(path), BLOCKS "/%s/valid_zones", e->d_name);
		/* of one that is offline: where it could go */
		if (!read_word(path, word, sizeof(word)) || strlen(e->d_name) > 32 ||
		    (!strcmp(state, "online") && strncmp(word, "Movable", 7)))
			continue;
		snprintf(b->state, sizeof(b->state), BLOCKS "/%.32s/state", e->d_name);
		if (!read_word(b->state, word, sizeof(word)) || strcmp(word, state))
			continue;
		found = !skip--;
	}
	if (dir)
		closedir(dir);
	return found;
}

static int op_offline(const struct op_call *call)
{
	static _Thread_local uint8_t stack[16384] __attribute__((aligned(16)));
	struct block b = { .ret = -EINTR };
	pid_t pid, got;

	if (!find_block("online", call->op->arg, &b) && !find_block("online", 0, &b))
		return -EOPNOTSUPP;
	/* In our memory, so that none of it is shared because of this. */
	pid = clone(take_out, stack + sizeof(stack), CLONE_VM | SIGCHLD, &b);
	if (pid < 0)
		return -errno;
	do
		got = waitpid(pid, NULL, 0);
	while (got < 0 && errno == EINTR);
	call->result->aux0 = -b.ret;
	return 0;
}

/* Who was to bring it back may have been ended before. */
static void bring_back(void)
{
	struct block b;

	while (find_block("offline", 0, &b) && !write_text(b.state, "online_movable"))
		;
	fill_pool();
}

static const struct op_kind node[] = {
	/*
	 * region off len; arg = node (of those there are); a = 1: pages of others, too -> data:
	 * int32 a page; aux0 = nodes, aux1 = pages that did not move
	 */
	{ 84, "move_pages", op_move_pages, 0, NULL },
	/* region off len; arg = node */
	{ 85, "bind", op_bind, 0, NULL },
	/* arg = 1: pages go to the node that uses them, 0: not any more */
	{ 86, "numa_balance", op_numa_balance, 0, stop_balancing },
	/* arg = which block of memory; it comes back at once.  aux0 = why it did not go, or 0 */
	{ 89, "offline", op_offline, 0, bring_back },
};
OP_FAMILY(node);
