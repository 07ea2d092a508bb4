/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HMMBENCH_PROC_H
#define HMMBENCH_PROC_H

/* How many threads process `number` has. */
unsigned process_threads(unsigned number);
/* The life of process `number`; called on the main thread of a fresh or forked child. */
void process_run(unsigned number) __attribute__((noreturn));
/* Moves `first` over what is DONE and wakes who waits for it.  Idempotent: may be called by anyone at any time. */
void advance(void);

#endif
