/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupts.  d->lock.
 */
#ifndef HG_IRQ_H
#define HG_IRQ_H

#include "types/common.h"

void hg_raise(HgDev *d, unsigned vector);
void hg_raise_now(HgDev *d, unsigned vector);   /* what was injected has been */
void hg_irq_message(HgDev *d, unsigned vector); /* if it is enabled: without its status bit */

#endif /* HG_IRQ_H */
