/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * As much of a kernel as some files of the driver need to run in a test program.  One
 * thread: who would wait for ever here says so and ends the program.  Functions that are
 * not here and not in the test do nothing and return 0: see test_with_fakes.py.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <linux/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
typedef u64 dma_addr_t;
typedef u64 phys_addr_t;
typedef unsigned int vm_fault_t;
typedef struct { int v; } atomic_t;
typedef struct { long v; } atomic_long_t, atomic64_t;
typedef struct { unsigned int v; } refcount_t, kuid_t;

#define __iomem
#define __user
#define __must_check

#define CHECK(cond) do {							\
	if (!(cond)) {								\
		printf("%s:%d: %s\n", __func__, __LINE__, #cond);		\
		exit(1);							\
	}									\
} while (0)

/* ---- what is in every kernel file ---- */
#define PAGE_SHIFT		12
#define PAGE_SIZE		4096UL
#define PAGE_MASK		(~(PAGE_SIZE - 1))
#define TASK_SIZE		0x7ffffffff000UL
#define BITS_PER_BYTE		8
#define BITS_TO_LONGS(n)	(((n) + 63) / 64)
#define BIT(n)			(1UL << (n))
#define GENMASK(h, l)		((~0UL << (l)) & (~0UL >> (63 - (h))))
#define DECLARE_BITMAP(n, b)	unsigned long n[BITS_TO_LONGS(b)]
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define ALIGN(x, a)		(((x) + (a) - 1) & ~((__typeof__(x))(a) - 1))
#define PAGE_ALIGN(x)		ALIGN(x, PAGE_SIZE)
#define PAGE_ALIGNED(x)		(!((x) & ~PAGE_MASK))
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define min_t(t, a, b)		((t)(a) < (t)(b) ? (t)(a) : (t)(b))
#define clamp(v, a, b)		min(max(v, a), b)
#define READ_ONCE(x)		(*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v)	(*(volatile __typeof__(x) *)&(x) = (v))
#define container_of(p, t, m)	((t *)((char *)(p) - offsetof(t, m)))
#define struct_size(p, m, n)	(sizeof(*(p)) + sizeof((p)->m[0]) * (n))
#define IS_ENABLED(x)		1
#define BUILD_BUG_ON(x)		((void)sizeof(char[1 - 2 * !!(x)]))
#define WARN_ON_ONCE(x)		(x)
#define cpu_to_le32(x)		(x)
#define cpu_to_le64(x)		(x)
#define le32_to_cpu(x)		(x)
#define le64_to_cpu(x)		(x)
#define lower_32_bits(x)	((u32)(x))
#define PHYS_PFN(x)		((x) >> PAGE_SHIFT)
#define THIS_MODULE		NULL
#define EXPORT_SYMBOL(x)
#define module_param(n, t, p)
#define module_param_named(n, v, t, p)
#define MODULE_PARM_DESC(n, d)
#define barrier()		__asm__ volatile("" ::: "memory")
#define cpu_relax()		barrier()
#define cond_resched()		barrier()
#define dma_rmb()		barrier()
#define dma_wmb()		barrier()
#define smp_mb__before_atomic()	barrier()
#define usleep_range(a, b)	barrier()
#define udelay(a)		barrier()
#define U64_MAX			(~(u64)0)
#define HZ			100
#define msecs_to_jiffies(m)	((m) / 10)
#define time_after(a, b)	((long)((b) - (a)) < 0)
#define xchg(p, v)		__sync_lock_test_and_set(p, v)
#define IS_ERR(p)		((unsigned long)(p) >= -4095UL)
#define IS_ERR_OR_NULL(p)	(!(p) || IS_ERR(p))
#define PTR_ERR(p)		((long)(p))
#define ERR_PTR(e)		((void *)(long)(e))
#define PTR_ERR_OR_ZERO(p)	(IS_ERR(p) ? PTR_ERR(p) : 0)
#define lockdep_assert_held(x)	((void)(x))
#define lockdep_assert_held_read(x) ((void)(x))
#define nop(...)		((void)0)
#define DEFINE_IDA(n)		struct ida n

static unsigned long jiffies;
static inline u64 local_clock(void)
{
	static u64 now;

	jiffies++;
	return now += 1000000;
}

#define atomic_inc(a)		((a)->v++)
#define atomic_read(a)		((a)->v)
#define atomic_dec_and_test(a)	(!--(a)->v)
#define atomic_dec_return(a)	(--(a)->v)
#define atomic64_add(n, a)	((a)->v += (n))
#define atomic64_read(a)	((a)->v)
#define atomic_long_add(n, a)	((a)->v += (n))
#define atomic_long_inc(a)	((a)->v++)
#define atomic_long_dec(a)	((a)->v--)
#define ATOMIC_LONG_INIT(n)	{ n }
#define lockdep_is_held(x)	1
#define refcount_set(r, n)	((r)->v = (n))
#define refcount_inc(r)		((r)->v++)
#define refcount_dec_and_test(r) (!--(r)->v)

/* ---- lists ---- */
struct list_head { struct list_head *next, *prev; };
#define LIST_HEAD(n)		struct list_head n = { &n, &n }
static inline void INIT_LIST_HEAD(struct list_head *l) { l->next = l->prev = l; }
static inline int list_empty(const struct list_head *l) { return l->next == l; }
static inline void list_add_tail(struct list_head *n, struct list_head *l)
{
	n->prev = l->prev;
	n->next = l;
	l->prev->next = n;
	l->prev = n;
}
static inline void list_del(struct list_head *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
}
static inline void list_del_init(struct list_head *n) { list_del(n); INIT_LIST_HEAD(n); }
#define list_entry(p, t, m)	container_of(p, t, m)
#define list_first_entry_or_null(h, t, m) (list_empty(h) ? NULL : list_entry((h)->next, t, m))
static inline void list_move_tail(struct list_head *n, struct list_head *l)
{
	list_del(n);
	list_add_tail(n, l);
}
static inline void list_splice_init(struct list_head *from, struct list_head *to)
{
	while (!list_empty(from))
		list_move_tail(from->next, to);
}
#define list_for_each_entry_safe(p, n, h, m)					\
	for (p = list_entry((h)->next, __typeof__(*p), m),			\
	     n = list_entry(p->m.next, __typeof__(*p), m); &p->m != (h);	\
	     p = n, n = list_entry(n->m.next, __typeof__(*n), m))
#define list_for_each_entry(p, h, m)						\
	for (p = list_entry((h)->next, __typeof__(*p), m); &p->m != (h);	\
	     p = list_entry(p->m.next, __typeof__(*p), m))

/* ---- locks: of one thread ---- */
typedef struct { int held; } spinlock_t;
struct mutex { int held; };
struct rw_semaphore { int readers; bool writer; };
struct srcu_struct { int readers; };
typedef struct { int unused; } wait_queue_head_t;
struct completion { int done; };
struct work_struct { int unused; };
struct delayed_work { struct work_struct work; };
#define to_delayed_work(w)	container_of(w, struct delayed_work, work)
struct workqueue_struct;
struct task_struct { struct mm_struct *mm; };
static void (*at_down_write)(void);	/* others get in before */

#define would_hang()		CHECK(!"waits for ever")
static inline void down_read(struct rw_semaphore *s) { CHECK(!s->writer); s->readers++; }
static inline int down_read_trylock(struct rw_semaphore *s)
{
	s->readers += !s->writer;
	return !s->writer;
}
static inline void up_read(struct rw_semaphore *s) { CHECK(s->readers-- > 0); }
static inline void down_write(struct rw_semaphore *s)
{
	void (*hook)(void) = at_down_write;

	at_down_write = NULL;
	if (hook)
		hook();
	CHECK(!s->readers && !s->writer);
	s->writer = true;
}
static inline void up_write(struct rw_semaphore *s) { CHECK(s->writer); s->writer = false; }
static inline void mutex_lock(struct mutex *m) { CHECK(!m->held); m->held = 1; }
static inline int mutex_trylock(struct mutex *m) { return m->held ? 0 : (m->held = 1); }
static inline void mutex_unlock(struct mutex *m) { CHECK(m->held); m->held = 0; }
static inline int srcu_read_lock(struct srcu_struct *s) { s->readers++; return 0; }
static inline void srcu_read_unlock(struct srcu_struct *s, int i) { (void)i; s->readers--; }
#define mutex_init(m)		((m)->held = 0)
#define spin_lock_init(l)	((l)->held = 0)
#define spin_lock(l)		do { CHECK(!(l)->held); (l)->held = 1; } while (0)
#define spin_unlock(l)		((l)->held = 0)
#define spin_lock_irq(l)	spin_lock(l)
#define spin_unlock_irq(l)	spin_unlock(l)
#define spin_lock_irqsave(l, f)	do { (f) = 0; spin_lock(l); } while (0)
#define spin_unlock_irqrestore(l, f) do { (void)(f); spin_unlock(l); } while (0)
#define init_rwsem(s)		memset(s, 0, sizeof(*(s)))
#define init_waitqueue_head(w)	((void)(w))
#define init_completion(c)	((c)->done = 0)
#define complete(c)		((c)->done = 1)
#define DECLARE_WAIT_QUEUE_HEAD(w) wait_queue_head_t w
#define wait_for_completion(c)	CHECK((c)->done)
#define wake_up(w)		((void)(w))
#define wake_up_all(w)		((void)(w))
#define wait_event(w, cond)	do { if (!(cond)) would_hang(); } while (0)
#define wait_event_idle(w, cond) wait_event(w, cond)
#define wait_event_timeout(w, cond, t) ((void)local_clock(), (cond))
#define INIT_WORK(w, f)		((void)(f))
#define wait_event_interruptible(w, cond) ({ if (!(cond)) would_hang(); 0; })
#define wait_event_killable(w, cond) wait_event_interruptible(w, cond)
#define wait_event_interruptible_timeout(w, cond, t) ((cond) ? 1L : 0L)
struct kref { int n; };
#define kref_init(k)		((k)->n = 1)
#define kref_get(k)		((k)->n++)
#define kref_put(k, f)		do { if (!--(k)->n) f(k); } while (0)

/* ---- bits ---- */
static inline bool test_and_clear_bit(int n, unsigned long *b)
{
	bool was = *b >> n & 1;

	*b &= ~(1UL << n);
	return was;
}
static inline bool test_bit(int n, unsigned long *b) { return *b >> n & 1; }
static inline void set_bit(int n, unsigned long *b) { *b |= 1UL << n; }
static inline void clear_bit(int n, unsigned long *b) { *b &= ~(1UL << n); }

/* ---- memory ---- */
typedef unsigned int gfp_t;
#define __GFP_ZERO		0x001u
#define __GFP_NOWARN		0x002u
#define __GFP_NORETRY		0x004u
#define __GFP_RETRY_MAYFAIL	0x008u
#define __GFP_ACCOUNT		0x010u
#define GFP_KERNEL		0x100u
#define GFP_KERNEL_ACCOUNT	(GFP_KERNEL | __GFP_ACCOUNT)
#define GFP_HIGHUSER_MOVABLE	0x200u
#define GFP_TRANSHUGE		0x400u
static gfp_t last_gfp, all_gfp = ~0u;
static void (*at_alloc)(void);
static inline void *fake_alloc(size_t n, gfp_t gfp)
{
	void *p = aligned_alloc(PAGE_SIZE, ALIGN(n + !n, PAGE_SIZE));

	last_gfp = gfp;
	all_gfp &= gfp;
	if (at_alloc)
		at_alloc();
	return memset(p, 0, n);
}
#define kzalloc(n, g)		fake_alloc(n, g)
#define kvzalloc(n, g)		fake_alloc(n, g)
#define kcalloc(n, s, g)	fake_alloc((n) * (s), g)
#define kvcalloc(n, s, g)	fake_alloc((n) * (s), g)
#define kvmalloc_array(n, s, g)	fake_alloc((n) * (s), g)
#define kfree(p)		free(p)
#define kvfree(p)		free(p)
#define dma_alloc_coherent(dev, n, d, g) fake_coherent(n, d, g)
#define dma_alloc_attrs(dev, n, d, g, a) fake_coherent(n, d, g)
#define dma_free_attrs(dev, n, v, d, a) free(v)
#define dma_free_coherent(dev, n, v, d) free(v)
static inline void *fake_coherent(size_t n, dma_addr_t *dma, gfp_t gfp)
{
	void *p = fake_alloc(n, gfp);

	*dma = (uintptr_t)p;
	return p;
}
struct page { unsigned long flags; };
struct vm_area_struct;
struct vm_fault;
struct folio { struct page page; struct address_space *mapping; };
static struct page a_page;
#define alloc_page(g)		(last_gfp = (g), &a_page)
#define alloc_page_vma(g, v, a)	(last_gfp = (g), &a_page)

/* ---- the device ---- */
struct device { void *driver_data; };
struct pci_dev { struct device dev; };
struct drm_device { struct device *dev; };
struct drm_gem_object { struct drm_device *dev; const struct drm_gem_object_funcs *funcs; };
struct dma_buf;
struct drm_gem_object_funcs {
	void (*close)(struct drm_gem_object *, struct drm_file *), (*free)(struct drm_gem_object *);
	struct dma_buf *(*export)(struct drm_gem_object *, int);
};
struct drm_file;
struct resource;
struct miscdevice { int minor; };
struct dev_pagemap { int type; void *owner; };
struct ida { int next; };
#define ida_alloc_range(i, a, b, g) ((i)->next < (b) ? ++(i)->next : -ENOSPC)
struct drm_mm { int unused; };
struct drm_mm_node { u64 start, size; };
#define readl(a)		(*(volatile u32 *)(a))
#define readq(a)		(*(volatile u64 *)(a))
#define writel(v, a)		fake_write(a, v, 4)
#define writeq(v, a)		fake_write(a, v, 8)
static void *fake_regs;
static void (*at_write)(u64 reg, u64 v);	/* what the device does about it */
static inline void fake_write(void *a, u64 v, size_t n)
{
	memcpy(a, &v, n);
	if (at_write)
		at_write((char *)a - (char *)fake_regs, v);
}
#define pci_get_drvdata(p)	((p)->dev.driver_data)
typedef int pci_ers_result_t;
typedef int pci_channel_state_t;
enum { pci_channel_io_perm_failure = 3, PCI_ERS_RESULT_NEED_RESET, PCI_ERS_RESULT_DISCONNECT,
       PCI_ERS_RESULT_RECOVERED };
struct pci_error_handlers {
	int (*error_detected)(struct pci_dev *, pci_channel_state_t);
	int (*slot_reset)(struct pci_dev *);
	void (*resume)(struct pci_dev *), (*reset_prepare)(struct pci_dev *),
	     (*reset_done)(struct pci_dev *);
};
#define dev_err(...)		nop()
#define dev_warn(...)		nop()
#define dev_info(...)		nop()
#define dev_err_ratelimited(...) nop()
#define dev_warn_once(...)	nop()

/* ---- tables by number ---- */
struct xarray { spinlock_t lock; void *entry[256]; };
#define XA_ZERO_ENTRY		((void *)257)
#define XA_LIMIT(a, b)		0
#define xa_lock(x)		spin_lock(&(x)->lock)
#define xa_unlock(x)		spin_unlock(&(x)->lock)
#define xa_init(x)		nop()
#define xa_destroy(x)		nop()
#define xa_reserve(x, i, g)	0
#define xa_release(x, i)	nop()
static void (*at_xa_store)(void);
static inline int fake_xa_alloc(struct xarray *x, u32 *id)
{
	x->entry[1] = XA_ZERO_ENTRY;
	*id = 1;
	return 0;
}
static inline void *fake_xa_store(struct xarray *x, unsigned long i, void *v)
{
	void (*hook)(void) = at_xa_store;

	at_xa_store = NULL;
	if (hook)
		hook();
	x->entry[i] = v;
	return NULL;
}
#define xa_alloc(x, id, v, l, g) fake_xa_alloc(x, id)
#define xa_store(x, i, v, g)	fake_xa_store(x, i, v)
#define xa_erase(x, i)		({ void *was_ = xa_load(x, i); (x)->entry[i] = NULL; was_; })
#define xa_cmpxchg(x, i, o, n, g) ((x)->entry[i] = (n))
#define xa_load(x, i)		((x)->entry[i] == XA_ZERO_ENTRY ? NULL : (x)->entry[i])
#define xa_for_each(x, i, p)							\
	for (i = 0; i < 256; i++)						\
		if ((p = xa_load(x, i)))

/* ---- what is said of memory by the kernel ---- */
struct mmu_notifier_range;
struct mmu_interval_notifier { unsigned long seq; };
struct mmu_interval_notifier_ops {
	bool (*invalidate)(struct mmu_interval_notifier *, const struct mmu_notifier_range *,
			   unsigned long);
};
struct mmu_notifier_range { unsigned long start, end; int event; void *owner; };
enum { MMU_NOTIFY_UNMAP, MMU_NOTIFY_EXCLUSIVE, MMU_NOTIFY_RELEASE, HG_NOTIFY_REVOKE };
enum dma_data_direction { DMA_BIDIRECTIONAL, DMA_TO_DEVICE, DMA_FROM_DEVICE };
#define DMA_ATTR_SKIP_CPU_SYNC	1
#define hg_page_pgmap(p)	((struct dev_pagemap *)NULL)
#define HMM_PFN_REQ_FAULT	1UL
#define HMM_PFN_REQ_WRITE	2UL
#define FAULT_FLAG_WRITE	1
struct hmm_range {
	struct mmu_interval_notifier *notifier;
	unsigned long notifier_seq, start, end, *hmm_pfns, default_flags;
	void *dev_private_owner;
};
struct address_space { int unused; };

/* ---- DRM: one section of calls for all devices; fences ---- */
static int in_drm;
#define drm_dev_enter(d, i)	(*(i) = 0, in_drm++, true)
#define drm_dev_exit(i)		in_drm--
#define drm_dev_unplug(d)	do { if (in_drm) would_hang(); } while (0)
struct drm_file { void *driver_priv; struct drm_minor *minor; };
struct drm_minor { struct drm_device *dev; };
struct drm_syncobj { struct dma_fence *fence; };
struct dma_fence { int refs, error; bool over; const struct dma_fence_ops *ops; };
struct dma_fence_cb { int unused; };
struct dma_fence_ops {
	const char *(*get_driver_name)(struct dma_fence *), *(*get_timeline_name)(struct dma_fence *);
	void (*release)(struct dma_fence *);
};
static struct dma_fence the_stub = { .refs = 1, .over = true };
static inline struct dma_fence *dma_fence_get(struct dma_fence *f) { if (f) f->refs++; return f; }
static inline void dma_fence_put(struct dma_fence *f)
{
	if (f && !--f->refs)
		f->ops->release(f);
}
static inline void drm_syncobj_replace_fence(struct drm_syncobj *s, struct dma_fence *f)
{
	dma_fence_put(s->fence);
	s->fence = dma_fence_get(f);
}
#define dma_fence_init(f, o, l, c, n) (*(f) = (struct dma_fence){ 1, 0, false, o })
#define dma_fence_free(f)	free(f)
#define dma_fence_get_stub()	dma_fence_get(&the_stub)
#define dma_fence_signal(f)	((f)->over = true)
#define dma_fence_is_signaled(f) ((f)->over)
#define dma_fence_set_error(f, e) ((f)->error = (e))
#define drm_syncobj_fence_get(s) dma_fence_get((s)->fence)
static struct drm_syncobj syncobjs[4];
#define drm_syncobj_find(f, h)	((h) < 4 ? &syncobjs[h] : NULL)

/* ---- processes ---- */
struct mm_struct { void *pgd; };
static struct mm_struct a_mm;
static struct task_struct a_task = { &a_mm };
static struct task_struct *current = &a_task;
static int signals;
#define signal_pending(t)	signals
#define fatal_signal_pending(t)	signals

/* ---- what our own headers would bring that is not for these tests ---- */
#define HMM_GPU_COMPAT_H
#define HMM_GPU_TRACE_H
#define _HMM_GPU_TRACE_H
#define HMM_GPU_DELAY_H
#define hg_delay(n)		nop()
#define hg_delay_nosleep(n, s)	nop(s)

#endif
