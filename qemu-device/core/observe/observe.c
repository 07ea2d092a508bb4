/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Observers, in the order in which they are asked.
 */
#include "device.h"
#include "observe/observe.h"
#include "observe/audit.h"
#include "observe/check.h"
#include "observe/check_tables.h"
#include "observe/inject.h"
#include "observe/violation.h"

static void observers_free(HgDev *d)
{
    pthread_mutex_destroy(&d->seen->inject.lock);
    pthread_mutex_destroy(&d->seen->report.lock);
    free(d->seen->audit.eng);
    free(d->seen);
    d->seen = NULL;
}

static const HgObserver last = { .free = observers_free };

bool hg_observe(HgDev *d)
{
    bool audit;

    d->seen = hg_alloc_lines(sizeof(*d->seen));
    if (!d->seen) {
        return false;
    }
    pthread_mutex_init(&d->seen->inject.lock, NULL);
    pthread_mutex_init(&d->seen->report.lock, NULL);
    hg_inject_observe(d);
    hg_violation_observe(d);
    hg_check_observe(d);
    hg_check_tables_observe(d);
    audit = hg_audit_observe(d);
    /* The end of what the others use, so behind them. */
    hg_hooks_add(d, &last);
    return audit;
}
