/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Protocol checks: what a driver does that no correct driver does, whatever
 * the timing.  docs/checks.md has a section on each check: the mistake it
 * stands for, and why a correct driver never meets it.  No behaviour of the
 * device depends on anything in here.
 *
 * Who may touch what:
 *  - vram_map, copies, copy_bits, inval_epoch, filled: atomics.  Engines
 *    read them in their slices; they change under d->lock (filled: by
 *    engines, in their slices).
 *  - clean, and the lists of copies: d->lock.
 *  - the state of the check of page tables: see check_tables.c.
 * Nothing here is relied on by the invalidation path.  The checks rely on it:
 * an access and the check of its translation lie between two safe points, so
 * an invalidation that is complete before software goes on (frees the page,
 * starts a copy) is complete after both.
 */
#include "device.h"
#include "observe/check.h"
#include "base/lock.h"
#include "mem/mem.h"
#include "mmu/tlb.h"
#include "mmu/walk.h"
#include "state/archive.h"

/* Replays that one cached entry may outlive: see check_stale(). */
#define STALE_FAULTS 16

void hg_violated(HgDev *d, HgCheck what, uint32_t asid, uint64_t addr, uint64_t a, uint64_t b)
{
    HgViolation v = { .check = what, .asid = asid, .va = addr, .a = a, .b = b };

    hg_report(d, &v);
}

static const HgObserver observer;

/* Only while there are copies under way; then each lane's. */
static void want_accesses(HgDev *d, bool wants)
{
    hg_hook_want(d, &observer, HG_HOOK_NUM(access), wants);
    hg_hook_lanes(d, &observer, wants);
}

static void check_reset(HgDev *d)
{
    HgChecks *k = &d->seen->chk;

    for (unsigned i = 0; i < HG_NUM_ASIDS; i++) {
        atomic_store_explicit(&k->filled[i], 0, memory_order_relaxed);
        k->clean[i] = 0;
    }
    for (unsigned i = 0; i < 64; i++) {
        atomic_store_explicit(&k->copy_bits[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&k->copies, 0, memory_order_relaxed);
    atomic_store_explicit(&k->inval_epoch, d->inval_issued, memory_order_relaxed);
    atomic_store_explicit(&k->vram_map, 0, memory_order_relaxed);
    k->vram_map_lo = 0;
    k->guarded = 0;
    memset(k->rung, 0, sizeof(k->rung));
    want_accesses(d, false);
}

/* -- copies: who touches pages that are being moved -- */

/*
 * Only physical ends of privileged copies count: that is how a driver moves
 * pages, after it took them away from everybody.  copy_bits tells in one load
 * that a frame is in no copy; what it cannot exclude is looked up in the lists.
 */
static unsigned frame_bit(bool vram, uint64_t addr)
{
    return ((addr >> HG_PAGE_SHIFT) ^ (vram ? 0xaaa : 0)) & 4095;
}

static bool may_be_copied(HgDev *d, bool vram, uint64_t addr)
{
    unsigned n = frame_bit(vram, addr);
    HgChecks *k = &d->seen->chk;

    return atomic_load_explicit(&k->copy_bits[n / 64], memory_order_relaxed) >> (n & 63) & 1;
}

/* Have [a, a + n) and [b, b + m) anything in common?  No end is beyond 2^64. */
static bool in_span(uint64_t a, uint64_t n, uint64_t m, uint64_t b)
{
    return n && m && a <= b + (m - 1) && b <= a + (n - 1);
}

static unsigned src_space(const HgSeg *s)
{
    return s->flags & HG_COPY_FILL ? HG_SPACE_VIRT : (s->flags >> HG_COPY_SRC_SHIFT) & 3;
}

static unsigned dst_space(const HgSeg *s)
{
    return (s->flags >> HG_COPY_DST_SHIFT) & 3;
}

/*
 * Lists of other contexts may be long: of so many entries a hold of d->lock looks at
 * as many as this, and of the rest nothing is said.  That is a mistake not seen, never one
 * that is none, and hg_unlooked() says that there may be one.
 */
#define COPY_LOOKS (4 * HG_COPY_LIST_MAX)

typedef struct Looks {
    uint32_t left;
    bool more;                  /* there was more than that */
} Looks;

static bool moves_pages(const HgCtx *c)
{
    return c->priv && c->rs == HG_RS_COPY && c->copy.state != HG_CP_NONE;
}

/*
 * The first page of [addr, addr + bytes), which are whole pages, that is in an end of another
 * context's copy of a kind in `which`, 1 source, 2 target: in *where, and of which kinds.
 * No end that has that page begins behind it, so all of them have it as their first.  d->lock.
 */
static unsigned role(HgDev *d, const HgCtx *not, bool vram, uint64_t addr, uint64_t bytes,
                     unsigned which, Looks *looks, uint64_t *where)
{
    unsigned found = 0, space = vram ? HG_SPACE_VRAM : HG_SPACE_SYS;
    uint32_t begun = looks->left;

    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        if (c == not || !moves_pages(c)) {
            continue;
        }
        for (uint32_t j = 0; j < c->copy.nseg; j++, looks->left--) {
            if (!looks->left) {
                looks->more = true;
                break;
            }
            const HgSeg *s = &c->copy.seg[j];
            for (unsigned kind = 1; kind <= 2; kind++) {
                uint64_t at = kind == 1 ? s->src : s->dst;
                if (!(which & kind) || (kind == 1 ? src_space(s) : dst_space(s)) != space ||
                    !in_span(addr, bytes, s->bytes, at)) {
                    continue;
                }
                at = (at > addr ? at : addr) & ~(uint64_t)HG_PAGE_MASK;
                if (!found || at < *where) {
                    *where = at;
                    found = 0;
                }
                found |= at == *where ? kind : 0;
            }
        }
    }
    hg_visit(d, begun - looks->left, 0);
    return found;
}

/* A copy that is about to begin; what all its ends together may still use up. */
typedef struct Begin {
    HgCtx *c;
    Looks looks;
    uint32_t pages;
} Begin;

/* Few pages, and none of them in another's copy?  Then there is nothing to look up. */
static bool surely_alone(HgDev *d, bool vram, uint64_t first, uint64_t n)
{
    bool found = n > 8;

    for (uint64_t k = 0; k < n && !found; k++) {
        found = may_be_copied(d, vram, (first + k) << HG_PAGE_SHIFT);
    }
    return !found;
}

static void add_span(HgDev *d, Begin *b, unsigned space, uint64_t addr, uint64_t bytes, bool target)
{
    bool vram = space == HG_SPACE_VRAM;

    if (space == HG_SPACE_VIRT || !bytes) {
        return;
    }
    uint64_t first = addr >> HG_PAGE_SHIFT, where = 0;
    uint64_t n = ((addr + (bytes - 1)) >> HG_PAGE_SHIFT) - first + 1;
    if (!b->looks.more && !surely_alone(d, vram, first, n)) {
        unsigned which = target ? 3 : 2;        /* to read what another reads does no harm */
        unsigned r = role(d, b->c, vram, first << HG_PAGE_SHIFT, n << HG_PAGE_SHIFT, which,
                          &b->looks, &where);
        if (r) {
            hg_violated(d, HG_CHECK_COPY_OVERLAP, 0, where, b->c->id, r);
        }
    }
    if (n > b->pages) {         /* of so many any frame may be one */
        b->pages = 0;
        return;
    }
    b->pages -= n;
    hg_visit(d, n, 0);
    for (uint64_t k = 0; k < n; k++) {
        unsigned bit = frame_bit(vram, (first + k) << HG_PAGE_SHIFT);
        atomic_fetch_or_explicit(&d->seen->chk.copy_bits[bit / 64], (uint64_t)1 << (bit & 63),
                                 memory_order_relaxed);
    }
}

static void check_copy_begin(HgDev *d, HgCtx *c)
{
    Begin b = { .c = c, .looks = { .left = COPY_LOOKS }, .pages = 64 * 64 };

    if (!c->priv) {
        return;
    }
    hg_visit(d, c->copy.nseg, 0);
    for (uint32_t i = 0; i < c->copy.nseg; i++) {
        const HgSeg *s = &c->copy.seg[i];
        add_span(d, &b, src_space(s), s->src, s->bytes, false);
        add_span(d, &b, dst_space(s), s->dst, s->bytes, true);
    }
    if (b.looks.more) {
        hg_unlooked(d, HG_CHECK_COPY_OVERLAP);
    }
    for (unsigned i = 0; !b.pages && i < 64; i++) {
        atomic_store_explicit(&d->seen->chk.copy_bits[i], UINT64_MAX, memory_order_relaxed);
    }
    d->seen->chk.guarded |= (uint64_t)1 << c->id;
    if (!atomic_fetch_add_explicit(&d->seen->chk.copies, 1, memory_order_relaxed)) {
        want_accesses(d, true);
    }
}

static void check_copy_end(HgDev *d, HgCtx *c)
{
    if (!(d->seen->chk.guarded >> c->id & 1)) {
        return;
    }
    d->seen->chk.guarded &= ~((uint64_t)1 << c->id);
    if (atomic_fetch_sub_explicit(&d->seen->chk.copies, 1, memory_order_relaxed) == 1) {
        want_accesses(d, false);
        for (unsigned i = 0; i < 64; i++) {
            atomic_store_explicit(&d->seen->chk.copy_bits[i], 0, memory_order_relaxed);
        }
    }
}

/* An engine is about to use t, and there are copies under way. */
static void check_access(HgEngine *e, const HgTlbEnt *t, unsigned access)
{
    HgDev *d = e->d;
    bool vram = (t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM;
    Looks looks = { .left = COPY_LOOKS };
    uint64_t where;
    unsigned r;

    if (!may_be_copied(d, vram, t->addr)) {
        return;
    }
    hg_lock(d);
    r = role(d, NULL, vram, t->addr, HG_PAGE_SIZE, 3, &looks, &where);
    hg_unlock(d);
    if (looks.more) {
        hg_unlooked(d, HG_CHECK_COPY_TARGET_USED);
        hg_unlooked(d, HG_CHECK_COPY_SOURCE_WRITTEN);
    }
    if (r & 2) {
        hg_violated(d, HG_CHECK_COPY_TARGET_USED, t->asid, t->vpn << HG_PAGE_SHIFT, t->pte, access);
    } else if (r && access != HG_ACCESS_READ && access != HG_ACCESS_PREFETCH) {
        hg_violated(d, HG_CHECK_COPY_SOURCE_WRITTEN, t->asid, t->vpn << HG_PAGE_SHIFT, t->pte,
                    access);
    }
}

/* -- VRAM that nobody was given -- */

static void vram_used(HgEngine *e, unsigned asid, uint64_t va, uint64_t frame)
{
    uint64_t map = atomic_load_explicit(&e->d->seen->chk.vram_map, memory_order_acquire);
    uint8_t bits;

    if (!(map & HG_VRAM_MAP_ENABLE) ||
        !hg_peek(e, (map & ~(uint64_t)HG_PAGE_MASK) + (frame >> (HG_PAGE_SHIFT + 3)), &bits, 1)) {
        return;
    }
    if (!(bits >> ((frame >> HG_PAGE_SHIFT) & 7) & 1)) {
        hg_violated(e->d, HG_CHECK_VRAM_FREE_USED, asid, va, frame, 0);
    }
}

static void check_vram(HgEngine *e, unsigned asid, uint64_t frame)
{
    vram_used(e, asid, 0, frame);
}

static void check_fill(HgEngine *e, const HgTlbEnt *t, uint64_t va, unsigned access)
{
    if ((t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM) {
        vram_used(e, t->asid, va, t->addr);
    }
    if (atomic_load_explicit(&e->d->seen->chk.copies, memory_order_relaxed)) {
        check_access(e, t, access);
    }
}

/* -- translations -- */

/*
 * An access that a cached entry forbids has made a fault.  If the
 * tables allow it, the entry is stale.  A correct driver invalidates it before
 * the replay that answers the fault; replays that answer other faults may come
 * in between, one or a few, while the driver is between the two.
 *
 * t is the engine's own, or a copy of one in the L2, where the count is kept.
 * A walk is an access to memory, so none while each of those has to be looked
 * at (injection).
 */
static void check_stale(HgEngine *e, HgTlbEnt *t, uint64_t va, unsigned access, bool in_l2)
{
    HgDev *d = e->d;
    HgTlbEnt *kept = t;
    bool bad;

    if (!hg_direct_sys(d) || t->stale >= STALE_FAULTS ||
        !hg_tables_allow(e, t->asid, va, access)) {
        return;
    }
    if (in_l2) {
        pthread_mutex_lock(&d->l2_lock);
        kept = hg_l2_find(d, t->asid, va >> HG_PAGE_SHIFT);
        bad = kept && kept->pte == t->pte && ++kept->stale == STALE_FAULTS;
        pthread_mutex_unlock(&d->l2_lock);
    } else {
        bad = ++kept->stale == STALE_FAULTS;
    }
    if (bad) {
        hg_violated(d, HG_CHECK_REPLAY_STALE, t->asid, va, t->pte, access);
    }
}

/*
 * Entries of an address space may be left in a TLB if a walk began at or after
 * the last invalidation of the whole of it.  A walk that began before is
 * flushed at its engine's next safe point.
 */
static void check_walk_begin(HgDev *d, HgWay *way)
{
    way->epoch = 1 + atomic_load_explicit(&d->seen->chk.inval_epoch, memory_order_acquire);
}

static void check_walk_found(HgDev *d, unsigned asid, const HgWay *way)
{
    _Atomic uint64_t *filled = &d->seen->chk.filled[asid];
    uint64_t epoch = way->epoch, old = atomic_load_explicit(filled, memory_order_relaxed);

    while (old < epoch && !atomic_compare_exchange_weak_explicit(
               filled, &old, epoch, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void check_inval(HgDev *d, const HgInval *iv, uint64_t seq)
{
    uint64_t pages = (uint64_t)1 << (HG_VA_BITS - HG_PAGE_SHIFT);

    if (iv->type == HG_INVAL_ALL) {
        for (unsigned i = 0; i < HG_NUM_ASIDS; i++) {
            d->seen->chk.clean[i] = 1 + seq;
        }
    } else if (iv->type == HG_INVAL_ASID || (!iv->first && iv->last >= pages - 1)) {
        d->seen->chk.clean[iv->asid] = 1 + seq;
    }
    atomic_store_explicit(&d->seen->chk.inval_epoch, seq, memory_order_release);
}

static void check_root(HgDev *d, unsigned asid, uint64_t root)
{
    uint64_t filled = atomic_load_explicit(&d->seen->chk.filled[asid], memory_order_relaxed);

    if ((root & HG_ROOT_ENABLE) && filled && filled >= d->seen->chk.clean[asid] &&
        root != atomic_load_explicit(&d->root[asid], memory_order_relaxed)) {
        hg_violated(d, HG_CHECK_ASID_REUSE, asid, root & ~(uint64_t)HG_PAGE_MASK, filled - 1,
                    d->seen->chk.clean[asid]);
    }
}

/* -- rings -- */

static void check_fence(HgEngine *e, HgCtx *c, uint64_t addr, uint64_t value)
{
    uint64_t old;

    if (hg_peek(e, addr, &old, sizeof(old)) && old > value) {
        hg_violated(e->d, HG_CHECK_FENCE_BACKWARDS, c->asid, addr, old, value);
    }
}

/* More entries than fit: the ring was overwritten, or PUT went backwards. */
static void check_doorbell(HgDev *d, HgCtx *c, uint32_t put)
{
    uint32_t mask = c->ring_size - 1, *rung = &d->seen->chk.rung[c->id];

    if (!c->enabled || put >= c->ring_size) {
        return;
    }
    if (((put - *rung) & mask) + ((*rung - c->get) & mask) > mask) {
        hg_violated(d, HG_CHECK_DOORBELL_OVERRUN, c->asid, c->id, *rung, put);
    }
    *rung = put;
}

/* Of so many entries a write of GET is asked; of the others the device sees when it comes round. */
#define KEPT_LOOKS 512

/*
 * Entries that GET is to pass belong to software until then, so VALID that stands in one was
 * not cleared.  Those that lie in RAM; d->lock is held.
 */
static void check_fault_kept(HgDev *d, unsigned ring, uint32_t taken)
{
    HgRing *r = &d->ring[ring];

    if (taken > KEPT_LOOKS) {
        hg_unlooked(d, HG_CHECK_FAULT_VALID_KEPT);
        taken = KEPT_LOOKS;
    }
    hg_visit(d, taken, 0);
    for (uint32_t i = 0; d->bus_master && i < taken; i++) {
        uint64_t addr = r->base + (uint64_t)((r->get + i) & (r->size - 1)) * HG_FAULT_ENTRY_SIZE;
        const HgRam *ram = hg_ram_find(d, addr, HG_FAULT_ENTRY_SIZE);
        uint32_t flags;

        if (!ram) {
            continue;
        }
        hg_copy_in(&flags, ram->ptr + (addr - ram->base) + HG_FE_FLAGS * 4, sizeof(flags));
        if (flags & HG_FE_VALID) {
            hg_violated(d, HG_CHECK_FAULT_VALID_KEPT, 0, ring, addr, flags);
            return;
        }
    }
}

static void check_fault_get(HgDev *d, unsigned ring, uint32_t get)
{
    HgRing *r = &d->ring[ring];
    uint32_t mask = r->size - 1, taken = (get - r->get) & mask;

    if (taken > ((r->put - r->get) & mask)) {
        hg_violated(d, HG_CHECK_FAULT_GET_RANGE, 0, ring, r->get, get);
        return;
    }
    hg_visit(d, d->ntimer, 0);
    for (unsigned i = 0; i < d->ntimer; i++) {
        if (d->timer[i].kind == HG_T_VALID && d->timer[i].a == ring) {
            uint32_t slot = (d->timer[i].b - r->base) / HG_FAULT_ENTRY_SIZE;
            if (((slot - r->get) & mask) < taken) {
                hg_violated(d, HG_CHECK_FAULT_UNREADY, 0, ring, slot, get);
            }
        }
    }
    check_fault_kept(d, ring, taken);
}

static void check_fault_slot(HgEngine *e, unsigned ring, uint64_t addr)
{
    uint32_t flags;

    if (hg_peek(e, addr + HG_FE_FLAGS * 4, &flags, sizeof(flags)) && (flags & HG_FE_VALID)) {
        hg_violated(e->d, HG_CHECK_FAULT_VALID_KEPT, 0, ring, addr, flags);
    }
}

static void check_context(HgDev *d, HgCtx *c)
{
    d->seen->chk.rung[c->id] = 0;
}

static void check_refused(HgDev *d, uint64_t addr, uint32_t len, bool write)
{
    hg_violated(d, HG_CHECK_DMA_REFUSED, 0, addr, len, write);
}

/* -- the register, and the state -- */

static bool check_reg_read(HgDev *d, uint64_t off, uint64_t *v)
{
    if (off != HG_REG_VRAM_MAP) {
        return false;
    }
    *v = atomic_load_explicit(&d->seen->chk.vram_map, memory_order_relaxed);
    return true;
}

static HgRegAnswer check_reg_write(HgDev *d, uint64_t off, uint32_t v)
{
    HgChecks *k = &d->seen->chk;

    if (off == HG_REG_VRAM_MAP) {
        k->vram_map_lo = v;
        return HG_REG_DONE;
    }
    if (off != HG_REG_VRAM_MAP + 4) {
        return HG_REG_NONE;
    }
    if (k->vram_map_lo & HG_PAGE_MASK & ~HG_VRAM_MAP_ENABLE) {
        return HG_REG_REFUSED;
    }
    atomic_store_explicit(&k->vram_map, (uint64_t)v << 32 | k->vram_map_lo, memory_order_release);
    return HG_REG_DONE;
}

static bool check_reg_wide(HgDev *d, uint64_t off)
{
    (void)d;
    return off == HG_REG_VRAM_MAP;
}

static void check_save(HgDev *d, HgArchive *a)
{
    uint64_t vram_map = atomic_load(&d->seen->chk.vram_map);

    hg_section(a, "CHCK");
    IO(vram_map);
    CHECK(!(vram_map & HG_PAGE_MASK & ~(uint64_t)HG_VRAM_MAP_ENABLE), "VRAM map");
    atomic_store(&d->seen->chk.vram_map, a->bad ? 0 : vram_map);
    hg_section_end(a);
}

static void check_loaded(HgDev *d)
{
    atomic_store_explicit(&d->seen->chk.inval_epoch, d->inval_issued, memory_order_relaxed);
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        d->seen->chk.rung[i] = c->put;
        if (c->rs == HG_RS_COPY && c->copy.state != HG_CP_NONE) {
            check_copy_begin(d, c);
        }
    }
}

static const HgObserver observer = {
    .reset = check_reset,
    .loaded = check_loaded,
    .save = check_save,
    .reg_read = check_reg_read,
    .reg_write = check_reg_write,
    .reg_wide = check_reg_wide,
    .root = check_root,
    .context = check_context,
    .doorbell = check_doorbell,
    .fence = check_fence,
    .fault_get = check_fault_get,
    .fault_slot = check_fault_slot,
    .copy_begin = check_copy_begin,
    .copy_end = check_copy_end,
    .vram = check_vram,
    .walk_begin = check_walk_begin,
    .walk_found = check_walk_found,
    .fill = check_fill,
    .access = check_access,
    .denied = check_stale,
    .refused = check_refused,
    .inval_issued = check_inval,
};

void hg_check_observe(HgDev *d)
{
    hg_hooks_add(d, &observer);
    check_reset(d);
}
