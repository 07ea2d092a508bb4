// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frames in the memory of an hmm-mailbox (hmm_mailbox_hw.h).
 *
 * The machine stands while the host writes a request or reads an answer, so
 * here is no waiting: a write to the device's register, and when it is over the
 * next request is there or is not.  Nothing that happens in the guest depends on
 * when the host did it.
 *
 * The device is known by its folder in sysfs.  A test has a folder of its own
 * with files of the same names, and is told to take its turn by our stopping
 * ourselves.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "chan.h"
#include "hmm_mailbox_hw.h"
#include "state.h"

static struct {
	volatile uint32_t *regs;
	struct hm_head *head;
	struct hm_head *childrens;	/* the head once more, for what they tell */
	uint8_t *frame;		/* behind the head; holds the longest, mailbox_open() has seen to that */
	uint32_t taken;		/* number of the latest request that was taken */
	bool answered;		/* and not told yet */
	bool play;		/* no device is there */
} box;

/*
 * The machine stands behind the write, at the latest behind the return: a QEMU
 * that only ends this CPU's block of code lets it run to the next branch.  So
 * not inlined, lest what the host writes is read too early.
 */
static __attribute__((noinline)) void write_stand(uint32_t why)
{
	__asm__ volatile("" ::: "memory");
	box.regs[HM_REG_STAND / 4] = why;
	if (box.play)
		raise(SIGSTOP);
	__asm__ volatile("" ::: "memory");
}

static void mailbox_stand(uint32_t why)
{
	box.head->why = why;
	box.head->stands++;
	/* The last before it: what the host has for its own clock goes with this. */
	box.head->time = now_ns();
	write_stand(why);
}

static int mailbox_recv(struct message *m, uint8_t *to)
{
	for (;;) {
		const struct hm_head *head = box.head;

		if (head->request == box.taken) {
			mailbox_stand(box.answered ? HM_STAND_ANSWER : HM_STAND_READY);
			box.answered = false;
			continue;
		}
		box.taken = head->request;
		memcpy(&m->header, box.frame, sizeof(m->header));
		if (m->header.magic != HB_MAGIC ||
		    head->request_len != sizeof(m->header) + (uint64_t)m->header.len) {
			chan_reply_error(m, "request %u is no frame: %u bytes, magic 0x%x, payload of %u",
					 head->request, head->request_len, m->header.magic,
					 m->header.len);
			continue;
		}
		if (m->header.len > HB_MAX_PAYLOAD) {
			chan_refuse_length(m);
			continue;
		}
		memcpy(to, box.frame + sizeof(m->header), m->header.len);
		return 0;
	}
}

/* The host is told when the agent looks for its next request: when all is done. */
static void mailbox_send(const struct iovec *parts, int nparts)
{
	size_t at = 0;

	/* At most HB_MAX_PAYLOAD and a header, which has room. */
	for (int i = 0; i < nparts; i++) {
		if (parts[i].iov_len)
			memcpy(box.frame + at, parts[i].iov_base, parts[i].iov_len);
		at += parts[i].iov_len;
	}
	box.head->answer_len = at;
	box.head->answer = box.taken;
	box.answered = true;
}

static struct told *mailbox_told(void)
{
	_Static_assert(HM_PROCESSES == HB_MAX_PROCS, "a count for each process");
	return (struct told *)box.childrens->under_way;
}

static const struct carrier mailbox = {
	.recv = mailbox_recv,
	.send = mailbox_send,
	.stand = mailbox_stand,
	.told = mailbox_told,
};

/* fork: a way to tell children, which inherit it then. */
static void *map(const char *folder, const char *file, size_t size, bool fork)
{
	char path[512];
	void *p = MAP_FAILED;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (p == MAP_FAILED) {
		fprintf(stderr, "agent: %s: %s\n", path, strerror(errno));
		return NULL;
	}
	/* No business of children: they have no other way to make the machine stand. */
	if (!fork)
		madvise(p, size, MADV_DONTFORK);
	return p;
}

const struct carrier *mailbox_open(const char *path, bool *failed)
{
	const size_t least = HM_FRAME + sizeof(struct hb_header) + HB_MAX_PAYLOAD;
	struct stat st;
	char enable[512];
	uint32_t size;
	int ret = 0;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return NULL;
	*failed = true;
	box.play = strncmp(path, "/sys/", 5) != 0;
	/* Nobody else claims it, so nobody else has switched its memory on. */
	snprintf(enable, sizeof(enable), "%s/enable", path);
	if (!box.play)
		ret = write_text(enable, "1");
	if (ret) {
		fprintf(stderr, "agent: %s: %s\n", enable, strerror(-ret));
		return NULL;
	}
	box.regs = map(path, "resource0", HM_BAR0_SIZE, false);
	if (!box.regs)
		return NULL;
	if (box.regs[HM_REG_ID / 4] != HM_ID_MAGIC || box.regs[HM_REG_VERSION / 4] != HM_VERSION) {
		fprintf(stderr, "agent: %s: no mailbox of version %u\n", path, HM_VERSION);
		return NULL;
	}
	size = box.regs[HM_REG_SIZE / 4];
	if (size < least) {
		fprintf(stderr, "agent: %s: %u bytes are too few for a mailbox\n", path, size);
		return NULL;
	}
	box.head = map(path, "resource2", size, false);
	box.childrens = map(path, "resource2", sizeof(*box.childrens), true);
	if (!box.head || !box.childrens)
		return NULL;
	if (box.head->magic != HM_ID_MAGIC || box.head->version != HM_VERSION) {
		fprintf(stderr, "agent: %s: the host made no mailbox of version %u of it\n", path,
			HM_VERSION);
		return NULL;
	}
	box.frame = (uint8_t *)box.head + HM_FRAME;
	/* What was asked of an agent that died is not done by the next one. */
	box.taken = box.head->request;
	*failed = false;
	return &mailbox;
}
