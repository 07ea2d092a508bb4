/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_AUDIT_H
#define HG_AUDIT_H

#include "observe/observe.h"

bool hg_audit_observe(HgDev *d);     /* false: no memory */

#endif /* HG_AUDIT_H */
