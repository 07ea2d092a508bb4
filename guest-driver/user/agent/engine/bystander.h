/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory that no program has: who writes there writes astray.
 *
 * The supervisor's own, which is its only user; processes of programs do not get it.
 * Some of it is new for each program, out of what was freed last: there a late copy,
 * or a translation that should be gone, leads.
 */
#ifndef HMMBENCH_BYSTANDER_H
#define HMMBENCH_BYSTANDER_H

#include <stdint.h>

/* Before a program's first process; memory that cannot be had is not watched. */
void bystander_begin(void);
/* When its last has gone: how many words are not what they were; those are right again. */
uint64_t bystander_check(void);

#endif
