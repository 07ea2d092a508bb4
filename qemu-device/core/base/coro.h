/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Coroutines: a function with a stack of its own that can stop in the middle and go
 * on later.  What deterministic stepping (step.c, life/stepping.c) runs engines in.
 *
 * No lock and no thread: who runs a coroutine waits until it yields or ends.
 * Different threads may run it one after the other; nothing that belongs to a thread
 * (a mutex, errno, a pointer to a thread's variable) may be held over a yield.
 * Vector and floating point control registers stay those of the running thread.
 */
#ifndef HG_CORO_H
#define HG_CORO_H

#include <stdbool.h>

typedef struct HgCoro HgCoro;

HgCoro *hg_coro_new(void (*fn)(void *arg), void *arg);  /* NULL: no memory */
/* Until it yields or its function returns; not after that. */
void hg_coro_run(HgCoro *c);
void hg_coro_yield(HgCoro *c);          /* in the coroutine */
bool hg_coro_begun(const HgCoro *c);
bool hg_coro_ended(const HgCoro *c);
void hg_coro_free(HgCoro *c);           /* ended, or never run; NULL is fine */

#endif /* HG_CORO_H */
