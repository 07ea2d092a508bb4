/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The linked GPU kernels as bytes of the agent; the include path of the assembler leads to the file. */
	.section .rodata, "a"
	.balign 16
	.globl kernels_elf, kernels_elf_end
kernels_elf:
	.incbin "kernels.elf"
kernels_elf_end:
	.byte 0
	.section .note.GNU-stack, "", @progbits
