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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "agent.h"
#include "engine.h"
#include "gpu_kernels.h"
#include "hmm_mailbox_hw.h"
#include "store.h"

static void ended(void)
{
	chan_stand(HM_STAND_ENDED);
}

static void in_child(void)
{
	chan_forget();
	set_expendable();
}

/* What the engine asks of us. */
static const struct engine_hooks hooks = { .ended = ended, .in_child = in_child };

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
	engine_init((void *)(((uintptr_t)stack_area + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1)), &hooks);
	klog_init();
	signal(SIGPIPE, SIG_IGN);
	/* A core file of a killed example would only cost time. */
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	protect_agent();
	if (!getenv("PATH"))
		setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin", 1);
	/* Not with the first program that asks for it: the guest's snapshots come before that. */
	if (getenv("HMMBENCH_FUSE"))
		fuse_root();
	if (gpu_kernels_load() || chan_init(argv[1]))
		return 3;
	engine_tell(chan_told());
	program_tell_none();
	while (chan_recv(&m) == 0) {
		reap_orphans();
		serve(&m);
	}
	return 0;
}
