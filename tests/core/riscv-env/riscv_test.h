/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The environment that riscv-tests wants, for one lane of the device: a user
 * program without traps, floating point always on.  The end writes a word at
 * RESULT (hmmbench.conformance): 1, or the number of the failed case * 2.
 */
#ifndef HMM_GPU_RISCV_TEST_H
#define HMM_GPU_RISCV_TEST_H

/* Some tests are longer than a branch reaches, and not every assembler mends that. */
#ifdef FAR
.macro bne a, b, to
	beq \a, \b, .Lnear\@
	j \to
.Lnear\@:
.endm
#endif

#define TESTNUM			gp

#define RVTEST_RV64U
#define RVTEST_RV64UF

#define RVTEST_CODE_BEGIN	.text; .globl _start; _start: li TESTNUM, 0;
#define RVTEST_CODE_END		.word 0

#define RVTEST_PASS		li TESTNUM, 1; HMM_END
#define RVTEST_FAIL		slli TESTNUM, TESTNUM, 1; HMM_END
#define HMM_END			li t6, RESULT; sd TESTNUM, 0(t6); .word 0x0b;

#define EXTRA_DATA
#define RVTEST_DATA_BEGIN	EXTRA_DATA .balign 16;
#define RVTEST_DATA_END		.balign 16;

#endif
