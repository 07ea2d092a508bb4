// SPDX-License-Identifier: GPL-2.0-or-later
/* All operations: the tables of the families that are linked (OP_FAMILY of op.h). */
#include <string.h>

#include "table.h"

extern const struct op_family *const __start_hb_families[], *const __stop_hb_families[];

const struct op_kind *op_numbered(unsigned number)
{
	for (const struct op_family *const *f = __start_hb_families; f < __stop_hb_families; f++)
		for (unsigned i = 0; i < (*f)->count; i++)
			if ((*f)->kinds[i].number == number)
				return &(*f)->kinds[i];
	return NULL;
}

const struct op_kind *op_named(const char *name)
{
	for (const struct op_family *const *f = __start_hb_families; f < __stop_hb_families; f++)
		for (unsigned i = 0; i < (*f)->count; i++)
			if (!strcmp((*f)->kinds[i].name, name))
				return &(*f)->kinds[i];
	return NULL;
}
