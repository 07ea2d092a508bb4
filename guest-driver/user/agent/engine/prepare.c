// SPDX-License-Identifier: GPL-2.0-or-later
/* Checks a program, and prepares what its processes need: see prepare.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"
#include "op.h"
#include "prepare.h"
#include "store.h"
#include "table.h"

#define DEFAULT_TIMEOUT_MS	10000
#define MAX_TIMEOUT_MS		3600000

/* The GLOBAL region: a global variable like any other. */
static uint8_t global_region[HB_GLOBAL_PAGES * PAGE_SIZE] __attribute__((aligned(4096)));
static void *stack_region;

void prepare_init(void *stack_area)
{
	void *p = mmap((void *)SHARED_BASE, sizeof(*sh), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (p != sh) {
		perror("memory for programs");
		exit(3);
	}
	stack_region = stack_area;
	sh->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sh->kick_fd < 0) {
		perror("eventfd");
		exit(3);
	}
}

void program_bases(uint64_t *stack, uint64_t *global)
{
	*stack = (uintptr_t)stack_region;
	*global = (uintptr_t)global_region;
}

static bool bad(char *err, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(err, PROGRAM_ERROR, format, ap);
	va_end(ap);
	return false;
}

static bool set_regions(char *err)
{
	for (unsigned r = 0; r < HB_MAX_REGIONS; r++) {
		sh->region_kind[r] = 0;
		sh->region_base[r] = HB_REGION_BASE + (uint64_t)r * HB_REGION_SIZE;
		sh->region_size[r] = HB_REGION_SIZE;
	}
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (!(sh->kind[i]->flags & OP_MAPS) ||
		    (op->arg != HB_MAP_STACK && op->arg != HB_MAP_GLOBAL))
			continue;
		sh->region_kind[op->region] = op->arg;
		if (op->arg == HB_MAP_STACK) {
			sh->region_base[op->region] = (uintptr_t)stack_region;
			sh->region_size[op->region] = HB_STACK_PAGES * PAGE_SIZE;
		} else {
			sh->region_base[op->region] = (uintptr_t)global_region;
			sh->region_size[op->region] = HB_GLOBAL_PAGES * PAGE_SIZE;
		}
	}
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		if (sh->kind[i]->flags & OP_MAPS && sh->region_kind[op->region] &&
		    op->arg != sh->region_kind[op->region])
			return bad(err, "operation %u: region %u is the stack or global region elsewhere",
				   i, op->region);
	}
	return true;
}

static bool check_accesses(unsigned i, const struct hb_op *op, uint8_t *used, char *err)
{
	if (op->access_first > sh->prog.naccesses ||
	    op->access_count > sh->prog.naccesses - op->access_first)
		return bad(err, "operation %u: accesses beyond the table", i);
	for (uint32_t n = op->access_first; n < op->access_first + op->access_count; n++) {
		const struct hb_access *a = &sh->accesses[n];
		unsigned size = a->kind == HB_ACC_READ32 || a->kind == HB_ACC_WRITE32 ? 4 : 8;

		if (used[n]++)
			return bad(err, "access %u is used by two operations", n);
		if (a->kind > HB_ACC_DELAY)
			return bad(err, "access %u: kind %u is unknown", n, a->kind);
		if (a->region >= HB_MAX_REGIONS)
			return bad(err, "access %u: region %u", n, a->region);
		if (a->lane >= HB_MAX_ACCESSES)
			return bad(err, "access %u: lane %u", n, a->lane);
		if (a->kind != HB_ACC_DELAY &&
		    (a->off % size || !region_addr(a->region, a->off, size)))
			return bad(err, "access %u: offset 0x%llx", n, (unsigned long long)a->off);
	}
	return true;
}

/* Who is born when: exactly once, not after its first operation, and nobody else's duty. */
static bool check_births(char *err)
{
	bool born[HB_MAX_PROCS] = { true };

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];
		unsigned flags = sh->kind[i]->flags;

		if (!born[op->proc])
			return bad(err, "operation %u: process %u is not there yet", i, op->proc);
		if (!(flags & (OP_BEARS | OP_KILLS)))
			continue;
		if (op->arg >= HB_MAX_PROCS || op->arg == op->proc)
			return bad(err, "operation %u: process %u", i, op->arg);
		if (flags & OP_KILLS)
			continue;
		if (born[op->arg])
			return bad(err, "operation %u: process %u is there already", i, op->arg);
		born[op->arg] = true;
	}
	return true;
}

static void set_phases(void)
{
	unsigned n = sh->prog.nops;

	for (unsigned i = 0, end; i < n; i = end) {
		bool seen[HB_MAX_PROCS][HB_MAX_ACTORS] = { { false } };

		sh->phase_width[i] = 0;
		sh->phase_actors[i] = 0;
		for (end = i; end < n && sh->ops[end].phase == sh->ops[i].phase; end++) {
			bool *s = &seen[sh->ops[end].proc][sh->ops[end].actor];

			sh->phase_start[end] = i;
			sh->phase_width[i] += !*s;
			sh->phase_actors[i] |= ACTOR_BIT(sh->ops[end].proc, sh->ops[end].actor);
			*s = true;
		}
		atomic_store(&sh->arrived[i], 0);
	}
}

static bool check_ops(char *err)
{
	static uint8_t used[HB_MAX_ACCESSES];

	memset(used, 0, sh->prog.naccesses);
	memset(sh->actors, 0, sizeof(sh->actors));
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];

		sh->kind[i] = op_numbered(op->op);
		if (!sh->kind[i])
			return bad(err, "operation %u: code %u is unknown", i, op->op);
		if (op->proc >= HB_MAX_PROCS || op->actor >= HB_MAX_ACTORS)
			return bad(err, "operation %u: process %u, actor %u", i, op->proc, op->actor);
		if (op->region >= HB_MAX_REGIONS)
			return bad(err, "operation %u: region %u", i, op->region);
		if (i && op->phase < sh->ops[i - 1].phase)
			return bad(err, "operation %u: phase %u after %u", i, op->phase,
				   sh->ops[i - 1].phase);
		if (sh->kind[i]->flags & OP_MAIN_ONLY && op->actor)
			return bad(err, "operation %u: only actor 0 may fork or exit", i);
		sh->actors[op->proc] |= 1 << op->actor;
	}
	if (!set_regions(err) || !check_births(err))
		return false;
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		if (sh->kind[i]->flags & OP_ACCESSES &&
		    !check_accesses(i, &sh->ops[i], used, err))
			return false;
	}
	set_phases();
	return true;
}

/* Threads of a launch: as many as the accesses name, at least one. */
static uint32_t count_lanes(const struct hb_op *op)
{
	uint32_t nlanes = 1;

	for (uint32_t n = op->access_first; n < op->access_first + op->access_count; n++)
		if (sh->accesses[n].lane >= nlanes)
			nlanes = sh->accesses[n].lane + 1;
	return nlanes;
}

/* Divides gpu_area: arguments, lanes, entries, results. */
static bool place_gpu_tables(char *err)
{
	uint32_t nlanes = 0;

	for (unsigned i = 0; i < sh->prog.nops; i++) {
		if (!(sh->kind[i]->flags & OP_LANES))
			continue;
		nlanes += count_lanes(&sh->ops[i]);
		if (nlanes > MAX_LANES)
			return bad(err, "more than %u lanes in all launches", MAX_LANES);
	}
	sh->gpu_args = (struct acc_args *)sh->gpu_area;
	sh->gpu_entries = (struct acc_entry *)(sh->gpu_args + sh->prog.nops);
	sh->results = (struct hb_access_result *)(sh->gpu_entries + sh->prog.naccesses);
	sh->gpu_lanes = (struct acc_lane *)(sh->results + sh->prog.naccesses);
	return true;
}

/*
 * Fills the tables of the launches: here, once, since addresses are the same in
 * every process.  Accesses are sorted by thread, stable.
 */
static void fill_gpu_tables(void)
{
	struct acc_lane *lanes = sh->gpu_lanes;

	memset(sh->gpu_args, 0, sh->prog.nops * sizeof(sh->gpu_args[0]));
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		const struct hb_op *op = &sh->ops[i];
		const struct hb_access *a = sh->accesses + op->access_first;
		uint32_t nlanes, at = op->access_first;

		if (!(sh->kind[i]->flags & OP_LANES))
			continue;
		nlanes = count_lanes(op);
		memset(lanes, 0, nlanes * sizeof(*lanes));
		for (uint32_t n = 0; n < op->access_count; n++)
			lanes[a[n].lane].count++;
		for (uint32_t l = 0; l < nlanes; l++) {
			lanes[l].first = at;
			at += lanes[l].count;
			lanes[l].count = 0;
		}
		for (uint32_t n = 0; n < op->access_count; n++) {
			struct acc_lane *l = &lanes[a[n].lane];

			sh->gpu_entries[l->first + l->count++] = (struct acc_entry){
				.addr = sh->region_base[a[n].region] + a[n].off,
				.kind = a[n].kind,
				.result = op->access_first + n,
				.value = a[n].value,
				.expect = a[n].expect,
			};
		}
		sh->gpu_args[i] = (struct acc_args){
			.lanes = (uintptr_t)lanes,
			.entries = (uintptr_t)sh->gpu_entries,
			.results = (uintptr_t)sh->results,
			.nlanes = nlanes,
		};
		lanes += nlanes;
	}
}

bool program_prepare(const uint8_t *p, size_t len, char *err)
{
	size_t ops_len, acc_len;

	if (len < sizeof(sh->prog))
		return bad(err, "too short");
	memcpy(&sh->prog, p, sizeof(sh->prog));
	if (sh->prog.version != HB_PROTOCOL_VERSION)
		return bad(err, "protocol version %u, this agent has %u", sh->prog.version,
			   HB_PROTOCOL_VERSION);
	if (sh->prog.nops > HB_MAX_OPS || sh->prog.naccesses > HB_MAX_ACCESSES)
		return bad(err, "%u operations, %u accesses", sh->prog.nops, sh->prog.naccesses);
	ops_len = sh->prog.nops * sizeof(struct hb_op);
	acc_len = sh->prog.naccesses * sizeof(struct hb_access);
	if (len != sizeof(sh->prog) + ops_len + acc_len)
		return bad(err, "%zu bytes for %u operations and %u accesses", len,
			   sh->prog.nops, sh->prog.naccesses);
	if (!sh->prog.timeout_ms)
		sh->prog.timeout_ms = DEFAULT_TIMEOUT_MS;
	if (sh->prog.timeout_ms > MAX_TIMEOUT_MS)
		sh->prog.timeout_ms = MAX_TIMEOUT_MS;
	memcpy(sh->ops, p + sizeof(sh->prog), ops_len);
	memcpy(sh->accesses, p + sizeof(sh->prog) + ops_len, acc_len);
	if (!check_ops(err) || !place_gpu_tables(err))
		return false;
	fill_gpu_tables();

	memset(sh->op_results, 0, sh->prog.nops * sizeof(sh->op_results[0]));
	memset(sh->results, 0, sh->prog.naccesses * sizeof(sh->results[0]));
	for (unsigned i = 0; i < sh->prog.nops; i++) {
		sh->op_results[i].status = HB_RES_SKIPPED;
		sh->op_results[i].fault_region = -1;
		atomic_store(&sh->state[i], PENDING);
	}
	memset(sh->slot, 0, sizeof(sh->slot));
	for (unsigned n = 0; n < HB_MAX_PROCS; n++)
		atomic_store(&told->under_way[n], 0);
	atomic_store(&told->phase, sh->prog.nops ? sh->ops[0].phase : 0);
	atomic_store(&sh->first, 0);
	atomic_store(&sh->waiters, 0);
	atomic_store(&sh->taken, 0);
	atomic_store(&sh->data_used, 0);
	return true;
}

void program_empty_files(void)
{
	for (unsigned f = 0; f < HB_MAX_FILES; f++)
		if (sh->file_fd[f] >= 0 && sh->file_store[f] != STORE_TMPFS &&
		    ftruncate(sh->file_fd[f], 0))
			perror("emptying a file");
}

void program_close_files(void)
{
	for (unsigned f = 0; f < HB_MAX_FILES; f++) {
		if (sh->file_fd[f] >= 0)
			close(sh->file_fd[f]);
		sh->file_fd[f] = -1;
	}
}

/* Where operations want the files; of two that speak of one, the first. */
static void set_stores(void)
{
	memset(sh->file_store, STORE_TMPFS, sizeof(sh->file_store));
	for (unsigned i = sh->prog.nops; i-- > 0;) {
		const struct hb_op *op = &sh->ops[i];

		if (sh->kind[i]->flags & OP_STORES && op->b < HB_MAX_FILES && op->arg < STORES)
			sh->file_store[op->b] = op->arg;
	}
}

/* Where it is to be, or in tmpfs, which every kernel has. */
static int make_file(unsigned f, uint64_t size)
{
	int fd = store_open(sh->file_store[f], f, size);

	if (fd < 0 && sh->file_store[f] != STORE_TMPFS) {
		sh->file_store[f] = STORE_TMPFS;
		fd = store_open(STORE_TMPFS, f, size);
	}
	return fd;
}

bool program_make_files(char *err)
{
	for (unsigned f = 0; f < HB_MAX_FILES; f++)
		sh->file_fd[f] = -1;
	set_stores();
	for (unsigned f = 0; f < HB_MAX_FILES; f++) {
		uint64_t pages = sh->prog.file_pages[f];
		bool fits = pages <= HB_REGION_SIZE / PAGE_SIZE;

		if (!pages)
			continue;
		sh->file_fd[f] = fits ? make_file(f, pages * PAGE_SIZE) : -EFBIG;
		if (sh->file_fd[f] < 0) {
			bad(err, "file %u of %llu pages: %s", f, (unsigned long long)pages,
			    fits ? strerror(-sh->file_fd[f]) : "larger than a region");
			program_close_files();
			return false;
		}
	}
	return true;
}
