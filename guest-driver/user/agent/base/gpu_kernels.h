/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HMMBENCH_GPU_KERNELS_H
#define HMMBENCH_GPU_KERNELS_H

#include <stdint.h>

/* Where the GPU kernels are in every process, as launch entries; 0 if loading failed. */
extern uint64_t kernel_accesses, kernel_spin, kernel_empty, kernel_touch, kernel_latency;
/* Once, before anything is forked; -errno and a message on stderr. */
int gpu_kernels_load(void);

#endif
