// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PROGRAM; and EXAMPLE, a program with what is set before it and read after it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "engine.h"

void serve_program(const struct message *m)
{
	struct program_answer a;
	char err[PROGRAM_ERROR];

	if (!program_run(m->payload, m->header.len, false, &a, err)) {
		chan_reply_error(m, "PROGRAM: %s", err);
		return;
	}
	chan_reply(m, a.parts, PROGRAM_PARTS);
	program_done();
}

/* What the driver is told before the program runs; false: the request was refused. */
static bool surround(const struct message *m, const struct hb_example *e)
{
	char text[32];
	char *delays;
	int ret = 0;

	if (e->flags & HB_EF_DELAYS) {
		delays = strndup((char *)m->payload + sizeof(*e), e->delays_len);
		ret = delays ? debugfs_write("delays", delays) : -ENOMEM;
		free(delays);
		if (ret) {
			chan_reply_error(m, "EXAMPLE: delays: %s", strerror(-ret));
			return false;
		}
	}
	if (e->flags & HB_EF_VRAM) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)e->vram_limit);
		ret = debugfs_write("vram_limit", text);
		if (ret) {
			chan_reply_error(m, "EXAMPLE: vram_limit: %s", strerror(-ret));
			return false;
		}
	}
	if (e->flags & HB_EF_WATCH) {
		snprintf(text, sizeof(text), "%u", e->watch_ms);
		ret = write_text(DRIVER_WATCH, text);
		if (ret) {
			chan_reply_error(m, "EXAMPLE: watch_ms: %s", strerror(-ret));
			return false;
		}
	}
	return true;
}

void serve_example(const struct message *m)
{
	static char counters[COUNTERS_SIZE], points[COUNTERS_SIZE];
	struct iovec parts[1 + PROGRAM_PARTS + 2];
	struct hb_example_result r = { 0 };
	struct program_answer a;
	struct hb_example e;
	const uint8_t *program;
	char err[PROGRAM_ERROR];
	int ret;

	if (m->header.len < sizeof(e)) {
		chan_reply_error(m, "EXAMPLE: too short");
		return;
	}
	memcpy(&e, m->payload, sizeof(e));
	if (m->header.len != sizeof(e) + (uint64_t)e.delays_len + e.program_len) {
		chan_reply_error(m, "EXAMPLE: %u bytes for %u of delays and %u of program",
				 m->header.len, e.delays_len, e.program_len);
		return;
	}
	if (!surround(m, &e))
		return;
	program = m->payload + sizeof(e) + e.delays_len;
	if (!program_run(program, e.program_len, e.flags & HB_EF_STAND && chan_stands(), &a, err)) {
		chan_reply_error(m, "EXAMPLE: %s", err);
		return;
	}
	/* Both are empty without a driver. */
	debugfs_read("counters", counters, sizeof(counters));
	points[0] = 0;
	if (e.flags & HB_EF_POINTS)
		debugfs_read("delays", points, sizeof(points));
	/* After all that might print. */
	ret = klog_mark(&r.mark);
	if (ret) {
		chan_reply_error(m, "EXAMPLE: the kernel's log: %s", strerror(-ret));
		program_done();
		return;
	}
	parts[0] = (struct iovec){ &r, sizeof(r) };
	for (unsigned i = 0; i < PROGRAM_PARTS; i++) {
		parts[1 + i] = a.parts[i];
		r.program_len += a.parts[i].iov_len;
	}
	r.counters_len = strlen(counters);
	r.points_len = strlen(points);
	parts[1 + PROGRAM_PARTS] = (struct iovec){ counters, r.counters_len };
	parts[2 + PROGRAM_PARTS] = (struct iovec){ points, r.points_len };
	chan_reply(m, parts, ARRAY_SIZE(parts));
	program_done();
}
