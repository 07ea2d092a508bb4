/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The mirror audit: after an access, does the translation it used agree with
 * the CPU's page table?
 *
 * The contract of Linux HMM: whoever takes something away from a CPU page-table
 * entry first calls the driver's MMU notifier, and that does not return before
 * this device has completed an invalidation of the address.
 *
 * Why a violation is never a false alarm.  An engine notes a translation when
 * it uses it, and looks at the CPU's entry before its next safe point.  So an
 * invalidation that was posted in between cannot be complete yet, the notifier
 * that waits for it has not returned, and the kernel has not yet changed the
 * entry.  An invalidation completed earlier removed the translation from the
 * TLBs, and the GPU entry it came from before that.  The tables on the way are
 * as stable as the entry: the kernel frees a table only when nothing is mapped
 * in it, and what was mapped there was announced.  So neither a slow engine
 * nor a slow guest makes an alarm.
 *
 * What the kernel changes WITHOUT a notifier, and why that is harmless:
 *  - accessed, dirty, soft-dirty, global bits, protection keys: not compared;
 *  - read-only becomes writable (write fault on a page that need not be
 *    copied; a device-private entry becomes a writable one): the GPU's entry
 *    has fewer rights than it might, which is no violation;
 *  - migration entry becomes the entry of the destination: the GPU can hold
 *    nothing then, because the entry appeared by an announced change - except
 *    an entry for the destination in VRAM, made by a driver that maps before
 *    migrate_vma_finalize(); hence the rule for migration entries;
 *  - NUMA hint faults make PROTNONE present again: hmm_range_fault() does not
 *    map PROTNONE, and setting it was announced;
 *  - MADV_COLD and MADV_PAGEOUT make an entry old by clearing it and writing
 *    it again, under the page-table lock but unannounced.  A huge entry is
 *    meanwhile "PSE without PRESENT" with its frame inverted, and is accepted
 *    as what it was.  A small one is 0 meanwhile.  So an entry that is empty
 *    is read again until it is not, for at most audit_wait_ns of virtual
 *    time; the engine has still not passed its safe point, so all of the above
 *    holds meanwhile.  In deterministic mode the engine stands while it waits, and
 *    CPUs run.  A host that may hold one of them up then counts the time in which
 *    it held none (fair_now()).  If the wait must be broken off (the host wants
 *    the engines parked, and its thread may be the one that lets CPUs run), there
 *    is no verdict: that is counted as undecided.
 * Where an IOMMU translates, the bus address of the GPU's entry is looked up as the device's
 * own accesses are, and what it leads to is compared.  A driver takes a page's mapping in the
 * IOMMU away when the device has completed the invalidation, so one that is in use leads
 * somewhere, and to the frame that it was made for.
 *
 * A page table may go away as a whole only after MMU_NOTIFY_RELEASE, which the
 * driver answers by taking the CPU root out of the device and invalidating.
 *
 * Locking.  cpu_root[], enc and the mode are atomics, written by registers or
 * the host, read by engines; enc changes only while enc_ready is 0 and is
 * published by storing 1 with release order.  An engine's notes and fill times
 * belong to the slice owner.  The violation ring, the record of invalidations
 * and their counters belong to report.lock, a leaf lock.
 */
#include "device.h"
#include "observe/audit.h"
#include "base/lock.h"
#include "base/pause.h"
#include "base/slice.h"
#include "base/step.h"
#include "base/time.h"
#include "base/trace.h"
#include "mem/mem.h"
#include "state/archive.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* -- the kernel's encodings -- */

static uint64_t enc(HgDev *d, unsigned n)
{
    return atomic_load_explicit(&d->seen->audit.enc[n], memory_order_relaxed);
}

static bool enc_ready(HgDev *d)
{
    return atomic_load_explicit(&d->seen->audit.enc_ready, memory_order_acquire);
}

static uint64_t ones(unsigned n)
{
    return n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1;
}

/* What the CPU's entry says of an address. */
typedef enum { CPU_NONE, CPU_PRESENT, CPU_PROTNONE, CPU_DEVICE, CPU_EXCLUSIVE, CPU_MIGRATION,
               CPU_OTHER } CpuKind;

typedef struct Cpu {
    CpuKind kind;
    bool write;
    uint64_t pfn;               /* of the 4 KiB page */
    uint64_t entry;
    uint8_t level;              /* 0: PTE */
} Cpu;

/* Decode a leaf; `sub` is the page in it. */
static void decode(HgDev *d, uint64_t v, unsigned level, uint64_t sub, Cpu *c)
{
    uint64_t present = enc(d, HG_ENC_PRESENT), pse = enc(d, HG_ENC_PSE);

    c->entry = v;
    c->level = level;
    c->write = false;
    c->pfn = 0;
    if (!(v & ~enc(d, HG_ENC_NONE_IGNORE))) {
        c->kind = CPU_NONE;
        return;
    }
    if (v & (present | enc(d, HG_ENC_PROTNONE)) || (level && v & pse)) {
        /* x86 stores the frame of what the CPU must not use inverted (L1TF) */
        uint64_t f = v & present || !(enc(d, HG_ENC_FLAGS) & HG_ENC_INVERT) ? v : ~v;
        c->pfn = ((f & enc(d, HG_ENC_PFN)) >> HG_PAGE_SHIFT);
        if (level) {            /* bit 12 of a large leaf is PAT */
            c->pfn &= ~ones(9 * level);
        }
        c->pfn += sub;
        c->write = v & enc(d, HG_ENC_WRITE);
        c->kind = v & present ? CPU_PRESENT
                : v & enc(d, HG_ENC_PROTNONE) ? CPU_PROTNONE
                : CPU_PRESENT;  /* pmdp_invalidate(): still that page */
        return;
    }
    uint64_t layout = enc(d, HG_ENC_SWAP), types = enc(d, HG_ENC_TYPES);
    unsigned type = (v >> (layout & 63)) & ones(layout >> 8 & 0xff);
    uint64_t off = enc(d, HG_ENC_FLAGS) & HG_ENC_INVERT ? ~v : v;
    off = (off >> (layout >> 16 & 63)) & ones(layout >> 24 & 0xff);
    c->pfn = (off & enc(d, HG_ENC_SWAP_PFN)) + sub;
    c->kind = CPU_OTHER;
    for (unsigned i = 0; i < HG_ENC_NUM_TYPES; i++) {
        unsigned t = types >> (8 * i) & 0xff;
        if (t == 0xff || t != type) {
            continue;
        }
        c->kind = i <= HG_ENC_T_DEV_WRITE ? CPU_DEVICE
                : i <= HG_ENC_T_EXCL_B ? CPU_EXCLUSIVE : CPU_MIGRATION;
        c->write = i == HG_ENC_T_DEV_WRITE || c->kind == CPU_EXCLUSIVE;
        return;
    }
}

/* By physical address.  Not by the bus functions: those count, and may be told to fail. */
static bool cpu_read(HgDev *d, uint64_t addr, uint64_t *v)
{
    const HgRam *r;

    if (!d->bus_master) {
        return false;
    }
    r = hg_ram_find(d, addr, 8);
    if (r) {
        *v = __atomic_load_n((hg_u64a *)(r->ptr + (addr - r->base)), __ATOMIC_ACQUIRE);
        return true;
    }
    if (d->ops.look) {
        return d->ops.look(d->host, addr, v) == 0;
    }
    return !d->seen->audit.full && d->ops.read && d->ops.read(d->host, addr, v, 8) == 0;
}

/* What a bus address leads to, as HgHostOps.frame(); itself where there is no more to it. */
static int bus_frame(HgDev *d, uint64_t addr, uint64_t *phys)
{
    *phys = addr;
    if (!d->ops.frame || hg_ram_find(d, addr, 1)) {
        return 0;
    }
    return d->ops.frame(d->host, addr, phys);
}

static bool of_system(uint64_t pte)
{
    return (pte & HG_PTE_APER_MASK) == HG_PTE_APER_SYS;
}

/* False: no opinion (memory cannot be read). */
static bool cpu_walk(HgDev *d, uint64_t root, uint64_t va, Cpu *c)
{
    unsigned levels = (root & HG_AUDIT_LEVELS_MASK) >> HG_AUDIT_LEVELS_SHIFT;
    uint64_t table = root & HG_PTE_FRAME_MASK;

    for (unsigned level = levels - 1; ; level--) {
        unsigned idx = (va >> (HG_PAGE_SHIFT + 9 * level)) & 511;
        uint64_t v;
        if (!cpu_read(d, table + idx * 8, &v)) {
            return false;
        }
        /* a swap entry of a PMD has neither PRESENT nor PSE */
        if (level == 0 || !(v & enc(d, HG_ENC_PRESENT)) || (level <= 2 && v & enc(d, HG_ENC_PSE))) {
            decode(d, v, level, (va >> HG_PAGE_SHIFT) & ones(9 * level), c);
            return true;
        }
        table = v & enc(d, HG_ENC_PFN);
    }
}

/* -- the rule -- */

/* HG_CHECK_NONE: the two agree.  addr: in VRAM, or physical. */
static unsigned compare(HgDev *d, uint64_t pte, uint64_t addr, const Cpu *c)
{
    bool write = pte & HG_PTE_WRITE;

    if (of_system(pte)) {
        uint64_t pfn = addr >> HG_PAGE_SHIFT;
        switch (c->kind) {
        case CPU_NONE: return HG_CHECK_SYS_UNMAPPED;
        case CPU_PRESENT:
            return c->pfn != pfn ? HG_CHECK_SYS_FRAME
                 : write && !c->write ? HG_CHECK_SYS_READONLY : HG_CHECK_NONE;
        case CPU_EXCLUSIVE: return c->pfn != pfn ? HG_CHECK_SYS_FRAME : HG_CHECK_NONE;
        case CPU_PROTNONE: return HG_CHECK_SYS_PROTNONE;
        case CPU_DEVICE: return HG_CHECK_SYS_IN_VRAM;
        case CPU_MIGRATION: return HG_CHECK_SYS_MIGRATING;
        case CPU_OTHER: break;
        }
        return HG_CHECK_SYS_SWAPPED;
    }
    uint64_t pfn = enc(d, HG_ENC_DEV_PFN) + (addr >> HG_PAGE_SHIFT);
    switch (c->kind) {
    case CPU_NONE: return HG_CHECK_VRAM_UNMAPPED;
    case CPU_PRESENT:
        if (c->pfn == pfn) {    /* device-coherent: the CPU uses VRAM as memory */
            return write && !c->write ? HG_CHECK_VRAM_READONLY : HG_CHECK_NONE;
        }
        return HG_CHECK_VRAM_IN_SYS;
    case CPU_EXCLUSIVE:         /* device-coherent too: on its way back to PRESENT */
        return c->pfn == pfn ? HG_CHECK_NONE : HG_CHECK_VRAM_IN_SYS;
    case CPU_PROTNONE: return HG_CHECK_VRAM_IN_SYS;
    case CPU_DEVICE:
        return c->pfn != pfn ? HG_CHECK_VRAM_PAGE
             : write && !c->write ? HG_CHECK_VRAM_READONLY : HG_CHECK_NONE;
    case CPU_MIGRATION: return c->pfn == pfn ? HG_CHECK_VRAM_MIGRATING : HG_CHECK_NONE;
    case CPU_OTHER: break;
    }
    return HG_CHECK_VRAM_SWAPPED;
}

/*
 * The upper half of the GPU's addresses, which no process has (on x86 it is the kernel's, or
 * nobody's): there a driver can have memory of its own in VRAM, and a frame of
 * the system mirrors nothing.  True: settled, *bad says how.
 */
static bool not_mirrored(uint64_t va, uint64_t pte, Cpu *c, unsigned *bad)
{
    if (!(va >> HG_AUDIT_USER_BITS)) {
        return false;
    }
    *c = (Cpu) { .kind = CPU_NONE };
    *bad = of_system(pte) ? HG_CHECK_SYS_UNMAPPED : HG_CHECK_NONE;
    return true;
}

/* -- mode -- */

static const char *const mode_name[] = { "off", "fill", "sampled", "access" };

const char *hg_audit_name(unsigned mode)
{
    return mode <= HG_AUDIT_ACCESS ? mode_name[mode] : NULL;
}

unsigned hg_audit_mode(HgDev *d)
{
    return atomic_load_explicit(&d->seen->audit.mode, memory_order_relaxed);
}

static const HgObserver observer;

/* Engines see it at their next access; a little later is as good. */
static void audit_apply(HgDev *d)
{
    unsigned mode = hg_audit_mode(d);

    hg_hook_want(d, &observer, HG_HOOK_NUM(filled), mode != HG_AUDIT_OFF);
    hg_hook_want(d, &observer, HG_HOOK_NUM(access), mode >= HG_AUDIT_SAMPLED);
    hg_hook_lanes(d, &observer, mode == HG_AUDIT_SAMPLED);  /* counts them */
}

int hg_audit_set(HgDev *d, const char *text)
{
    uint32_t mode, every = 0;
    char *end = NULL;

    for (mode = 0; mode <= HG_AUDIT_ACCESS; mode++) {
        if (!strcmp(text, mode_name[mode])) {
            every = HG_AUDIT_EVERY;
            break;
        }
    }
    if (mode > HG_AUDIT_ACCESS) {
        if (strncmp(text, "sampled=", 8) || text[8] < '1' || text[8] > '9') {
            return -1;
        }
        unsigned long n = strtoul(text + 8, &end, 10);
        if (*end || n > 1000000000) {
            return -1;
        }
        mode = HG_AUDIT_SAMPLED;
        every = n;
    }
    atomic_store_explicit(&d->seen->audit.every, every, memory_order_relaxed);
    atomic_store_explicit(&d->seen->audit.mode, mode, memory_order_relaxed);
    audit_apply(d);
    return 0;
}

/* -- at an access -- */

static HgAuditEngine *mine(HgEngine *e)
{
    return &e->d->seen->audit.eng[e - e->d->eng];
}

static HgFillNote *fill_note(HgEngine *e, uint64_t vpn)
{
    return &mine(e)->fill[vpn & (HG_FILL_NOTES - 1)];
}

static void compare_notes(HgEngine *e, uint64_t pc, unsigned warp);

/* Take note of a translation in use. */
static void take_note(HgEngine *e, const HgTlbEnt *t, unsigned access)
{
    HgAudit *au = &e->d->seen->audit;
    HgAuditEngine *m = mine(e);

    if (!(atomic_load_explicit(&au->cpu_root[t->asid], memory_order_relaxed) & HG_AUDIT_ENABLE)) {
        return;
    }
    if (atomic_load_explicit(&au->mode, memory_order_relaxed) == HG_AUDIT_SAMPLED) {
        if (++m->skip < atomic_load_explicit(&au->every, memory_order_relaxed)) {
            return;
        }
        m->skip = 0;
    }
    if (m->nnote) {             /* the lanes of a warp mostly use one page */
        HgAuditNote *last = &m->note[m->nnote - 1];
        if (last->vpn == t->vpn && last->pte == t->pte && last->asid == t->asid) {
            last->access = access > last->access ? access : last->access;
            return;
        }
    }
    if (m->nnote == HG_AUDIT_NOTES) {
        compare_notes(e, 0, 0);
    }
    m->note[m->nnote++] = (HgAuditNote) { t->vpn, t->pte, t->addr, t->asid, access };
    e->look = true;
}

/* It is about to be put into the micro-TLB. */
static void audit_filled(HgEngine *e, const HgTlbEnt *t, unsigned access)
{
    *fill_note(e, t->vpn) = (HgFillNote) { t->vpn, hg_now(e->d), t->asid };
    take_note(e, t, access);
}

static uint64_t fair_now(HgDev *d)
{
    return d->ops.fair_now ? d->ops.fair_now(d->host) : hg_now(d);
}

/* Let CPUs run before the next look: a host's thread sleeps, a stepped engine stands. */
static void look_later(HgEngine *e, unsigned turn)
{
    if (e->co) {
        unsigned more = turn < HG_AUDIT_LOOKS ? turn : HG_AUDIT_LOOKS;
        hg_wait_until(e, HG_AT_AUDIT_WAIT, hg_now(e->d) + ((uint64_t)HG_AUDIT_LOOK_NS << more));
    } else {
        struct timespec ts = { .tv_nsec = 100000 };
        nanosleep(&ts, NULL);
    }
}

/* The entry is empty: see the comment on top.  False: no verdict. */
static bool wait_until_filled(HgEngine *e, uint64_t root, uint64_t va, Cpu *c)
{
    HgDev *d = e->d;
    uint64_t limit = d->cfg.audit_wait_ns, begun = fair_now(d);

    for (unsigned turn = 0; ; turn++) {
        if (!cpu_walk(d, root, va, c)) {
            return false;
        }
        if (c->kind != CPU_NONE) {
            return true;
        }
        if (!e->co && turn < 200) {
            continue;
        }
        if (hg_wanted_parked(d)) {
            return false;
        }
        if (fair_now(d) - begun >= limit) {
            atomic_fetch_add_explicit(&d->seen->audit.waits_lost, 1, memory_order_relaxed);
            return true;
        }
        look_later(e, turn);
    }
}

static bool wait_filled(HgEngine *e, uint64_t root, uint64_t va, Cpu *c)
{
    HgDev *d = e->d;

    if (!d->cfg.audit_wait_ns) {
        return true;            /* a host whose CPUs do no such thing */
    }
    if (atomic_load_explicit(&d->seen->audit.waits_lost, memory_order_relaxed) >= HG_AUDIT_WAITS) {
        return false;           /* enough has been waited */
    }
    mine(e)->waits = true;
    bool sure = wait_until_filled(e, root, va, c);
    mine(e)->waits = false;
    return sure;
}

bool hg_audit_waits(HgDev *d)
{
    for (unsigned i = 0; d->cfg.deterministic && i < d->neng; i++) {
        if (d->seen->audit.eng[i].waits) {
            return true;
        }
    }
    return false;
}

static void undecided(HgDev *d)
{
    pthread_mutex_lock(&d->seen->report.lock);
    d->seen->report.undecided++;
    pthread_mutex_unlock(&d->seen->report.lock);
}

static void check_note(HgEngine *e, const HgAuditNote *n, uint64_t pc, unsigned warp)
{
    HgDev *d = e->d;
    uint64_t root = atomic_load_explicit(&d->seen->audit.cpu_root[n->asid], memory_order_acquire);
    uint64_t va = n->vpn << HG_PAGE_SHIFT;
    Cpu c;
    unsigned bad;
    bool sure = true;

    if (!(root & HG_AUDIT_ENABLE) || !enc_ready(d)) {
        return;
    }
    _Atomic uint64_t *audited = &mine(e)->audited;
    atomic_store_explicit(audited,
        atomic_load_explicit(audited, memory_order_relaxed) + 1, memory_order_relaxed);
    if (!not_mirrored(va, n->pte, &c, &bad)) {
        uint64_t addr = n->addr;
        int leads = of_system(n->pte) ? bus_frame(d, addr, &addr) : 0;

        sure = leads <= 0 && cpu_walk(d, root, va, &c);
        if (sure && c.kind == CPU_NONE) {
            sure = wait_filled(e, root, va, &c);
        }
        if (!sure) {
            undecided(d);
            return;
        }
        bad = leads ? HG_CHECK_SYS_NOWHERE : compare(d, n->pte, addr, &c);
    }
    if (bad == HG_CHECK_NONE ||
        atomic_load_explicit(&d->seen->audit.cpu_root[n->asid], memory_order_acquire) != root) {
        return;
    }
    const HgFillNote *fn = fill_note(e, n->vpn);
    /* of a leaf of 64 KiB the TLB keeps the entry of whichever page was walked */
    uint64_t pte = d->cfg.big_pages && n->pte & HG_PTE_BIG
        ? (n->pte & ~(uint64_t)HG_PTE_FRAME_MASK) | (n->addr & HG_PTE_FRAME_MASK) : n->pte;
    HgViolation v = {
        .check = bad, .va = va, .asid = n->asid, .gpu_pte = pte, .cpu_entry = c.entry,
        .cpu_level = c.level, .engine = e->kind, .unit = e->num, .warp = warp, .pc = pc,
        .access = n->access,
        .fill_time = fn->vpn == n->vpn && fn->asid == n->asid ? fn->time : 0,
    };
    hg_report(d, &v);
}

/* Between the accesses and the next safe point. */
static void compare_notes(HgEngine *e, uint64_t pc, unsigned warp)
{
    HgAuditEngine *m = mine(e);

    for (unsigned i = 0; i < m->nnote; i++) {
        if (i) {
            hg_point(e, HG_AT_DATA);
        }
        check_note(e, &m->note[i], pc, warp);
    }
    m->nnote = 0;
    e->look = false;
    hg_point(e, HG_AT_AUDITED);
}

static bool root_ok(uint64_t root)
{
    unsigned levels = (root & HG_AUDIT_LEVELS_MASK) >> HG_AUDIT_LEVELS_SHIFT;

    return !(root & ~(HG_PTE_FRAME_MASK | HG_AUDIT_LEVELS_MASK | HG_AUDIT_ENABLE)) &&
           (!(root & HG_AUDIT_ENABLE) || levels == 4 || levels == 5);
}

/* Tables are pages: a walk reads aligned words, by host atomics. */
static bool enc_ok(unsigned n, uint64_t v)
{
    return n != HG_ENC_PFN || !(v & ~(uint64_t)HG_PTE_FRAME_MASK);
}

/* All engines parked, d->lock.  The mode is the host's and stays. */
static void audit_reset(HgDev *d)
{
    for (unsigned i = 0; i < HG_NUM_ASIDS; i++) {
        atomic_store(&d->seen->audit.cpu_root[i], 0);
        d->seen->audit.cpu_root_lo[i] = 0;
    }
    for (unsigned i = 0; i < HG_NUM_ENC; i++) {
        atomic_store(&d->seen->audit.enc[i], 0);
        d->seen->audit.enc_lo[i] = 0;
    }
    atomic_store(&d->seen->audit.enc_ready, 0);
    for (unsigned i = 0; i < d->neng; i++) {
        HgAuditEngine *m = &d->seen->audit.eng[i];
        m->nnote = m->skip = 0;
        d->eng[i].look = false;
        memset(m->fill, 0, sizeof(m->fill));
    }
}

/* -- everything, at rest -- */

/*
 * All engines are parked and d->lock is held from beginning to end, so no invalidation can
 * complete meanwhile: a valid GPU entry that is found has the same claim to the CPU's entry
 * as one used by an engine.  Only the empty moment of MADV_COLD and the owners of VRAM ask for
 * processes at rest.
 *
 * What that costs is bounded whatever the tables say, although they may lead to themselves, to
 * nothing, and be shared: each entry that is read is paid for before what it says is looked at,
 * valid or not, readable or not, the levels of a walk included.  When the budget is used up the
 * audit ends, and says so as one undecided comparison.  The host's own audits, for which
 * the machine stands still as long as the host likes, have HG_FULL_BUDGET; one that a guest
 * asks for by AUDIT_CMD has HG_CMD_BUDGET, a few milliseconds in which the device and who
 * touches its registers wait, and is there only if the host allows it (HgConfig.audit_cmd)
 * and looks at anything at all (the mode is not off).
 */
typedef struct Full {
    HgDev *d;
    uint64_t root, compared;
    uint64_t budget;            /* entries to read */
    bool guests;                /* a guest asked for it */
    unsigned asid;
    uint64_t *owned;            /* a bit a page of VRAM: seen in this address space */
} Full;

/* Pays for so many entries; false: not enough is left. */
static bool full_pay(Full *f, unsigned entries)
{
    if (f->budget < entries) {
        f->budget = 0;
        return false;
    }
    f->budget -= entries;
    if (f->guests) {
        hg_visit(f->d, entries, 0);
    }
    return true;
}

static void full_report(Full *f, unsigned check, uint64_t va, uint64_t pte, const Cpu *c)
{
    HgViolation v = {
        .check = check, .va = va, .asid = f->asid, .gpu_pte = pte, .cpu_entry = c->entry,
        .cpu_level = c->level, .engine = HG_ENG_FE, .at_rest = true,
    };
    hg_report(f->d, &v);
}

static void full_page(Full *f, uint64_t va, uint64_t pte, uint64_t addr)
{
    unsigned bad;
    bool settled;
    int leads;
    Cpu c;

    if (!full_pay(f, (f->root & HG_AUDIT_LEVELS_MASK) >> HG_AUDIT_LEVELS_SHIFT)) {
        return;
    }
    settled = not_mirrored(va, pte, &c, &bad);
    leads = !settled && of_system(pte) ? bus_frame(f->d, addr, &addr) : 0;
    if (leads > 0 || (!settled && !cpu_walk(f->d, f->root, va, &c))) {
        return;
    }
    f->compared++;
    if (!settled) {
        bad = leads ? HG_CHECK_SYS_NOWHERE : compare(f->d, pte, addr, &c);
    }
    if (bad != HG_CHECK_NONE) {
        full_report(f, bad, va, pte, &c);
    }
}

static void full_gpu(Full *f, bool vram, uint64_t table, unsigned level, uint64_t va)
{
    HgDev *d = f->d;

    if (!vram && bus_frame(d, table, &table)) {
        return;
    }
    for (unsigned i = 0; i < HG_PT_ENTRIES && full_pay(f, 1); i++) {
        uint64_t at = va | (uint64_t)i << (HG_PAGE_SHIFT + 9 * level), pte, aper;
        if (vram) {
            if (table + i * 8 > d->cfg.vram_size - 8) {
                return;
            }
            pte = __atomic_load_n((hg_u64a *)(d->vram + table + i * 8), __ATOMIC_ACQUIRE);
        } else if (!cpu_read(d, table + i * 8, &pte)) {
            return;
        }
        aper = pte & HG_PTE_APER_MASK;
        if (!(pte & HG_PTE_VALID) || (aper != HG_PTE_APER_VRAM && aper != HG_PTE_APER_SYS)) {
            continue;
        }
        uint64_t frame = pte & HG_PTE_FRAME_MASK;
        if (level == 0) {
            if (pte & HG_PTE_BIG && d->cfg.big_pages) {
                uint64_t within = ones(HG_PAGE_SHIFT + HG_BIG_ORDER);
                frame = (frame & ~within) | (at & within);
            }
            full_page(f, at, pte, frame);
        } else if (level == 1 && pte & HG_PTE_HUGE) {
            frame &= ~ones(HG_HUGE_SHIFT);
            for (unsigned k = 0; k < HG_PT_ENTRIES; k++) {
                full_page(f, at + ((uint64_t)k << HG_PAGE_SHIFT), pte,
                          frame + ((uint64_t)k << HG_PAGE_SHIFT));
            }
        } else {
            full_gpu(f, aper == HG_PTE_APER_VRAM, frame, level - 1, at);
        }
    }
}

/* The user half only: the kernel's entries are nobody's mirror. */
static void full_cpu(Full *f, uint64_t table, unsigned level, bool top, uint64_t va)
{
    HgDev *d = f->d;
    uint64_t npages = d->cfg.vram_size >> HG_PAGE_SHIFT, v;

    for (unsigned i = 0; i < (top ? 256u : 512u) && full_pay(f, 1); i++) {
        uint64_t at = va | (uint64_t)i << (HG_PAGE_SHIFT + 9 * level);
        Cpu c;
        if (!cpu_read(d, table + i * 8, &v)) {
            return;
        }
        if (level && v & enc(d, HG_ENC_PRESENT) && !(level <= 2 && v & enc(d, HG_ENC_PSE))) {
            full_cpu(f, v & enc(d, HG_ENC_PFN), level - 1, false, at);
            continue;
        }
        decode(d, v, level, 0, &c);
        /* a device-private entry, or memory that is a device-coherent page */
        if (c.kind != CPU_DEVICE &&
            (c.kind != CPU_PRESENT || c.pfn - enc(d, HG_ENC_DEV_PFN) >= npages)) {
            continue;
        }
        for (uint64_t k = 0; k < (uint64_t)1 << (9 * level) && full_pay(f, 1); k++) {
            uint64_t page = c.pfn + k - enc(d, HG_ENC_DEV_PFN), where = at + (k << HG_PAGE_SHIFT);
            f->compared++;
            if (c.pfn + k < enc(d, HG_ENC_DEV_PFN) || page >= npages) {
                full_report(f, HG_CHECK_VRAM_RANGE, where, 0, &c);
                break;
            }
            if (f->owned[page / 64] >> (page % 64) & 1) {
                full_report(f, HG_CHECK_VRAM_OWNERS, where, 0, &c);
            }
            f->owned[page / 64] |= (uint64_t)1 << (page % 64);
        }
    }
}

static uint64_t audit_all(HgDev *d, uint64_t budget, bool guests)
{
    size_t words = (d->cfg.vram_size >> HG_PAGE_SHIFT) / 64 + 1;
    Full f = { .d = d, .budget = budget, .guests = guests, .owned = malloc(words * 8) };

    hg_pause(d);
    /* no host call under d->lock but those that are made for it */
    d->seen->audit.full = true;
    for (f.asid = 0; f.owned && enc_ready(d) && f.asid < HG_NUM_ASIDS; f.asid++) {
        uint64_t gpu = atomic_load(&d->root[f.asid]);
        f.root = atomic_load(&d->seen->audit.cpu_root[f.asid]);
        if (!(f.root & HG_AUDIT_ENABLE)) {
            continue;
        }
        if (!full_pay(&f, words / 8)) {     /* to forget who owned what: cache lines */
            break;
        }
        if (gpu & HG_ROOT_ENABLE) {
            full_gpu(&f, gpu & HG_ROOT_VRAM, gpu & HG_PTE_FRAME_MASK, HG_PT_LEVELS - 1, 0);
        }
        memset(f.owned, 0, words * 8);
        full_cpu(&f, f.root & HG_PTE_FRAME_MASK,
                 ((f.root & HG_AUDIT_LEVELS_MASK) >> HG_AUDIT_LEVELS_SHIFT) - 1, true, 0);
    }
    d->seen->audit.full = false;
    hg_resume(d);
    if (!f.budget) {
        undecided(d);
    }
    free(f.owned);
    return f.compared;
}

uint64_t hg_audit_full(HgDev *d)
{
    return audit_all(d, HG_FULL_BUDGET, false);
}

/* -- registers, and the state -- */

/* The registers of the audit; false = refused.  d->lock. */
static bool audit_write(HgDev *d, uint64_t off, uint32_t v)
{
    bool high = off & 4;
    uint64_t val;

    if (off >= HG_REG_AUDIT_ASID) {
        unsigned n = (off - HG_REG_AUDIT_ASID) / 8;
        if (!high) {
            d->seen->audit.cpu_root_lo[n] = v;
            return true;
        }
        val = (uint64_t)v << 32 | d->seen->audit.cpu_root_lo[n];
        if (!root_ok(val)) {
            return false;
        }
        atomic_store_explicit(&d->seen->audit.cpu_root[n], val, memory_order_release);
        return true;
    }
    if (off == HG_REG_AUDIT_CTRL) {
        if (v & ~(uint32_t)HG_AUDIT_CTRL_READY) {
            return false;
        }
        atomic_store_explicit(&d->seen->audit.enc_ready, v, memory_order_release);
        return true;
    }
    if (atomic_load_explicit(&d->seen->audit.enc_ready, memory_order_relaxed)) {
        return false;
    }
    unsigned n = (off - HG_REG_AUDIT_ENC) / 8;
    if (!high) {
        d->seen->audit.enc_lo[n] = v;
        return true;
    }
    val = (uint64_t)v << 32 | d->seen->audit.enc_lo[n];
    if (!enc_ok(n, val)) {
        return false;
    }
    atomic_store_explicit(&d->seen->audit.enc[n], val, memory_order_relaxed);
    return true;
}

static bool audit_off(uint64_t off)
{
    return off == HG_REG_AUDIT_CTRL ||
           (off >= HG_REG_AUDIT_ENC && off < HG_REG_AUDIT_ENC + HG_NUM_ENC * 8) ||
           (off >= HG_REG_AUDIT_ASID && off < HG_REG_AUDIT_ASID + HG_NUM_ASIDS * 8);
}

static bool audit_reg_read(HgDev *d, uint64_t off, uint64_t *v)
{
    HgAudit *au = &d->seen->audit;

    if (off == HG_REG_AUDIT_CTRL) {
        *v = atomic_load_explicit(&au->enc_ready, memory_order_relaxed);
        return true;
    }
    if (!audit_off(off)) {
        return off == HG_REG_AUDIT_CMD;
    }
    if (off >= HG_REG_AUDIT_ASID) {
        *v = atomic_load_explicit(&au->cpu_root[(off - HG_REG_AUDIT_ASID) / 8],
                                  memory_order_relaxed);
    } else {
        *v = atomic_load_explicit(&au->enc[(off - HG_REG_AUDIT_ENC) / 8], memory_order_relaxed);
    }
    return true;
}

static HgRegAnswer audit_reg_write(HgDev *d, uint64_t off, uint32_t v)
{
    if (!audit_off(off)) {
        return HG_REG_NONE;
    }
    return audit_write(d, off, v) ? HG_REG_DONE : HG_REG_REFUSED;
}

static bool audit_reg_wide(HgDev *d, uint64_t off)
{
    (void)d;
    return audit_off(off) && off != HG_REG_AUDIT_CTRL;
}

/* False: refused, as a register that is not there. */
static bool audit_command(HgDev *d, uint64_t off, uint64_t v)
{
    if ((off & ~(uint64_t)7) != HG_REG_AUDIT_CMD || v != 1 || !d->cfg.audit_cmd ||
        hg_audit_mode(d) == HG_AUDIT_OFF) {
        return false;
    }
    hg_trace(d, HG_EV_MMIO_WRITE, off, v, 0, 0);
    audit_all(d, HG_CMD_BUDGET, true);
    return true;
}

/* What guest and host set; what the audit found stays with the host. */
static void audit_save(HgDev *d, HgArchive *a)
{
    HgAudit *au = &d->seen->audit;
    uint32_t ready = au->enc_ready, mode = au->mode, every = au->every, lost = au->waits_lost;

    hg_section(a, "AUDT");
    for (unsigned i = 0; i < HG_NUM_ASIDS; i++) {
        uint64_t v = au->cpu_root[i];
        IO(v);
        CHECK(root_ok(v), "CPU page-table root");
        au->cpu_root[i] = a->load && !a->bad ? v : au->cpu_root[i];
        IO(au->cpu_root_lo[i]);
    }
    for (unsigned i = 0; i < HG_NUM_ENC; i++) {
        uint64_t v = au->enc[i];
        IO(v);
        CHECK(enc_ok(i, v), "encoding of the CPU's page tables");
        au->enc[i] = a->bad ? 0 : v;
        IO(au->enc_lo[i]);
    }
    IO(ready);
    IO(mode);
    IO(every);
    IO(lost);
    CHECK(ready <= 1 && mode <= HG_AUDIT_ACCESS, "audit");
    if (a->load && !a->bad) {
        au->enc_ready = ready;
        au->mode = mode;
        au->every = every;
        au->waits_lost = lost;
        audit_apply(d);
    }
    /* Which access is looked at, as a look is a step more. */
    for (unsigned i = 0; i < d->neng; i++) {
        IO(au->eng[i].skip);
    }
    hg_section_end(a);
}

static const HgObserver observer = {
    .reset = audit_reset,
    .save = audit_save,
    .reg_read = audit_reg_read,
    .reg_write = audit_reg_write,
    .reg_wide = audit_reg_wide,
    .command = audit_command,
    .filled = audit_filled,
    .access = take_note,
    .look = compare_notes,
};

bool hg_audit_observe(HgDev *d)
{
    d->seen->audit.eng = hg_alloc_lines(d->neng * sizeof(*d->seen->audit.eng));
    if (!d->seen->audit.eng) {
        return false;
    }
    hg_hooks_add(d, &observer);
    audit_apply(d);
    return true;
}
