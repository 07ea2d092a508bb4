/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The protocol check table-freed-used: a page table is given back while a walk
 * may still be on its way through it (docs/checks.md).
 *
 * The device keeps a record of each table that a walk has read: which addresses
 * of which address space it translates there.  An invalidation of all of them
 * marks the record with its number.  When software says that it gives the table
 * back (HG_REG_TABLE_FREE), a record whose invalidation is missing or not
 * complete is a violation.  It does not matter whether a walk really is under
 * way at that moment: one may have been, and so the verdict depends on no timing.
 *
 * Why a correct driver never meets it.  It takes the table out of the tree (1),
 * invalidates all that the table translated (2), waits until that is complete
 * (3), and gives the table back (4).
 *  - A record made before (2) is marked by (2), and (3) has completed it at (4).
 *    That holds for a delayed invalidation too: it marks when it is issued, which
 *    is before it can be complete.
 *  - A walk that began after (2) was issued has seen (1), as (1) was written
 *    before the command.  It does not come to the table, so it makes no record.
 *  - A walk that began before (2) and ends after it makes no record: records are
 *    made, like entries of the L2, under l2_lock and only if no invalidation was
 *    issued since the walk began; and issuing takes l2_lock.  Nothing is missed that
 *    the driver could be blamed for: the walk's engine is in its slice, so (2) is
 *    complete only after the walk.
 *  - Reuse of the page for another table, or in another address space, begins
 *    after (4), which removes the record.  If a page was given back without (4)
 *    (it is a hint), the old record is marked or replaced by the next walk there.
 *  - Who ends walks by other means than an invalidation parks the engines, or
 *    disables all contexts of the address space.  As long as that lasts no record
 *    counts (walks_possible); when it ends the records are forgotten.  Not with a
 *    walk cache: that knows the table afterwards, so (2) alone will do, which removes it
 *    there by the same rule (what it covers).  Reset and load forget everything.
 *  - A walk that begins at a table of the walk cache makes no record of those above:
 *    they have theirs of when it was put there, as what removes a record's table from
 *    the cache removes those below, too.
 * Walks that are no access of the GPU's (what lies ahead, hg_tables_allow) make
 * no record: they lie in slices as well, so the driver's invalidation ends them.
 *
 * The table is bounded.  A record that was replaced by another, or that was not
 * made because of an invalidation at that moment, is a mistake not seen, never
 * one that is none.  Those that were replaced are counted (hg_unlooked()).
 *
 * Who may touch what: use, victim, last: l2_lock.  tables_shown: changed under d->lock,
 * read by engines in their slices; so a walk may make a record shortly after it
 * was cleared, which nobody asks for.
 */
#include "device.h"
#include "observe/check_tables.h"
#include "observe/check.h"
#include "base/lock.h"
#include "state/archive.h"

static bool shown(const HgDev *d)
{
    return atomic_load_explicit(&d->seen->chk.tables_shown, memory_order_relaxed);
}

static HgTableUse *set_of(HgDev *d, uint64_t table)
{
    uint64_t n = table >> HG_PAGE_SHIFT;

    return &d->seen->chk.use[((n ^ n >> 6) & (HG_TABLE_SETS - 1)) * HG_TABLE_WAYS];
}

/* The pages that a table of this level translates for va: the first, and one less than how many. */
static uint64_t first_page(uint64_t va, unsigned level, uint64_t *more)
{
    *more = ((uint64_t)1 << 9 * (level + 1)) - 1;
    return va >> HG_PAGE_SHIFT & ~*more;
}

static void forget_last(HgDev *d)
{
    memset(d->seen->chk.last.table, 0xff, sizeof(d->seen->chk.last.table));
}

/*
 * A walk has come this way, and no invalidation was issued since it began.  l2_lock.
 *
 * Most walks share tables with the one before.  From the first table on that it
 * came by as well, the records are there and not marked.
 */
static void tables_walk_read(HgDev *d, unsigned asid, uint64_t va, const HgWay *way)
{
    if (d->seen->chk.last.gen != d->l2_gen || d->seen->chk.last.asid != asid) {
        d->seen->chk.last.gen = d->l2_gen;
        d->seen->chk.last.asid = asid;
        forget_last(d);
    }
    for (unsigned level = way->low;
         level <= way->from && d->seen->chk.last.table[level] != way->table[level]; level++) {
        HgTableUse *s = set_of(d, way->table[level]), *u = NULL;
        uint64_t more, first = first_page(va, level, &more);

        for (unsigned i = 0; i < HG_TABLE_WAYS; i++) {
            if (s[i].used && s[i].table == way->table[level]) {
                u = &s[i];
                break;
            }
            if (!u && !s[i].used) {
                u = &s[i];
            }
        }
        if (!u) {
            hg_unlooked(d, HG_CHECK_TABLE_FREED_USED);
            u = &s[d->seen->chk.victim++ % HG_TABLE_WAYS];
        }
        *u = (HgTableUse) {
            .table = way->table[level], .first = first, .asid = asid, .level = level, .used = true,
        };
        d->seen->chk.last.table[level] = way->table[level];
    }
}

/* An invalidation is issued.  l2_lock, in the same critical section as the L2's flush. */
static void tables_inval(HgDev *d, const HgInval *iv, uint64_t seq)
{
    if (!shown(d) ||
        (iv->type == HG_INVAL_RANGE && iv->last - iv->first < HG_PT_ENTRIES - 1)) {
        return;                 /* less than any table translates */
    }
    hg_visit(d, HG_TABLE_SETS * HG_TABLE_WAYS, 0);
    for (unsigned i = 0; i < HG_TABLE_SETS * HG_TABLE_WAYS; i++) {
        HgTableUse *u = &d->seen->chk.use[i];
        uint64_t more;

        if (!u->used || u->gone || (iv->type != HG_INVAL_ALL && iv->asid != u->asid)) {
            continue;
        }
        first_page(0, u->level, &more);
        if (iv->type != HG_INVAL_RANGE ||
            (iv->first <= iv->last && iv->first <= u->first && u->first + more <= iv->last)) {
            u->gone = seq;
        }
    }
}

/* What was walked before cannot be under way any more.  d->lock; asid HG_NUM_ASIDS: any. */
static void forget(HgDev *d, unsigned asid)
{
    pthread_mutex_lock(&d->l2_lock);
    for (unsigned i = 0; i < HG_TABLE_SETS * HG_TABLE_WAYS; i++) {
        HgTableUse *u = &d->seen->chk.use[i];
        if (asid == HG_NUM_ASIDS || u->asid == asid) {
            u->used = false;
        }
    }
    forget_last(d);
    pthread_mutex_unlock(&d->l2_lock);
}

/* Engines are parked and will stay so until CTRL.ENABLE is set.  d->lock. */
static bool parked(HgDev *d)
{
    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        if (d->eng[i].in_slice) {
            return false;
        }
    }
    return !(d->ctrl & HG_CTRL_ENABLE);
}

static bool asid_active(HgDev *d, unsigned asid)
{
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        if (d->ctx[i].asid == asid && (d->ctx[i].enabled || d->ctx[i].aborting)) {
            return true;
        }
    }
    return false;
}

static bool walks_possible(HgDev *d, unsigned asid)
{
    return d->walks.ent || (!parked(d) && asid_active(d, asid));
}

/* CTRL.ENABLE is about to be set. */
static void tables_enable(HgDev *d)
{
    if (!d->walks.ent && parked(d)) {
        forget(d, HG_NUM_ASIDS);
    }
}

/* A context of the address space is about to be enabled. */
static void tables_context(HgDev *d, HgCtx *c)
{
    unsigned asid = c->asid;

    if (!d->walks.ent && !asid_active(d, asid)) {
        forget(d, asid);
    }
}

static const HgObserver observer;

/* Are walks told of?  The record begins anew. */
static void tables_show(HgDev *d, bool on)
{
    hg_hook_want(d, &observer, HG_HOOK_NUM(walk_read), on);
    atomic_store_explicit(&d->seen->chk.tables_shown, on, memory_order_relaxed);
    forget(d, HG_NUM_ASIDS);
}

static void table_free(HgDev *d, uint64_t table)
{
    HgTableUse *s = set_of(d, table), u = { 0 };

    pthread_mutex_lock(&d->l2_lock);
    for (unsigned i = 0; i < HG_TABLE_WAYS; i++) {
        if (s[i].used && s[i].table == table) {
            u = s[i];
            s[i].used = false;
            forget_last(d);
        }
    }
    pthread_mutex_unlock(&d->l2_lock);
    if (u.used && (!u.gone || u.gone > d->inval_done) && walks_possible(d, u.asid)) {
        hg_violated(d, HG_CHECK_TABLE_FREED_USED, u.asid, u.first << HG_PAGE_SHIFT, table, u.level);
    }
}

/* -- registers, and the state -- */

static void tables_reset(HgDev *d)
{
    d->seen->chk.table_lo = 0;
    tables_show(d, false);
}

static bool tables_reg_read(HgDev *d, uint64_t off, uint64_t *v)
{
    if (off == HG_REG_TABLE_CTRL) {
        *v = shown(d) ? HG_TABLE_CTRL_SHOWN : 0;
        return true;
    }
    return off == HG_REG_TABLE_FREE;
}

static HgRegAnswer tables_reg_write(HgDev *d, uint64_t off, uint32_t v)
{
    HgChecks *k = &d->seen->chk;

    switch (off) {
    case HG_REG_TABLE_CTRL:
        if (v & ~(uint32_t)HG_TABLE_CTRL_SHOWN) {
            return HG_REG_REFUSED;
        }
        tables_show(d, v);
        return HG_REG_DONE;
    case HG_REG_TABLE_FREE:
        k->table_lo = v;
        return HG_REG_DONE;
    case HG_REG_TABLE_FREE + 4:
        if (k->table_lo & HG_PAGE_MASK & ~HG_ROOT_VRAM) {
            return HG_REG_REFUSED;
        }
        table_free(d, (uint64_t)v << 32 | k->table_lo);
        return HG_REG_DONE;
    }
    return HG_REG_NONE;
}

static bool tables_reg_wide(HgDev *d, uint64_t off)
{
    (void)d;
    return off == HG_REG_TABLE_FREE;
}

/* The tables that were read are forgotten. */
static void tables_save(HgDev *d, HgArchive *a)
{
    bool on = shown(d);

    hg_section(a, "TABL");
    IOB(on);
    hg_section_end(a);
    if (a->load) {
        tables_show(d, on && !a->bad);
    }
}

static const HgObserver observer = {
    .reset = tables_reset,
    .save = tables_save,
    .reg_read = tables_reg_read,
    .reg_write = tables_reg_write,
    .reg_wide = tables_reg_wide,
    .enable = tables_enable,
    .context = tables_context,
    .walk_read = tables_walk_read,
    .inval_l2 = tables_inval,
};

void hg_check_tables_observe(HgDev *d)
{
    hg_hooks_add(d, &observer);
    tables_reset(d);
}
