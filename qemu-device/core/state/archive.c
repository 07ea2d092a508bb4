/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Archives: bytes in and out, and their sections.
 */
#include "device.h"
#include "state/archive.h"

#include <stdarg.h>
#include <stdio.h>

void hg_ar_fail(HgArchive *a, const char *fmt, ...)
{
    va_list ap;

    if (a->bad) {
        return;
    }
    a->bad = true;
    if (a->err && a->errlen) {
        va_start(ap, fmt);
        vsnprintf(a->err, a->errlen, fmt, ap);
        va_end(ap);
    }
}

/* Saving with len == 0 only counts. */
void hg_ar_io(HgArchive *a, void *p, size_t n)
{
    if (a->load) {
        if (a->bad || n > a->end - a->at) {
            hg_ar_fail(a, "device state is cut short at byte %zu", a->at);
            memset(p, 0, n);
            return;
        }
        memcpy(p, a->buf + a->at, n);
    } else if (a->len && n <= a->len && a->at <= a->len - n) {
        memcpy(a->buf + a->at, p, n);
    }
    a->at += n;
}

void hg_ar_bool(HgArchive *a, bool *b)
{
    uint8_t v = *b;

    IO(v);
    if (v > 1) {
        hg_ar_fail(a, "device state: bad flag at byte %zu", a->at);
        v = 0;
    }
    *b = v;
}

/* A tag for a message: what was read may be anything. */
static void printable(char *tag)
{
    for (unsigned i = 0; i < 4; i++) {
        tag[i] = tag[i] >= ' ' && tag[i] <= '~' ? tag[i] : '?';
    }
}

void hg_section(HgArchive *a, const char *tag)
{
    char found[5] = { 0 };
    uint32_t len = 0;

    memcpy(found, tag, 4);
    memcpy(a->tag, tag, 5);
    hg_ar_io(a, found, 4);
    IO(len);
    a->section = a->at;
    if (!a->load || a->bad) {
        return;
    }
    if (memcmp(found, tag, 4)) {
        printable(found);
        hg_ar_fail(a, "device state: section '%s' where this device has '%s'", found, tag);
    } else if (len > a->len - a->at) {
        hg_ar_fail(a, "device state is cut short in section '%s'", tag);
    } else {
        a->end = a->at + len;
    }
}

void hg_section_end(HgArchive *a)
{
    uint32_t len = a->at - a->section;

    if (a->load) {
        if (!a->bad && a->at != a->end) {
            hg_ar_fail(a, "device state: %zu bytes too many in section '%s'", a->end - a->at, a->tag);
        }
        a->end = a->len;
    } else if (a->len && a->at <= a->len) {
        memcpy(a->buf + a->section - sizeof(len), &len, sizeof(len));
    }
}
