/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The GPU kernels of guest-driver/user/kernels/, linked, as bytes of the library; see builtin.c. */
	.section .rodata, "a"
	.balign 16
	.globl hmmgpu_builtin_elf, hmmgpu_builtin_elf_end
	.hidden hmmgpu_builtin_elf, hmmgpu_builtin_elf_end
hmmgpu_builtin_elf:
	.incbin "kernels.elf"
hmmgpu_builtin_elf_end:
	.byte 0
	.section .note.GNU-stack, "", @progbits
