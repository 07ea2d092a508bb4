/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Coroutines on ucontext: it makes the first entry, and sigsetjmp() without signal
 * mask all others, as swapcontext() would call the kernel each time.
 */

/* The checks of longjmp() take another stack for a mistake. */
#undef _FORTIFY_SOURCE
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/coro.h"

#if defined(__SANITIZE_ADDRESS__)
#define CORO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORO_ASAN 1
#endif
#endif

#ifdef CORO_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* Host callbacks run on it, too. */
#define CORO_STACK (512u << 10)

struct HgCoro {
    void (*fn)(void *arg);
    void *arg;
    bool begun, ended;
    uint8_t *map;               /* a guard page, then the stack */
    size_t guard;
    sigjmp_buf self, caller;    /* where each goes on */
    /* AddressSanitizer: what it keeps of a stack that is left, and the caller's bounds */
    void *self_fake, *caller_fake;
    const void *caller_bottom;
    size_t caller_size;
};

/* About to go to the coroutine's stack, to come back here. */
static void leave_caller(HgCoro *c)
{
#ifdef CORO_ASAN
    __sanitizer_start_switch_fiber(&c->caller_fake, c->map + c->guard, CORO_STACK);
#else
    (void)c;
#endif
}

static void back_at_caller(HgCoro *c)
{
#ifdef CORO_ASAN
    __sanitizer_finish_switch_fiber(c->caller_fake, NULL, NULL);
#else
    (void)c;
#endif
}

static void leave_coro(HgCoro *c)
{
#ifdef CORO_ASAN
    __sanitizer_start_switch_fiber(c->ended ? NULL : &c->self_fake, c->caller_bottom,
                                   c->caller_size);
#else
    (void)c;
#endif
}

/* Another thread may have called this time. */
static void back_in_coro(HgCoro *c)
{
#ifdef CORO_ASAN
    __sanitizer_finish_switch_fiber(c->self_fake, &c->caller_bottom, &c->caller_size);
#else
    (void)c;
#endif
}

/* makecontext() passes int arguments only. */
static void first_entry(unsigned high, unsigned low)
{
    HgCoro *c = (HgCoro *)(uintptr_t)((uint64_t)high << 32 | low);

    back_in_coro(c);
    c->fn(c->arg);
    c->ended = true;
    leave_coro(c);
    siglongjmp(c->caller, 1);
}

HgCoro *hg_coro_new(void (*fn)(void *arg), void *arg)
{
    HgCoro *c = calloc(1, sizeof(*c));
    long page = sysconf(_SC_PAGESIZE);

    if (!c || page <= 0) {
        free(c);
        return NULL;
    }
    c->fn = fn;
    c->arg = arg;
    c->guard = (size_t)page;
    c->map = mmap(NULL, c->guard + CORO_STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (c->map == MAP_FAILED) {
        free(c);
        return NULL;
    }
    if (mprotect(c->map, c->guard, PROT_NONE)) {
        munmap(c->map, c->guard + CORO_STACK);
        free(c);
        return NULL;
    }
    return c;
}

/*
 * The first time.  In a function of its own that comes back to where it left, like
 * hg_coro_run(), so that its variables are gone when it ends.
 */
static void enter(HgCoro *c)
{
    uint64_t p = (uintptr_t)c;
    ucontext_t to, from;

    if (getcontext(&to)) {
        abort();                /* cannot happen: it has nothing to refuse */
    }
    to.uc_stack.ss_sp = c->map + c->guard;
    to.uc_stack.ss_size = CORO_STACK;
    to.uc_link = NULL;
    makecontext(&to, (void (*)(void))first_entry, 2, (unsigned)(p >> 32), (unsigned)p);
    c->begun = true;
    if (!sigsetjmp(c->caller, 0)) {
        leave_caller(c);
        swapcontext(&from, &to);
    }
    back_at_caller(c);
}

void hg_coro_run(HgCoro *c)
{
    if (!c->begun) {
        enter(c);
        return;
    }
    if (!sigsetjmp(c->caller, 0)) {
        leave_caller(c);
        siglongjmp(c->self, 1);
    }
    back_at_caller(c);
}

void hg_coro_yield(HgCoro *c)
{
    if (!sigsetjmp(c->self, 0)) {
        leave_coro(c);
        siglongjmp(c->caller, 1);
    }
    back_in_coro(c);
}

bool hg_coro_begun(const HgCoro *c)
{
    return c->begun;
}

bool hg_coro_ended(const HgCoro *c)
{
    return c->ended;
}

void hg_coro_free(HgCoro *c)
{
    if (c) {
#ifdef CORO_ASAN
        /* its last function has not returned; the next mapping here is not to blame */
        __asan_unpoison_memory_region(c->map + c->guard, CORO_STACK);
#endif
        munmap(c->map, c->guard + CORO_STACK);
        free(c);
    }
}
