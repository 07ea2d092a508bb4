/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hmm_gpu, as a whole.
 *
 * Lock order, outermost first:
 *
 *   hg_file.lock > mmap_lock (read) > folio locks > hg_ctx.submit_lock
 *     > hg_device.bo_lock > hg_svm.pt_lock > hg_device.hw_sem (read) > hg_device.inval_lock,
 *       hg_ce.lock > hg_device.ctx_lock > hg_ctx.lock > hg_job.lock
 *
 * pt_lock and everything to its right is taken from MMU notifiers, thus from
 * memory reclaim: nothing may allocate with __GFP_RECLAIM under them, and
 * nothing may be waited for under them that needs the fault worker.
 */
