/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For the guest's test programs: a condition that does not hold is named, and ends the program. */
#ifndef HMMBENCH_TESTS_CHECK_H
#define HMMBENCH_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond) do {								\
	if (!(cond)) {									\
		fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #cond);		\
		exit(1);								\
	}										\
} while (0)

#endif
