// SPDX-License-Identifier: GPL-2.0-or-later
/* GPU kernels of print_test.c. */
#include "hmm_gpu_kernel.h"

struct args {
	uint64_t n;
	char *text;
	uint64_t *flag;
};

/* One thread, all cases in order. */
HMM_KERNEL(cases, struct args)
{
	(void)args;
#define CASE(...) hmm_printf(__VA_ARGS__);
#include "print_cases.h"
#undef CASE
}

/* Every thread, diverged, n lines each of different lengths. */
HMM_KERNEL(threads, struct args)
{
	for (uint64_t i = 0; i < args->n; i++) {
		if (hmm_tid() % 3 == 0)
			hmm_printf("b%u t%u %lu\n", hmm_bid(), hmm_tid(), i);
		else
			hmm_printf("b%u t%u %lu%.*s\n", hmm_bid(), hmm_tid(), i,
				   (int)(hmm_tid() % 40), "                                        ");
	}
}

/* A line of thread 0, a barrier, one of each other: what is caused comes after its cause. */
HMM_KERNEL(ordered, struct args)
{
	for (uint64_t i = 0; i < args->n; i++) {
		if (hmm_tid() == 0)
			hmm_printf("round %lu\n", i);
		hmm_barrier();
		if (hmm_tid())
			hmm_printf("in %lu\n", i);
		hmm_barrier();
	}
}

/* Prints n numbers; then says so in memory, where the CPU may look without waiting. */
HMM_KERNEL(numbers, struct args)
{
	for (uint64_t i = hmm_thread(); i < args->n; i += hmm_threads())
		hmm_printf("%lu\n", i);
	hmm_fence();
	__atomic_fetch_add(args->flag, 1, __ATOMIC_SEQ_CST);
}

/* Until it is ended. */
HMM_KERNEL(forever, struct args)
{
	for (uint64_t i = 0;; i++) {
		hmm_printf("%lu\n", i);
		__atomic_store_n(args->flag, i, __ATOMIC_RELAXED);
	}
}

/* Strings of the program's memory, whatever they are. */
HMM_KERNEL(text, struct args)
{
	hmm_printf("[%s]", args->text);
	hmm_printf("[%.*s]", (int)args->n, args->text);
}

/* All threads print, then one reads a string where none is. */
HMM_KERNEL(dies, struct args)
{
	hmm_printf("before %u\n", hmm_thread());
	hmm_barrier();
	if (hmm_thread() == args->n)
		hmm_printf("never %s\n", (const char *)0x10);
	hmm_barrier();
	hmm_printf("after\n");
}

/* What a thread leaves that is ended between reserving and publishing. */
HMM_KERNEL(unfinished, struct args)
{
	struct hmm_print *p = (struct hmm_print *)hmm_print_slot;

	hmm_printf("whole %u\n", hmm_thread());
	__atomic_fetch_add(&p->head, args->n, __ATOMIC_RELAXED);
	hmm_printf("whole too %u\n", hmm_thread());
	*(volatile int *)0x10 = 1;
}

/* Until it is ended, between reserving and publishing. */
HMM_KERNEL(stuck, struct args)
{
	struct hmm_print *p = (struct hmm_print *)hmm_print_slot;

	__atomic_fetch_add(&p->head, args->n, __ATOMIC_RELAXED);
	__atomic_store_n(args->flag, 1, __ATOMIC_RELEASE);
	for (;;)
		__atomic_load_n(args->flag, __ATOMIC_RELAXED);
}

/* Formats that are none. */
HMM_KERNEL(odd, struct args)
{
	char local[8] = "%d %d\n";
	const char *unknown = "%d %y %d|";
	int (*print)(const char *, ...) = hmm_printf;

	(void)args;
	print(local, 1, 2);
	print(unknown, 1, 2, 3);
	print("%d %ls %d|", 1, (void *)0, 3);
	print("%d %Lf|", 1, 2);
	print("%d %1$d|", 1, 2);
	print("%d %", 1);
	print("");
	print("%s|%.9s|", (char *)0, (char *)0);
}
