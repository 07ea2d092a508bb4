/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest agent, inside.
 *
 *	main.c		start, request loop
 *	chan.c		the channel: requests and answers
 *	chan_stream.c	... over a virtio-serial port, a socket, standard input and output
 *	chan_mailbox.c	... through the memory of a device, while the machine stands
 *	exec.c		EXEC, START, KILL, READ_FILE, WRITE_FILE
 *	pipe.c		OPEN, PIPE
 *	klog.c		PRINTED
 *	hello.c		HELLO
 *	example.c	PROGRAM, EXAMPLE: a program, and what surrounds it
 *	child.c		functions run in a child with a time limit
 *	bench.c		measurements
 *
 * Programs are run by the engine (engine/), which knows nothing of all this;
 * what operations there are, is in ops/; what both stand on, in base/.
 *
 * The agent itself has one thread and serves one request at a time.  Whatever
 * may crash or hang runs in a child.
 */
#ifndef HMMBENCH_AGENT_H
#define HMMBENCH_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base.h"
#include "protocol.h"

struct told;

/* ---- chan.c ---- */

/*
 * A request.  The payload has a 0 byte after its end; it is valid until the next
 * chan_recv(), and not in children.
 */
struct message {
	struct hb_header header;
	uint8_t *payload;
};

/*
 * path: a character device; the folder of an hmm-mailbox in sysfs; "-": standard
 * input and output; else a Unix socket is made there and listened on.  -1 and a
 * message on stderr.
 */
int chan_init(const char *path);
/* The next request, waiting for the other side to connect if need be; -1 = the channel is over. */
int chan_recv(struct message *m);
/* Answers m; if the other side is gone the answer is dropped. */
void chan_reply(const struct message *m, const struct iovec *parts, int nparts);
void chan_reply_error(const struct message *m, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Whether chan_stand() does anything. */
bool chan_stands(void);
/* The machine stands, HM_STAND_* being why, until the host lets it go on. */
void chan_stand(uint32_t why);
/* What the host sees while a program runs, where the host sees it. */
struct told *chan_told(void);
/* For poll(), or -1: readable while a request is served if the other side did not wait for its answer. */
int chan_fd(void);
/* In a child: gives up its copy of the channel. */
void chan_forget(void);

/* ---- exec.c ---- */
void serve_exec(const struct message *m);
void serve_start(const struct message *m);
void serve_kill(const struct message *m);
void serve_read_file(const struct message *m);
void serve_write_file(const struct message *m);
/* Takes in ended children that nobody waits for. */
void reap_orphans(void);

/* A shell with message m's command (after 4 bytes), its streams these or nowhere; its pid, or -1. */
pid_t run_shell(const struct message *m, int in, int out, int err);
/* Lets KILL end that group; false if too many are running. */
bool note_started(pid_t pid);

/* ---- pipe.c ---- */
void serve_open(const struct message *m);
void serve_pipe(const struct message *m);
/* A child was reaped. */
void pipe_ended(pid_t pid, int status);
/* Gives up the pipes to a program; false if there are none. */
bool pipe_forget(pid_t pid);

/* ---- klog.c ---- */

/* From here on what the kernel prints is new.  HMMBENCH_KMSG names another file than /dev/kmsg. */
void klog_init(void);
/* PRINTED's answer; -errno if the log cannot be used. */
int klog_mark(uint32_t *mark);
void serve_printed(const struct message *m);

/* ---- hello.c, bench.c ---- */
void serve_hello(const struct message *m);
void serve_bench(const struct message *m);

/* ---- example.c ---- */
void serve_program(const struct message *m);
void serve_example(const struct message *m);

/* ---- child.c ---- */

/*
 * Runs fn in a child; what fn writes to its descriptor `out` (at most size - 1
 * bytes) goes to buf.  Returns the length; or -ETIMEDOUT, -ECHILD (it died) with
 * buf holding what there is.  The child and its group are gone afterwards
 * unless they cannot be killed.
 */
ssize_t run_in_child(void (*fn)(int out, void *arg), void *arg, unsigned timeout_ms,
		     char *buf, size_t size);
/* SIGKILL to the group of pid and reaping; false if something survives grace_ms. */
bool kill_group(pid_t pgid, unsigned grace_ms);

/* Keeps us when memory is short. */
void protect_agent(void);
/* Lets a child be the first to go then. */
void set_expendable(void);

#endif
