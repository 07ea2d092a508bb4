/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine: runs programs of operations (program.h) in processes of their own.
 * The agent is a channel around it, an exported reproducer a table.
 *
 *	table.c		which operations there are: the tables of ../ops/
 *	prepare.c	checks a program, makes its tables and files
 *	program.c	the supervisor: makes processes, buries them, answers
 *	proc.c		a process: its actors, phases, one operation after the other
 *	patience.c	standing still, or only slow
 *	bystander.c	memory that no program has
 *	remains.c	memory of processes that are gone
 *	census.c	what a program leaves in the kernel's counts
 *
 * Whoever uses it has one thread and runs one program at a time.
 */
#ifndef HMMBENCH_ENGINE_H
#define HMMBENCH_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "program.h"
#include "state.h"

/* What the engine asks of its user. */
struct engine_hooks {
	/* All operations have ended and nobody has gone; with `hold` alone. */
	void (*ended)(void);
	/* First in each process of a program, but for those that are forked by one. */
	void (*in_child)(void);
};

/* stack_area: HB_STACK_PAGES pages inside main()'s frame.  Ends the process if it cannot. */
void engine_init(void *stack_area, const struct engine_hooks *hooks);
/* Where to tell what is under way, instead of nowhere. */
void engine_tell(struct told *to);

#define PROGRAM_PARTS	6
/* What became of a program; what the parts point to is valid until the next program_run(). */
struct program_answer {
	struct hb_result result;
	struct iovec parts[PROGRAM_PARTS];
};

#define PROGRAM_ERROR	256
/*
 * Runs a program, the bytes of program.h; false and a text in err (PROGRAM_ERROR
 * bytes) if it cannot.  hold: hooks->ended() before its processes are let go.
 * program_done() gives memory back when the answer is used.
 */
bool program_run(const uint8_t *text, size_t len, bool hold, struct program_answer *a, char *err);
void program_done(void);
/* What surrounds a program is no phase of it, nor of the one before. */
void program_tell_none(void);
/* Where the STACK and GLOBAL regions are in every process. */
void program_bases(uint64_t *stack, uint64_t *global);

#endif
