/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HG_RESET_H
#define HG_RESET_H

#include "device.h"

void hg_reset_locked(HgDev *d); /* all engines parked */

#endif /* HG_RESET_H */
