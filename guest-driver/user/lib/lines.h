/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libhmmgpu, internal: source lines of a GPU program's instructions (lines.c). */
#ifndef HMMGPU_LINES_H
#define HMMGPU_LINES_H

#include <stddef.h>
#include <stdint.h>

/* Two sections of the program's file.  Nothing in them is trusted. */
struct line_tables {
	const uint8_t *line;		/* .debug_line */
	size_t line_len;
	const uint8_t *str;		/* .debug_line_str, may be missing */
	size_t str_len;
};

struct line_at {
	const char *dir;		/* NULL: the folder of the compilation, or name is absolute */
	const char *name;
	uint32_t line;			/* from 1 */
};

/*
 * line_find - the line of the instruction at addr
 * @addr: as linked
 * @lo, @hi: where the program's instructions are, as linked: [lo, hi)
 *
 * The strings in *at are those of the tables.  Returns 0, or -ENOENT if the
 * tables do not say.  Reads only: may run in several threads.
 */
int line_find(const struct line_tables *t, uint64_t addr, uint64_t lo, uint64_t hi,
	      struct line_at *at);

#endif
