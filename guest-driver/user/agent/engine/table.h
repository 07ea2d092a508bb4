/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HMMBENCH_TABLE_H
#define HMMBENCH_TABLE_H

#include "op.h"

/* What the families that are linked say of an operation; NULL: none of them has it. */
const struct op_kind *op_numbered(unsigned number);
const struct op_kind *op_named(const char *name);

#endif
