// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A session: memory and GPU use of one process, told what to do over its
 * standard input, answering on its standard output (session.h).
 *
 * One thread serves one request at a time; threads of a workload's own code
 * (hmm_host.h) do not come here.  The GPU is opened when first needed, so that
 * what is not about it works without one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hmm_host.h"
#include "hmmgpu.h"
#include "session.h"

#define PAGE		4096ull
#define ALIGN_UP(n, a)	(((n) + (a) - 1) & ~((uint64_t)(a) - 1))

static int out_fd;
static struct hmm_host *hosts;
static struct hmmgpu *gpu;
static struct hmmgpu_ctx *ctx;
static struct hmmgpu_kernel *kernels[HS_MAX_KERNELS];
static unsigned nkernels;

/* Page aligned, so that nothing else of the program is on the GPU with it. */
static _Alignas(4096) uint8_t global_area[HS_GLOBAL_SIZE];
static uint8_t *stack_area;
static uint64_t global_used, stack_used;

/*
 * Arguments of jobs that are not waited for.  Shared memory never migrates: that a
 * kernel reads its arguments moves no page and evicts none.
 */
static uint8_t (*args_area)[HS_MAX_ARGS];
static struct {
	uint64_t number;	/* 0: free */
	int kernel;		/* -1: a copy */
} jobs[HS_MAX_JOBS];

/* What kernels printed and nobody fetched.  The lock: threads of a workload may wait for jobs, too. */
static pthread_mutex_t printed_lock = PTHREAD_MUTEX_INITIALIZER;
static char *printed;
static size_t printed_len, printed_room;

static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fprintf(stderr, "session: ");
	vfprintf(stderr, format, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(3);
}

void hmm_host_register(struct hmm_host *host)
{
	host->next = hosts;
	hosts = host;
}

/* False: the bench has closed its side before the first byte. */
static bool get(void *to, size_t len, bool may_end)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(0, (uint8_t *)to + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%zu bytes for %p: %s", len, to, strerror(errno));
		if (n == 0) {
			if (may_end && !done)
				return false;
			die("a request ends after %zu of %zu bytes", done, len);
		}
		done += n;
	}
	return true;
}

static void put(const void *from, size_t len)
{
	while (len) {
		ssize_t n = write(out_fd, from, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%zu bytes from %p: %s", len, from, strerror(errno));
		from = (const uint8_t *)from + n;
		len -= n;
	}
}

static void answer(int32_t status, const void *payload, size_t len)
{
	uint32_t head[2] = { len + 4, status };

	put(head, sizeof(head));
	put(payload, len);
}

static void answer_u64(uint64_t value)
{
	answer(0, &value, sizeof(value));
}

static __attribute__((format(printf, 2, 3))) void refuse(int err, const char *format, ...)
{
	char text[512];
	int n;
	va_list ap;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (n >= (int)sizeof(text))
		n = sizeof(text) - 1;
	answer(err, text, n);
}

static void keep_printed(void *data, const char *text, size_t len, uint32_t block, uint32_t thread)
{
	(void)data, (void)block, (void)thread;
	pthread_mutex_lock(&printed_lock);
	if (printed_room - printed_len < len) {
		printed_room = (printed_len + len) * 2;
		printed = realloc(printed, printed_room);
		if (!printed)
			die("no memory for %zu bytes that kernels printed", printed_room);
	}
	memcpy(printed + printed_len, text, len);
	printed_len += len;
	pthread_mutex_unlock(&printed_lock);
}

static void do_printed(void)
{
	char *text;
	size_t len;

	hmmgpu_print_flush();
	pthread_mutex_lock(&printed_lock);
	text = printed;
	len = printed_len;
	printed = NULL;
	printed_len = printed_room = 0;
	pthread_mutex_unlock(&printed_lock);
	answer(0, text, len);
	free(text);
}

/* True if the GPU is there; else the request is answered. */
static bool have_gpu(void)
{
	int ret = 0;

	if (!gpu)
		ret = hmmgpu_open(&gpu, NULL);
	if (!ret && !ctx)
		ret = hmmgpu_ctx_create(gpu, 0, &ctx);
	if (ret)
		refuse(ret, "opening the GPU: %s", strerror(-ret));
	return ret == 0;
}

static int alloc_file(const char *path, uint64_t size, void **at)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), ret = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || ((uint64_t)st.st_size < size && ftruncate(fd, size)))
		ret = -errno;
	if (!ret) {
		*at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (*at == MAP_FAILED)
			ret = -errno;
	}
	close(fd);
	return ret;
}

static int alloc_area(uint8_t *area, uint64_t room, uint64_t *used, uint64_t size, void **at)
{
	uint64_t from = ALIGN_UP(*used, 64);

	if (from > room || size > room - from)
		return -ENOMEM;
	*at = area + from;
	*used = from + size;
	return 0;
}

static void do_alloc(const struct hs_alloc *a, const char *path)
{
	int share = a->kind == HS_MEM_SHARED ? MAP_SHARED : MAP_PRIVATE, ret = 0;
	void *at = NULL;

	switch (a->kind) {
	case HS_MEM_MALLOC:
		at = malloc(a->size);
		ret = at ? 0 : -ENOMEM;
		break;
	case HS_MEM_ANON: case HS_MEM_SHARED:
		at = mmap(NULL, a->size, PROT_READ | PROT_WRITE, share | MAP_ANONYMOUS, -1, 0);
		ret = at == MAP_FAILED ? -errno : 0;
		break;
	case HS_MEM_FILE:
		ret = alloc_file(path, a->size, &at);
		break;
	case HS_MEM_STACK:
		ret = alloc_area(stack_area, HS_STACK_SIZE, &stack_used, a->size, &at);
		break;
	case HS_MEM_GLOBAL:
		ret = alloc_area(global_area, HS_GLOBAL_SIZE, &global_used, a->size, &at);
		break;
	case HS_MEM_DEVICE:
		if (!have_gpu())
			return;
		ret = hmmgpu_malloc(gpu, &at, a->size);
		break;
	default:
		ret = -EINVAL;
	}
	if (ret)
		refuse(ret, "allocating %llu bytes: %s", (unsigned long long)a->size,
		       a->kind == HS_MEM_DEVICE ? hmmgpu_error_text(ret) : strerror(-ret));
	else
		answer_u64((uintptr_t)at);
}

static void do_free(const struct hs_alloc *a)
{
	void *at = (void *)(uintptr_t)a->addr;

	int ret;

	if (a->kind == HS_MEM_DEVICE) {
		ret = gpu ? hmmgpu_free(gpu, at) : -EINVAL;
		if (ret)
			die("hmmgpu_free(%p): %s", at, strerror(-ret));
	} else if (a->kind == HS_MEM_MALLOC) {
		free(at);
	} else if (a->kind <= HS_MEM_FILE && munmap(at, a->size)) {
		die("munmap(%p): %s", at, strerror(errno));
	}
	answer(0, NULL, 0);
}

static void do_load(const uint8_t *elf, uint32_t len)
{
	int ret = nkernels == HS_MAX_KERNELS ? -ENOSPC :
		hmmgpu_kernel_load(elf, len, &kernels[nkernels]);
	uint32_t number = nkernels;

	if (ret) {
		refuse(ret, "loading kernels: %s", strerror(-ret));
		return;
	}
	nkernels++;
	answer(0, &number, sizeof(number));
}

static int symbol(uint32_t kernel, const char *name, uint64_t *addr)
{
	int ret = kernel < nkernels ? hmmgpu_kernel_symbol(kernels[kernel], name, addr) : -EINVAL;

	if (ret)
		refuse(ret, "there is no kernel or variable %s", name);
	return ret;
}

static int free_job(void)
{
	for (unsigned i = 0; i < HS_MAX_JOBS; i++)
		if (!jobs[i].number)
			return i;
	refuse(-EBUSY, "%u jobs were not waited for", HS_MAX_JOBS);
	return -1;
}

static void started(int slot, int kernel, uint64_t job, int ret, const char *what)
{
	if (ret) {
		refuse(ret, "%s: %s", what, strerror(-ret));
		return;
	}
	jobs[slot].number = job;
	jobs[slot].kernel = kernel;
	answer_u64(job);
}

/* payload: what follows the struct; it has a 0 byte after its end. */
static void do_launch(const struct hs_launch *l, const char *payload, uint32_t len)
{
	struct hmmgpu_launch launch = {
		.grid = l->grid, .block = l->block, .shared_size = l->shared_size,
		.local_size = l->local_size, .budget = l->budget,
	};
	char name[256];
	uint64_t job = 0;
	int slot;

	if (l->name_len >= sizeof(name) || l->name_len > len || len - l->name_len > HS_MAX_ARGS)
		die("a launch with a name of %u of %u bytes", l->name_len, len);
	memcpy(name, payload, l->name_len);
	name[l->name_len] = 0;
	if (!have_gpu() || symbol(l->kernel, name, &launch.entry) || (slot = free_job()) < 0)
		return;
	memcpy(args_area[slot], payload + l->name_len, len - l->name_len);
	launch.args = (uintptr_t)args_area[slot];
	started(slot, l->kernel, job, hmmgpu_launch(ctx, &launch, &job), name);
}

static void do_copy(bool fill, const uint64_t arg[3])
{
	uint64_t job = 0;
	int slot, ret;

	if (!have_gpu() || (slot = free_job()) < 0)
		return;
	ret = fill ? hmmgpu_fill(ctx, (void *)(uintptr_t)arg[0], arg[1], arg[2], 0, 0, &job) :
		hmmgpu_copy(ctx, (void *)(uintptr_t)arg[0], (void *)(uintptr_t)arg[1], arg[2],
			    0, 0, &job);
	started(slot, -1, job, ret, fill ? "fill" : "copy");
}

static void do_wait(uint64_t number)
{
	struct { struct hs_result r; char text[2048]; } a = { 0 };
	const struct hmmgpu_kernel *kernel = NULL;
	struct hmmgpu_location at = { 0 };
	struct hmmgpu_result result;
	char report[768];
	int ret, slot = 0, used;

	while (slot < HS_MAX_JOBS && jobs[slot].number != number)
		slot++;
	if (!number || slot == HS_MAX_JOBS)
		die("job %llu is not there to be waited for", (unsigned long long)number);
	ret = hmmgpu_wait(ctx, number, -1, &result);
	if (ret) {
		refuse(ret, "waiting for a job: %s", strerror(-ret));
		return;
	}
	if (jobs[slot].kernel >= 0)
		kernel = kernels[jobs[slot].kernel];
	jobs[slot].number = 0;
	a.r = (struct hs_result){
		.error = result.error, .block = result.block, .thread = result.thread,
		.addr = result.addr, .pc = result.pc, .instrs = result.instrs,
	};
	pthread_mutex_lock(&printed_lock);
	a.r.printed = printed_len;
	pthread_mutex_unlock(&printed_lock);
	report[0] = 0;
	if (result.error)
		hmmgpu_result_report(&result, kernel, report, sizeof(report));
	if (result.error && kernel && hmmgpu_kernel_locate(kernel, result.pc, &at) == 0)
		a.r.line = at.line;
	used = snprintf(a.text, sizeof(a.text), "%.511s%c%.511s%c%s", at.symbol ? at.symbol : "", 0,
			at.file ? at.file : "", 0, report);
	answer(0, &a, sizeof(a.r) + used);
}

static void do_migrate(const struct hs_migrate *m)
{
	uint64_t from = m->addr & ~(PAGE - 1), end = ALIGN_UP(m->addr + m->len, PAGE);
	uint32_t dst = m->to_device ? HMM_GPU_MIGRATE_DEVICE : HMM_GPU_MIGRATE_SYSTEM;
	uint64_t moved[2] = { 0 };
	int ret;

	if (!have_gpu())
		return;
	ret = (m->map ? hmmgpu_prefetch : hmmgpu_migrate)(gpu, (void *)(uintptr_t)from, end - from,
							  dst, &moved[0], &moved[1]);
	if (ret)
		refuse(ret, "%s: %s", m->map ? "prefetch" : "migrate", strerror(-ret));
	else
		answer(0, moved, sizeof(moved));
}

static void do_query(uint64_t addr, uint64_t pages)
{
	uint32_t *flags;
	int ret;

	if (!have_gpu())
		return;
	flags = calloc(pages ? pages : 1, sizeof(*flags));
	ret = flags ? hmmgpu_query(gpu, (void *)(uintptr_t)(addr & ~(PAGE - 1)), pages, flags)
		    : -ENOMEM;
	if (ret)
		refuse(ret, "query: %s", strerror(-ret));
	else
		answer(0, flags, pages * sizeof(*flags));
	free(flags);
}

static void do_call(const uint8_t *payload, uint32_t len)
{
	_Alignas(16) uint8_t args[HS_MAX_ARGS] = { 0 };
	uint32_t name_len;
	char name[256];

	memcpy(&name_len, payload, 4);
	len -= 4;
	if (name_len >= sizeof(name) || name_len > len || len - name_len > HS_MAX_ARGS)
		die("a call with a name of %u of %u bytes", name_len, len);
	memcpy(name, payload + 4, name_len);
	name[name_len] = 0;
	memcpy(args, payload + 4 + name_len, len - name_len);
	for (struct hmm_host *h = hosts; h; h = h->next) {
		if (strcmp(h->name, name) == 0) {
			answer_u64(h->fn(args));
			return;
		}
	}
	refuse(-ENOENT, "the program has no function %s", name);
}

static bool is_device(uint64_t addr)
{
	return addr >= HMM_GPU_BO_START;
}

/* Bytes that go where they belong without another copy. */
static void do_write(uint32_t len)
{
	uint64_t addr;
	void *to;
	int ret = 0;

	if (len < sizeof(addr))
		die("WRITE without an address");
	get(&addr, sizeof(addr), false);
	len -= sizeof(addr);
	to = is_device(addr) ? malloc(len + 1ull) : (void *)(uintptr_t)addr;
	if (!to)
		die("no memory for %u bytes", len);
	get(to, len, false);
	if (is_device(addr)) {
		ret = ctx ? hmmgpu_memcpy(ctx, (void *)(uintptr_t)addr, to, len, NULL) : -EFAULT;
		free(to);
	}
	if (ret)
		refuse(ret, "writing to VRAM: %s", hmmgpu_error_text(ret));
	else
		answer(0, NULL, 0);
}

static void do_read(uint64_t addr, uint64_t len)
{
	void *copy;
	int ret;

	if (len > INT32_MAX)
		die("READ of %llu bytes", (unsigned long long)len);
	if (!is_device(addr)) {
		answer(0, (void *)(uintptr_t)addr, len);
		return;
	}
	copy = malloc(len + 1);
	if (!copy)
		die("no memory for %llu bytes", (unsigned long long)len);
	ret = ctx ? hmmgpu_memcpy(ctx, copy, (void *)(uintptr_t)addr, len, NULL) : -EFAULT;
	if (ret)
		refuse(ret, "reading from VRAM: %s", hmmgpu_error_text(ret));
	else
		answer(0, copy, len);
	free(copy);
}

static void serve(uint32_t op, const uint8_t *p, uint32_t len)
{
	static const uint32_t needed[] = {
		[HS_HELLO] = 0, [HS_ALLOC] = sizeof(struct hs_alloc),
		[HS_FREE] = sizeof(struct hs_alloc), [HS_READ] = 16, [HS_LOAD] = 1,
		[HS_SYMBOL] = 5, [HS_LAUNCH] = sizeof(struct hs_launch) + 1, [HS_COPY] = 24,
		[HS_FILL] = 24, [HS_WAIT] = 8, [HS_MIGRATE] = sizeof(struct hs_migrate),
		[HS_QUERY] = 16, [HS_POLICY] = 4, [HS_CALL] = 5, [HS_PRINTED] = 0,
	};
	uint64_t arg[3] = { 0 };
	uint32_t word;
	int ret;

	if (op == 0 || op >= sizeof(needed) / sizeof(needed[0]) || len < needed[op])
		die("request %u of %u bytes", op, len);
	memcpy(arg, p, len < sizeof(arg) ? len : sizeof(arg));
	word = (uint32_t)arg[0];
	switch (op) {
	case HS_HELLO:
		answer(0, (uint32_t[]){ HS_VERSION, getpid() }, 8);
		break;
	case HS_ALLOC:
		do_alloc((const void *)p, (const char *)p + sizeof(struct hs_alloc));
		break;
	case HS_FREE: do_free((const void *)p); break;
	case HS_READ: do_read(arg[0], arg[1]); break;
	case HS_LOAD: do_load(p, len); break;
	case HS_SYMBOL:
		if (symbol(word, (const char *)p + 4, &arg[1]) == 0)
			answer_u64(arg[1]);
		break;
	case HS_LAUNCH:
		do_launch((const void *)p, (const char *)p + sizeof(struct hs_launch),
			  len - sizeof(struct hs_launch));
		break;
	case HS_COPY: do_copy(false, arg); break;
	case HS_FILL: do_copy(true, arg); break;
	case HS_WAIT: do_wait(arg[0]); break;
	case HS_MIGRATE: do_migrate((const void *)p); break;
	case HS_QUERY: do_query(arg[0], arg[1]); break;
	case HS_POLICY:
		if (!have_gpu())
			break;
		ret = hmmgpu_set_policy(gpu, word);
		if (ret)
			refuse(ret, "policy %u: %s", word, strerror(-ret));
		else
			answer(0, NULL, 0);
		break;
	case HS_CALL: do_call(p, len); break;
	case HS_PRINTED: do_printed(); break;
	}
}

/* Not main's own frame: what main calls would lie beside it. */
static __attribute__((noinline)) int loop(void)
{
	uint32_t head[2];	/* length, operation */

	while (get(head, sizeof(head), true)) {
		uint8_t *payload;

		if (head[1] == HS_WRITE) {
			do_write(head[0]);
			continue;
		}
		payload = malloc(head[0] + 1ull);
		if (!payload)
			die("no memory for a request of %u bytes", head[0]);
		get(payload, head[0], false);
		payload[head[0]] = 0;
		serve(head[1], payload, head[0]);
		free(payload);
	}
	return 0;
}

int main(void)
{
	uint8_t area[HS_STACK_SIZE + PAGE];
	int ret;

	__asm__ volatile("" :: "r"(area) : "memory");
	stack_area = (void *)ALIGN_UP((uintptr_t)area, PAGE);
	args_area = mmap(NULL, HS_MAX_JOBS * HS_MAX_ARGS, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* What a workload prints must not come between our frames. */
	out_fd = fcntl(1, F_DUPFD_CLOEXEC, 3);
	if (args_area == MAP_FAILED || out_fd < 0 || dup2(2, 1) < 0)
		die("start: %s", strerror(errno));
	hmmgpu_set_print(keep_printed, NULL);
	ret = loop();
	if (ctx)
		hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	return ret;
}
