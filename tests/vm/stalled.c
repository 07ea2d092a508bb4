// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A process whose GPU faults are not answered, beside others: stalled KERNELS.elf HOW [unplug|calls]
 *
 *   delay  the driver stands in the service of a fault, with the mmap lock, for as long as a
 *          delay point lets it (migrate_after_setup; set by the caller for each child)
 *   fuse   the page is one of a file of FUSE, and its server does not answer
 *
 * A child waits for its page.  Meanwhile: faults of this process are timed and counted; the child
 * closes the GPU; a child is killed; the device is reset; the module is not removed, at once; the
 * driver is unbound.  With "unplug" a child waits, and nothing else is done until the port has
 * taken the device away, which somebody else asks it for.  With "calls" processes stand in calls
 * of the driver, for memory of userfaultfd or the mmap lock, when it is unbound.  Prints "NAME number ..." a line, times
 * in microseconds.  Exit status 0, or 1 where something could not be done at all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accesses.h"
#include "hmm_gpu_drm.h"
#include "hmmgpu.h"
#include "need.h"

#define PAGE		4096UL
#define FAULTS		200
#define PCI_NAME	"0000:01:00.0"
#define DELAYS		"/sys/kernel/debug/dri/0/delays"
#define MOUNT		"/tmp/fuse"
#define FILE_NODE	2

static const char *kernels_file;
static int by_fuse;

struct user {
	struct hmmgpu *gpu;
	struct hmmgpu_ctx *ctx;
	struct hmmgpu_kernel *kernels;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), bad;

	if (fd < 0)
		return -errno;
	bad = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
	close(fd);
	return bad;
}

static uint64_t counter(const char *name)
{
	FILE *f = fopen("/sys/kernel/debug/dri/0/counters", "r");
	unsigned long value = 0, v;
	char word[64];

	while (f && fscanf(f, "%63s %lu", word, &v) == 2)
		if (!strcmp(word, name))
			value = v;
	if (f)
		fclose(f);
	return value;
}

static void *pages(size_t n)
{
	void *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(p == MAP_FAILED ? errno : 0, "mmap");
	return p;
}

static void begin(struct user *u)
{
	need(hmmgpu_open(&u->gpu, NULL), "open");
	need(hmmgpu_ctx_create(u->gpu, 0, &u->ctx), "context");
	need(hmmgpu_kernel_load_file(kernels_file, &u->kernels), "kernels");
}

/* A server of a file of one page that nobody gets to see. */
static void serve_fuse(int fd)
{
	static char buf[1 << 17];
	struct fuse_in_header *in = (void *)buf;

	while (read(fd, buf, sizeof(buf)) > 0) {
		struct {
			struct fuse_out_header head;
			union {
				struct fuse_init_out init;
				struct fuse_entry_out entry;
				struct fuse_attr_out attr;
				struct fuse_open_out open;
			};
		} out;
		struct fuse_attr attr = { .ino = in->nodeid, .mode = S_IFDIR | 0755, .nlink = 1 };
		size_t len = 0;

		memset(&out, 0, sizeof(out));
		if (in->opcode == FUSE_LOOKUP || in->nodeid == FILE_NODE)
			attr = (struct fuse_attr){ .ino = FILE_NODE, .mode = S_IFREG | 0644,
						   .nlink = 1, .size = PAGE, .blocks = 8 };
		switch (in->opcode) {
		case FUSE_INIT:
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = FUSE_KERNEL_MINOR_VERSION;
			out.init.max_write = 4096;
			len = sizeof(out.init);
			break;
		case FUSE_LOOKUP:
			out.entry.nodeid = FILE_NODE;
			out.entry.attr_valid = out.entry.entry_valid = 1000;
			out.entry.attr = attr;
			len = sizeof(out.entry);
			break;
		case FUSE_GETATTR:
			out.attr.attr_valid = 1000;
			out.attr.attr = attr;
			len = sizeof(out.attr);
			break;
		case FUSE_OPEN:
		case FUSE_OPENDIR:
			/* else the next open waits for the page */
			out.open.open_flags = FOPEN_KEEP_CACHE;
			len = sizeof(out.open);
			break;
		case FUSE_READ:		/* the page never comes */
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			continue;
		default:
			out.head.error = -ENOSYS;
		}
		out.head.unique = in->unique;
		out.head.len = sizeof(out.head) + len;
		if (write(fd, &out, out.head.len) < 0)
			perror("answer");
	}
	_exit(0);
}

static pid_t start_fuse(void)
{
	char options[128];
	int fd = open("/dev/fuse", O_RDWR);
	pid_t pid;

	need(fd < 0 ? errno : 0, "/dev/fuse");
	mkdir(MOUNT, 0755);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	need(mount("hmmbench", MOUNT, "fuse.hmmbench", 0, options) ? errno : 0, "mount");
	pid = fork();
	if (!pid)
		serve_fuse(fd);
	close(fd);
	return pid;
}

static void *page_that_never_comes(struct user *u)
{
	void *p;
	int fd;

	if (!by_fuse) {
		need(hmmgpu_set_policy(u->gpu, HMM_GPU_POLICY_MIGRATE), "policy");
		p = pages(1);
		*(uint64_t *)p = 1;
		return p;
	}
	fd = open(MOUNT "/page", O_RDONLY);
	need(fd < 0 ? errno : 0, "file");
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	need(p == MAP_FAILED ? errno : 0, "mmap of the file");
	close(fd);
	return p;
}

static void launch_touch(struct user *u, const void *p)
{
	struct touch_args *args = pages(1);
	struct hmmgpu_launch launch = { .args = (uintptr_t)args, .grid = 1, .block = 1 };
	uint64_t job;

	args->base = (uintptr_t)p;
	args->npages = 1;
	need(hmmgpu_kernel_symbol(u->kernels, "touch", &launch.entry), "kernel touch");
	if (!by_fuse)	/* the code and the arguments are migrated first, without waiting */
		args->npages = 0;
	need(hmmgpu_launch(u->ctx, &launch, &job), "launch");
	if (by_fuse)
		return;
	need(hmmgpu_wait(u->ctx, job, 10000000000LL, NULL), "first job");
	args->npages = 1;
	need(write_text(DELAYS, "clear\nmigrate_after_setup 20000000 1000 1 1\n"), DELAYS);
	need(hmmgpu_launch(u->ctx, &launch, &job), "launch");
}

/*
 * A child waits for its page: it has written a byte when the service of its fault has begun.
 * When it is told to (a byte comes), it closes the GPU and writes how long that took.
 */
static pid_t start_child(int *to, int *from)
{
	uint64_t batches = counter("fault_batches");
	int in[2], out[2];
	pid_t pid;
	char c = 0;

	need(pipe(in) || pipe(out) ? errno : 0, "pipe");
	pid = fork();
	if (!pid) {
		struct user u;
		uint64_t t;
		void *p;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(in[1]);
		close(out[0]);
		begin(&u);
		p = page_that_never_comes(&u);
		launch_touch(&u, p);
		if (write(out[1], &c, 1) != 1 || read(in[0], &c, 1) != 1)
			_exit(1);
		t = now_us();
		/* not hmmgpu_close(): that gives memory back, and waits for the mmap lock */
		close(hmmgpu_fd(u.gpu));
		t = now_us() - t;
		if (write(out[1], &t, sizeof(t)) != sizeof(t))
			_exit(1);
		_exit(0);
	}
	close(in[0]);
	close(out[1]);
	*to = in[1];
	*from = out[0];
	need(read(*from, &c, 1) == 1 ? 0 : EIO, "child");
	while (counter("fault_batches") == batches)
		usleep(100);
	usleep(20000);
	return pid;
}

static uint64_t gone(pid_t pid)
{
	uint64_t t = now_us();

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return now_us() - t;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median of FAULTS faults, in ns of the device. */
static uint64_t faults(struct user *u)
{
	size_t n = FAULTS;
	uint64_t *times = pages(1 + n * sizeof(uint64_t) / PAGE), median;
	uint32_t *order = pages(1 + n * sizeof(uint32_t) / PAGE);
	struct latency_args *args = pages(1);
	struct hmmgpu_launch launch = { .args = (uintptr_t)args, .grid = 1, .block = 1 };
	char *p = pages(n);

	need(hmmgpu_kernel_symbol(u->kernels, "latency", &launch.entry), "kernel latency");
	for (size_t i = 0; i < n; i++) {
		p[i * PAGE] = 1;
		order[i] = i;
	}
	memset(times, 1, n * sizeof(*times));
	*args = (struct latency_args){ (uintptr_t)p, (uintptr_t)order, (uintptr_t)times, n };
	need(hmmgpu_run(u->ctx, &launch, NULL), "faults");
	qsort(times, n, sizeof(*times), by_value);
	median = times[n / 2];
	munmap(p, n * PAGE);
	return median;
}

/* The best of some, for the host may have something else to do. */
static uint64_t best_faults(struct user *u)
{
	uint64_t best = faults(u);

	for (int i = 1; i < (by_fuse ? 5 : 1); i++) {
		uint64_t more = faults(u);

		best = more < best ? more : best;
	}
	return best;
}

static void say(const char *name, uint64_t value)
{
	printf("%s %lu\n", name, value);
	fflush(stdout);
}

/* When the pages come, as errors, nothing is left. */
static void end_fuse(pid_t fuse)
{
	if (!fuse)
		return;
	kill(fuse, SIGKILL);
	waitpid(fuse, NULL, 0);
	umount2(MOUNT, MNT_DETACH);
	for (int i = 0; i < 100 && syscall(SYS_delete_module, "hmm_gpu", O_NONBLOCK); i++)
		usleep(100000);
	say("module_left", !access("/sys/module/hmm_gpu", F_OK));
}

/* The port takes the device away while a child waits for its page; how long that took. */
static uint64_t unplugged(void)
{
	int to, from;
	pid_t child = start_child(&to, &from);
	uint64_t t = now_us();

	printf("unplug now\n");
	fflush(stdout);
	while (!access("/sys/bus/pci/devices/" PCI_NAME, F_OK))
		usleep(10000);
	t = now_us() - t;
	say("unplugged_kill", gone(child));
	return t;
}

/* Memory that never comes: nobody answers for it. */
static void *missing(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *p = pages(1);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	reg.range.start = (uintptr_t)p;
	reg.range.len = PAGE;
	need(fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg) ? errno : 0,
	     "userfaultfd");
	return p;
}

/* Waits to write what the service of a fault has for reading. */
static void *map_later(void *arg)
{
	(void)arg;
	usleep(300000);
	return pages(1);
}

enum { IN_ARGUMENTS, IN_ANSWER, BEHIND_THE_LOCK, CALLS };

/* A child that stands in a call. */
static pid_t start_call(int which)
{
	int out[2], status;
	pid_t pid;
	char c = 0;

	need(pipe(out) ? errno : 0, "pipe");
	pid = fork();
	if (!pid) {
		struct drm_hmm_gpu_query query = { .npages = 1 };
		struct drm_hmm_gpu_migrate move = { .len = PAGE, .dst = HMM_GPU_MIGRATE_DEVICE };
		pthread_t thread;
		struct user u;
		void *p;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		begin(&u);
		p = which == BEHIND_THE_LOCK ? pages(1) : missing();
		query.addr = move.addr = (uintptr_t)p;
		query.ptr = (uintptr_t)p;
		if (which == BEHIND_THE_LOCK) {
			void *page = page_that_never_comes(&u);

			/* its stack is mapped before the lock is taken */
			need(pthread_create(&thread, NULL, map_later, NULL), "thread");
			launch_touch(&u, page);
			usleep(500000);
		}
		if (write(out[1], &c, 1) != 1)
			_exit(1);
		if (which == IN_ARGUMENTS)
			ioctl(hmmgpu_fd(u.gpu), DRM_IOCTL_HMM_GPU_QUERY, p);
		else if (which == IN_ANSWER)
			ioctl(hmmgpu_fd(u.gpu), DRM_IOCTL_HMM_GPU_QUERY, &query);
		else
			ioctl(hmmgpu_fd(u.gpu), DRM_IOCTL_HMM_GPU_MIGRATE, &move);
		_exit(2);	/* it was to stand there */
	}
	close(out[1]);
	need(read(out[0], &c, 1) == 1 ? 0 : EIO, "child");
	close(out[0]);
	usleep(300000);
	if (waitpid(pid, &status, WNOHANG)) {
		printf("call %d did not stand: status %#x\n", which, status);
		exit(1);
	}
	return pid;
}

/* How long the driver takes to leave the device; the children are ended when it is too long. */
static void unbound_beside_calls(void)
{
	static const char *const names[CALLS] = { "arguments", "answer", "lock" };
	pid_t child[CALLS], who;
	uint64_t t;

	for (int i = 0; i < CALLS; i++)
		child[i] = start_call(i);
	t = now_us();
	who = fork();
	if (!who)
		_exit(write_text("/sys/bus/pci/drivers/hmm_gpu/unbind", PCI_NAME) != 0);
	while (!waitpid(who, NULL, WNOHANG) && now_us() - t < 12000000)
		usleep(10000);
	say("unbind", now_us() - t);
	for (int i = 0; i < CALLS; i++)
		say(names[i], gone(child[i]));
}

int main(int argc, char **argv)
{
	uint64_t t, alone, beside, faulted, replays;
	struct user u;
	pid_t fuse = 0, child;
	int to, from;

	if (argc != 3 && (argc != 4 || (strcmp(argv[3], "unplug") && strcmp(argv[3], "calls"))))
		return 1;
	kernels_file = argv[1];
	by_fuse = !strcmp(argv[2], "fuse");
	if (by_fuse)
		fuse = start_fuse();
	if (argc == 4) {
		if (!strcmp(argv[3], "calls"))
			unbound_beside_calls();
		else
			say("unplug", unplugged());
		end_fuse(fuse);
		printf("stalled passed\n");
		return 0;
	}
	begin(&u);
	faults(&u);

	/* other processes' faults */
	alone = best_faults(&u);
	say("alone", alone);
	child = start_child(&to, &from);
	faulted = counter("dev_faults");
	replays = counter("dev_replays");
	beside = best_faults(&u);
	say("beside", beside);
	say("faults", counter("dev_faults") - faulted);
	say("served", by_fuse ? 5 * FAULTS : FAULTS);
	say("replays", counter("dev_replays") - replays);
	say("mirrors", counter("live_svms"));

	/* its own close */
	need(write(to, "", 1) == 1 ? 0 : errno, "tell the child");
	need(read(from, &t, sizeof(t)) == sizeof(t) ? 0 : EIO, "close of the child");
	say("close", t);
	say("closed_mirrors", counter("live_svms"));
	say("exit", gone(child));

	/* kill */
	child = start_child(&to, &from);
	say("kill", gone(child));
	say("killed_mirrors", counter("live_svms"));

	/* reset: jobs end, the mirrors stay */
	child = start_child(&to, &from);
	t = now_us();
	need(write_text("/sys/bus/pci/devices/" PCI_NAME "/reset", "1"), "reset");
	say("reset", now_us() - t);
	say("reset_mirrors", counter("live_svms"));
	gone(child);

	/* with nobody but the work using it the module stays, and says so at once */
	hmmgpu_ctx_destroy(u.ctx);
	hmmgpu_close(u.gpu);
	child = start_child(&to, &from);
	gone(child);
	t = now_us();
	say("rmmod_error", syscall(SYS_delete_module, "hmm_gpu", O_NONBLOCK) ? errno : 0);
	say("rmmod", now_us() - t);

	/* the driver leaves the device */
	child = start_child(&to, &from);
	t = now_us();
	need(write_text("/sys/bus/pci/drivers/hmm_gpu/unbind", PCI_NAME), "unbind");
	say("unbind", now_us() - t);
	say("unbound_kill", gone(child));

	end_fuse(fuse);
	printf("stalled passed\n");
	return 0;
}
