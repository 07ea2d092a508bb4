/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the kernel says that it has, each time nobody has anything: how many pages are
 * in use, how many objects of each of its caches, and what else it counts.  What a
 * program leaves there is more each time it has run, whoever forgot it, and in whose
 * counters.
 *
 * One look by itself says little.  Caches of the kernel fill, and are emptied when it
 * likes; what comes back too late for one look is there at the next.  So there are
 * some looks, and many where one of the counts may be growing; what is told are the
 * counts of all of them, for the bench to judge (oracle/growth.py).
 *
 * The supervisor's own, between two runs of a program.
 */
#ifndef HMMBENCH_CENSUS_H
#define HMMBENCH_CENSUS_H

#include <stdbool.h>
#include <stddef.h>

#define CENSUS_LOOKS	16	/* at most */

void census_begin(void);
/* One look, when all processes have gone. */
void census_look(void);
unsigned census_looks(void);
/* Whether a count is by one a look, or more, from where it was. */
bool census_suspects(void);
/* A line for each such count, its name and what it was at each look, behind what is in @text. */
void census_tell(char *text, size_t size);

#endif
