/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From a program's bytes to what its processes find in struct shared.  The supervisor's own. */
#ifndef HMMBENCH_PREPARE_H
#define HMMBENCH_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Once; ends the process if there is no memory. */
void prepare_init(void *stack_area);
/* Each returns false with a text in err (PROGRAM_ERROR bytes) if it cannot. */
bool program_prepare(const uint8_t *text, size_t len, char *err);
bool program_make_files(char *err);
/* What no file in memory needs: nothing of it is left to be written back. */
void program_empty_files(void);
void program_close_files(void);

#endif
