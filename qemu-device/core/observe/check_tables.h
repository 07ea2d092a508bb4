/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_CHECK_TABLES_H
#define HG_CHECK_TABLES_H

#include "observe/observe.h"

void hg_check_tables_observe(HgDev *d);

#endif /* HG_CHECK_TABLES_H */
