/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An archive: one function a structure walks its fields in both directions.
 *
 * Sections have a tag of four letters and a length, and come in the order in which they are
 * written.  One that another device wrote, or left out, is refused by its name
 * (at the end of a state: as one that is cut short).
 */
#ifndef HG_ARCHIVE_H
#define HG_ARCHIVE_H

#include "types/common.h"

typedef struct HgArchive {
    uint8_t *buf;
    size_t len, at;
    size_t section, end;        /* where the section begins; loading: where it ends, or len */
    char tag[5];
    bool load, bad;
    char *err;
    size_t errlen;
} HgArchive;

void __attribute__((format(printf, 2, 3))) hg_ar_fail(HgArchive *a, const char *fmt, ...);
void hg_ar_io(HgArchive *a, void *p, size_t n);
void hg_ar_bool(HgArchive *a, bool *b);
void hg_section(HgArchive *a, const char *tag);
void hg_section_end(HgArchive *a);

#define IO(x) hg_ar_io(a, &(x), sizeof(x))
#define IOB(x) hg_ar_bool(a, &(x))
#define CHECK(cond, what)                                       \
    do {                                                        \
        if (a->load && !a->bad && !(cond)) {                    \
            hg_ar_fail(a, "device state: bad %s", what);        \
        }                                                       \
    } while (0)

#endif /* HG_ARCHIVE_H */
