/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the files of a program are: in memory (tmpfs), on a disk (ext4), or at a
 * server of our own (FUSE).  None has a name that others find; who closes the last
 * descriptor, and has nothing mapped, ends it.
 */
#ifndef HMMBENCH_STORE_H
#define HMMBENCH_STORE_H

#include <stdint.h>

enum { STORE_TMPFS, STORE_EXT4, STORE_FUSE, STORES };

/* An empty file of this size; number: below HB_MAX_FILES, each once a program.  Or -errno. */
int store_open(unsigned store, unsigned number, uint64_t size);

/* ---- fuse.c ---- */

/*
 * The file system whose server we are, as a descriptor of its root; or -errno.  The
 * server is a process of its own, made when first asked for; it ends with this one.
 */
int fuse_root(void);

#endif
