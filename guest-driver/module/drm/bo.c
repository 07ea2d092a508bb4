// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers: memory that lives in VRAM and nowhere else, for programs that want
 * it so.  GEM objects, of one file each.
 *
 * A buffer takes frames from the allocator that migration takes pages from, is
 * cleared, and is mapped on the GPU at once, above the addresses that a process
 * can have (HMM_GPU_BO_START).  So no CPU entry stands for it, no notifier tells
 * of it, no access to it faults, and nothing moves it: migrated pages are evicted
 * to make room for a buffer, never the other way.
 *
 * Whatever ends a buffer comes to hg_bo_drop(): its last handle, the end of the
 * file (drm_gem_release() closes the handles, before contexts and mirror go), the
 * removal of the device.  The first takes it off hg_device.bos and so does it
 * alone: entries cleared, TLBs invalidated, the answer awaited, and only then the
 * frames are somebody else's.  hg_mmu_fini() never finds one: it runs after all
 * of these, and the notifier and all else that speaks of the process's addresses
 * leaves buffers alone (hg_mmu_zap()).
 *
 * The mirror outlives its buffers: they have no handle but in the mirror's own
 * file, as they are not exported, and no reference but the handle's and that of
 * an ioctl of this file under way.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include <drm/drm_file.h>
#include <drm/drm_gem.h>

#include "base/stats.h"
#include "drm/bo.h"
#include "hw/ce.h"
#include "jobs/file.h"
#include "mem/evict.h"
#include "mem/vram.h"
#include "mmu/mmu.h"

/* Others may take what was evicted for a buffer. */
#define HG_BO_TRIES	16

#define CLEAR_VRAM	(HG_COPY_FILL | (HG_SPACE_VRAM << HG_COPY_DST_SHIFT))

/**
 * struct hg_bo - a buffer
 * @base: GEM object
 * @svm: mirror of its file
 * @user: of its file; the pages are charged while it has them
 * @link: in hg_device.bos, under bo_lock; empty: it has no VRAM
 * @node: its addresses, in @svm->bo_va
 * @n: pages
 * @frames: numbers of pages of VRAM; constant while it has them
 */
struct hg_bo {
	struct drm_gem_object base;
	struct hg_svm *svm;
	struct hg_user *user;
	struct list_head link;
	struct drm_mm_node node;
	unsigned long n;
	u32 frames[];
};

static struct hg_bo *to_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct hg_bo, base);
}

/* bo_lock is held. */
static void unmap_bo(struct hg_bo *bo)
{
	struct hg_svm *svm = bo->svm;
	struct hg_device *hdev = svm->vm.hdev;

	mutex_lock(&svm->vm.pt_lock);
	down_read(&hdev->hw_sem);
	hg_mmu_zap_buffer(&svm->vm, bo->node.start, bo->node.start + bo->node.size - 1);
	hg_mmu_flush(&svm->vm, true);
	up_read(&hdev->hw_sem);
	mutex_unlock(&svm->vm.pt_lock);
	drm_mm_remove_node(&bo->node);
}

/* bo_lock is held. */
static void drop_locked(struct hg_bo *bo)
{
	struct hg_device *hdev = bo->svm->vm.hdev;

	list_del_init(&bo->link);
	unmap_bo(bo);
	hg_vram_unpin(hdev, bo->n, bo->frames);
	hg_user_uncharge(hdev, bo->user, HG_USER_BO_PAGES, bo->n);
	hg_live_add(hdev, buffers, -1);
}

static void hg_bo_drop(struct hg_bo *bo)
{
	struct hg_device *hdev = bo->svm->vm.hdev;

	mutex_lock(&hdev->bo_lock);
	if (!list_empty(&bo->link))
		drop_locked(bo);
	mutex_unlock(&hdev->bo_lock);
}

/**
 * hg_bo_drop_all() - the device goes away, and VRAM with it
 * @hdev: device
 */
void hg_bo_drop_all(struct hg_device *hdev)
{
	struct hg_bo *bo, *next;

	mutex_lock(&hdev->bo_lock);
	list_for_each_entry_safe(bo, next, &hdev->bos, link)
		drop_locked(bo);
	mutex_unlock(&hdev->bo_lock);
}

/* Pages of a mirror's buffers, for fdinfo. */
unsigned long hg_bo_pages(struct hg_svm *svm)
{
	struct hg_device *hdev = svm->vm.hdev;
	unsigned long n = 0;
	struct hg_bo *bo;

	mutex_lock(&hdev->bo_lock);
	list_for_each_entry(bo, &hdev->bos, link)
		if (bo->svm == svm)
			n += bo->n;
	mutex_unlock(&hdev->bo_lock);
	return n;
}

static void bo_close(struct drm_gem_object *obj, struct drm_file *file)
{
	hg_bo_drop(to_bo(obj));
}

static void bo_free(struct drm_gem_object *obj)
{
	hg_bo_drop(to_bo(obj));		/* it never had a handle */
	drm_gem_object_release(obj);
	kvfree(to_bo(obj));
}

static struct dma_buf *bo_export(struct drm_gem_object *obj, int flags)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static const struct drm_gem_object_funcs bo_funcs = {
	.close = bo_close,
	.free = bo_free,
	.export = bo_export,
};

static int get_frames(struct hg_bo *bo)
{
	struct hg_device *hdev = bo->svm->vm.hdev;
	unsigned int tries;

	for (tries = 0; tries < HG_BO_TRIES; tries++) {
		struct hg_vram *vram = &hdev->vram;
		unsigned long pinned = READ_ONCE(vram->pinned);

		/* not even without any migrated page */
		if (bo->n + pinned > READ_ONCE(vram->limit))
			return -ENOSPC;
		hg_vram_reserve(hdev, bo->n);
		if (hg_vram_pin(hdev, bo->n, bo->frames))
			return 0;
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return -ENOSPC;
}

/* What was in VRAM is another's. */
static int clear_frames(struct hg_bo *bo)
{
	struct hg_device *hdev = bo->svm->vm.hdev;
	struct hg_ce_slot *slot = hg_ce_get(hdev);
	unsigned long i;
	int ret = 0;

	if (!slot)
		return -ENODEV;
	for (i = 0; i < bo->n && !ret; i++) {
		hg_ce_add(slot, 0, (u64)bo->frames[i] << PAGE_SHIFT, PAGE_SIZE, CLEAR_VRAM);
		if (slot->n == HG_CE_LIST_MAX || i == bo->n - 1) {
			ret = hg_ce_run(hdev, slot);
			slot->n = 0;
		}
	}
	hg_ce_put(hdev, slot);
	return ret;
}

/* Whether 2 MiB from page @i of the buffer are 2 MiB in VRAM. */
static bool is_huge(const struct hg_bo *bo, unsigned long i)
{
	unsigned long k;

	if (i % HG_CHUNK_PAGES || bo->n - i < HG_CHUNK_PAGES || bo->frames[i] % HG_CHUNK_PAGES)
		return false;
	for (k = 1; k < HG_CHUNK_PAGES; k++)
		if (bo->frames[i + k] != bo->frames[i] + k)
			return false;
	return true;
}

/* bo_lock is held; the addresses are nobody else's.  After an error a part is mapped. */
static int map_bo(struct hg_bo *bo)
{
	struct hg_svm *svm = bo->svm;
	struct hg_pt_cache cache = {};
	unsigned long i = 0;
	int ret = 0;

	while (i < bo->n && !ret) {
		bool huge = is_huge(bo, i);

		mutex_lock(&svm->vm.pt_lock);
		ret = svm->vm.dead ? -ENODEV :
		      hg_mmu_map_buffer(&svm->vm, &cache, bo->node.start + (i << PAGE_SHIFT),
					(u64)bo->frames[i] << PAGE_SHIFT, huge);
		mutex_unlock(&svm->vm.pt_lock);
		if (!ret)
			i += huge ? HG_CHUNK_PAGES : 1;
		else if (ret == -EAGAIN)
			ret = hg_pt_cache_fill(&svm->vm, &cache);
		cond_resched();
	}
	hg_pt_cache_drain(svm->vm.hdev, &cache);
	return ret;
}

/* Gives the buffer its addresses, and makes it one. */
static int place_bo(struct hg_bo *bo)
{
	struct hg_device *hdev = bo->svm->vm.hdev;
	/* the gap behind it catches who goes on, and no two share a table of pages */
	u64 size = ALIGN(((u64)bo->n + 1) << PAGE_SHIFT, HG_HUGE_SIZE);
	int ret;

	mutex_lock(&hdev->bo_lock);
	ret = drm_mm_insert_node_generic(&bo->svm->bo_va, &bo->node, size, HG_HUGE_SIZE, 0,
					 DRM_MM_INSERT_BEST);
	if (!ret) {
		ret = map_bo(bo);
		if (ret)
			unmap_bo(bo);
	}
	if (!ret) {
		list_add_tail(&bo->link, &hdev->bos);
		hg_live_add(hdev, buffers, 1);
	}
	mutex_unlock(&hdev->bo_lock);
	return ret;
}

int hg_bo_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_hmm_gpu_bo_create *args = data;
	struct hg_device *hdev = to_hg(drm);
	struct hg_file *hf = file->driver_priv;
	struct hg_bo *bo;
	unsigned long n;
	int ret;

	ret = hg_check_mm(hf);
	if (ret)
		return ret;
	if (args->flags || !args->size)
		return -EINVAL;
	if (hg_bo_start() == HMM_GPU_BO_END)
		return -EOPNOTSUPP;
	if (args->size > hdev->vram_size)
		return -ENOSPC;
	n = PAGE_ALIGN(args->size) >> PAGE_SHIFT;
	bo = kvzalloc(struct_size(bo, frames, n), GFP_KERNEL_ACCOUNT);
	if (!bo)
		return -ENOMEM;
	bo->svm = hf->svm;
	bo->user = hf->user;
	bo->n = n;
	INIT_LIST_HEAD(&bo->link);
	drm_gem_private_object_init(drm, &bo->base, n << PAGE_SHIFT);
	bo->base.funcs = &bo_funcs;

	ret = hg_user_charge(hdev, bo->user, HG_USER_BO_PAGES, n);
	if (ret)
		goto out;
	ret = get_frames(bo);
	if (ret)
		goto out_charge;
	ret = clear_frames(bo);
	if (!ret)
		ret = place_bo(bo);
	if (ret) {
		hg_vram_unpin(hdev, n, bo->frames);
		goto out_charge;
	}
	/* from here on another thread may guess the handle, and close it */
	args->addr = bo->node.start;
	ret = drm_gem_handle_create(file, &bo->base, &args->handle);
	goto out;

out_charge:
	hg_user_uncharge(hdev, bo->user, HG_USER_BO_PAGES, n);
out:
	drm_gem_object_put(&bo->base);
	return ret;
}
