/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Page-table walk, micro-TLBs, shared L2 TLB, invalidation.
 *
 * A TLB entry lives until it is evicted or invalidated by command; nothing
 * else removes or refreshes it: not a PTE change, not a new ROOT, not a launch
 * or context switch, and not a permission fault (an entry without WRITE keeps
 * faulting after the PTE got WRITE, until it is invalidated).  Entries that
 * are not valid in the tables are never cached.
 */
#include "hg_internal.h"

#include <stdlib.h>
#include <time.h>

bool hg_tlb_init(HgTlb *t, unsigned entries, unsigned ways)
{
    t->ways = entries < ways ? entries : ways;
    t->sets = 1;
    while (t->sets * 2 * t->ways <= entries) {
        t->sets *= 2;
    }
    t->ent = hg_alloc_lines((size_t)t->sets * t->ways * sizeof(*t->ent));
    t->next = hg_alloc_lines(t->sets);
    return t->ent && t->next;
}

void hg_tlb_clear(HgTlb *t)
{
    memset(t->ent, 0, (size_t)t->sets * t->ways * sizeof(*t->ent));
    memset(t->next, 0, t->sets);
}

static HgTlbEnt *tlb_set(HgTlb *t, uint64_t vpn, unsigned *set)
{
    *set = vpn & (t->sets - 1);
    return &t->ent[(size_t)*set * t->ways];
}

HgTlbEnt *hg_tlb_find(HgTlb *t, unsigned asid, uint64_t vpn)
{
    unsigned set;
    HgTlbEnt *s = tlb_set(t, vpn, &set);

    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].valid && s[i].vpn == vpn && s[i].asid == asid) {
            return &s[i];
        }
    }
    return NULL;
}

static HgTlbEnt *tlb_insert(HgTlb *t, const HgTlbEnt *n)
{
    unsigned set;
    HgTlbEnt *s = tlb_set(t, n->vpn, &set), *v = NULL;

    for (unsigned i = 0; i < t->ways; i++) {
        if (s[i].valid && s[i].vpn == n->vpn && s[i].asid == n->asid) {
            v = &s[i];          /* two engines walked at once */
            break;
        }
        if (!v && !s[i].valid) {
            v = &s[i];
        }
    }
    if (!v) {
        v = &s[t->next[set] % t->ways];
        t->next[set] = (t->next[set] + 1) % t->ways;
    }
    *v = *n;
    return v;
}

/*
 * The L2 holds 4 KiB leaves under their page and 2 MiB leaves under their
 * first page; a 4 KiB entry of the same page number is told apart by `huge`.
 */
static HgTlbEnt *l2_find(HgTlb *t, unsigned asid, uint64_t vpn)
{
    HgTlbEnt *h = hg_tlb_find(t, asid, vpn);

    if (h) {
        return h;
    }
    h = hg_tlb_find(t, asid, vpn & ~(uint64_t)511);
    return h && h->huge ? h : NULL;
}

HgTlbEnt *hg_l2_find(HgDev *d, unsigned asid, uint64_t vpn)
{
    return l2_find(&d->l2, asid, vpn);
}

static bool match(const HgInval *iv, unsigned asid, uint64_t vpn, bool huge)
{
    if (iv->type == HG_INVAL_ALL) {
        return true;
    }
    if (asid != iv->asid) {
        return false;
    }
    if (iv->type == HG_INVAL_ASID) {
        return true;
    }
    /* a piece of a 2 MiB leaf goes with its leaf */
    uint64_t first = huge ? vpn & ~(uint64_t)511 : vpn;
    uint64_t last = huge ? vpn | 511 : vpn;
    return iv->first <= iv->last && first <= iv->last && iv->first <= last;
}

static void tlb_flush(HgTlb *t, const HgInval *iv)
{
    for (unsigned i = 0; i < t->sets * t->ways; i++) {
        HgTlbEnt *x = &t->ent[i];
        if (x->valid && match(iv, x->asid, x->vpn, x->huge)) {
            x->valid = false;
            x->host = NULL;
        }
    }
}

/* Micro-TLB and decoded instructions.  By the slice owner, or under d->lock if parked. */
void hg_engine_flush(HgEngine *e, const HgInval *iv)
{
    tlb_flush(&e->utlb, iv);
    if (e->ic) {
        for (unsigned i = 0; i < HG_IC_PAGES; i++) {
            HgIcPage *p = &e->ic[i];
            if (p->valid && match(iv, p->asid, p->vpn, p->huge)) {
                p->valid = false;
            }
        }
    }
}

void hg_inval_make(HgInval *iv, unsigned type, unsigned asid, uint64_t start, uint64_t len)
{
    iv->type = type;
    iv->asid = asid;
    iv->first = 1;
    iv->last = 0;
    if (type == HG_INVAL_RANGE && len) {
        uint64_t end = start + (len - 1);
        if (end < start) {
            end = UINT64_MAX;
        }
        iv->first = start >> HG_PAGE_SHIFT;
        iv->last = end >> HG_PAGE_SHIFT;
    }
}

/* DONE = the last invalidation that every engine has served. */
void hg_inval_update(HgDev *d)
{
    uint64_t done = d->inval_issued;

    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        if (d->eng[i].inval_ack < done) {
            done = d->eng[i].inval_ack;
        }
    }
    if (done > d->inval_done) {
        d->inval_done = done;
        hg_trace(d, HG_EV_INVAL_DONE, done, 0, 0, 0);
        if (d->intr_enable & (1u << HG_VEC_INVAL)) {
            hg_raise(d, HG_VEC_INVAL);
        }
        hg_kick_fe(d);          /* INVALIDATE descriptors wait for it */
    }
}

static void inval_issue(HgDev *d, const HgInval *iv, uint64_t seq)
{
    pthread_mutex_lock(&d->l2_lock);
    d->l2_gen++;
    tlb_flush(&d->l2, iv);
    hg_check_tables_inval(d, iv, seq);
    pthread_mutex_unlock(&d->l2_lock);

    d->inval_issued = seq;
    hg_check_inval(d, iv, seq);
    for (unsigned i = 0; i < d->nsm + d->nce; i++) {
        HgEngine *e = &d->eng[i];
        if (!e->in_slice) {
            hg_engine_flush(e, iv);
            e->inval_ack = seq;
            continue;
        }
        if (e->nreq < HG_INVAL_REQS) {
            e->req[e->nreq++] = *iv;
        } else {
            e->req_all = true;
        }
        atomic_store_explicit(&e->attn, 1, memory_order_relaxed);
    }
    hg_inval_update(d);
}

uint64_t hg_inval_submit(HgDev *d, const HgInval *iv)
{
    uint64_t seq = ++d->inval_seq, arg = 0, due = 0, now = hg_now(d);

    d->cnt[HG_CNT_INVALS]++;
    hg_trace(d, HG_EV_INVAL_START, (uint64_t)iv->asid << 32 | iv->type,
             iv->first << HG_PAGE_SHIFT,
             iv->first <= iv->last ? (iv->last - iv->first + 1) << HG_PAGE_SHIFT : 0, seq);
    hg_inval_note(d, iv, seq, now);
    if (hg_injected(d, HG_INJ_TLB_INVALIDATE, iv->first << HG_PAGE_SHIFT, &arg) == HG_ACT_DELAY) {
        due = now + arg < now ? UINT64_MAX : now + arg;
    }
    if (!due && !d->ninvq) {
        inval_issue(d, iv, seq);
        return seq;
    }
    /* slow hardware: the flush itself comes later, in order */
    if (d->ninvq == HG_INVAL_QUEUE) {
        unsigned t = d->ninvq - 1;
        d->invq[t].iv = (HgInval) { .type = HG_INVAL_ALL };
        d->invq[t].seq = seq;
        d->invq[t].due = due > d->invq[t].due ? due : d->invq[t].due;
    } else {
        d->invq[d->ninvq].iv = *iv;
        d->invq[d->ninvq].seq = seq;
        d->invq[d->ninvq].due = due;
        d->ninvq++;
    }
    hg_kick_fe(d);
    return seq;
}

void hg_inval_due(HgDev *d, uint64_t now)
{
    while (d->ninvq && d->invq[0].due <= now) {
        HgInval iv = d->invq[0].iv;
        uint64_t seq = d->invq[0].seq;
        d->ninvq--;
        memmove(&d->invq[0], &d->invq[1], d->ninvq * sizeof(d->invq[0]));
        inval_issue(d, &iv, seq);
    }
}

/* Direct pointer to the entry's frame, if it may be used without further checks. */
void hg_tlb_resolve(HgEngine *e, HgTlbEnt *t)
{
    HgDev *d = e->d;

    t->host = NULL;
    t->host_ro = false;
    if ((t->pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM) {
        if (t->addr <= d->cfg.vram_size - HG_PAGE_SIZE) {
            t->host = d->vram + t->addr;
            t->opaque = NULL;
        }
        return;
    }
    if (hg_direct_sys(d)) {
        const HgRam *r = hg_ram_find(d, t->addr, HG_PAGE_SIZE);
        if (r) {
            t->host = r->ptr + (t->addr - r->base);
            t->opaque = r->opaque;
            t->host_ro = r->ro;
        }
    }
}

/* One table entry.  False: outside VRAM or bus error. */
static bool read_entry(HgEngine *e, bool vram, uint64_t addr, uint64_t *pte)
{
    HgDev *d = e->d;

    if (vram) {
        if (addr > d->cfg.vram_size - 8) {
            return false;
        }
        *pte = __atomic_load_n((hg_u64a *)(d->vram + addr), __ATOMIC_ACQUIRE);
        return true;
    }
    if (hg_bus_read(e, addr, pte, 8)) {
        return false;
    }
    atomic_thread_fence(memory_order_acquire);
    return true;
}

/*
 * An injected pause of a walk, between two of its reads: it has found a table
 * and has not looked into it.  The engine is in its slice, so no invalidation
 * can complete meanwhile, which is what keeps a driver's tables alive.  Broken
 * off if the engines are to be parked.
 */
static void walk_pause(HgEngine *e, uint64_t va)
{
    HgDev *d = e->d;
    uint64_t ns, begun;

    if (hg_injected(d, HG_INJ_WALK, va, &ns) != HG_ACT_DELAY) {
        return;
    }
    begun = hg_now(d);
    if (e->co) {
        hg_wait_until(e, HG_AT_PAUSE, begun + ns < begun ? UINT64_MAX : begun + ns);
        return;
    }
    while (hg_now(d) - begun < ns && !hg_wanted_parked(d)) {
        struct timespec ts = { .tv_nsec = 20000 };
        nanosleep(&ts, NULL);
    }
}

/*
 * Fills *n (vpn = first page of the leaf), or f->reason and f->level.
 * `way`: of an access of the GPU's, with no lock held; else NULL.
 */
static bool walk(HgEngine *e, unsigned asid, uint64_t va, HgWay *way, HgTlbEnt *n, HgFault *f)
{
    if (way) {
        hg_point(e, HG_AT_WALK);
    }
    uint64_t root = atomic_load_explicit(&e->d->root[asid], memory_order_acquire);
    bool vram = root & HG_ROOT_VRAM;
    uint64_t table = root & HG_PTE_FRAME_MASK;

    f->level = HG_PT_LEVELS - 1;
    if (!(root & HG_ROOT_ENABLE)) {
        f->reason = HG_REASON_ASID;
        return false;
    }
    for (int level = HG_PT_LEVELS - 1; ; level--) {
        unsigned idx = (va >> (HG_PAGE_SHIFT + 9 * level)) & (HG_PT_ENTRIES - 1);
        uint64_t pte, aper;
        f->level = level;
        if (way) {
            way->table[level] = table | (vram ? HG_ROOT_VRAM : 0);
            way->low = level;
            if (!level) {
                walk_pause(e, va);
            }
        }
        if (!read_entry(e, vram, table + idx * 8, &pte)) {
            f->reason = HG_REASON_POISON;
            return false;
        }
        if (!(pte & HG_PTE_VALID)) {
            f->reason = HG_REASON_PTE;
            return false;
        }
        aper = pte & HG_PTE_APER_MASK;
        if (aper != HG_PTE_APER_VRAM && aper != HG_PTE_APER_SYS) {
            f->reason = HG_REASON_APERTURE;
            return false;
        }
        if (level == 0 || (level == 1 && (pte & HG_PTE_HUGE))) {
            if (way) {
                hg_point(e, HG_AT_LEAF);
            }
            n->huge = level == 1;
            n->vpn = va >> HG_PAGE_SHIFT;
            n->addr = pte & HG_PTE_FRAME_MASK;
            if (n->huge) {
                n->vpn &= ~(uint64_t)511;
                n->addr &= ~(((uint64_t)1 << HG_HUGE_SHIFT) - 1);
            }
            n->pte = pte;
            n->asid = asid;
            n->valid = true;
            return true;
        }
        vram = aper == HG_PTE_APER_VRAM;
        table = pte & HG_PTE_FRAME_MASK;
        if (way) {
            hg_point(e, HG_AT_LEVEL);
        }
    }
}

/* Do the tables, as they are now, allow what a cached entry forbids? */
bool hg_tables_allow(HgEngine *e, unsigned asid, uint64_t va, unsigned access)
{
    HgTlbEnt now = { 0 };
    HgFault f = { 0 };

    return walk(e, asid, va, NULL, &now, &f) && hg_pte_allows(now.pte, access, &f.reason);
}

bool hg_would_miss(HgEngine *e, unsigned asid, uint64_t va, HgFault *f)
{
    HgDev *d = e->d;
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgTlbEnt leaf = { 0 };
    bool cached;

    *f = (HgFault) { .va = va, .access = HG_ACCESS_READ, .pend = HG_NO_PEND };
    if (va >> HG_VA_BITS || hg_tlb_find(&e->utlb, asid, vpn)) {
        return false;
    }
    pthread_mutex_lock(&d->l2_lock);
    cached = l2_find(&d->l2, asid, vpn);
    pthread_mutex_unlock(&d->l2_lock);
    return !cached && !walk(e, asid, va, NULL, &leaf, f) && f->reason == HG_REASON_PTE;
}

HgTlbEnt *hg_translate_slow(HgEngine *e, unsigned asid, uint64_t va, unsigned access, HgFault *f)
{
    HgDev *d = e->d;
    uint64_t vpn = va >> HG_PAGE_SHIFT;
    HgTlbEnt leaf, *t;

    f->va = va;
    f->access = access;
    f->level = 0;
    f->pend = HG_NO_PEND;
    f->ahead = false;
    if (va >> HG_VA_BITS) {
        f->reason = HG_REASON_RANGE;
        f->level = HG_PT_LEVELS - 1;
        return NULL;
    }
    t = hg_tlb_find(&e->utlb, asid, vpn);
    if (t) {                    /* the fast path saw that it forbids the access */
        hg_cnt(e, HG_CNT_UTLB_HITS, 1);
        hg_pte_allows(t->pte, access, &f->reason);
        f->level = t->huge;
        hg_check_stale(e, t, va, access, false);
        return NULL;
    }
    hg_cnt(e, HG_CNT_UTLB_MISSES, 1);

    memset(&leaf, 0, sizeof(leaf));
    pthread_mutex_lock(&d->l2_lock);
    uint64_t gen = d->l2_gen;
    t = l2_find(&d->l2, asid, vpn);
    if (t) {
        leaf = *t;
    }
    pthread_mutex_unlock(&d->l2_lock);
    if (t) {
        hg_cnt(e, HG_CNT_L2TLB_HITS, 1);
    } else {
        uint64_t epoch = hg_check_walk_begin(d);
        HgWay way = { .low = HG_PT_LEVELS };
        hg_cnt(e, HG_CNT_L2TLB_MISSES, 1);
        bool found = walk(e, asid, va, &way, &leaf, f), shown = hg_check_tables(d);
        if (found) {
            hg_check_walked(d, asid, epoch);
        } else if (!shown) {
            return NULL;
        }
        pthread_mutex_lock(&d->l2_lock);
        if (gen == d->l2_gen) {
            if (found) {
                tlb_insert(&d->l2, &leaf);
            }
            if (shown) {
                hg_check_tables_read(d, asid, va, &way);
            }
        }
        /*
         * Otherwise an invalidation came in between.  The micro-TLB may still
         * take the entry: this engine has the request and serves it at its
         * next safe point, after this access.
         */
        pthread_mutex_unlock(&d->l2_lock);
        if (!found) {
            return NULL;
        }
    }
    if (!hg_pte_allows(leaf.pte, access, &f->reason)) {
        f->level = leaf.huge;
        if (t) {
            hg_check_stale(e, &leaf, va, access, true);
        }
        return NULL;
    }
    leaf.addr += (vpn - leaf.vpn) << HG_PAGE_SHIFT;
    leaf.vpn = vpn;
    if ((leaf.pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM &&
        leaf.addr > d->cfg.vram_size - HG_PAGE_SIZE) {
        f->reason = HG_REASON_POISON;
        f->level = leaf.huge;
        return NULL;
    }
    if ((leaf.pte & HG_PTE_APER_MASK) == HG_PTE_APER_VRAM) {
        hg_check_vram(e, asid, va, leaf.addr);
    }
    hg_check_access(e, &leaf, access);
    hg_tlb_resolve(e, &leaf);
    hg_trace(d, HG_EV_TLB_FILL, (uint64_t)asid << 32 | e->kind | e->num << 8,
             vpn << HG_PAGE_SHIFT, leaf.pte, 0);
    if (atomic_load_explicit(&e->audit, memory_order_relaxed)) {
        hg_audit_note(e, &leaf, access, true);
    }
    t = tlb_insert(&e->utlb, &leaf);
    hg_point_held(e, vpn);
    return t;
}
