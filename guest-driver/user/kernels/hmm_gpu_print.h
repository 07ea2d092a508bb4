/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * printf of a kernel: hmm_printf(), and the memory it shares with libhmmgpu.
 *
 * A kernel does not format.  It leaves a record - the address of its format, who it
 * is, the arguments, the text of strings - in a buffer of the process, and the
 * library (lib/print.c) makes the text when somebody waits for the job.
 *
 * struct hmm_print, one a process.  Reserving: one atomic addition to `head`, of as
 * many granules as the record has.  If it reaches beyond the last granule the
 * record is lost, and counted.  Publishing: the number of granules, stored with
 * release into `tag` of the first, after all of the record.  The granules belong to
 * the thread from the addition to that store, afterwards to the library, which
 * takes what has a tag, and gives granules back by setting `head` to 0 when no
 * granule below it is a thread's any more.  So a thread that dies in between leaves
 * granules without tag and nothing else: records around it are found, as what is no
 * record has tag 0.  No thread ever waits for another, whatever lanes diverge.
 *
 * The library and the kernel take apart the format by the same function,
 * hmm_print_next(), hence agree which argument is what.
 */
#ifndef HMM_GPU_PRINT_H
#define HMM_GPU_PRINT_H

#include <stddef.h>
#include <stdint.h>

#define HMM_PRINT_GRANULES	16384
#define HMM_PRINT_WORDS		8	/* of 8 bytes in a granule */
#define HMM_PRINT_MAX		127	/* granules of a record */
#define HMM_PRINT_STRING	1024	/* bytes of a string that are printed */

/* tag: 0: no record starts here (that is complete), else its granules, with ... */
#define HMM_PRINT_TAKEN		0x80	/* ... this once it was printed */
/* ... this alone: none from here to the end, where one did not fit */
#define HMM_PRINT_HOLE		0x80

/* Words of a record: format; block | thread << 32; arguments.  A string: its bytes, or this, and then them. */
#define HMM_PRINT_NULL		UINT64_MAX

struct hmm_print {
	uint64_t head;			/* granules reserved, may be beyond the end */
	uint64_t lost;			/* records */
	uint64_t pad[6];
	uint8_t tag[HMM_PRINT_GRANULES];
	uint64_t data[HMM_PRINT_GRANULES][HMM_PRINT_WORDS];
};

/* Where the loader leaves the address of struct hmm_print: each word of this section. */
#define HMM_PRINT_SECTION	"hmm_print"

enum hmm_print_kind {
	HMM_PRINT_PERCENT,		/* %%: no argument */
	HMM_PRINT_WORD,			/* one of 8 bytes */
	HMM_PRINT_TEXT,			/* a string */
	HMM_PRINT_STOP			/* not known: from here on the format is text */
};

/* One conversion of a format. */
struct hmm_print_conv {
	enum hmm_print_kind kind;
	char conv;			/* d, i, u, x, ... */
	char length;			/* 0, h, H (hh), l, L (ll), j, z, t */
	uint8_t flags;			/* bits in the order of "-+ #0'" */
	uint8_t star_width, star_precision;	/* given by an argument */
	uint8_t has_precision;
	uint32_t width, precision;
};

/* A number of more than 4 digits is as good as the largest: C promises 4095 characters. */
static inline const char *hmm_print_number(const char *f, uint32_t *n)
{
	*n = 0;
	for (; *f >= '0' && *f <= '9'; f++)
		if (*n < 10000)
			*n = *n * 10 + (uint32_t)(*f - '0');
	return f;
}

/* f: behind a '%'.  Returns what follows the conversion. */
static inline const char *hmm_print_next(const char *f, struct hmm_print_conv *c)
{
	c->length = 0;
	c->flags = c->star_width = c->star_precision = c->has_precision = 0;
	c->width = c->precision = 0;
	for (;; f++) {
		uint8_t bit = *f == '-' ? 1 : *f == '+' ? 2 : *f == ' ' ? 4 : *f == '#' ? 8 :
			      *f == '0' ? 16 : *f == '\'' ? 32 : 0;

		if (!bit)
			break;
		c->flags |= bit;
	}
	if (*f == '*') {
		c->star_width = 1;
		f++;
	} else {
		f = hmm_print_number(f, &c->width);
	}
	if (*f == '.') {
		c->has_precision = 1;
		f++;
		if (*f == '*') {
			c->star_precision = 1;
			f++;
		} else {
			f = hmm_print_number(f, &c->precision);
		}
	}
	if (*f == 'h' || *f == 'l' || *f == 'j' || *f == 'z' || *f == 't') {
		c->length = *f++;
		if ((c->length == 'h' || c->length == 'l') && *f == c->length) {
			c->length = c->length == 'h' ? 'H' : 'L';
			f++;
		}
	}
	c->conv = *f;
	switch (*f) {
	case 'd': case 'i': case 'u': case 'x': case 'X': case 'o':
		c->kind = HMM_PRINT_WORD;
		break;
	case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A':
		c->kind = c->length && c->length != 'l' ? HMM_PRINT_STOP : HMM_PRINT_WORD;
		break;
	case 'c': case 'p':
		c->kind = c->length ? HMM_PRINT_STOP : HMM_PRINT_WORD;
		break;
	case 's':
		c->kind = c->length ? HMM_PRINT_STOP : HMM_PRINT_TEXT;
		break;
	case '%':
		c->kind = HMM_PRINT_PERCENT;
		break;
	default:
		c->kind = HMM_PRINT_STOP;
		return f;
	}
	return f + 1;
}

#if defined(HMM_GPU_KERNEL_H) && !defined(HMM_GPU_NATIVE)

/* Read-only to the program: the loader writes it. */
static const volatile uint64_t hmm_print_slot
	__attribute__((section(HMM_PRINT_SECTION), unused, aligned(8))) = 0;

/* Bytes of a string, up to a limit that it need not end before. */
static inline uint64_t hmm_print_length(const char *s, const struct hmm_print_conv *c)
{
	uint64_t limit = HMM_PRINT_STRING, n = 0;

	if (c->has_precision && c->precision < limit)
		limit = c->precision;
	while (n < limit && s[n])
		n++;
	return n;
}

/*
 * Goes through the arguments; to == NULL: only counts the words.  In the second
 * round a string may have changed, if another thread writes to it; what does not
 * fit any more is cut off.
 */
static inline uint64_t hmm_print_words(const char *f, __builtin_va_list ap, uint64_t *to,
				       uint64_t max)
{
	struct hmm_print_conv c;
	uint64_t n = 0;

#define HMM_PRINT_PUT_(word) do {						\
		uint64_t w_ = (word);						\
		if (to && n < max)						\
			to[n] = w_;						\
		n++;								\
	} while (0)
	while (*f) {
		if (*f++ != '%')
			continue;
		f = hmm_print_next(f, &c);
		if (c.kind == HMM_PRINT_STOP)
			break;
		/* On RISC-V an argument of any of these types has 8 bytes of its own. */
		if (c.star_width)
			HMM_PRINT_PUT_(__builtin_va_arg(ap, uint64_t));
		if (c.star_precision) {
			uint64_t p = __builtin_va_arg(ap, uint64_t);

			HMM_PRINT_PUT_(p);
			c.has_precision = (int32_t)p >= 0;
			c.precision = (uint32_t)p;
		}
		if (c.kind == HMM_PRINT_WORD) {
			HMM_PRINT_PUT_(__builtin_va_arg(ap, uint64_t));
		} else if (c.kind == HMM_PRINT_TEXT) {
			const char *s = __builtin_va_arg(ap, const char *);
			uint64_t len = s ? hmm_print_length(s, &c) : 0;

			if (to && n < max && len > (max - n - 1) * 8)
				len = (max - n - 1) * 8;
			HMM_PRINT_PUT_(s ? len : HMM_PRINT_NULL);
			for (uint64_t i = 0; i < len; i += 8) {
				uint64_t word = 0;

				if (to)
					for (uint64_t k = 0; k < 8 && i + k < len; k++)
						word |= (uint64_t)(uint8_t)s[i + k] << 8 * k;
				HMM_PRINT_PUT_(word);
			}
		}
	}
#undef HMM_PRINT_PUT_
	return n;
}

/*
 * hmm_printf - as printf(3), from any thread of a kernel
 *
 * The text of all threads reaches the program's standard output, or what
 * hmmgpu_set_print() was told, at the latest when the program has waited for the
 * job; a thread's in its order, and what happens before (a barrier, an atomic)
 * comes before.  A call's text stays together.
 *
 * The format is a string of the program's (a literal).  Conversions: d i u x X o c
 * s p e E f F g G a A %, with flags, width, precision (* too), hh h l ll j z t.
 * A string is printed up to 1024 bytes; it is read here, so it may change afterwards,
 * and one that cannot be read ends the job, here.
 * 1 MiB of records is kept until somebody waits, 8 KiB at most of one call; what
 * does not fit is lost, and the number of lost calls is printed.
 *
 * Takes some 200 bytes of stack.  Returns 0, or -1 if the record is lost.
 */
static __attribute__((noinline, unused, format(printf, 1, 2)))
int hmm_printf(const char *format, ...)
{
	struct hmm_print *p = (struct hmm_print *)hmm_print_slot;
	uint64_t words, granules, at, *to;
	__builtin_va_list ap;

	if (!p)
		return -1;
	__builtin_va_start(ap, format);
	words = 2 + hmm_print_words(format, ap, NULL, 0);
	__builtin_va_end(ap);
	granules = (words + HMM_PRINT_WORDS - 1) / HMM_PRINT_WORDS;
	/* A full buffer is left alone, so that head cannot grow without end. */
	if (granules > HMM_PRINT_MAX ||
	    __atomic_load_n(&p->head, __ATOMIC_RELAXED) >= HMM_PRINT_GRANULES)
		goto lost;
	at = __atomic_fetch_add(&p->head, granules, __ATOMIC_ACQUIRE);
	if (at + granules > HMM_PRINT_GRANULES) {
		if (at < HMM_PRINT_GRANULES)
			__atomic_store_n(&p->tag[at], HMM_PRINT_HOLE, __ATOMIC_RELEASE);
		goto lost;
	}
	to = p->data[at];
	to[0] = (uint64_t)format;
	to[1] = hmm_bid() | (uint64_t)hmm_tid() << 32;
	__builtin_va_start(ap, format);
	hmm_print_words(format, ap, to + 2, granules * HMM_PRINT_WORDS - 2);
	__builtin_va_end(ap);
	__atomic_store_n(&p->tag[at], (uint8_t)granules, __ATOMIC_RELEASE);
	return 0;
lost:
	__atomic_fetch_add(&p->lost, 1, __ATOMIC_RELAXED);
	return -1;
}

#elif defined(HMM_GPU_KERNEL_H)

int printf(const char *format, ...);
#define hmm_printf printf

#endif

#endif
