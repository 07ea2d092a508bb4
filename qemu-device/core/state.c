/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "hg_internal.h"

#include <stdio.h>

size_t hg_save_size(HgDev *d)
{
    (void)d;
    return 0;
}

size_t hg_save(HgDev *d, void *buf, size_t len)
{
    (void)d; (void)buf; (void)len;
    return 0;
}

int hg_load(HgDev *d, const void *buf, size_t len, char *err, size_t errlen)
{
    (void)buf; (void)len;
    hg_reset(d);
    snprintf(err, errlen, "not yet");
    return -1;
}
