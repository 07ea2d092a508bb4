// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queues of jobs: the order within one and, by syncobjs, between two; their end while
 * jobs are in them or others ask for them.
 *
 * All of it is tried with queues and memory that the operation itself makes, so it
 * needs no lock and may stand beside anything.  Numbers of queues that are gone are
 * another's soon: so who uses one has a file of its own.  What was seen is only told; the bench
 * judges (model/ops/queues.py).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu.h"
#include "gpu_kernels.h"
#include "op.h"

#define MAX_PAGES	16
#define ROUNDS		3
#define ASKED		64	/* calls for a queue that goes away, at most */
#define PATIENCE_NS	10000000000ll
#define JOBS		90	/* whose results are looked at */
#define BAD_EACH	8
#define CROWD		1300	/* that are put behind them, unless the queue is full before */

/* In this order numbers of the bench. */
enum queue_word { QUEUE_ORDER, QUEUE_CHAIN, QUEUE_ENDS, QUEUE_GONE, QUEUE_FULL };

/* aux0 of the answer */
enum { QUEUE_TRIED, QUEUE_NO_ROOM };

enum step {
	STEP_CONTENT, STEP_TOLD, STEP_ENDED, STEP_ASKED, STEP_WAITED, STEP_DESTROYED, STEP_AGAIN,
	STEP_RESULT, STEP_EARLY,
};

/* One look; an answer's data is some of these. */
struct look {
	uint32_t step;
	int32_t status;		/* of a call, or of a job */
	uint32_t wrong;		/* words that are not what they ought to be */
	uint32_t at;		/* the first of them */
	uint64_t got;
	uint64_t wanted;
};

/* An operation being executed. */
struct work {
	const struct op_call *call;
	struct hmmgpu *dev;
	struct hmmgpu_ctx *ctx[2];
	uint32_t sync[2];
	size_t size;		/* of each piece of memory */
	uint64_t *mem[3];
	volatile uint32_t *stop;	/* a page of its own, which the GPU spins on */
	uint64_t pattern;
	struct look look[8 * ROUNDS];
	unsigned n;
};

static struct look *next_look(struct work *w, uint32_t step, int status)
{
	struct look *l = &w->look[w->n < ARRAY_SIZE(w->look) ? w->n++ : w->n - 1];

	*l = (struct look){ .step = step, .status = status };
	return l;
}

static uint64_t next_pattern(struct work *w)
{
	return ++w->pattern;
}

static void compare(struct work *w, const uint64_t *mem, uint64_t wanted)
{
	struct look *l = next_look(w, STEP_CONTENT, 0);

	l->wanted = wanted;
	for (size_t i = 0; i < w->size / 8; i++) {
		if (mem[i] != wanted && !l->wrong++) {
			l->at = i;
			l->got = mem[i];
		}
	}
}

static int wait(struct work *w, unsigned ctx, uint64_t job)
{
	return gpu_wait_job(w->ctx[ctx], job, w->call->result);
}

/* What a copy between two changes copies is what is there between them. */
static int try_order(struct work *w)
{
	uint64_t first = next_pattern(w), second = next_pattern(w), job;
	struct hmmgpu_ctx *ctx = w->ctx[0];
	int ret = hmmgpu_fill(ctx, w->mem[0], first, w->size, 0, 0, &job);

	if (!ret)
		ret = hmmgpu_copy(ctx, w->mem[1], w->mem[0], w->size, 0, 0, &job);
	if (!ret)
		ret = hmmgpu_fill(ctx, w->mem[0], second, w->size, 0, 0, &job);
	if (!ret)
		ret = hmmgpu_copy(ctx, w->mem[2], w->mem[0], w->size, 0, 0, &job);
	if (!ret)
		ret = wait(w, 0, job);
	if (!ret) {
		compare(w, w->mem[1], first);
		compare(w, w->mem[2], second);
	}
	return ret;
}

/*
 * A job of one queue waits for one of the other, and that again; what is before them
 * does not end before it is told to.
 */
static int try_chain(struct work *w)
{
	struct spin_args args = { .stop = (uintptr_t)w->stop };
	struct hmmgpu_launch l = { .entry = kernel_spin, .grid = 1, .block = 32 };
	uint64_t pattern = next_pattern(w), other = next_pattern(w), job, second, last;
	int ret, early;

	*w->stop = 0;
	ret = hmmgpu_launch_args(w->ctx[0], &l, &args, sizeof(args), &job);
	if (!ret)
		ret = hmmgpu_fill(w->ctx[0], w->mem[0], pattern, w->size, 0, w->sync[0], &job);
	/* the end of another one tells its own syncobj alone */
	if (!ret)
		ret = hmmgpu_fill(w->ctx[1], w->mem[1], other, w->size, 0, w->sync[1], &job);
	if (!ret)
		ret = wait(w, 1, job);
	if (!ret)
		ret = hmmgpu_copy(w->ctx[1], w->mem[1], w->mem[0], w->size, w->sync[0], w->sync[1],
				  &second);
	if (!ret)
		ret = hmmgpu_copy(w->ctx[0], w->mem[2], w->mem[1], w->size, w->sync[1], 0, &last);
	if (!ret) {
		early = hmmgpu_syncobj_wait(w->dev, w->sync[0], 1000);
		if (early == -ETIME)
			early = hmmgpu_wait(w->ctx[1], second, 0, NULL);
		next_look(w, STEP_EARLY, early);
	}
	*w->stop = 1;
	if (!ret)
		ret = wait(w, 0, last);
	if (ret)
		return ret;
	next_look(w, STEP_TOLD, hmmgpu_syncobj_wait(w->dev, w->sync[1], PATIENCE_NS));
	compare(w, w->mem[1], pattern);
	compare(w, w->mem[2], pattern);
	return 0;
}

/* Who waits for a job that ends because its queue does goes on. */
static int try_ends(struct work *w)
{
	struct hmmgpu_launch l = {
		.entry = kernel_spin, .grid = 1, .block = 32, .out_syncobj = w->sync[0],
	};
	struct spin_args args = { 0 };
	struct hb_op_result r = { 0 };
	uint64_t pattern = next_pattern(w), spin, job;
	struct hmmgpu_ctx *ending;
	int ret, err;

	ret = hmmgpu_ctx_create(w->dev, 0, &ending);
	if (ret)
		return ret;
	ret = hmmgpu_launch_args(ending, &l, &args, sizeof(args), &spin);
	if (!ret)
		ret = hmmgpu_fill(w->ctx[1], w->mem[0], pattern, w->size, w->sync[0], 0, &job);
	err = hmmgpu_ctx_destroy(ending);
	ret = ret ? ret : err;
	if (ret)
		return ret;
	next_look(w, STEP_ENDED, gpu_wait_job(w->ctx[1], job, &r));
	next_look(w, STEP_TOLD, hmmgpu_syncobj_wait(w->dev, w->sync[0], PATIENCE_NS));
	compare(w, w->mem[0], pattern);
	return 0;
}

/* ---- a queue that goes while another thread asks for it: by its number ---- */

static int ask(struct work *w, unsigned long request, void *arg)
{
	int ret;

	do {
		ret = ioctl(hmmgpu_fd(w->dev), request, arg);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

struct asker {
	struct work *w;
	uint32_t ctx_id;
	atomic_uint asked;
	atomic_bool over;
	int submitted, waited;	/* the last answers */
	int32_t error;		/* of the job waited for last */
};

static void *ask_on(void *arg)
{
	struct asker *a = arg;
	struct work *w = a->w;

	do {
		struct drm_hmm_gpu_copy c = {
			.ctx_id = a->ctx_id, .flags = HMM_GPU_COPY_FILL, .dst = (uintptr_t)w->mem[0],
			.src = w->pattern, .len = 64,
		};
		struct drm_hmm_gpu_wait wait = { .ctx_id = a->ctx_id, .timeout_ns = -1 };

		a->submitted = ask(w, DRM_IOCTL_HMM_GPU_COPY, &c);
		wait.job = c.job;
		if (!a->submitted) {
			a->waited = ask(w, DRM_IOCTL_HMM_GPU_WAIT, &wait);
			if (!a->waited)
				a->error = wait.error;
		}
	} while (atomic_fetch_add(&a->asked, 1) < ASKED && !a->submitted && !a->waited && !a->error);
	atomic_store(&a->over, true);
	return NULL;
}

static int try_gone_in(struct work *own, struct work *w)
{
	struct drm_hmm_gpu_ctx_create create = { 0 };
	struct drm_hmm_gpu_ctx_destroy destroy = { 0 };
	struct asker a = { .w = own };
	pthread_t thread;
	int ret;

	ret = ask(own, DRM_IOCTL_HMM_GPU_CTX_CREATE, &create);
	if (ret)
		return ret;
	a.ctx_id = destroy.ctx_id = create.ctx_id;
	ret = -pthread_create(&thread, NULL, ask_on, &a);
	if (!ret) {
		/* Somewhere between its calls. */
		while (atomic_load(&a.asked) < w->call->index % 4 && !atomic_load(&a.over))
			__builtin_ia32_pause();
		next_look(w, STEP_DESTROYED, ask(own, DRM_IOCTL_HMM_GPU_CTX_DESTROY, &destroy));
		pthread_join(thread, NULL);
		next_look(w, STEP_ASKED, a.submitted);
		next_look(w, STEP_WAITED, a.waited ? a.waited : a.error);
		next_look(w, STEP_AGAIN, ask(own, DRM_IOCTL_HMM_GPU_CTX_DESTROY, &destroy));
	} else {
		ask(own, DRM_IOCTL_HMM_GPU_CTX_DESTROY, &destroy);
	}
	return ret;
}

static int try_gone(struct work *w)
{
	struct work own = *w;
	int ret, err;

	own.pattern = next_pattern(w);
	ret = hmmgpu_open(&own.dev, NULL);
	if (ret)
		return ret;
	ret = try_gone_in(&own, w);
	err = hmmgpu_close(own.dev);
	return ret ? ret : err;
}

/* ---- a queue in which many jobs wait ---- */

struct crowd {
	struct work *w;
	uint32_t ctx_id;
	int ret;
	atomic_bool over;
};

/* Until it is full, and then until a signal. */
static void *crowd_in(void *arg)
{
	struct crowd *c = arg;
	struct work *w = c->w;

	for (unsigned i = 0; !c->ret && i < CROWD; i++) {
		struct drm_hmm_gpu_copy copy = {
			.ctx_id = c->ctx_id, .flags = HMM_GPU_COPY_FILL, .dst = (uintptr_t)w->mem[2],
			.src = w->pattern, .len = 64, .in_syncobj = w->sync[0],
			.out_syncobj = w->sync[1],
		};

		if (ioctl(hmmgpu_fd(w->dev), DRM_IOCTL_HMM_GPU_COPY, &copy))
			c->ret = -errno;
	}
	atomic_store(&c->over, true);
	return NULL;
}

static void wakes_up(int sig)
{
	(void)sig;
}

/* For good: another thread of the process may send one. */
static void handle_signal(void)
{
	struct sigaction sa = { .sa_handler = wakes_up };

	sigaction(SIGUSR2, &sa, NULL);
}

/* Asks for more than there is room for, and is interrupted: 0, or how it ended otherwise. */
static int crowd(struct work *w, uint32_t ctx_id)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct crowd c = { .w = w, .ctx_id = ctx_id };
	pthread_t thread;
	int ret;

	pthread_once(&once, handle_signal);
	ret = -pthread_create(&thread, NULL, crowd_in, &c);
	if (!ret) {
		while (!atomic_load(&c.over)) {
			usleep(1000);
			pthread_kill(thread, SIGUSR2);
		}
		pthread_join(thread, NULL);
		ret = c.ret == -EINTR ? 0 : c.ret;
	}
	return ret;
}

/* One of another queue waits behind them; each has its own result. */
static int try_full(struct work *w)
{
	struct drm_hmm_gpu_ctx_create create = { 0 };
	struct spin_args args = { .stop = (uintptr_t)w->stop };
	struct hmmgpu_launch l = { .entry = kernel_spin, .grid = 1, .block = 32 };
	struct drm_hmm_gpu_ctx_destroy destroy = { 0 };
	uint64_t spin, job[JOBS], last = next_pattern(w);
	uint8_t *nothing;
	unsigned n;
	int ret;

	nothing = mmap(NULL, PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nothing == MAP_FAILED)
		return -ENOMEM;
	*w->stop = 0;
	ret = hmmgpu_launch_args(w->ctx[0], &l, &args, sizeof(args), &spin);
	for (n = 0; !ret && n < JOBS; n++) {
		bool bad = n % BAD_EACH == BAD_EACH - 1;

		ret = hmmgpu_fill(w->ctx[0], bad ? (void *)(nothing + n * 8) : w->mem[0] + n, last, 8,
				  0, n == JOBS - 1 ? w->sync[0] : 0, &job[n]);
	}
	if (ret && n)
		n--;
	if (!ret)
		ret = ask(w, DRM_IOCTL_HMM_GPU_CTX_CREATE, &create);
	if (!ret) {
		ret = crowd(w, create.ctx_id);
		destroy.ctx_id = create.ctx_id;
	}
	*w->stop = 1;
	for (unsigned i = 0; !ret && i < JOBS; i++) {
		bool bad = i % BAD_EACH == BAD_EACH - 1;
		struct hb_op_result r = { 0 };
		int status = gpu_wait_job(w->ctx[0], job[i], &r);

		if (status == (bad ? -EFAULT : 0) &&
		    (!bad || r.fault_addr == (uintptr_t)nothing + i * 8))
			continue;
		*next_look(w, STEP_RESULT, status) = (struct look){
			.step = STEP_RESULT, .status = status, .wrong = 1, .at = i,
			.got = r.fault_addr, .wanted = bad ? (uintptr_t)nothing + i * 8 : 0,
		};
		break;
	}
	if (destroy.ctx_id)
		next_look(w, STEP_DESTROYED, ask(w, DRM_IOCTL_HMM_GPU_CTX_DESTROY, &destroy));
	/* what is left of them may not write where another's memory is then */
	if (n)
		hmmgpu_wait(w->ctx[0], job[n - 1], -1, NULL);
	munmap(nothing, PAGE_SIZE);
	return ret;
}

static int try(struct work *w)
{
	static int (*const tries[])(struct work *w) = {
		[QUEUE_ORDER] = try_order,
		[QUEUE_CHAIN] = try_chain,
		[QUEUE_ENDS] = try_ends,
		[QUEUE_GONE] = try_gone,
		[QUEUE_FULL] = try_full,
	};
	int ret = 0;

	/* what fills a queue is long enough */
	for (unsigned i = 0; !ret && i < (w->call->op->arg == QUEUE_FULL ? 1 : ROUNDS); i++)
		ret = tries[w->call->op->arg](w);
	return ret;
}

static int tell(struct work *w)
{
	uint32_t len = w->n * sizeof(w->look[0]);
	uint8_t *to = op_data(w->call, len);

	if (!to)
		return -ENOSPC;
	memcpy(to, w->look, len);
	w->call->result->data_len = len;
	return 0;
}

static int begin(struct work *w)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < ARRAY_SIZE(w->ctx); i++) {
		ret = hmmgpu_ctx_create(w->dev, 0, &w->ctx[i]);
		if (!ret)
			ret = hmmgpu_syncobj_create(w->dev, 0, &w->sync[i]);
	}
	return ret;
}

/* The first error. */
static int end(struct work *w)
{
	int ret = 0, err;

	for (unsigned i = 0; i < ARRAY_SIZE(w->ctx); i++) {
		err = w->sync[i] ? hmmgpu_syncobj_destroy(w->dev, w->sync[i]) : 0;
		ret = ret ? ret : err;
		err = hmmgpu_ctx_destroy(w->ctx[i]);
		ret = ret ? ret : err;
	}
	return ret;
}

static int op_queue(const struct op_call *call)
{
	struct work w = {
		.call = call, .size = call->op->len,
		.pattern = 0x7175657500000000ull + ((uint64_t)call->index << 8),
	};
	size_t all = w.size * ARRAY_SIZE(w.mem) + PAGE_SIZE;
	uint8_t *mem;
	int ret, err;

	if (call->op->arg > QUEUE_FULL || w.size % PAGE_SIZE || !w.size ||
	    w.size > MAX_PAGES * PAGE_SIZE)
		return -EINVAL;
	ret = gpu_get(&w.dev, 0, NULL);
	if (ret)
		return ret;
	mem = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return -ENOMEM;
	for (unsigned i = 0; i < ARRAY_SIZE(w.mem); i++)
		w.mem[i] = (uint64_t *)(mem + i * w.size);
	w.stop = (uint32_t *)(mem + all - PAGE_SIZE);
	ret = begin(&w);
	if (!ret)
		ret = try(&w);
	err = end(&w);
	if (ret == -ENOSPC || ret == -EDQUOT) {
		/* There is no queue left. */
		call->result->aux0 = QUEUE_NO_ROOM;
		ret = 0;
	} else if (!ret) {
		ret = err ? err : tell(&w);
	}
	munmap(mem, all);
	return ret;
}

static const struct op_kind queues[] = {
	/* arg = what, len = of how much memory -> data: struct look each; aux0: why none */
	{ 97, "queue", op_queue, OP_GPU, NULL },
};
OP_FAMILY(queues);
