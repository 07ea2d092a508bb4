/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libhmmgpu: the user library of the hmm-gpu driver.
 *
 * The GPU shares the address space of the process: every pointer the process
 * may use, a kernel may use, whatever it came from - malloc, a stack, a global,
 * mmap of a file.  Nothing is registered and nothing is copied by hand.  A page
 * may live in system memory or in the GPU's; where it lives changes speed, not
 * content.
 *
 *	struct hmmgpu *gpu;
 *	struct hmmgpu_ctx *ctx;
 *	struct hmmgpu_kernel *k;
 *	struct hmmgpu_launch l = { .grid = 16, .block = 64 };
 *
 *	if (hmmgpu_open(&gpu, NULL) || hmmgpu_ctx_create(gpu, 0, &ctx) ||
 *	    hmmgpu_kernel_load_file("sum.elf", &k) ||
 *	    hmmgpu_kernel_symbol(k, "sum", &l.entry))
 *		...
 *	l.args = (uintptr_t)&args;
 *	err = hmmgpu_run(ctx, &l, NULL);
 *
 * RETURN VALUES.  Every function that returns int returns 0 or -errno.  Out
 * parameters are written only on success, unless said otherwise.
 *
 * ERRORS OF JOBS are apart from errors of calls: hmmgpu_wait() returns 0 when
 * it has learnt how the job ended, and struct hmmgpu_result says how.  A job
 * that fails does not harm the process, its memory or the context.
 *
 * THREADS.  All functions may be called from several threads at the same time,
 * also on the same object, with one exception: an object must not be destroyed
 * or freed while another call uses it.  Jobs of one context run in the order
 * in which their launch or copy call took effect; jobs of different contexts
 * run in any order, or at the same time, unless syncobjs order them.
 *
 * FORK.  The GPU's view belongs to the process that called hmmgpu_open().  A
 * child of fork() may only call hmmgpu_ctx_destroy() and hmmgpu_close() on what
 * it inherited (this releases the child's copies and leaves the parent's alone)
 * and opens its own.  Kernels that were loaded before fork() are usable in the
 * child, and what they print there is the child's.
 *
 * LINK with the C library only; no libdrm.
 */
#ifndef HMMGPU_H
#define HMMGPU_H

#include <stddef.h>
#include <stdint.h>

#include "hmm_gpu_drm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hmmgpu;		/* an open device: one address space */
struct hmmgpu_ctx;	/* a queue of jobs */
struct hmmgpu_kernel;	/* a loaded GPU program */
struct hmmgpu_event;	/* a point in a queue of jobs, and its time */

/* ------------------------------ device ------------------------------ */

/*
 * hmmgpu_open - open the GPU for the calling process
 * @gpu:  out
 * @node: path of a render node, or NULL to take the first one in /dev/dri whose
 *        driver is hmm_gpu
 *
 * -ENODEV: no such device (the driver is not loaded, or nodes are missing),
 * -EACCES: there are render nodes, and none may be opened; else as open(2).
 */
int hmmgpu_open(struct hmmgpu **gpu, const char *node);

/* hmmgpu_close - close the device, after its contexts and events were destroyed; NULL is allowed */
int hmmgpu_close(struct hmmgpu *gpu);

/* The file descriptor, for poll(2), fdinfo and calls that the library has not. */
int hmmgpu_fd(const struct hmmgpu *gpu);

/* hmmgpu_get_param - one of HMM_GPU_PARAM_*; -EINVAL for an unknown one */
int hmmgpu_get_param(struct hmmgpu *gpu, uint32_t param, uint64_t *value);

enum hmmgpu_attr {
	/* 1: any memory that the process may access, a kernel may access: malloc, stacks, files */
	HMMGPU_ATTR_PAGEABLE_ACCESS = 1,
	/* 1: by walking the CPU's own page tables.  0 here: by tables of its own that mirror them */
	HMMGPU_ATTR_HOST_PAGE_TABLES,
	/* 1: CPU threads and GPU threads may access the same memory, the same page, at the same time */
	HMMGPU_ATTR_CONCURRENT_ACCESS,
	/* 1: atomics of GPU threads are atomic to those of CPU threads, on any memory that may be written */
	HMMGPU_ATTR_NATIVE_ATOMICS,
	/* 1: the CPU uses a page in VRAM where it is (device with coherent=on).  0: its touch brings it home */
	HMMGPU_ATTR_CPU_ACCESS_TO_VRAM,
	/* 1: 2 MiB pages migrate in one piece */
	HMMGPU_ATTR_HUGE_MIGRATION,
	HMMGPU_ATTR_SMS,		/* streaming multiprocessors */
	HMMGPU_ATTR_WARPS,		/* of each, at the same time */
	HMMGPU_ATTR_LANES,		/* threads of a warp */
	HMMGPU_ATTR_THREADS,		/* of all, at the same time */
	HMMGPU_ATTR_MAX_BLOCK,		/* threads */
	HMMGPU_ATTR_MAX_GRID,		/* blocks */
	HMMGPU_ATTR_MAX_SHARED,		/* bytes a block */
	HMMGPU_ATTR_VRAM_BYTES,		/* that the driver may use */
	HMMGPU_ATTR_VRAM_FREE_BYTES,	/* now */
	HMMGPU_ATTR_PAGE_BYTES,		/* what migrates and faults */
	HMMGPU_ATTR_MAX_COPY_BYTES	/* of hmmgpu_copy() and hmmgpu_fill() */
};

/*
 * hmmgpu_get_attr - what the device can do
 *
 * -EINVAL: not an attribute, or a driver that is too old to know.
 */
int hmmgpu_get_attr(struct hmmgpu *gpu, enum hmmgpu_attr attr, uint64_t *value);
/* In words; never NULL.  Attributes are numbered from 1 without gaps. */
const char *hmmgpu_attr_name(enum hmmgpu_attr attr);

struct hmmgpu_usage {
	uint64_t compute_ns;	/* that jobs of this open device spent in launches and copies, ... */
	uint64_t copy_ns;	/* ... those that are done, by the device's clock */
	uint64_t vram_bytes;	/* that are mapped on the GPU for it, where they are now */
	uint64_t system_bytes;
};

/* hmmgpu_usage - what the kernel counts for this open device (/proc/PID/fdinfo); -EPROTO: it does not */
int hmmgpu_usage(struct hmmgpu *gpu, struct hmmgpu_usage *usage);

/*
 * hmmgpu_set_policy - what a GPU access to a page outside VRAM does from now on
 * @policy: HMM_GPU_POLICY_MAP or HMM_GPU_POLICY_MIGRATE, with HMM_GPU_POLICY_EXCLUSIVE or not
 */
int hmmgpu_set_policy(struct hmmgpu *gpu, uint32_t policy);

/* ----------------------------- contexts ----------------------------- */

/*
 * hmmgpu_ctx_create - make a queue of jobs
 * @timeslice_us: how long its threads may keep the GPU when another context
 *                waits; 0 = default
 *
 * -ENOSPC: the hardware has no context left; -EDQUOT: the user may have no more.
 */
int hmmgpu_ctx_create(struct hmmgpu *gpu, uint32_t timeslice_us, struct hmmgpu_ctx **ctx);

/*
 * Ends what still runs with -ECANCELED, then frees the context; NULL is allowed.  An error is the
 * driver's, which may still have the context; its memory here is gone all the same.
 */
int hmmgpu_ctx_destroy(struct hmmgpu_ctx *ctx);

/*
 * hmmgpu_ctx_sync - wait until all jobs that were submitted before this call are done
 * @timeout_ns: as in hmmgpu_wait()
 *
 * 0: they are, however they ended; -ETIME: not yet.
 */
int hmmgpu_ctx_sync(struct hmmgpu_ctx *ctx, int64_t timeout_ns);

struct hmmgpu_ctx_stats {
	uint64_t launches;	/* submitted, with those of events */
	uint64_t copies;	/* submitted copies and fills */
	uint64_t copy_bytes;	/* of these, as asked for */
	uint64_t done;		/* jobs that have ended */
	uint64_t failed;	/* of these, with an error */
	uint64_t unknown;	/* of these, how is not known any more */
	uint64_t instrs;	/* instructions of all threads of those that are known */
};

/*
 * hmmgpu_ctx_stats - what a context has done since it was created
 *
 * The driver remembers how the last 1,024 jobs ended; ask that often for exact
 * figures, or look at `unknown`.
 */
int hmmgpu_ctx_stats(struct hmmgpu_ctx *ctx, struct hmmgpu_ctx_stats *stats);

/* ----------------------------- kernels ------------------------------ */

/*
 * hmmgpu_kernel_load - place a GPU program in memory
 * @elf:  a linked ELF64 file for RISC-V: position independent (ld -pie
 *        --no-dynamic-linker; placed at any free address) or at fixed
 *        addresses that are free in this process
 * @size: its length in bytes; the buffer is not needed after the call
 *
 * Text and constants are read-only afterwards.  The file is checked as
 * untrusted input.  -ENOEXEC: not such a file, or it needs a relocation other
 * than R_RISCV_RELATIVE, or the fixed address 0; -EEXIST: fixed addresses are in use; -ENOMEM.
 */
int hmmgpu_kernel_load(const void *elf, size_t size, struct hmmgpu_kernel **kernel);
int hmmgpu_kernel_load_file(const char *path, struct hmmgpu_kernel **kernel);

/* hmmgpu_kernel_load_builtin - the programs that come with the library: accesses, spin, empty, touch, latency (kernels/accesses.h) */
int hmmgpu_kernel_load_builtin(struct hmmgpu_kernel **kernel);

/* Unmaps it; no job may be running it.  NULL is allowed. */
void hmmgpu_kernel_free(struct hmmgpu_kernel *kernel);

/*
 * hmmgpu_kernel_symbol - address of a symbol
 * @name: NULL means the ELF entry point
 *
 * Functions for struct hmmgpu_launch.entry, and variables alike (the pointer
 * may be dereferenced).  -ENOENT: no such symbol.
 */
int hmmgpu_kernel_symbol(const struct hmmgpu_kernel *kernel, const char *name, uint64_t *addr);

/* hmmgpu_kernel_text - the pages [start, end) that hold its instructions; -ENOENT if it has none */
int hmmgpu_kernel_text(const struct hmmgpu_kernel *kernel, uint64_t *start, uint64_t *end);

struct hmmgpu_location {
	const char *symbol;	/* the function, NULL: not known */
	uint64_t offset;	/* from its start */
	const char *dir;	/* of the file; NULL: where the compiler was started, or file is absolute */
	const char *file;	/* the source as the compiler was given it, NULL: not known */
	uint32_t line;		/* from 1; 0 if file is NULL */
	uint32_t pad;
};

/*
 * hmmgpu_kernel_locate - where in the source an instruction is
 * @addr: its address, as hmmgpu_result.pc
 * @at:   out; its strings live as long as the kernel
 *
 * Functions come from the file's symbol table, lines from its DWARF (2 to 5, not
 * compressed): compile with -g and do not strip.  What was inlined is found at
 * its own line, under the name of the function that holds it.  -ENOENT: not an
 * instruction of this kernel, or the file tells nothing about it.
 */
int hmmgpu_kernel_locate(const struct hmmgpu_kernel *kernel, uint64_t addr,
			 struct hmmgpu_location *at);

/* ------------------------------- jobs ------------------------------- */

struct hmmgpu_launch {
	uint64_t entry;		/* first instruction */
	uint64_t args;		/* pointer for the kernel; may be 0 */
	uint32_t grid;		/* blocks, from 1 */
	uint32_t block;		/* threads a block, from 1 */
	uint32_t local_size;	/* bytes of stack a thread; 0: HMMGPU_DEFAULT_LOCAL */
	uint32_t in_syncobj;	/* starts after its fence; 0: none */
	uint32_t out_syncobj;	/* is over when this job is; 0: none */
	uint32_t shared_size;	/* bytes of memory that a block shares, up to 64 KiB */
	uint64_t budget;	/* instructions a thread may take; 0: no limit */
};

#define HMMGPU_DEFAULT_LOCAL	4096

struct hmmgpu_result {
	int32_t error;		/* 0, or -EFAULT access, -ENOMEM no memory for it, -EILSEQ illegal
				   instruction, -ETIME budget, -ECANCELED context gone, -EIO
				   anything else */
	uint32_t status;	/* HG_ERR_* of the hardware */
	uint32_t reason;	/* HG_REASON_* of an access fault */
	uint32_t block;		/* of the failing thread */
	uint32_t thread;	/* in its block */
	uint32_t pad;
	uint64_t addr;		/* that could not be accessed */
	uint64_t pc;		/* of the instruction; of a jump to where nothing is, the jump's */
	uint64_t instrs;	/* instructions taken by all threads */
};

/*
 * hmmgpu_launch - start a kernel, do not wait
 * @job: out: its number in this context (NULL: not wanted)
 *
 * The stacks of the threads are allocated by the library for the context when
 * first needed; untouched ones cost address space only.
 * -EINVAL: sizes the hardware cannot do; -ENOMEM; -ENOENT: no such syncobj.
 */
int hmmgpu_launch(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch, uint64_t *job);

#define HMMGPU_MAX_ARGS		4096

/*
 * hmmgpu_launch_args - as hmmgpu_launch(), with arguments by value
 * @launch: its args must be 0
 * @args:   a struct of any kind, which the kernel gets a pointer to
 * @size:   its bytes, 1 to HMMGPU_MAX_ARGS
 *
 * The struct is copied before the call returns, so it may be changed or go out of
 * scope at once.  The copy is 64-byte aligned and lives until the job is done;
 * it is the job's own, and what the kernel writes to it is lost.  What pointers in
 * it point to is not copied.
 */
int hmmgpu_launch_args(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch,
		       const void *args, size_t size, uint64_t *job);

/* hmmgpu_copy, hmmgpu_fill - as hmmgpu_launch, by the copy engine; fill: pattern repeated, dst and len multiples of 8 */
int hmmgpu_copy(struct hmmgpu_ctx *ctx, void *dst, const void *src, uint64_t len,
		uint32_t in_syncobj, uint32_t out_syncobj, uint64_t *job);
int hmmgpu_fill(struct hmmgpu_ctx *ctx, void *dst, uint64_t pattern, uint64_t len,
		uint32_t in_syncobj, uint32_t out_syncobj, uint64_t *job);

/*
 * hmmgpu_wait - wait until a job, and so every one before it, is done
 * @timeout_ns: < 0: for ever, 0: only ask
 * @result:     out (NULL: not wanted)
 *
 * 0: done (see result->error); -ETIME: not yet.  Signals do not end the wait.
 */
int hmmgpu_wait(struct hmmgpu_ctx *ctx, uint64_t job, int64_t timeout_ns,
		struct hmmgpu_result *result);

/* hmmgpu_run - launch and wait; the error of the call or else of the job.  @result is zeroed if the call failed. */
int hmmgpu_run(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch,
	       struct hmmgpu_result *result);

int hmmgpu_run_args(struct hmmgpu_ctx *ctx, const struct hmmgpu_launch *launch,
		    const void *args, size_t size, struct hmmgpu_result *result);

/* ----------------------------- printing ----------------------------- */

/* block and thread of the line that says how many calls were lost */
#define HMMGPU_PRINT_LOST	UINT32_MAX

/*
 * What gets the text of one hmm_printf() of a kernel: not terminated, valid during the call.
 * May be called in any thread that waits for jobs, in one at a time; must not call
 * this library.
 */
typedef void (*hmmgpu_print_fn)(void *data, const char *text, size_t len, uint32_t block,
				uint32_t thread);

/*
 * hmmgpu_set_print - where what kernels print goes from now on, in the whole process
 * @fn: NULL: standard output, by stdio
 *
 * What a job prints (hmm_printf(), kernels/hmm_gpu_print.h) is put out at the latest before a
 * call returns that has waited for it: hmmgpu_wait() and what is made of it, hmmgpu_ctx_sync(),
 * hmmgpu_event_sync() and hmmgpu_syncobj_wait(), and before hmmgpu_ctx_destroy() and
 * hmmgpu_kernel_free(); of a job that hmmgpu_wait() waits for, also while it runs.  A
 * job that fails loses the records it had not completed, no others.  There is room for
 * 1 MiB of records between two such moments, 64 bytes and up each; what does not fit
 * is lost, and a line says how much.
 */
void hmmgpu_set_print(hmmgpu_print_fn fn, void *data);

/* hmmgpu_print_flush - put out now what was printed so far; waits for no job */
void hmmgpu_print_flush(void);

/* ------------------------------ events ------------------------------ */

/*
 * hmmgpu_event_create, hmmgpu_event_destroy
 *
 * An event of one open device, to be recorded in any of its contexts.
 * Destroying waits for nothing; NULL is allowed.
 */
int hmmgpu_event_create(struct hmmgpu *gpu, struct hmmgpu_event **event);
void hmmgpu_event_destroy(struct hmmgpu_event *event);

/*
 * hmmgpu_event_record - mark the point behind all jobs of the context so far
 *
 * A job of its own: when all before it are done, it notes the device's time.  An
 * event that is recorded again stands for the new point from then on.
 */
int hmmgpu_event_record(struct hmmgpu_event *event, struct hmmgpu_ctx *ctx);

/*
 * hmmgpu_event_query, hmmgpu_event_sync - ask, or wait, until the point was reached
 * @timeout_ns: as in hmmgpu_wait()
 *
 * 0: it was, or the event was never recorded; -ETIME: not yet; -ECANCELED: the
 * context was destroyed, or the device reset, before.  (Errors of jobs before it are theirs.)
 */
int hmmgpu_event_query(struct hmmgpu_event *event);
int hmmgpu_event_sync(struct hmmgpu_event *event, int64_t timeout_ns);

/*
 * hmmgpu_event_time - the device's time when the point was reached
 * hmmgpu_event_elapsed - nanoseconds from one to the other; negative if end was first
 *
 * By the clock of the device, which is the virtual machine's: it says how long the
 * emulation took, not how long a GPU would.  -EINVAL: never recorded; -ETIME: not reached yet;
 * -ECANCELED as above.
 */
int hmmgpu_event_time(struct hmmgpu_event *event, uint64_t *ns);
int hmmgpu_event_elapsed(struct hmmgpu_event *start, struct hmmgpu_event *end, int64_t *ns);

/*
 * hmmgpu_ctx_wait_event - jobs of the context from now on start after the event's last record
 *
 * An event that was never recorded holds up nothing, one whose record was cancelled
 * neither.
 */
int hmmgpu_ctx_wait_event(struct hmmgpu_ctx *ctx, struct hmmgpu_event *event);

/* ------------------------------ memory ------------------------------ */

/*
 * hmmgpu_malloc - memory that lives in VRAM, always
 * @addr: out: where kernels and copies find it, a multiple of 2 MiB
 * @size: bytes, not 0; whole pages are taken
 *
 * All zero.  Never moved, never evicted: pages that migrated to VRAM make room for it,
 * so that a program which takes all of VRAM makes the others' memory stay outside.
 * A CPU has no access at all (SIGSEGV); hmmgpu_memcpy() and hmmgpu_memset() are
 * the way in and out.  Behind its last page an access ends the job.  It belongs to
 * this open device: other processes, and other hmmgpu_open(), do not see it.
 * -ENOSPC: there is not so much VRAM left that could be had; -EDQUOT: more than one
 * user may have; -EINVAL: no size;
 * -EOPNOTSUPP: not on this kind of CPU; -ENOMEM, -EIO, -EPERM (after fork()).
 */
int hmmgpu_malloc(struct hmmgpu *gpu, void **addr, uint64_t size);

/*
 * hmmgpu_free - give it back; also done by hmmgpu_close() and the end of the process
 * @addr: what hmmgpu_malloc() gave; NULL is allowed
 *
 * Waits for no job: one that still uses the memory ends with -EFAULT.
 * -EINVAL: no such memory, or not any more; -EPERM: in a child of fork().
 */
int hmmgpu_free(struct hmmgpu *gpu, void *addr);

/*
 * hmmgpu_memcpy, hmmgpu_memset - by the copy engine, of any length and alignment
 * @result: out, how the (last) copy ended (NULL: not wanted)
 *
 * They return when it is done, behind all jobs of the context so far: the error of
 * the call or else of the job.  After an error a part may have been written.
 * Source and destination may not overlap (-EINVAL).  A length of 0 does nothing.
 */
int hmmgpu_memcpy(struct hmmgpu_ctx *ctx, void *dst, const void *src, uint64_t len,
		  struct hmmgpu_result *result);
int hmmgpu_memset(struct hmmgpu_ctx *ctx, void *dst, int byte, uint64_t len,
		  struct hmmgpu_result *result);

/*
 * hmmgpu_migrate - move pages to VRAM or back, as far as they can move
 * @addr, @len:       page aligned
 * @dst:              HMM_GPU_MIGRATE_DEVICE or HMM_GPU_MIGRATE_SYSTEM
 * @migrated, @failed: out, pages (NULL: not wanted)
 *
 * It is a hint: what cannot move stays where it is and works.  -EFAULT: nothing
 * is mapped in the range.
 */
int hmmgpu_migrate(struct hmmgpu *gpu, void *addr, uint64_t len, uint32_t dst,
		   uint64_t *migrated, uint64_t *failed);

/* hmmgpu_prefetch - as hmmgpu_migrate, and map the range on the GPU, so that accesses do not fault */
int hmmgpu_prefetch(struct hmmgpu *gpu, void *addr, uint64_t len, uint32_t dst,
		    uint64_t *migrated, uint64_t *failed);

/* hmmgpu_query - where pages are and how they are mapped: HMM_GPU_Q_* bits, one uint32_t a page; faults nothing in */
int hmmgpu_query(struct hmmgpu *gpu, const void *addr, uint64_t npages, uint32_t *out);

struct hmmgpu_residency {
	uint64_t pages;		/* that the range touches = vram + system + none */
	uint64_t vram;		/* pages that live in VRAM */
	uint64_t system;	/* in system memory */
	uint64_t none;		/* nowhere: not mapped, not touched yet, swapped out, or on their way */
	uint64_t gpu_mapped;	/* of all, those that the GPU accesses without a fault ... */
	uint64_t gpu_writable;	/* ... and writes */
	uint64_t exclusive;	/* of system, those that the GPU has exclusively */
};

/*
 * hmmgpu_residency - a range's hmmgpu_query() in figures
 * @addr, @len: any; whole pages are counted
 *
 * Each 2 MiB of it is looked at in one moment, the whole is not.  -EINVAL: no
 * length, or beyond the end of the address space.
 */
int hmmgpu_residency(struct hmmgpu *gpu, const void *addr, uint64_t len,
		     struct hmmgpu_residency *residency);

/* ----------------------------- syncobjs ----------------------------- */

/*
 * DRM syncobjs: order between jobs of any context or process, and after other drivers'
 * fences.  One that is a job's out_syncobj has no fence until that job is over.
 */
int hmmgpu_syncobj_create(struct hmmgpu *gpu, int signaled, uint32_t *handle);
int hmmgpu_syncobj_destroy(struct hmmgpu *gpu, uint32_t handle);
/* 0: signalled; -ETIME: not within timeout_ns (relative; < 0: for ever).  Waits for a fence to appear, too. */
int hmmgpu_syncobj_wait(struct hmmgpu *gpu, uint32_t handle, int64_t timeout_ns);

/* ------------------------------- text ------------------------------- */

/* What an error of the library's means, a call's or a job's; -errno or errno; never NULL. */
const char *hmmgpu_error_text(int error);
/* Name of a HG_ERR_* or HG_REASON_* value; never NULL. */
const char *hmmgpu_status_name(uint32_t status);
const char *hmmgpu_reason_name(uint32_t reason);
/* One line about how a job ended.  Always terminated; returns buf. */
char *hmmgpu_result_text(const struct hmmgpu_result *result, char *buf, size_t size);
/*
 * hmmgpu_result_report - the same with function and source line, as far as they are known
 * @kernel: what the job ran; NULL is allowed
 *
 *	access fault at 0x0 (not mapped), pc 0x7f1c40, block 2 thread 17, in sum+0x1c at sum.c:41
 */
char *hmmgpu_result_report(const struct hmmgpu_result *result, const struct hmmgpu_kernel *kernel,
			   char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
