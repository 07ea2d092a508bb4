/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: a hash of each page of the machine's RAM, to a file.
 *
 * The file has, for each block that a snapshot holds: 64 bytes of its name, the
 * number of its pages (u64), and a u64 for each page, 0 for one of zeros.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "exec/ramlist.h"
#include "exec/cpu-common.h"
#include "hmm-exact.h"

#define HMM_EXACT_PAGE 4096

static uint64_t page_hash(const uint64_t *p)
{
    uint64_t h[4] = { 1, 2, 3, 4 };

    if (buffer_is_zero(p, HMM_EXACT_PAGE)) {
        return 0;
    }
    for (unsigned i = 0; i < HMM_EXACT_PAGE / 8; i += 4) {
        for (unsigned j = 0; j < 4; j++) {
            h[j] = (h[j] ^ p[i + j]) * 0x9e3779b97f4a7c15ull;
            h[j] ^= h[j] >> 32;
        }
    }
    for (unsigned j = 1; j < 4; j++) {
        h[0] = (h[0] ^ h[j]) * 0xbf58476d1ce4e5b9ull;
        h[0] ^= h[0] >> 32;
    }
    return h[0] ? h[0] : 1;
}

typedef struct {
    FILE *file;
    bool failed;
} Writing;

static int write_block(RAMBlock *block, void *opaque)
{
    Writing *w = opaque;
    const uint8_t *host = qemu_ram_get_host_addr(block);
    uint64_t pages = qemu_ram_get_used_length(block) / HMM_EXACT_PAGE;
    g_autofree uint64_t *hash = g_new(uint64_t, pages);
    char name[64] = "";

    if (!qemu_ram_is_migratable(block) || !host) {
        return 0;
    }
    pstrcpy(name, sizeof(name), qemu_ram_get_idstr(block));
    for (uint64_t i = 0; i < pages; i++) {
        hash[i] = page_hash((const uint64_t *)(host + i * HMM_EXACT_PAGE));
    }
    w->failed |= fwrite(name, sizeof(name), 1, w->file) != 1 ||
                 fwrite(&pages, sizeof(pages), 1, w->file) != 1 ||
                 fwrite(hash, sizeof(*hash), pages, w->file) != pages;
    return w->failed;
}

bool hmm_exact_memory_write(const char *path, Error **errp)
{
    Writing w = { .file = fopen(path, "w") };

    if (!w.file) {
        error_setg_errno(errp, errno, "cannot write %s", path);
        return false;
    }
    qemu_ram_foreach_block(write_block, &w);
    if (fclose(w.file) || w.failed) {
        error_setg(errp, "cannot write %s: no room?", path);
        return false;
    }
    return true;
}
