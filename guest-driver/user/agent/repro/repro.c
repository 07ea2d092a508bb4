// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs a reproducer's table (repro.h) on the engine, and compares what came of it
 * with what the table allows.  One thread; all that may crash or hang is in the
 * engine's processes.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "gpu_kernels.h"
#include "hmmgpu.h"
#include "repro.h"
#include "table.h"

#define ENVIRONMENT	3	/* exit status */

/* Of a run: what the table is compared with. */
struct outcome {
	const struct hb_result *result;
	const struct hb_op_result *ops;
	const struct hb_access_result *accesses;	/* of the operation that is looked at */
	const uint8_t *data;
	unsigned violations;
};

static __attribute__((noreturn, format(printf, 1, 2))) void give_up(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(ENVIRONMENT);
}

static __attribute__((format(printf, 3, 4))) void violation(struct outcome *o,
							     const struct repro_op *op,
							     const char *format, ...)
{
	va_list ap;

	if (op)
		fprintf(stderr, "process %u actor %u phase %u: ", op->proc, op->actor, op->phase);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	o->violations++;
}

/* ---- the program ---- */

/* As the engine takes it, in memory of malloc(). */
static uint8_t *encode(const struct repro *what, size_t *len)
{
	struct hb_program head = {
		.version = HB_PROTOCOL_VERSION, .nops = what->nops,
		.timeout_ms = what->timeout_s * 1000,
	};
	struct hb_access *access;
	struct hb_op *op;
	uint8_t *text;

	for (unsigned i = 0; i < what->nops; i++)
		head.naccesses += what->ops[i].naccesses;
	memcpy(head.file_pages, what->file_pages, sizeof(head.file_pages));
	*len = sizeof(head) + head.nops * sizeof(*op) + head.naccesses * sizeof(*access);
	text = calloc(1, *len);
	if (!text)
		give_up("no memory for %u operations", head.nops);
	memcpy(text, &head, sizeof(head));
	op = (struct hb_op *)(text + sizeof(head));
	access = (struct hb_access *)(op + head.nops);
	head.naccesses = 0;
	for (unsigned i = 0; i < what->nops; i++, op++) {
		const struct repro_op *from = &what->ops[i];
		const struct op_kind *kind = op_named(from->name);

		if (!kind)
			give_up("there is no operation of the name \"%s\"", from->name);
		*op = (struct hb_op){
			.op = kind->number, .proc = from->proc, .actor = from->actor,
			.phase = from->phase, .region = from->region, .flags = from->flags,
			.access_first = head.naccesses, .access_count = from->naccesses,
			.arg = from->arg, .off = from->off, .len = from->len,
			.a = from->a, .b = from->b, .c = from->c,
		};
		head.naccesses += from->naccesses;
		for (unsigned n = 0; n < from->naccesses; n++)
			*access++ = (struct hb_access){
				.kind = from->accesses[n].kind, .region = from->accesses[n].region,
				.lane = from->accesses[n].lane, .off = from->accesses[n].off,
				.value = from->accesses[n].value,
				.expect = from->accesses[n].expect,
			};
	}
	return text;
}

/* In a child, lest the GPU mirrors us: there has to be one if the table has use for it. */
static void need_gpu(const struct repro *what)
{
	bool used = false;
	int status;
	pid_t pid;

	for (unsigned i = 0; i < what->nops; i++)
		used |= !!(op_named(what->ops[i].name)->flags & OP_GPU);
	if (!used)
		return;
	pid = fork();
	if (pid == 0) {
		struct hmmgpu *gpu;

		_exit(-hmmgpu_open(&gpu, NULL));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		give_up("fork: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		give_up("opening the GPU: %s",
			WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it crashes");
}

/* ---- what came of it ---- */

static void check_value(struct outcome *o, const struct repro_op *op, const char *who, unsigned n,
			uint64_t got)
{
	const struct repro_access *a = &op->accesses[n];

	for (unsigned i = 1; i <= a->nallowed; i++)
		if (a->allowed[i] == got)
			return;
	if (a->nallowed)
		violation(o, op, "%s access %u, region %u offset 0x%llx: 0x%llx, not 0x%llx%s", who, n,
			  a->region, (unsigned long long)a->off, (unsigned long long)got,
			  (unsigned long long)a->allowed[1],
			  a->nallowed > 1 ? " or another value that is allowed" : "");
}

static void check_cpu(struct outcome *o, const struct repro_op *op, unsigned n)
{
	const struct repro_access *a = &op->accesses[n];
	const struct hb_access_result *r = &o->accesses[n];
	int sig = r->status == HB_AST_SIGSEGV ? SIGSEGV : r->status == HB_AST_SIGBUS ? SIGBUS : 0;

	if (a->signal >= 0 && sig != a->signal)
		violation(o, op, "CPU access %u, region %u offset 0x%llx: signal %d, not %d", n,
			  a->region, (unsigned long long)a->off, sig, a->signal);
	else if (!sig)
		check_value(o, op, "CPU", n, r->value);
}

static void check_gpu(struct outcome *o, const struct repro_op *op, unsigned n, int status)
{
	const struct repro_access *a = &op->accesses[n];
	const struct hb_access_result *r = &o->accesses[n];

	if (r->status == HB_AST_DONE)
		check_value(o, op, "GPU", n, r->value);
	else if (status == 0)
		violation(o, op, "GPU access %u, region %u offset 0x%llx: not done", n, a->region,
			  (unsigned long long)a->off);
}

static void check_query(struct outcome *o, const struct repro_op *op, const struct hb_op_result *r)
{
	for (unsigned i = 0; i < op->npages; i++) {
		const struct repro_pages *p = &op->pages[i];

		for (unsigned n = p->page; n < p->page + p->count && n < r->data_len / 4; n++) {
			uint32_t got;

			memcpy(&got, o->data + r->data_off + 4 * n, sizeof(got));
			if ((got & p->mask) != p->want)
				violation(o, op, "query, page %u: 0x%x, not 0x%x under 0x%x", n,
					  got & p->mask, p->want, p->mask);
		}
	}
}

static void check_op(struct outcome *o, const struct repro_op *op, const struct hb_op_result *r)
{
	unsigned flags = op_named(op->name)->flags;

	if (r->status == HB_RES_KILLED && o->result->timeout)
		fprintf(stderr, "  process %u actor %u is in phase %u\n", op->proc, op->actor,
			op->phase);
	/* Its process was to end, or that is said already. */
	if (r->status == HB_RES_KILLED || r->status == HB_RES_SKIPPED)
		return;
	if (op->checked && r->status != op->status)
		violation(o, op, "%s: %d, not %d", op->name, r->status, op->status);
	check_query(o, op, r);
	/* Of a job that nobody waited for nothing is known. */
	for (unsigned n = 0; n < op->naccesses && !(op->flags & HB_F_NOWAIT); n++) {
		if (flags & OP_LANES)
			check_gpu(o, op, n, r->status);
		else
			check_cpu(o, op, n);
	}
}

static void check_ends(struct outcome *o, const struct repro *what)
{
	const struct hb_result *r = o->result;

	if (r->died && r->died_signal >= 0x100)
		give_up("a process of the engine gave up: %u", r->died_signal - 0x100);
	for (unsigned p = 0; p < HB_MAX_PROCS; p++)
		if (r->died & 1u << p)
			violation(o, NULL, "process %u was ended by signal %u%s", p, r->died_signal,
				  r->died & (r->died - 1) ? ", or another did first" : "");
	if (r->stuck)
		violation(o, NULL, "%llu processes do not end", (unsigned long long)r->stuck);
	if (r->timeout)
		violation(o, NULL, "not over after %u s%s", what->timeout_s,
			  r->timeout == HB_TIMEOUT_BUSY ? ", though it works" : "");
}

static unsigned check(const struct repro *what, const struct program_answer *a)
{
	struct outcome o = {
		.result = &a->result, .ops = a->parts[1].iov_base,
		.accesses = a->parts[2].iov_base, .data = a->parts[3].iov_base,
	};

	check_ends(&o, what);
	for (unsigned i = 0; i < what->nops; i++) {
		check_op(&o, &what->ops[i], &o.ops[i]);
		o.accesses += what->ops[i].naccesses;
	}
	return o.violations;
}

static void nothing(void)
{
}

int repro_main(int argc, char **argv, const struct repro *what)
{
	static const struct engine_hooks hooks = { .ended = nothing, .in_child = nothing };
	/* The STACK region: of the main thread's stack, and used by nothing else. */
	uint8_t stack_area[(HB_STACK_PAGES + 1) * PAGE_SIZE];
	long times = argc > 1 ? strtol(argv[1], NULL, 0) : 1;
	struct program_answer answer;
	char err[PROGRAM_ERROR];
	unsigned bad = 0;
	uint8_t *text;
	size_t len;

	__asm__ volatile("" :: "r"(stack_area) : "memory");
	engine_init((void *)(((uintptr_t)stack_area + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1)), &hooks);
	if (gpu_kernels_load())
		return ENVIRONMENT;
	text = encode(what, &len);
	need_gpu(what);
	for (long i = 0; i < times && !bad; i++) {
		if (!program_run(text, len, false, &answer, err))
			give_up("%s", err);
		bad = check(what, &answer);
		program_done();
		if (bad)
			printf("violation in run %ld of %ld\n", i + 1, times);
	}
	if (!bad)
		printf("no violation in %ld runs\n", times);
	free(text);
	return bad ? 1 : 0;
}
