/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HMMBENCH_ACCESS_H
#define HMMBENCH_ACCESS_H

#include <stdbool.h>

#include "program.h"

void access_init(void);
/*
 * This thread is told of broken memory, and goes on: a SIGBUS that no access of its
 * own made is no bug then.
 */
extern _Thread_local bool access_told;
/* One CPU access; what it yields goes to *value; HB_AST_DONE, _SIGSEGV or _SIGBUS, or 0 for an unknown kind. */
uint32_t cpu_access(const struct hb_access *a, void *addr, uint64_t *value);

#endif
