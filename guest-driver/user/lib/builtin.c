// SPDX-License-Identifier: GPL-2.0-or-later
/* libhmmgpu: the GPU programs that come with it (builtin.S). */
#include "hmmgpu.h"

extern const uint8_t hmmgpu_builtin_elf[], hmmgpu_builtin_elf_end[];

int hmmgpu_kernel_load_builtin(struct hmmgpu_kernel **kernel)
{
	return hmmgpu_kernel_load(hmmgpu_builtin_elf,
				  hmmgpu_builtin_elf_end - hmmgpu_builtin_elf, kernel);
}
