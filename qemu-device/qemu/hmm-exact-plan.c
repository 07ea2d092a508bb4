/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-exact: a schedule, as a line of words:
 *
 *   seed=N               of all that is drawn
 *   slice=LO:HI          a CPU runs 2^LO to 2^(HI+1) instructions at a time
 *   hold=N:LO:HI         N times a CPU is left alone for 2^LO to 2^(HI+1) ns,
 *   span=NS              at times spread over so many ns
 *   busy=N               only while N operations are under way, and only such time
 *                        counts for span
 *   point=N:LO:HI        as hold, but where a CPU comes to one of the addresses of
 *   at=ADDR,...          (hexadecimal),
 *   odds=N               at one passage of N, or
 *   fair=N               at N of n, for the nth of an address in a phase: so places
 *                        seldom passed are not lost among those that always are
 *   crowd=N              there, while fewer than N are held; from 2 on also the last who
 *                        has something to do
 *   step=LO:HI:LO:HI     engines of devices step every 2^LO to 2^(HI+1) ns, 2^LO to
 *                        2^HI units each time
 *   irq=LO:HI            their interrupts come 2^LO to 2^(HI+1) ns late; 0:0: at once
 *   do=PHASE:ADDR:N:NS,...  the CPU that comes to this address as the Nth (from 1) in
 *                        this phase of the program is left alone for so many ns,
 *                        whoever else has something to do
 *   count=ADDR,...       passages of these addresses are counted, for the log
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/ctype.h"
#include "qemu/cutils.h"
#include "hmm-exact.h"

#define HMM_EXACT_MAX_LOG2 40

/* splitmix64 */
uint64_t hmm_exact_draw(HmmExactPlan *p, unsigned stream)
{
    uint64_t z = p->stream[stream] += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t hmm_exact_draw_below(HmmExactPlan *p, unsigned stream, uint64_t n)
{
    return hmm_exact_draw(p, stream) % n;
}

uint64_t hmm_exact_draw_range(HmmExactPlan *p, unsigned stream,
                              HmmExactRange r)
{
    uint64_t size = 1ull << (r.lo + hmm_exact_draw(p, stream) %
                                    (r.hi - r.lo + 1));

    return size + hmm_exact_draw(p, stream) % size;
}

static int by_place(const void *a, const void *b)
{
    const HmmExactDecision *x = a, *y = b;

    if (x->pc != y->pc) {
        return x->pc < y->pc ? -1 : 1;
    }
    if (x->at.phase != y->at.phase) {
        return x->at.phase < y->at.phase ? -1 : 1;
    }
    return x->at.number < y->at.number ? -1 : x->at.number > y->at.number;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

void hmm_exact_sort(GArray *addresses)
{
    g_array_sort(addresses, by_value);
}

static const uint64_t *find(const GArray *sorted, uint64_t address)
{
    return sorted && sorted->len ? bsearch(&address, sorted->data, sorted->len,
                                           sizeof(address), by_value) : NULL;
}

bool hmm_exact_among(const GArray *sorted, uint64_t address)
{
    return find(sorted, address);
}

bool hmm_exact_plan_point(const HmmExactPlan *p, uint64_t pc)
{
    return find(p->at, pc);
}

int hmm_exact_plan_counted(const HmmExactPlan *p, uint64_t pc)
{
    const uint64_t *found = find(p->counted, pc);

    return found ? found - (uint64_t *)p->counted->data : -1;
}

uint64_t hmm_exact_plan_decided(const HmmExactPlan *p, uint64_t pc, HmmExactPassage at)
{
    HmmExactDecision key = { .pc = pc, .at = at }, *found = NULL;

    if (p->decisions->len) {
        found = bsearch(&key, p->decisions->data, p->decisions->len, sizeof(key),
                        by_place);
    }
    return found ? found->ns : 0;
}

/* So many numbers with ':' between them. */
static bool numbers(const char *text, unsigned n, uint64_t *to)
{
    for (unsigned i = 0; i < n; i++) {
        /* strtou64 takes "-1" for a large number. */
        if (!qemu_isdigit(*text) || qemu_strtou64(text, &text, 10, &to[i]) ||
            *text != (i + 1 < n ? ':' : 0)) {
            return false;
        }
        text++;
    }
    return true;
}

static bool range(HmmExactRange *r, const uint64_t *v)
{
    if (v[0] > v[1] || v[1] > HMM_EXACT_MAX_LOG2) {
        return false;
    }
    *r = (HmmExactRange) { .lo = v[0], .hi = v[1] };
    return true;
}

static bool addresses(GArray *at, const char *text)
{
    uint64_t pc;

    while (*text) {
        if (qemu_strtou64(text, &text, 16, &pc) || (*text && *text != ',')) {
            return false;
        }
        g_array_append_val(at, pc);
        text += *text == ',';
    }
    hmm_exact_sort(at);
    return true;
}

/* A number up to 1 << most, with `end` behind it; *text goes on after that. */
static bool part(const char **text, int base, char end, unsigned most, uint64_t *to)
{
    /* qemu_strtou64 takes signs and spaces, too. */
    if (!qemu_isxdigit(**text) || qemu_strtou64(*text, text, base, to) ||
        (**text != end && !(end == ',' && !**text)) ||
        (most < 64 && *to > 1ull << most)) {
        return false;
    }
    *text += **text == end;
    return true;
}

static bool decisions(HmmExactPlan *p, const char *text)
{
    while (*text) {
        HmmExactDecision d;
        uint64_t phase, passage;

        if (!part(&text, 10, ':', 16, &phase) || phase > UINT16_MAX ||
            !part(&text, 16, ':', 64, &d.pc) ||
            !part(&text, 10, ':', 31, &passage) || !passage ||
            !part(&text, 10, ',', HMM_EXACT_MAX_LOG2, &d.ns) || !d.ns) {
            return false;
        }
        d.at = (HmmExactPassage) { .phase = phase, .number = passage };
        g_array_append_val(p->decisions, d);
    }
    g_array_sort(p->decisions, by_place);
    for (unsigned i = 1; i < p->decisions->len; i++) {
        HmmExactDecision *d = &g_array_index(p->decisions, HmmExactDecision, i);

        if (!by_place(d - 1, d)) {
            return false;       /* for how long, then? */
        }
    }
    return p->decisions->len;
}

/* Those of count=, at= and do=, each once. */
static void count(HmmExactPlan *p)
{
    GArray *all = p->counted;
    unsigned kept = 0;

    for (unsigned i = 0; i < p->decisions->len; i++) {
        g_array_append_val(all, g_array_index(p->decisions, HmmExactDecision, i).pc);
    }
    g_array_append_vals(all, p->count->data, p->count->len);
    g_array_append_vals(all, p->at->data, p->at->len);
    hmm_exact_sort(all);
    for (unsigned i = 0; i < all->len; i++) {
        uint64_t pc = g_array_index(all, uint64_t, i);

        if (!kept || g_array_index(all, uint64_t, kept - 1) != pc) {
            g_array_index(all, uint64_t, kept++) = pc;
        }
    }
    g_array_set_size(all, kept);
}

static bool word(HmmExactPlan *p, const char *name, const char *value)
{
    uint64_t v[4];

    if (!strcmp(name, "seed")) {
        return numbers(value, 1, &p->seed);
    } else if (!strcmp(name, "slice")) {
        return numbers(value, 2, v) && range(&p->slice, v);
    } else if (!strcmp(name, "hold")) {
        return numbers(value, 3, v) && v[0] <= UINT16_MAX &&
               (p->holds = v[0], range(&p->hold, v + 1));
    } else if (!strcmp(name, "span")) {
        return numbers(value, 1, v) && v[0] && v[0] <= 1ull << HMM_EXACT_MAX_LOG2 &&
               (p->span = v[0], true);
    } else if (!strcmp(name, "busy")) {
        return numbers(value, 1, v) && v[0] <= UINT16_MAX && (p->busy = v[0], true);
    } else if (!strcmp(name, "point")) {
        return numbers(value, 3, v) && v[0] <= UINT16_MAX &&
               (p->point_holds = v[0], range(&p->point_hold, v + 1));
    } else if (!strcmp(name, "crowd")) {
        return numbers(value, 1, v) && v[0] && v[0] <= HMM_EXACT_CPUS &&
               (p->crowd = v[0], true);
    } else if (!strcmp(name, "odds")) {
        return numbers(value, 1, v) && v[0] && v[0] <= UINT32_MAX &&
               (p->odds = v[0], true);
    } else if (!strcmp(name, "fair")) {
        return numbers(value, 1, v) && v[0] <= UINT16_MAX && (p->fair = v[0], true);
    } else if (!strcmp(name, "at")) {
        return addresses(p->at, value);
    } else if (!strcmp(name, "step")) {
        return numbers(value, 4, v) && range(&p->gap, v) &&
               v[3] < 32 && range(&p->steps, v + 2);
    } else if (!strcmp(name, "irq")) {
        return numbers(value, 2, v) && range(&p->irq, v);
    } else if (!strcmp(name, "do")) {
        return decisions(p, value);
    } else if (!strcmp(name, "count")) {
        return addresses(p->count, value);
    }
    return false;
}

bool hmm_exact_plan_read(HmmExactPlan *p, const char *text, Error **errp)
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);

    *p = (HmmExactPlan) {
        .slice = { 10, 14 }, .hold = { 14, 22 }, .point_hold = { 14, 22 },
        .span = 10 * 1000 * 1000, .odds = 1, .crowd = 1, .gap = { 9, 15 }, .steps = { 0, 8 },
        .at = g_array_new(false, false, sizeof(uint64_t)),
        .count = g_array_new(false, false, sizeof(uint64_t)),
        .counted = g_array_new(false, false, sizeof(uint64_t)),
        .decisions = g_array_new(false, false, sizeof(HmmExactDecision)),
    };
    for (char **w = words; *w; w++) {
        char *value = strchr(*w, '=');

        if (!**w) {
            continue;
        }
        if (value) {
            *value++ = 0;
        }
        if (!value || !word(p, *w, value)) {
            error_setg(errp, "schedule: '%s%s%s' is no word of it "
                       "(seed=N slice=LO:HI hold=N:LO:HI span=NS busy=N "
                       "point=N:LO:HI at=ADDR,... odds=N fair=N crowd=N "
                       "step=LO:HI:LO:HI irq=LO:HI do=PHASE:ADDR:N:NS,... count=ADDR,...)",
                       *w, value ? "=" : "", value ? value : "");
            hmm_exact_plan_free(p);
            return false;
        }
    }
    count(p);
    for (unsigned i = 0; i < HMM_EXACT_STREAMS; i++) {
        p->stream[i] = p->seed * 0x2545f4914f6cdd1dull + i;
        p->stream[i] = hmm_exact_draw(p, i);
    }
    return true;
}

void hmm_exact_plan_free(HmmExactPlan *p)
{
    GArray **all[] = { &p->at, &p->count, &p->counted, &p->decisions };

    for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
        if (*all[i]) {
            g_array_unref(*all[i]);
            *all[i] = NULL;
        }
    }
}

static void append(GString *s, const char *name, const GArray *addresses)
{
    for (unsigned i = 0; i < addresses->len; i++) {
        g_string_append_printf(s, "%s%" PRIx64, i ? "," : name,
                               g_array_index(addresses, uint64_t, i));
    }
}

char *hmm_exact_plan_text(const HmmExactPlan *p)
{
    g_autoptr(GString) s = g_string_new(NULL);

    g_string_printf(s, "seed=%" PRIu64 " slice=%u:%u hold=%u:%u:%u span=%" PRId64
                    " busy=%u point=%u:%u:%u odds=%u fair=%u crowd=%u step=%u:%u:%u:%u irq=%u:%u",
                    p->seed, p->slice.lo, p->slice.hi, p->holds, p->hold.lo,
                    p->hold.hi, p->span, p->busy, p->point_holds, p->point_hold.lo,
                    p->point_hold.hi, p->odds, p->fair, p->crowd, p->gap.lo, p->gap.hi,
                    p->steps.lo, p->steps.hi, p->irq.lo, p->irq.hi);
    append(s, " at=", p->at);
    for (unsigned i = 0; i < p->decisions->len; i++) {
        HmmExactDecision *d = &g_array_index(p->decisions, HmmExactDecision, i);

        g_string_append_printf(s, "%s%u:%" PRIx64 ":%u:%" PRIu64, i ? "," : " do=",
                               d->at.phase, d->pc, d->at.number, d->ns);
    }
    append(s, " count=", p->count);
    return g_string_free(g_steal_pointer(&s), false);
}
