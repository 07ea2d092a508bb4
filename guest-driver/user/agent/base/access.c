// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * CPU accesses that survive SIGSEGV and SIGBUS.
 *
 * Each access is one instruction with an entry in a table: its address, and
 * where to go on if it faults.  The signal handler looks the faulting
 * instruction up, puts the signal's number into rcx and goes on there.  No
 * state is saved before an access, so an access costs what it costs, and
 * threads do not meet.  A fault anywhere else is a bug of ours, and kills
 * the process as usual.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "access.h"

/* Both are relative to where they stand, so that the program may lie anywhere. */
struct fixup {
	int32_t insn;
	int32_t to;
};
extern const struct fixup __start_hb_fixups[], __stop_hb_fixups[];

/* Operand %[sig] must be rcx and zero before. */
#define GUARDED(insn)					\
	"1:	" insn "\n"				\
	"2:\n"						\
	".pushsection hb_fixups, \"a\"\n"		\
	".balign 4\n"					\
	".long 1b - ., 2b - .\n"			\
	".popsection\n"

_Thread_local bool access_told;

static void on_fault(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	uint64_t rip = uc->uc_mcontext.gregs[REG_RIP];

	(void)si;
	for (const struct fixup *f = __start_hb_fixups; f < __stop_hb_fixups; f++) {
		if ((uintptr_t)&f->insn + f->insn == rip) {
			uc->uc_mcontext.gregs[REG_RCX] = sig;
			uc->uc_mcontext.gregs[REG_RIP] = (uintptr_t)&f->to + f->to;
			return;
		}
	}
	if (sig == SIGBUS && access_told)
		return;
	/* Not an access: run the instruction again with the default action. */
	signal(sig, SIG_DFL);
}

void access_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
}

uint32_t cpu_access(const struct hb_access *a, void *addr, uint64_t *out)
{
	uint64_t sig = 0, value = a->value, expect = a->expect;
	uint32_t value32 = (uint32_t)value;

	switch (a->kind) {
	case HB_ACC_READ:
		__asm__ volatile(GUARDED("movq (%[p]), %[v]")
				 : [v] "+r"(value), [sig] "+c"(sig) : [p] "r"(addr) : "memory");
		break;
	case HB_ACC_WRITE:
		__asm__ volatile(GUARDED("movq %[v], (%[p])")
				 : [sig] "+c"(sig) : [v] "r"(value), [p] "r"(addr) : "memory");
		value = 0;
		break;
	case HB_ACC_READ32:
		__asm__ volatile(GUARDED("movl (%[p]), %k[v]")
				 : [v] "+r"(value32), [sig] "+c"(sig) : [p] "r"(addr) : "memory");
		value = value32;
		break;
	case HB_ACC_WRITE32:
		__asm__ volatile(GUARDED("movl %k[v], (%[p])")
				 : [sig] "+c"(sig) : [v] "r"(value32), [p] "r"(addr) : "memory");
		value = 0;
		break;
	case HB_ACC_ADD:
		__asm__ volatile(GUARDED("lock xaddq %[v], (%[p])")
				 : [v] "+r"(value), [sig] "+c"(sig) : [p] "r"(addr) : "memory", "cc");
		break;
	case HB_ACC_XCHG:
		__asm__ volatile(GUARDED("xchgq %[v], (%[p])")
				 : [v] "+r"(value), [sig] "+c"(sig) : [p] "r"(addr) : "memory");
		break;
	case HB_ACC_CAS:
		__asm__ volatile(GUARDED("lock cmpxchgq %[v], (%[p])")
				 : "+a"(expect), [sig] "+c"(sig)
				 : [v] "r"(value), [p] "r"(addr) : "memory", "cc");
		value = expect;
		break;
	case HB_ACC_DELAY:
		while (value--)
			__asm__ volatile("" ::: "memory");
		value = 0;
		break;
	default:
		return HB_AST_NOT_DONE;
	}
	if (sig)
		return sig == SIGBUS ? HB_AST_SIGBUS : HB_AST_SIGSEGV;
	*out = value;
	return HB_AST_DONE;
}
