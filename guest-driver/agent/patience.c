// SPDX-License-Identifier: GPL-2.0-or-later
/* Standing still or only slow: see patience.h. */
#include <stdatomic.h>

#include "patience.h"
#include "program.h"

#define TEXT_SIZE	65536

/* FNV-1a; two states that look alike by chance only cost one more look. */
static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
	for (const uint8_t *p = data; size--; p++)
		hash = (hash ^ *p) * 0x100000001b3ull;
	return hash;
}

/*
 * Whatever a program moves: its operations, the counters of driver and device,
 * and the passages of delay points, for a driver that waits at one of them.
 */
static uint64_t look(void)
{
	static const char *const files[] = { "counters", "delays" };
	static char text[TEXT_SIZE];
	uint64_t hash = 0xcbf29ce484222325ull;

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		uint8_t state = atomic_load(&sh->state[i]);

		hash = mix(hash, &state, sizeof(state));
	}
	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		ssize_t n = debugfs_read(files[i], text, sizeof(text));

		if (n > 0)
			hash = mix(hash, text, n);
	}
	return hash;
}

void patience_begin(struct patience *p, uint32_t limit_ms)
{
	p->begun_ns = now_ns();
	p->limit_ns = limit_ms * 1000000ull;
	/* What ends by itself, as nearly everything does, is not looked at. */
	p->next_ns = p->begun_ns + p->limit_ns / 5 * 4;
	p->moved_ns = 0;
	p->seen = 0;
}

enum patience_verdict patience_look(struct patience *p)
{
	uint64_t now = now_ns(), seen;

	if (now < p->next_ns)
		return PATIENCE_WAIT;
	seen = look();
	if (!p->moved_ns || seen != p->seen) {
		p->seen = seen;
		p->moved_ns = now;
	}
	if (now >= p->begun_ns + p->limit_ns && now - p->moved_ns >= p->limit_ns / 5)
		return PATIENCE_STILL;
	if (now >= p->begun_ns + HB_BUSY_TIMES * p->limit_ns)
		return PATIENCE_BUSY;
	p->next_ns = now + p->limit_ns / 20;
	return PATIENCE_WAIT;
}
