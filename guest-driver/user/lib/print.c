// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libhmmgpu: what kernels print (kernels/hmm_gpu_print.h has the GPU's half).
 *
 * One buffer a process, made when the first program that prints is loaded, in
 * shared memory: so it never migrates, and printing evicts nothing.  It stays
 * until the process ends, as threads of any program may have its address.
 *
 * `lock` guards everything here, is held while text is put out, and is taken by
 * every call that waits for a job once the job is over.  So when such a call returns,
 * what the job printed is out, whoever took the records.
 *
 * ORDER.  Tags are read from the last to the first.  A record that was made
 * because of another one has the higher number, so if it is seen, the other, which is
 * looked at later, is seen too: effects never come before their causes.
 *
 * GIVING BACK.  Granules below `head` are free again when head becomes 0, which it
 * may only while none of them is a thread's: (a) all records have been taken; or
 * (b) what is left has no tag and no job is under way in any context, which was
 * looked at after `head` was read: whoever reserved below head is over then, having
 * died before its tag.  Tags are zero before head is 0.  If somebody reserved
 * meanwhile the exchange fails, and granules below `done` are left alone until the next time.
 *
 * FORK.  The child gets a buffer of its own at the same address (made_child()):
 * the parent's records are the parent's to print.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hmm_gpu_print.h"
#include "internal.h"

#define MAX_FIELD	4095	/* characters that C promises for one conversion */

struct program {
	struct program *next;
	const char *base;
	uint64_t len;
};

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	struct hmm_print *buffer;	/* NULL: nothing prints; read without lock too */
	struct program *programs;	/* that print */
	struct hmmgpu_ctx *ctxs;	/* all of the process, and of its parent before fork() */
	uint64_t done;			/* granules below have been dealt with, their tags are 0 */
	uint64_t seen_lost;
	hmmgpu_print_fn fn;
	void *data;
	char *text;			/* of the record at hand */
	size_t room, len;
} print = { .lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT };

/* A mutex that another thread holds would stay locked in a child for ever. */
static void before_fork(void)
{
	pthread_mutex_lock(&print.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&print.lock);
}

static void made_child(void)
{
	if (print.buffer &&
	    mmap(print.buffer, sizeof(*print.buffer), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();	/* it would print what is its parent's */
	print.done = 0;
	print.seen_lost = 0;
	pthread_mutex_unlock(&print.lock);
}

static void set_up(void)
{
	pthread_atfork(before_fork, after_fork, made_child);
}

void hg_print_add_ctx(struct hmmgpu_ctx *ctx)
{
	pthread_once(&print.once, set_up);
	pthread_mutex_lock(&print.lock);
	ctx->next = print.ctxs;
	print.ctxs = ctx;
	pthread_mutex_unlock(&print.lock);
}

void hg_print_remove_ctx(struct hmmgpu_ctx *ctx)
{
	struct hmmgpu_ctx **at = &print.ctxs;

	pthread_mutex_lock(&print.lock);
	while (*at != ctx)
		at = &(*at)->next;
	*at = ctx->next;
	pthread_mutex_unlock(&print.lock);
	/*
	 * Not before: the driver knows the context no more, so in the list it would never be
	 * idle, and what its last job died in would not be given back.
	 */
	hmmgpu_print_flush();
}

int hg_print_add_program(const void *base, uint64_t len, uint64_t *buffer)
{
	struct program *p = malloc(sizeof(*p));
	void *b;

	if (!p)
		return -ENOMEM;
	*p = (struct program){ .base = base, .len = len };
	pthread_once(&print.once, set_up);
	pthread_mutex_lock(&print.lock);
	if (!print.buffer) {
		b = mmap(NULL, sizeof(*print.buffer), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (b == MAP_FAILED) {
			pthread_mutex_unlock(&print.lock);
			free(p);
			return -ENOMEM;
		}
		__atomic_store_n(&print.buffer, b, __ATOMIC_RELEASE);
	}
	p->next = print.programs;
	print.programs = p;
	*buffer = (uintptr_t)print.buffer;
	pthread_mutex_unlock(&print.lock);
	return 0;
}

void hg_print_remove_program(const void *base)
{
	struct program **at = &print.programs, *p;

	/* Formats are in the program. */
	hmmgpu_print_flush();
	pthread_mutex_lock(&print.lock);
	while ((p = *at) && p->base != base)
		at = &p->next;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&print.lock);
	free(p);
}

int hg_print_is_on(void)
{
	return __atomic_load_n(&print.buffer, __ATOMIC_RELAXED) != NULL;
}

void hmmgpu_set_print(hmmgpu_print_fn fn, void *data)
{
	hmmgpu_print_flush();
	pthread_mutex_lock(&print.lock);
	print.fn = fn;
	print.data = data;
	pthread_mutex_unlock(&print.lock);
}

/* ---- text; all under the lock ---- */

static int make_room(size_t n)
{
	size_t room = print.room;
	char *text;

	if (room - print.len >= n)
		return 1;
	room = (print.len + n) * 2;
	text = realloc(print.text, room);
	if (!text)
		return 0;	/* what does not fit into memory is left out */
	print.text = text;
	print.room = room;
	return 1;
}

static void add(const char *from, size_t n)
{
	if (n && make_room(n)) {
		memcpy(print.text + print.len, from, n);
		print.len += n;
	}
}

static __attribute__((format(printf, 1, 2))) void add_text(const char *format, ...)
{
	va_list ap;
	int n;

	/* A number has up to 309 digits before the point, and a sign and separators. */
	if (!make_room(2 * MAX_FIELD))
		return;
	va_start(ap, format);
	n = vsnprintf(print.text + print.len, print.room - print.len, format, ap);
	va_end(ap);
	if (n > 0)
		print.len += (size_t)n < print.room - print.len ? (size_t)n : print.room - print.len - 1;
}

static void put_out(uint32_t block, uint32_t thread)
{
	if (print.fn)
		print.fn(print.data, print.text, print.len, block, thread);
	else
		fwrite(print.text, 1, print.len, stdout);
	print.len = 0;
}

/* What is left of a record.  Whatever is in it, nothing outside is read. */
struct words {
	const uint64_t *at;
	uint64_t left;
};

static uint64_t take(struct words *w)
{
	if (!w->left)
		return 0;
	w->left--;
	return *w->at++;
}

static int as_width(uint64_t word)
{
	int64_t n = (int32_t)word;

	return n > MAX_FIELD ? MAX_FIELD : n < -MAX_FIELD ? -MAX_FIELD : (int)n;
}

static int64_t as_signed(char length, uint64_t v)
{
	switch (length) {
	case 'H': return (int8_t)v;
	case 'h': return (int16_t)v;
	case 0: return (int32_t)v;
	default: return (int64_t)v;
	}
}

static uint64_t as_unsigned(char length, uint64_t v)
{
	switch (length) {
	case 'H': return (uint8_t)v;
	case 'h': return (uint16_t)v;
	case 0: return (uint32_t)v;
	default: return v;
	}
}

/* The C library formats, told "%" flags "*.*" and the widest type. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void add_conv(const struct hmm_print_conv *c, struct words *w)
{
	static const char flags[] = "-+ #0'";
	int width, precision = -1;
	char spec[24], *s = spec;
	double d;
	uint64_t v;

	*s++ = '%';
	for (unsigned int i = 0; i < sizeof(flags) - 1; i++)
		if (c->flags & 1 << i)
			*s++ = flags[i];
	memcpy(s, "*.*", 4);
	s += 3;
	width = c->star_width ? as_width(take(w)) : as_width(c->width);
	if (c->star_precision)
		precision = as_width(take(w));
	else if (c->has_precision)
		precision = as_width(c->precision);
	if (!w->left) {
		add("(?)", 3);	/* a string before it has become longer while it was printed */
		return;
	}
	v = take(w);
	switch (c->conv) {
	case 'd': case 'i':
		memcpy(s, "lld", 4);
		add_text(spec, width, precision, (long long)as_signed(c->length, v));
		break;
	case 'u': case 'x': case 'X': case 'o':
		memcpy(s, "ll", 2);
		s[2] = c->conv;
		s[3] = 0;
		add_text(spec, width, precision, (unsigned long long)as_unsigned(c->length, v));
		break;
	case 'c':
		memcpy(s, "c", 2);
		add_text(spec, width, precision, (int)(uint8_t)v);
		break;
	case 'p':
		memcpy(s, "p", 2);
		add_text(spec, width, precision, (void *)(uintptr_t)v);
		break;
	case 's':
		memcpy(s, "s", 2);
		if (v == HMM_PRINT_NULL) {
			add_text(spec, width, precision, "(null)");
			break;
		}
		/* not terminated, and its length is the precision's already */
		if (v > w->left * 8)
			v = w->left * 8;
		add_text(spec, width, (int)(v < MAX_FIELD ? v : MAX_FIELD), (const char *)w->at);
		w->left -= (v + 7) / 8;
		w->at += (v + 7) / 8;
		break;
	default:
		s[0] = c->conv;
		s[1] = 0;
		memcpy(&d, &v, sizeof(d));
		add_text(spec, width, precision, d);
		break;
	}
}
#pragma GCC diagnostic pop

/* A string of a loaded program, or NULL. */
static const char *find_format(uint64_t addr)
{
	for (struct program *p = print.programs; p; p = p->next) {
		uint64_t off = addr - (uintptr_t)p->base;

		if (off < p->len && memchr(p->base + off, 0, p->len - off))
			return p->base + off;
	}
	return NULL;
}

static void put_record(const uint64_t *record, uint64_t granules)
{
	struct words w = { record + 2, granules * HMM_PRINT_WORDS - 2 };
	const char *f = find_format(record[0]), *end;
	struct hmm_print_conv c;

	if (!f)
		add_text("(a format that is no string of the program, at 0x%llx)\n",
			 (unsigned long long)record[0]);
	for (; f && *f; f = end) {
		if (*f != '%') {
			end = f + strcspn(f, "%");
			add(f, end - f);
			continue;
		}
		end = hmm_print_next(f + 1, &c);
		if (c.kind == HMM_PRINT_STOP) {
			end = f + strlen(f);
			add(f, end - f);
		} else if (c.kind == HMM_PRINT_PERCENT) {
			/* as the kernel did: what stands between the two may take words */
			for (unsigned int i = c.star_width + c.star_precision; i; i--)
				take(&w);
			add("%", 1);
		} else {
			add_conv(&c, &w);
		}
	}
	put_out((uint32_t)record[1], (uint32_t)(record[1] >> 32));
}

/* ---- records; all under the lock ---- */

/*
 * Puts out the records below `n`; those without tag are dead, or may yet be completed.
 * Returns whether there are such.
 */
static int take_records(uint64_t n, int all_over)
{
	static uint8_t tag[HMM_PRINT_GRANULES];
	struct hmm_print *b = print.buffer;
	int open = 0;

	for (uint64_t i = n; i-- > print.done;)
		tag[i] = __atomic_load_n(&b->tag[i], __ATOMIC_ACQUIRE);
	for (uint64_t i = print.done, granules; i < n; i += granules) {
		granules = tag[i] & ~HMM_PRINT_TAKEN;
		if (tag[i] == HMM_PRINT_HOLE)
			break;
		if (!tag[i]) {
			open = !all_over;
			granules = 1;
		} else if (!(tag[i] & HMM_PRINT_TAKEN)) {
			/* a tag from nowhere: a kernel wrote to what is not its */
			if (granules > HMM_PRINT_GRANULES - i)
				granules = HMM_PRINT_GRANULES - i;
			b->tag[i] = HMM_PRINT_TAKEN | (uint8_t)granules;
			put_record(b->data[i], granules);
		}
	}
	return open;
}

/* Whether no job is under way; see the top for what that means. */
static int all_idle(void)
{
	for (struct hmmgpu_ctx *c = print.ctxs; c; c = c->next) {
		uint64_t last;
		int ret;

		if (c->gpu->owner != getpid())
			continue;
		if (__atomic_load_n(&c->launching, __ATOMIC_SEQ_CST))
			return 0;
		last = __atomic_load_n(&c->last, __ATOMIC_SEQ_CST);
		ret = last ? hg_wait(c, last, 0, NULL) : 0;
		if (ret && ret != -ENODATA)
			return 0;
	}
	return 1;
}

static void take_all(void)
{
	struct hmm_print *b = print.buffer;
	uint64_t head, n;

	/* Who prints for ever is not waited for. */
	for (unsigned int turn = 0; turn < 4; turn++) {
		head = __atomic_load_n(&b->head, __ATOMIC_SEQ_CST);
		n = head < HMM_PRINT_GRANULES ? head : HMM_PRINT_GRANULES;
		if (n > print.done && take_records(n, 0) && (!all_idle() || take_records(n, 1)))
			return;
		memset(b->tag + print.done, 0, n - print.done);
		print.done = n;
		if (!head)
			return;
		if (__atomic_compare_exchange_n(&b->head, &head, 0, 0, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST)) {
			print.done = 0;
			return;
		}
	}
}

void hmmgpu_print_flush(void)
{
	uint64_t lost;

	if (!hg_print_is_on())
		return;
	pthread_mutex_lock(&print.lock);
	take_all();
	lost = __atomic_load_n(&print.buffer->lost, __ATOMIC_RELAXED);
	if (lost != print.seen_lost) {
		add_text("[hmmgpu: %llu calls of hmm_printf() lost: no room]\n",
			 (unsigned long long)(lost - print.seen_lost));
		put_out(HMMGPU_PRINT_LOST, HMMGPU_PRINT_LOST);
		print.seen_lost = lost;
	}
	pthread_mutex_unlock(&print.lock);
}
