// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hmmbench guest agent.
 *
 *	agent CHANNEL
 *
 * CHANNEL: a virtio-serial port (/dev/vportNpM), the folder of an hmm-mailbox in
 * sysfs, "-" for standard input and output, or the path of a Unix socket to make.
 * Serves requests (protocol.h) until the channel is over, which in a virtual
 * machine is never.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "hmmgpu.h"
#include "program.h"

uint64_t kernel_accesses, kernel_spin, kernel_empty, kernel_touch, kernel_latency;
static bool protected_from_oom;

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

void set_expendable(void)
{
	if (protected_from_oom)
		write_text("/proc/self/oom_score_adj", "1000");
}

/*
 * Shared memory never migrates to the device.  So whatever a program does with
 * policies and eviction, and however wrong a driver is about migrated pages,
 * the code that tells us so is not affected; nor does it look like a leak after
 * the program, when only the agent maps it.
 */
static int make_shared(uintptr_t start, uintptr_t end)
{
	size_t len = end - start;
	void *copy = malloc(len);
	int ret = 0;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, (void *)start, len);
	if (mmap((void *)start, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) == MAP_FAILED)
		ret = -errno;
	else
		memcpy((void *)start, copy, len);
	if (!ret && mprotect((void *)start, len, PROT_READ))
		ret = -errno;
	free(copy);
	return ret;
}

/* Loaded once: every process of every program inherits the mapping. */
static int load_kernels(void)
{
	static const struct {
		const char *name;
		uint64_t *entry;
	} wanted[] = {
		{ "accesses", &kernel_accesses }, { "spin", &kernel_spin },
		{ "empty", &kernel_empty }, { "touch", &kernel_touch },
		{ "latency", &kernel_latency },
	};
	uint64_t start, end;
	struct hmmgpu_kernel *k;
	int ret = hmmgpu_kernel_load_builtin(&k);

	for (unsigned i = 0; i < ARRAY_SIZE(wanted) && !ret; i++)
		ret = hmmgpu_kernel_symbol(k, wanted[i].name, wanted[i].entry);
	if (!ret)
		ret = hmmgpu_kernel_text(k, &start, &end);
	if (!ret)
		ret = make_shared(start, end);
	if (ret)
		fprintf(stderr, "agent: GPU kernels: %s\n", strerror(-ret));
	return ret;
}

static void serve(const struct message *m)
{
	switch (m->header.type) {
	case HB_MSG_HELLO: serve_hello(m); break;
	case HB_MSG_PROGRAM: serve_program(m); break;
	case HB_MSG_EXEC: serve_exec(m); break;
	case HB_MSG_READ_FILE: serve_read_file(m); break;
	case HB_MSG_WRITE_FILE: serve_write_file(m); break;
	case HB_MSG_START: serve_start(m); break;
	case HB_MSG_KILL: serve_kill(m); break;
	case HB_MSG_OPEN: serve_open(m); break;
	case HB_MSG_PIPE: serve_pipe(m); break;
	case HB_MSG_PRINTED: serve_printed(m); break;
	case HB_MSG_BENCH: serve_bench(m); break;
	case HB_MSG_EXAMPLE: serve_example(m); break;
	default:
		chan_reply_error(m, "request type %u is unknown", m->header.type);
	}
}

int main(int argc, char **argv)
{
	/*
	 * The STACK region: part of the main thread's stack, at one address in
	 * all processes because all come from here by fork().  Nothing else uses it.
	 */
	uint8_t stack_area[(HB_STACK_PAGES + 1) * PAGE_SIZE];
	struct message m;

	if (argc != 2) {
		fprintf(stderr, "usage: agent CHANNEL\n"
			"CHANNEL: a virtio-serial port, a mailbox's folder in /sys, a Unix socket to make,"
			" or - (stdin and stdout)\n");
		return 2;
	}
	__asm__ volatile("" :: "r"(stack_area) : "memory");
	program_init((void *)(((uintptr_t)stack_area + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1)));
	access_init();
	klog_init();
	signal(SIGPIPE, SIG_IGN);
	/* A core file of a killed example would only cost time. */
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	protected_from_oom = write_text("/proc/self/oom_score_adj", "-1000") == 0;
	if (!getenv("PATH"))
		setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin", 1);
	if (load_kernels() || chan_init(argv[1]))
		return 3;
	program_tell_none();
	while (chan_recv(&m) == 0) {
		reap_orphans();
		serve(&m);
	}
	return 0;
}
