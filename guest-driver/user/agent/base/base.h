/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What everything here uses: time, texts into files, where the driver is in sysfs and debugfs. */
#ifndef HMMBENCH_BASE_H
#define HMMBENCH_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE_SIZE	4096ull
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* ---- base.c ---- */
uint64_t now_ns(void);
/* 0 or -errno. */
int write_text(const char *path, const char *text);
/* No page waits in a CPU's batch for its LRU list, or to be given up. */
void drain_lru(void);

/* A driver may have no such parameter: docs/driver.md. */
#define DRIVER_WATCH	"/sys/module/hmm_gpu/parameters/watch_ms"

/* Nodes of memory, from 0 on. */
#define MAX_NODES	8
unsigned node_count(void);

/* ---- debugfs.c ---- */

/* The driver's debugfs directory, or NULL while there is none. */
const char *debugfs_dir(void);
/* Whether it was there at any time since this agent began. */
bool debugfs_known(void);
#define COUNTERS_SIZE	65536	/* enough for any of the driver's texts */
/* A file in it, as text with a 0 byte; its length, or -errno. */
ssize_t debugfs_read(const char *file, char *buf, size_t size);
int debugfs_write(const char *file, const char *text);
/* True if a counter named live_* in this text is not 0. */
bool counters_live(const char *text);

#endif
