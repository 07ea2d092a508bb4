// SPDX-License-Identifier: GPL-2.0-or-later
/* Standing still or only slow: see patience.h. */
#include <stdatomic.h>
#include <string.h>

#include "patience.h"
#include "state.h"

#define TEXT_SIZE	65536

/* FNV-1a; two states that look alike by chance only cost one more look. */
static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
	for (const uint8_t *p = data; size--; p++)
		hash = (hash ^ *p) * 0x100000001b3ull;
	return hash;
}

/*
 * Counters of driver and device that grow with work done.  Faults, replays and
 * invalidations are none, nor are waits at delay points: what is refused for
 * ever, or fails and is tried again, makes them too.
 */
static const char *const work[] = {
	"jobs_done", "unmaps", "pages_to_device", "pages_to_system", "pages_evicted",
	"dev_copy_bytes", "dev_read_vram", "dev_read_sys", "dev_write_vram", "dev_write_sys",
};

static bool is_work(const char *line)
{
	for (unsigned i = 0; i < sizeof(work) / sizeof(work[0]); i++) {
		size_t n = strlen(work[i]);

		if (!strncmp(line, work[i], n) && line[n] == ' ')
			return true;
	}
	return false;
}

/* Operations that began or ended, and work done. */
static uint64_t look(void)
{
	static char text[TEXT_SIZE];
	uint64_t hash = 0xcbf29ce484222325ull;
	char *rest, *line;

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		uint8_t state = atomic_load(&sh->state[i]);

		hash = mix(hash, &state, sizeof(state));
	}
	if (debugfs_read("counters", text, sizeof(text)) > 0)
		for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
			if (is_work(line))
				hash = mix(hash, line, strlen(line));
	return hash;
}

void patience_begin(struct patience *p, uint32_t limit_ms)
{
	p->begun_ns = now_ns();
	p->limit_ns = limit_ms * 1000000ull;
	/* What ends by itself, as nearly everything does, is not looked at. */
	p->next_ns = p->begun_ns + p->limit_ns / 5 * 3;
	p->worked_ns = 0;
	p->seen = 0;
}

enum patience_verdict patience_look(struct patience *p)
{
	uint64_t now = now_ns(), seen;

	if (now < p->next_ns)
		return PATIENCE_WAIT;
	seen = look();
	if (!p->worked_ns || seen != p->seen) {
		p->seen = seen;
		p->worked_ns = now;
	}
	if (now >= p->begun_ns + p->limit_ns && now - p->worked_ns >= p->limit_ns / 5 * 2)
		return PATIENCE_STILL;
	if (now >= p->begun_ns + HB_BUSY_TIMES * p->limit_ns)
		return PATIENCE_BUSY;
	p->next_ns = now + p->limit_ns / 20;
	return PATIENCE_WAIT;
}
