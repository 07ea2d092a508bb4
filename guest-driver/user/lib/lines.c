// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: from an instruction to its source line.
 *
 * Reads the line tables of DWARF 2 to 5 (the standards' section 6.2), as clang
 * and gcc write them with -g.  A table is a program for a small machine whose
 * rows are (address, file, line), ascending within a sequence; a row holds up
 * to the next one's address.  The program is run anew for each question: one is
 * asked after a job failed, and so nothing has to be kept or guarded.
 *
 * The bytes are somebody else's.  Every read is through a cursor that stays
 * inside its section and remembers that it was asked for more; every loop
 * consumes bytes or counts down from a number that it has checked.
 */
#include <errno.h>
#include <string.h>

#include "lines.h"

enum {
	LNS_COPY = 1, LNS_ADVANCE_PC, LNS_ADVANCE_LINE, LNS_SET_FILE, LNS_SET_COLUMN,
	LNS_NEGATE_STMT, LNS_SET_BASIC_BLOCK, LNS_CONST_ADD_PC, LNS_FIXED_ADVANCE_PC,
};
enum { LNE_END_SEQUENCE = 1, LNE_SET_ADDRESS };
enum { LNCT_PATH = 1, LNCT_DIRECTORY };
enum {
	FORM_BLOCK2 = 0x03, FORM_BLOCK4, FORM_DATA2, FORM_DATA4, FORM_DATA8, FORM_STRING,
	FORM_BLOCK, FORM_BLOCK1, FORM_DATA1, FORM_SDATA = 0x0d, FORM_STRP, FORM_UDATA,
	FORM_SEC_OFFSET = 0x17, FORM_DATA16 = 0x1e, FORM_LINE_STRP,
};

struct cursor {
	const uint8_t *p, *end;
	int bad;		/* asked for more than there is; all answers since are 0 */
};

static uint64_t left(const struct cursor *c)
{
	return (uint64_t)(c->end - c->p);
}

static void skip(struct cursor *c, uint64_t n)
{
	if (n > left(c)) {
		c->bad = 1;
		n = left(c);
	}
	c->p += n;
}

/* Little endian, 1 to 8 bytes. */
static uint64_t fixed(struct cursor *c, unsigned n)
{
	uint64_t v = 0;

	if (n > left(c)) {
		skip(c, n);
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)c->p[i] << 8 * i;
	c->p += n;
	return v;
}

/* LEB128; bits beyond 64 are dropped. */
static uint64_t leb(struct cursor *c, int is_signed)
{
	uint64_t v = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = (uint8_t)fixed(c, 1);
		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (is_signed && byte & 0x40 && shift < 64)
		v |= ~0ull << shift;
	return v;
}

static const char *string(struct cursor *c)
{
	const uint8_t *s = c->p, *nul = left(c) ? memchr(s, 0, left(c)) : NULL;

	if (!nul) {
		skip(c, left(c) + 1);
		return "";
	}
	c->p = nul + 1;
	return (const char *)s;
}

/* One table of the section, up to and without its program. */
struct unit {
	const struct line_tables *t;
	unsigned version, offset_size, address_size;
	uint64_t min_inst;
	int64_t line_base;
	uint64_t line_range;
	unsigned opcode_base;
	const uint8_t *lengths;		/* operands of opcode 1, 2, ... */
	struct cursor names;		/* at the folders */
	struct cursor program;
};

/* The next unit of the section; 0: no more, or the section cannot be followed. */
static int next_unit(struct cursor *section, struct unit *u)
{
	struct cursor c;
	uint64_t len;

	u->offset_size = 4;
	len = fixed(section, 4);
	if (len == 0xffffffff) {
		u->offset_size = 8;
		len = fixed(section, 8);
	}
	if (section->bad || len > left(section) || !len)
		return 0;
	c = (struct cursor){ section->p, section->p + len, 0 };
	section->p += len;

	u->version = (unsigned)fixed(&c, 2);
	u->address_size = 8;
	if (u->version >= 5) {
		u->address_size = (unsigned)fixed(&c, 1);
		skip(&c, 1);	/* segment selectors: there are none */
	}
	len = fixed(&c, u->offset_size);
	u->program = c;
	skip(&u->program, len);
	c.end = u->program.p;
	u->min_inst = fixed(&c, 1);
	if (u->version >= 4)
		skip(&c, 1);	/* operations an instruction: no VLIW here */
	skip(&c, 1);
	u->line_base = (int8_t)fixed(&c, 1);
	u->line_range = fixed(&c, 1);
	u->opcode_base = (unsigned)fixed(&c, 1);
	u->lengths = c.p;
	skip(&c, u->opcode_base ? u->opcode_base - 1 : 0);
	u->names = c;
	if (u->version < 2 || u->version > 5 || u->address_size != 8 || !u->line_range ||
	    !u->opcode_base || c.bad || u->program.bad)
		u->program.p = u->program.end;	/* not one of ours: no rows */
	return 1;
}

/* One value of a version 5 entry: a string or a number.  0: a form that has no place here. */
static int value(const struct unit *u, struct cursor *c, uint64_t form, const char **s,
		 uint64_t *n)
{
	struct cursor strings;

	*s = NULL;
	*n = 0;
	switch (form) {
	case FORM_STRING: *s = string(c); return 1;
	case FORM_LINE_STRP:
		*n = fixed(c, u->offset_size);
		if (*n >= u->t->str_len)
			return 1;
		strings = (struct cursor){ u->t->str + *n, u->t->str + u->t->str_len, 0 };
		*s = string(&strings);
		if (strings.bad)
			*s = NULL;
		return 1;
	case FORM_STRP: case FORM_SEC_OFFSET: skip(c, u->offset_size); return 1;
	case FORM_DATA1: *n = fixed(c, 1); return 1;
	case FORM_DATA2: *n = fixed(c, 2); return 1;
	case FORM_DATA4: *n = fixed(c, 4); return 1;
	case FORM_DATA8: *n = fixed(c, 8); return 1;
	case FORM_DATA16: skip(c, 16); return 1;
	case FORM_UDATA: *n = leb(c, 0); return 1;
	case FORM_SDATA: *n = leb(c, 1); return 1;
	case FORM_BLOCK: skip(c, leb(c, 0)); return 1;
	case FORM_BLOCK1: skip(c, fixed(c, 1)); return 1;
	case FORM_BLOCK2: skip(c, fixed(c, 2)); return 1;
	case FORM_BLOCK4: skip(c, fixed(c, 4)); return 1;
	default: return 0;
	}
}

/*
 * A list of version 5, of folders or files: name and folder number of entry
 * `want`.  Leaves the cursor after the list.  0: it cannot be read.
 */
static int list5(const struct unit *u, struct cursor *c, uint64_t want, const char **name,
		 uint64_t *dir)
{
	unsigned formats = (unsigned)fixed(c, 1);
	struct cursor format = *c;
	uint64_t count;

	for (unsigned i = 0; i < 2 * formats; i++)
		leb(c, 0);
	count = leb(c, 0);
	/* Each entry has a byte at least, else a count alone could keep us here for ever. */
	if (c->bad || (count && !formats))
		return 0;
	for (uint64_t i = 0; i < count && !c->bad; i++) {
		struct cursor f = format;

		for (unsigned k = 0; k < formats; k++) {
			uint64_t type = leb(&f, 0), form = leb(&f, 0), n;
			const char *s;

			if (!value(u, c, form, &s, &n))
				return 0;
			if (i == want && type == LNCT_PATH)
				*name = s;
			if (i == want && type == LNCT_DIRECTORY)
				*dir = n;
		}
	}
	return !c->bad;
}

/* The same before version 5: strings up to an empty one, numbered from 1. */
static const char *folder4(struct cursor *c, uint64_t want)
{
	const char *s, *found = NULL;

	for (uint64_t i = 1; *(s = string(c)); i++)
		if (i == want)
			found = s;
	return found;
}

static const char *file4(struct cursor *c, uint64_t want, uint64_t *dir)
{
	const char *s;

	for (uint64_t i = 1; *(s = string(c)); i++) {
		*dir = leb(c, 0);
		leb(c, 0);	/* time */
		leb(c, 0);	/* length */
		if (i == want)
			return s;
	}
	return NULL;
}

/* The name of file number `file`; 0: there is none. */
static int file_name(const struct unit *u, uint64_t file, struct line_at *at)
{
	struct cursor c = u->names, again = u->names;
	const char *name = NULL, *path = NULL;
	uint64_t dir = 0, unused = 0;

	if (u->version >= 5) {
		if (!list5(u, &c, UINT64_MAX, &name, &unused) || !list5(u, &c, file, &name, &dir))
			return 0;
		if (dir && !list5(u, &again, dir, &path, &unused))
			return 0;
	} else {
		folder4(&c, 0);
		name = file4(&c, file, &dir);
		if (dir)
			path = folder4(&again, dir);
	}
	if (!name || !*name || c.bad || again.bad)
		return 0;
	at->name = name;
	at->dir = *name == '/' || !path || !*path ? NULL : path;
	return 1;
}

struct row {
	uint64_t addr, file, line;
};

/*
 * Runs a unit's program until the row that holds addr.  1: found.
 *
 * A row of line 0 is an instruction of no one line; it counts as part of the
 * line before it, which is the best one can say of it.
 *
 * The sequence of a function that the linker threw away starts outside the
 * program, by convention at 0 or at the last address.
 */
static int find_row(const struct unit *u, uint64_t addr, uint64_t lo, uint64_t hi, struct row *out)
{
	const struct row start = { .file = 1, .line = 1 };
	struct row now = start, last = { 0 };	/* last.line 0: no row with a line yet */
	struct cursor c = u->program;
	uint64_t from = 0;			/* last row's address, with a line or not */
	int rows = 0, placed = 0;		/* rows of this sequence; it is in the program */

	while (left(&c) && !c.bad) {
		unsigned op = (unsigned)fixed(&c, 1);
		int emit = 0, ends = 0;

		if (op >= u->opcode_base) {
			now.addr += (op - u->opcode_base) / u->line_range * u->min_inst;
			now.line += (uint64_t)(u->line_base +
					       (int64_t)((op - u->opcode_base) % u->line_range));
			emit = 1;
		} else if (op == 0) {
			uint64_t len = leb(&c, 0);
			struct cursor ext = { c.p, c.p, 0 };

			skip(&c, len);
			ext.end = c.p;
			switch (fixed(&ext, 1)) {
			case LNE_END_SEQUENCE:
				emit = ends = 1;
				break;
			case LNE_SET_ADDRESS:
				now.addr = fixed(&ext, 8);
				placed = !ext.bad && now.addr && now.addr >= lo && now.addr < hi;
				break;
			default:
				break;
			}
		} else {
			switch (op) {
			case LNS_COPY: emit = 1; break;
			case LNS_ADVANCE_PC: now.addr += leb(&c, 0) * u->min_inst; break;
			case LNS_ADVANCE_LINE: now.line += leb(&c, 1); break;
			case LNS_SET_FILE: now.file = leb(&c, 0); break;
			case LNS_CONST_ADD_PC:
				now.addr += (255 - u->opcode_base) / u->line_range * u->min_inst;
				break;
			case LNS_FIXED_ADVANCE_PC: now.addr += fixed(&c, 2); break;
			default:	/* columns and the like */
				for (unsigned n = u->lengths[op - 1]; n; n--)
					leb(&c, 0);
			}
		}
		if (!emit)
			continue;
		if (rows && placed && from <= addr && addr < now.addr && last.line) {
			*out = last;
			return 1;
		}
		from = now.addr;
		rows++;
		if ((uint32_t)now.line)
			last = now;
		if (ends) {
			now = start;
			last = (struct row){ 0 };
			rows = placed = 0;
		}
	}
	return 0;
}

int line_find(const struct line_tables *t, uint64_t addr, uint64_t lo, uint64_t hi,
	      struct line_at *at)
{
	struct cursor section = { t->line, t->line_len ? t->line + t->line_len : t->line, 0 };
	struct unit u = { .t = t };
	struct row row;

	while (left(&section) && next_unit(&section, &u)) {
		if (!find_row(&u, addr, lo, hi, &row))
			continue;
		if (!file_name(&u, row.file, at))
			return -ENOENT;
		at->line = (uint32_t)row.line;
		return 0;
	}
	return -ENOENT;
}
