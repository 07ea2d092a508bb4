// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * HELLO: who speaks here, as a JSON object:
 *
 *	agent, protocol		"hmmbench", HB_PROTOCOL_VERSION
 *	sizes			{"op": 64, ...} of the structs of protocol.h
 *	kernel			uname -r
 *	page_size, cpus
 *	driver			true if the GPU can be opened
 *	driver_error		why not, as an errno name's text
 *	debugfs			the driver's directory, or ""
 *	watch			true if the driver can be told to look again for what was lost
 *	kmemleak		true if the kernel looks for memory that nobody knows
 *	sms, warps, lanes, vram_pages, vram_free, thread_slots, thp_migration
 *	stack_base, global_base, shared_base	where those lie in every process
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent.h"
#include "engine.h"
#include "hmmgpu.h"

/* The driver is asked in a child: it may hang, and an open GPU would mirror the agent. */
static void ask_driver(int out, void *arg)
{
	static const struct {
		uint32_t param;
		const char *name;
	} params[] = {
		{ HMM_GPU_PARAM_SMS, "sms" },
		{ HMM_GPU_PARAM_WARPS, "warps" },
		{ HMM_GPU_PARAM_LANES, "lanes" },
		{ HMM_GPU_PARAM_VRAM_PAGES, "vram_pages" },
		{ HMM_GPU_PARAM_VRAM_FREE, "vram_free" },
		{ HMM_GPU_PARAM_THREAD_SLOTS, "thread_slots" },
		{ HMM_GPU_PARAM_THP_MIGRATION, "thp_migration" },
		{ HMM_GPU_PARAM_COHERENT, "coherent" },
	};
	struct hmmgpu *gpu;
	int ret = hmmgpu_open(&gpu, NULL);

	(void)arg;
	if (ret) {
		dprintf(out, ",\"driver\":false,\"driver_error\":\"%s\"", strerror(-ret));
		return;
	}
	dprintf(out, ",\"driver\":true");
	for (unsigned i = 0; i < ARRAY_SIZE(params); i++) {
		uint64_t value;

		if (hmmgpu_get_param(gpu, params[i].param, &value) == 0)
			dprintf(out, ",\"%s\":%" PRIu64, params[i].name, value);
	}
	hmmgpu_close(gpu);
}

void serve_hello(const struct message *m)
{
	struct utsname un;
	char text[4096], gpu[1024];
	const char *dir = debugfs_dir();
	uint64_t stack_base, global_base;
	ssize_t n;

	n = run_in_child(ask_driver, NULL, 5000, gpu, sizeof(gpu));
	if (n < 0)
		snprintf(gpu, sizeof(gpu), ",\"driver\":false,\"driver_error\":\"opening it: %s\"",
			 strerror((int)-n));
	program_bases(&stack_base, &global_base);
	uname(&un);
	n = snprintf(text, sizeof(text),
		     "{\"agent\":\"hmmbench\",\"protocol\":%d,"
		     "\"sizes\":{\"header\":%zu,\"program\":%zu,\"op\":%zu,\"access\":%zu,"
		     "\"result\":%zu,\"op_result\":%zu,\"access_result\":%zu,"
		     "\"example\":%zu,\"example_result\":%zu},"
		     "\"kernel\":\"%s\",\"page_size\":%ld,\"cpus\":%ld,"
		     "\"stack_base\":%" PRIu64 ",\"global_base\":%" PRIu64 ",\"shared_base\":%" PRIu64
		     ",\"debugfs\":\"%s\",\"watch\":%s,\"kmemleak\":%s%s}",
		     HB_PROTOCOL_VERSION, sizeof(struct hb_header), sizeof(struct hb_program),
		     sizeof(struct hb_op), sizeof(struct hb_access), sizeof(struct hb_result),
		     sizeof(struct hb_op_result), sizeof(struct hb_access_result),
		     sizeof(struct hb_example), sizeof(struct hb_example_result), un.release,
		     sysconf(_SC_PAGESIZE), sysconf(_SC_NPROCESSORS_ONLN), stack_base, global_base,
		     (uint64_t)SHARED_BASE, dir ? dir : "",
		     access(DRIVER_WATCH, W_OK) ? "false" : "true",
		     access("/sys/kernel/debug/kmemleak", W_OK) ? "false" : "true", gpu);
	chan_reply(m, &(struct iovec){ text, n }, 1);
}
