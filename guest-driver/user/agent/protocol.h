/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Messages between the bench and the guest agent, over the virtio-serial port
 * "org.hmmbench.agent", or through the memory of an hmm-mailbox
 * (hmm_mailbox_hw.h).  Little endian; Python (hmmbench.vm.channel) reads
 * the "#define NAME number-expression" lines of this file and mirrors the
 * structs with a size check at HELLO.
 *
 * A message is a header and a payload.  The bench sends one request at a time;
 * the agent answers each with the same id.  Whatever is wrong with a request
 * is answered by HB_MSG_ERROR with a text.
 */
#ifndef HMMBENCH_PROTOCOL_H
#define HMMBENCH_PROTOCOL_H

#include <stdint.h>

#include "program.h"

#define HB_MAGIC		0x424d4d48	/* "HMMB" */
#define HB_MAX_PAYLOAD		0x2000000

struct hb_header {		/* 16 bytes */
	uint32_t magic;
	uint16_t type;
	uint16_t id;
	uint32_t len;		/* of the payload */
	uint32_t pad;
};

/* Requests, and their answers (type | HB_MSG_REPLY) */
#define HB_MSG_HELLO		1	/* - -> JSON text: protocol, sizes of the structs below, kernel release, page size, driver loaded, GPU parameters */
#define HB_MSG_PROGRAM		2	/* struct hb_program ... -> struct hb_result ... */
#define HB_MSG_EXEC		3	/* u32 timeout_ms, shell command -> s32 exit status (-n: ended by signal n, -110: time limit), output (stdout and stderr) */
#define HB_MSG_READ_FILE	4	/* path -> content */
#define HB_MSG_WRITE_FILE	5	/* u32 mode (octal bits; 0 = write into what exists), u32 path length, path, content -> - */
#define HB_MSG_START		6	/* as EXEC, but not waited for -> u32 pid (its process group) */
#define HB_MSG_KILL		7	/* u32 pid, u32 signal; to the whole group, reaps on SIGKILL -> - */
#define HB_MSG_BENCH		8	/* JSON text naming a measurement (agent/bench.c) -> JSON text */
#define HB_MSG_OPEN		9	/* as START; the program's standard input and output are for PIPE -> u32 pid (its process group) */
#define HB_MSG_PIPE		10	/* u32 pid of OPEN, u32 timeout_ms, bytes for its input -> what it then writes: u32 length (not passed on) and so many bytes. ERROR quotes its standard error if it has ended; after a time limit, or another request meanwhile, only KILL is of use */
#define HB_MSG_PRINTED		11	/* - -> u32 number of the mark that stands in the kernel's log behind all that it printed until now, 0 if it printed nothing since the last */
#define HB_MSG_EXAMPLE		12	/* struct hb_example, delays' text, a PROGRAM's payload -> struct hb_example_result ... */
#define HB_MSG_REPLY		0x100
#define HB_MSG_ERROR		0x1ff	/* text */

/* PRINTED: a mark is a line of the console, and ends with this and its number. */
#define HB_MARK			"hmmbench: mark "
#define HB_CONSOLE_LEVEL	4	/* messages of this level and below are shown (loglevel=) */

/*
 * EXAMPLE: a program and all that surrounds it, in one request, so that it is
 * all a chain of them depends on.  In this order: the delays, the limit and the
 * watch are set, the program runs, everything settles, the counters and then the points
 * are read, and the mark is put into the kernel's log.
 *
 * With HB_EF_STAND, over a channel for which the machine can stand, it stands
 * once within: when all operations have ended or the program's time is over,
 * and nobody has been let go or killed yet (HM_STAND_ENDED).  What processes
 * are left still have their memory and GPU contexts, and each of their threads
 * that did its part waits to be let go.
 */
struct hb_example {		/* 32 bytes; then delays, then the program */
	uint32_t flags;		/* HB_EF_* */
	uint32_t delays_len;
	uint32_t program_len;
	uint32_t watch_ms;	/* milliseconds */
	uint64_t vram_limit;	/* pages */
	uint64_t pad2;
};
#define HB_EF_DELAYS		1	/* write the delays' text into the driver's file `delays` */
#define HB_EF_VRAM		2	/* write vram_limit into the driver's file `vram_limit` */
#define HB_EF_POINTS		4	/* answer what the driver's file `delays` has afterwards */
#define HB_EF_STAND		8	/* stand when the operations have ended */
/* set watch_ms of the driver: how often it looks again for what was lost */
#define HB_EF_WATCH		16

struct hb_example_result {	/* 16 bytes; then PROGRAM's answer, counters, points */
	uint32_t program_len;
	uint32_t counters_len;	/* the driver's counters when all has settled, without driver 0 */
	uint32_t points_len;
	uint32_t mark;		/* as PRINTED's answer */
};

#endif
