/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Time, which is the host's.
 */
#include "device.h"
#include "base/time.h"

uint64_t hg_now(HgDev *d)
{
    return d->ops.now ? d->ops.now(d->host) : 0;
}
