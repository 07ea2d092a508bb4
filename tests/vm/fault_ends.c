// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How faults end that are not simply served: fault_ends KERNELS.elf TEST
 *
 *   memory   there is no memory for page tables: for a while, and then for ever
 *   charged  the process may have no more memory: for a while, and then for ever
 *   accounted  what the GPU's tables and contexts take is the process's memory
 *   memfd    the GPU uses secret memory (memfd_secret()): as the kernel's own accesses can
 *   ended    the context is destroyed before its fault is served: the page stays untouched
 *   closed   the file is closed while the first of two windows is served: the other stays
 *            untouched
 *   secret   the kernel refuses exclusive access for an atomic: the job ends
 *   another  the page had no exclusive access when it was asked for, and another one has
 *   killed   a process ends while a fault of its is served, which then has its memory alone
 *   gone     the device and its VRAM go while a fault on a page there is served
 *   unreadable, misread  the GPU writes to a page in VRAM that is shared after fork(): it has
 *            to come home first, and copies fail, all or the first (injected by the caller)
 *   unreadables  16 threads do, a page each, and all copies fail
 *   valid    32 threads read a page each, at an address that the caller knows
 *
 * Prints what failed, or "TEST passed".  Exit status 0 or 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accesses.h"
#include "gpu_test.h"
#include "hmm_gpu_drm.h"

#define DEBUGFS	"/sys/kernel/debug/dri/0/"

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	need(fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0, path);
	close(fd);
}

static void set(const char *name, const char *text)
{
	char path[100];

	snprintf(path, sizeof(path), DEBUGFS "%s", name);
	put(path, text);
}

/* Memory that no page table leads to yet. */
static uint64_t *far(void)
{
	static uintptr_t at = 0x200000000000;
	void *p = mmap((void *)at, PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	need(p == MAP_FAILED ? -errno : 0, "mmap");
	at += 1UL << 39;
	return p;
}

static int finish(uint64_t job)
{
	struct hmmgpu_result result;
	int error = hmmgpu_wait(ctx, job, 20000000000LL, &result);

	return error ? error : result.error;
}

static uint64_t touch(struct touch_args what, unsigned int threads)
{
	static struct touch_args *args;
	struct hmmgpu_launch launch = { .grid = 1, .block = threads };
	uint64_t job;

	if (!args) {
		args = aligned_alloc(PAGE, PAGE);
		memset(args, 0, PAGE);
	}
	*args = what;
	launch.args = (uintptr_t)args;
	need(hmmgpu_kernel_symbol(kernels, "touch", &launch.entry), "kernel touch");
	need(hmmgpu_launch(ctx, &launch, &job), "launch");
	return job;
}

/* One thread adds to a word, what is the sum of nothing, or writes 7 to it. */
static uint64_t start(uint64_t *word, int add)
{
	struct touch_args what = { .npages = 0 };

	if (add)
		what.sum = (uintptr_t)word;
	else if (word)
		what = (struct touch_args){ .base = (uintptr_t)word, .npages = 1, .write = 1,
					    .value = 7 };
	return touch(what, 1);
}

static void until_served(const char *point)
{
	char command[200];

	snprintf(command, sizeof(command), "for i in $(seq 100); do grep -q '^%s [0-9]* [0-9]* 1 ' "
		 DEBUGFS "delays && exit; sleep 0.05; done; false", point);
	need(system(command) ? -ETIME : 0, "the fault");
}

static const char *kernels_file;

static void memory(void)
{
	int error;

	set("fail_tables", "5");
	error = finish(start(far(), 0));
	CHECK(!error, "a shortage that passes: %d", error);
	set("fail_tables", "1000000");
	error = finish(start(far(), 0));
	CHECK(error == -ENOMEM, "a shortage that stays: %d", error);
	set("fail_tables", "0");
	error = finish(start(far(), 0));
	CHECK(!error, "and after it: %d", error);
	/* who opens the device next gets the same address space number */
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	begin(kernels_file);
	set("fail_tables", "5");
	error = finish(start(far(), 0));
	CHECK(!error, "the next owner's shortage that passes: %d", error);
}

#define GROUP	"/sys/fs/cgroup/charged/"

static void make_group(void)
{
	need(mkdir(GROUP, 0755) ? -errno : 0, GROUP);
	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
}

/* So many bytes more than now. */
static void may_have(long bytes)
{
	char text[30] = { 0 };
	int fd = open(GROUP "memory.current", O_RDONLY);

	need(fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ? -errno : 0, GROUP "memory.current");
	close(fd);
	snprintf(text, sizeof(text), "%ld", atol(text) + bytes);
	put(GROUP "memory.max", bytes < 0 ? "max" : text);
}

/* Somebody else, who has memory, takes the limit away: once a fault was cancelled, or soon. */
static pid_t relief(int stays)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	if (!stays)
		usleep(150000);
	else if (system("n=$(grep '^cancels ' " DEBUGFS "counters); for i in $(seq 600); do "
			"[ \"$(grep '^cancels ' " DEBUGFS "counters)\" = \"$n\" ] || exit 0; "
			"sleep 0.05; done; false"))
		_exit(1);
	may_have(-1);
	_exit(0);
}

static void charged(void)
{
	struct touch_args what = { .npages = 1000, .write = 1, .value = 7 };
	int error, status;
	pid_t other;

	need(finish(start(far(), 0)), "a job");
	make_group();
	put(GROUP "memory.swap.max", "0");
	/* nobody is killed for it, so there is no memory; the kernel says much about that */
	put("/proc/self/oom_score_adj", "-1000");
	put("/proc/sys/kernel/printk", "1");
	for (int stays = 0; stays <= 1; stays++) {
		what.base = (uintptr_t)mmap(NULL, what.npages * PAGE, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		need((void *)what.base == MAP_FAILED ? -errno : 0, "mmap");
		other = relief(stays);
		put(GROUP "cgroup.procs", "0");
		may_have(64 * PAGE);
		error = finish(touch(what, 1));
		CHECK(waitpid(other, &status, 0) == other && !status, "the limit: %#x", status);
		CHECK(error == (stays ? -ENOMEM : 0), "a shortage that %s: %d",
		      stays ? "stays" : "passes", error);
		put("/sys/fs/cgroup/cgroup.procs", "0");
		munmap((void *)what.base, what.npages * PAGE);
	}
	rmdir(GROUP);
}

/*
 * Of the kernel's memory what the group pays for, but page tables of its CPUs: KiB.
 * The kernel adds up each two seconds what its CPUs counted.
 */
static long paid(void)
{
	char text[8192] = { 0 }, *kernel, *tables;
	int fd;

	usleep(3000000);
	fd = open(GROUP "memory.stat", O_RDONLY);
	need(fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ? -errno : 0, GROUP "memory.stat");
	close(fd);
	kernel = strstr(text, "\nkernel ");
	tables = strstr(text, "\npagetables ");
	need(kernel && tables ? 0 : -ENODATA, "kernel and pagetables of memory.stat");
	return (atol(kernel + 8) - atol(tables + 12)) / 1024;
}

static void accounted(void)
{
	struct hmmgpu_ctx *more[20];
	long before, after;

	need(finish(start(far(), 0)), "a job");
	make_group();
	put(GROUP "cgroup.procs", "0");
	before = paid();
	for (int i = 0; i < 150; i++)
		need(finish(start(far(), 0)), "a job");
	after = paid();
	/* three tables each: what the GPU reads, and of two of them what the driver knows */
	CHECK(after - before >= 150 * 20, "tables of 3 MiB: %ld KiB paid", after - before);
	before = after;
	for (int i = 0; i < 20; i++)
		need(hmmgpu_ctx_create(gpu, 0, &more[i]), "context");
	after = paid();
	/* each: results of its last jobs, and the ring with reports */
	CHECK(after - before >= 20 * 80, "contexts of 1900 KiB: %ld KiB paid", after - before);
	for (int i = 0; i < 20; i++)
		hmmgpu_ctx_destroy(more[i]);
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	after = paid();
	CHECK(after < 500, "%ld KiB are still to pay", after);
	put("/sys/fs/cgroup/cgroup.procs", "0");
	rmdir(GROUP);
}

static void ended(void)
{
	uint64_t *p = far();
	unsigned char there = 1;

	finish(start(NULL, 0));
	set("delays", "clear\nfault_after_drain 2000000 1000 1 1\n");
	start(p, 0);
	until_served("fault_after_drain");
	hmmgpu_ctx_destroy(ctx);
	usleep(3000000);
	set("delays", "clear\n");
	need(mincore(p, PAGE, &there) ? -errno : 0, "mincore");
	CHECK(!(there & 1), "a page was touched for a job that had ended");
	need(hmmgpu_ctx_create(gpu, 0, &ctx), "context");
	CHECK(!finish(start(p, 0)), "the next job");
}

static void closed(void)
{
	void *p = mmap((void *)(0x300000200000 - PAGE), 2 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	unsigned char there[2] = { 0, 1 };

	need(p == MAP_FAILED ? -errno : 0, "mmap");
	finish(start(NULL, 0));
	set("delays", "clear\nsvm_after_range_fault 2000000 1000 1 1\n");
	touch((struct touch_args){ .base = (uintptr_t)p, .npages = 2, .write = 1 }, 2);
	until_served("svm_after_range_fault");
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	usleep(3000000);
	set("delays", "clear\n");
	need(mincore(p, 2 * PAGE, there) ? -errno : 0, "mincore");
	CHECK(there[0] & 1, "the first was not served");
	CHECK(!(there[1] & 1), "a page was touched for a file that was closed");
	begin(kernels_file);
	CHECK(!finish(start(p, 0)), "the next owner's job");
}

static void secret(void)
{
	uint64_t *p = far();
	int error;

	*p = 1;
	need(hmmgpu_set_policy(gpu, HMM_GPU_POLICY_EXCLUSIVE), "policy");
	set("fail_exclusive", "14");
	error = finish(start(p, 1));
	CHECK(error == -EFAULT, "an atomic that is refused: %d", error);
	error = finish(start(p, 0));
	CHECK(!error, "a write to the same page: %d", error);
	set("fail_exclusive", "0");
	error = finish(start(p, 1));
	CHECK(!error, "and after it: %d", error);
}

static void memfd(void)
{
	int fd = syscall(SYS_memfd_secret, 0), error;
	struct touch_args twice = { .npages = 1 };
	uint64_t *p;

	need(fd < 0 || ftruncate(fd, PAGE) ? -errno : 0, "memfd_secret");
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(p == MAP_FAILED ? -errno : 0, "mmap");
	twice.base = twice.sum = (uintptr_t)p;
	error = finish(start(p, 0));
	CHECK(!error && *p == 7, "a write: %d, %#lx", error, *p);
	error = finish(touch(twice, 1));
	CHECK(!error && *p == 14, "an atomic: %d, %#lx", error, *p);
	need(hmmgpu_set_policy(gpu, HMM_GPU_POLICY_EXCLUSIVE), "policy");
	error = finish(touch(twice, 1));
	CHECK(error == -EFAULT && *p == 14, "an exclusive atomic: %d, %#lx", error, *p);
	error = finish(start(p, 0));
	CHECK(!error && *p == 7, "a write after it: %d, %#lx", error, *p);
	munmap(p, PAGE);
	close(fd);
}

static void another(void)
{
	uint64_t *p = far();
	uint32_t flags = 0;
	int error;

	*p = 1;
	need(hmmgpu_set_policy(gpu, HMM_GPU_POLICY_EXCLUSIVE), "policy");
	set("fail_exclusive", "95");
	error = finish(start(p, 1));
	CHECK(!error, "the atomic: %d", error);
	need(hmmgpu_query(gpu, p, 1, &flags), "query");
	CHECK(!(flags & HMM_GPU_Q_GPU_ATOMIC) || flags & HMM_GPU_Q_GPU_EXCLUSIVE,
	      "atomics on a page that the CPU has too: %#x", flags);
}

/* A child whose write to a page is served for two seconds. */
static pid_t start_child(uint64_t *word)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	begin(kernels_file);
	finish(start(NULL, 0));
	set("delays", "clear\nsvm_after_range_fault 2000000 1000 1 1\n");
	start(word, 0);
	pause();
	_exit(0);
}

static void killed(void)
{
	pid_t pid = start_child(far());

	until_served("svm_after_range_fault");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	usleep(3000000);
	set("delays", "clear\n");
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	need(fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0, path);
	close(fd);
}

static void gone(void)
{
	uint64_t *p = far(), moved = 0;
	pid_t pid;

	*p = 1;
	need(hmmgpu_migrate(gpu, p, PAGE, HMM_GPU_MIGRATE_DEVICE, &moved, NULL), "migrate");
	CHECK(moved == 1, "%lu pages moved", moved);
	pid = start_child(p);
	until_served("svm_after_range_fault");
	hmmgpu_ctx_destroy(ctx);
	hmmgpu_close(gpu);
	write_text("/sys/bus/pci/drivers/hmm_gpu/unbind", "0000:01:00.0");
	usleep(3000000);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	write_text("/sys/bus/pci/drivers/hmm_gpu/bind", "0000:01:00.0");
	CHECK(*p == 1, "the page has %lu", *p);
	begin(kernels_file);
	CHECK(!finish(start(far(), 0)), "a job after it");
}

/* A thread a page. */
static int write_shared(uint64_t *p, size_t n)
{
	uint64_t moved = 0;
	pid_t child;
	int error;

	for (size_t i = 0; i < n; i++)
		p[i * PAGE / sizeof(*p)] = 1;
	need(hmmgpu_migrate(gpu, p, n * PAGE, HMM_GPU_MIGRATE_DEVICE, &moved, NULL), "migrate");
	CHECK(moved == n, "%lu pages moved", moved);
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	error = finish(touch((struct touch_args){ .base = (uintptr_t)p, .npages = n, .write = 1,
						  .value = 7 }, n));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return error;
}

static void unreadable(void)
{
	uint32_t flags = 0;
	uint64_t *p = far();
	int error = write_shared(p, 1);

	CHECK(error == -EIO, "a page that cannot come home: %d", error);
	need(hmmgpu_query(gpu, p, 1, &flags), "query");
	CHECK(flags & HMM_GPU_Q_CPU_DEVICE, "it stays: %#x", flags);
	CHECK(!finish(start(far(), 0)), "the next job");
}

static void unreadables(void)
{
	size_t n = 16;
	void *p = mmap((void *)0x300000400000, n * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	int error;

	need(p == MAP_FAILED ? -errno : 0, "mmap");
	error = write_shared(p, n);
	CHECK(error == -EIO, "pages that cannot come home: %d", error);
	CHECK(!finish(start(far(), 0)), "the next job");
}

static void misread(void)
{
	uint64_t *p = far();
	int error = write_shared(p, 1);

	CHECK(!error, "a page that comes home at last: %d", error);
	CHECK(*p == 7, "it has %lu", *p);
}

static void valid(void)
{
	size_t n = 32;
	char *p = mmap((void *)0x300000000000, n * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	struct touch_args *args = aligned_alloc(PAGE, PAGE);
	struct hmmgpu_launch launch = { .args = (uintptr_t)args, .grid = 1, .block = 32 };
	struct timespec a, b;

	finish(start(NULL, 0));
	*args = (struct touch_args){ .base = (uintptr_t)p, .npages = n };
	need(hmmgpu_kernel_symbol(kernels, "touch", &launch.entry), "kernel touch");
	clock_gettime(CLOCK_MONOTONIC, &a);
	need(hmmgpu_run(ctx, &launch, NULL), "run");
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("took %ld ms\n", (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "memory", memory }, { "charged", charged }, { "ended", ended }, { "closed", closed },
	{ "secret", secret }, { "memfd", memfd }, { "accounted", accounted }, { "another", another },
	{ "killed", killed }, { "gone", gone }, { "unreadable", unreadable },
	{ "unreadables", unreadables }, { "misread", misread }, { "valid", valid },
};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 1;
	kernels_file = argv[1];
	begin(kernels_file);
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (!strcmp(argv[2], tests[i].name))
			tests[i].run();
	if (!failures)
		printf("%s passed\n", argv[2]);
	return failures != 0;
}
