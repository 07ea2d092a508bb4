/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: which instructions talk to each other, for schedules that are aimed.
 *
 * The bench gives a table of the guest's instructions that access memory, with their
 * operands.  Before each of them runs its address is computed from the registers, and
 * for every 8 bytes of kernel memory the last writer and the last reader are kept.
 * Where another CPU, for another task, was there last, not long ago, and one of the
 * two writes, the two instructions are a pair; they are counted.  What lies farther
 * apart did not race, and the memory is another's by now, perhaps.  So is, with the
 * GPU, what touches its BARs, or RAM that it touched not long before: page tables,
 * rings, fences.
 *
 * A task is told by its stack: one that has moved to another CPU does not talk to
 * itself, and its stack is nobody else's.
 *
 * The table: entries of HmmExactAccess, little endian.  The result, as lines:
 *
 *   P PC PASSED GPU      an instruction, how often it was passed, and to the GPU
 *   C PC PC COUNT        a pair, the earlier one first
 *
 * Only time in which enough operations are under way counts (the caller's matter).
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "exec/memory.h"
#include "exec/address-spaces.h"
#include "qom/object.h"
#include "cpu.h"
#include "hmm-gpu.h"

/* Of Linux on x86-64, and aligned to it; some kernels for debugging have twice that. */
#define STACK 0x4000
#define NONE 255
/* Instructions of all CPUs. */
#define NEAR (1 << 17)

typedef struct {
    uint64_t pc;
    int32_t disp;
    uint8_t base, index, scale;     /* registers as the instruction set numbers them */
    uint8_t access;                 /* 1: reads, 2: writes */
} HmmExactAccess;

QEMU_BUILD_BUG_ON(sizeof(HmmExactAccess) != 16);

typedef struct {
    uint32_t place, cpu;            /* place: of the table, from 1; 0: nobody */
    uint64_t stack, when;
} Toucher;

typedef struct {
    Toucher reader, writer;
} Cell;

static struct {
    HmmExactAccess *table;          /* sorted by pc */
    unsigned n;
    GArray *addresses;
    uint64_t *passed, *gpu;
    GHashTable *cells;              /* by address / 8 */
    GHashTable *pages;              /* by address / 4096: where QEMU has it, or BAR */
    GHashTable *touched;            /* by the GPU; by QEMU's pointer / 8: when */
    GHashTable *pairs;              /* first << 32 | second: count */
} w;

const GArray *hmm_exact_watched(void)
{
    return w.addresses;
}

static int place_of(uint64_t pc)
{
    unsigned lo = 0, hi = w.n;

    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;

        if (w.table[mid].pc == pc) {
            return mid;
        } else if (w.table[mid].pc < pc) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return -1;
}

bool hmm_exact_watches(uint64_t pc)
{
    return place_of(pc) >= 0;
}

static void forget(void)
{
    g_clear_pointer(&w.table, g_free);
    g_clear_pointer(&w.passed, g_free);
    g_clear_pointer(&w.gpu, g_free);
    g_clear_pointer(&w.addresses, g_array_unref);
    g_clear_pointer(&w.cells, g_hash_table_unref);
    g_clear_pointer(&w.pages, g_hash_table_unref);
    g_clear_pointer(&w.touched, g_hash_table_unref);
    g_clear_pointer(&w.pairs, g_hash_table_unref);
    w.n = 0;
}

bool hmm_exact_watch_read(const char *path, Error **errp)
{
    g_autoptr(GError) error = NULL;
    gsize length = 0;
    char *data = NULL;

    forget();
    if (!*path) {
        return true;
    }
    if (!g_file_get_contents(path, &data, &length, &error)) {
        error_setg(errp, "watch: %s", error->message);
        return false;
    }
    w.table = (HmmExactAccess *)data;
    w.n = length / sizeof(*w.table);
    w.addresses = g_array_new(false, false, sizeof(uint64_t));
    for (unsigned i = 0; i < w.n; i++) {
        HmmExactAccess *a = &w.table[i];

        a->pc = le64_to_cpu(a->pc);
        a->disp = le32_to_cpu(a->disp);
        if ((i && a->pc <= w.table[i - 1].pc) || (a->base > 15 && a->base != NONE) ||
            (a->index > 15 && a->index != NONE) || !a->access || a->access > 3) {
            error_setg(errp, "watch: entry %u of %s is none, or not in order", i, path);
            forget();
            return false;
        }
        g_array_append_val(w.addresses, a->pc);
    }
    if (length % sizeof(*w.table)) {
        error_setg(errp, "watch: %s is cut short", path);
        forget();
        return false;
    }
    w.passed = g_new0(uint64_t, w.n);
    w.gpu = g_new0(uint64_t, w.n);
    w.cells = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    w.pages = g_hash_table_new(NULL, NULL);
    w.touched = g_hash_table_new(NULL, NULL);
    w.pairs = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    return true;
}

bool hmm_exact_watch_write(const char *path, Error **errp)
{
    GHashTableIter iter;
    gpointer key, value;
    FILE *file = fopen(path, "w");

    if (!file) {
        error_setg_errno(errp, errno, "cannot write %s", path);
        return false;
    }
    for (unsigned i = 0; i < w.n; i++) {
        if (w.passed[i]) {
            fprintf(file, "P %" PRIx64 " %" PRIu64 " %" PRIu64 "\n", w.table[i].pc,
                    w.passed[i], w.gpu[i]);
        }
    }
    if (w.pairs) {
        g_hash_table_iter_init(&iter, w.pairs);
        while (g_hash_table_iter_next(&iter, &key, &value)) {
            uint64_t pair = *(uint64_t *)key;

            fprintf(file, "C %" PRIx64 " %" PRIx64 " %" PRIu64 "\n",
                    w.table[pair >> 32].pc, w.table[(uint32_t)pair].pc,
                    *(uint64_t *)value);
        }
    }
    if (ferror(file) | fclose(file)) {
        error_setg(errp, "cannot write %s: no room?", path);
        return false;
    }
    return true;
}

void hmm_exact_watch_gpu(const void *ptr, uint32_t len, uint64_t when)
{
    for (uintptr_t at = (uintptr_t)ptr / 8; len && at <= ((uintptr_t)ptr + len - 1) / 8;
         at++) {
        g_hash_table_insert(w.touched, (gpointer)at, (gpointer)(uintptr_t)when);
    }
}

#ifdef TARGET_X86_64

/* No pointer of QEMU's: a page of the GPU's memory or registers. */
#define BAR 1

/* Where QEMU has a page of the kernel's; NULL: no RAM. */
static uintptr_t page_at(CPUState *cpu, uint64_t address)
{
    gpointer page = (gpointer)(uintptr_t)(address / TARGET_PAGE_SIZE), known;
    MemTxAttrs attrs;
    uintptr_t found = 0;
    hwaddr at;

    if (g_hash_table_lookup_extended(w.pages, page, NULL, &known)) {
        return (uintptr_t)known;
    }
    at = cpu_get_phys_page_attrs_debug(cpu, address & TARGET_PAGE_MASK, &attrs);
    if (at == -1) {
        return 0;                   /* the access faults, or its page is not there yet */
    }
    WITH_RCU_READ_LOCK_GUARD() {
        MemoryRegionSection s = memory_region_find(get_system_memory(), at, 1);

        if (s.mr) {
            Object *owner = memory_region_owner(s.mr);

            if (owner && object_dynamic_cast(owner, TYPE_HMM_GPU)) {
                found = BAR;
            } else if (memory_region_is_ram(s.mr)) {
                found = (uintptr_t)memory_region_get_ram_ptr(s.mr) +
                        s.offset_within_region;
            }
            memory_region_unref(s.mr);
        }
    }
    g_hash_table_insert(w.pages, page, (gpointer)found);
    return found;
}

static bool of_gpu(CPUState *cpu, uint64_t address, uint64_t when)
{
    uintptr_t page = page_at(cpu, address), before;

    if (page <= BAR) {
        return page == BAR;
    }
    page += address & ~TARGET_PAGE_MASK;
    before = (uintptr_t)g_hash_table_lookup(w.touched, (gpointer)(page / 8));
    return before && when - before < NEAR;
}

static bool other(const Toucher *before, const Toucher *now)
{
    return before->place && before->cpu != now->cpu &&
           before->stack != now->stack && now->when - before->when < NEAR;
}

static void meet(const Toucher *before, const Toucher *now)
{
    uint64_t pair = (uint64_t)(before->place - 1) << 32 | (now->place - 1), *count;

    count = g_hash_table_lookup(w.pairs, &pair);
    if (!count) {
        count = g_new0(uint64_t, 1);
        g_hash_table_insert(w.pairs, g_memdup2(&pair, sizeof(pair)), count);
    }
    ++*count;
}

void hmm_exact_watch_at(CPUState *cpu, uint64_t pc, uint64_t when)
{
    CPUX86State *env = cpu_env(cpu);
    int place = place_of(pc);
    HmmExactAccess *a;
    uint64_t address;
    gpointer key;
    Toucher now;
    Cell *cell;

    if (place < 0) {
        return;
    }
    a = &w.table[place];
    address = (int64_t)a->disp;
    if (a->base != NONE) {
        address += env->regs[a->base];
    }
    if (a->index != NONE) {
        address += env->regs[a->index] * a->scale;
    }
    now = (Toucher) {
        place + 1, cpu->cpu_index, env->regs[R_ESP] & ~(uint64_t)(STACK - 1), when,
    };
    w.passed[place]++;
    if (!(address >> 63) || (address & ~(uint64_t)(STACK - 1)) == now.stack) {
        return;
    }
    if (of_gpu(cpu, address, when)) {
        w.gpu[place]++;
    }
    key = (gpointer)(uintptr_t)(address / 8);
    cell = g_hash_table_lookup(w.cells, key);
    if (!cell) {
        cell = g_new0(Cell, 1);
        g_hash_table_insert(w.cells, key, cell);
    }
    if (other(&cell->writer, &now)) {
        meet(&cell->writer, &now);
    }
    if (a->access & 2) {
        if (other(&cell->reader, &now)) {
            meet(&cell->reader, &now);
        }
        cell->writer = now;
    }
    if (a->access & 1) {
        cell->reader = now;
    }
}

#else

void hmm_exact_watch_at(CPUState *cpu, uint64_t pc, uint64_t when)
{
}

#endif
