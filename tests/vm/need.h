/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For the guest's test programs: what one cannot do without. */
#ifndef HMMBENCH_TESTS_NEED_H
#define HMMBENCH_TESTS_NEED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An errno, with either sign, ends the program. */
static inline void need(int error, const char *what)
{
	if (error) {
		printf("%s: %s\n", what, strerror(abs(error)));
		exit(1);
	}
}

#endif
