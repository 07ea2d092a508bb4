/* SPDX-License-Identifier: GPL-2.0 */
/**
 * DOC: hmm_gpu as a whole
 *
 * Layers
 * ======
 *
 * LAYERS lists them, lowest first; the folders show them.  A file calls into its
 * own layer and those below.  What comes from below (interrupts, CPU faults,
 * notifiers, work) comes through the kernel, from what the upper layer has
 * registered there:
 *
 * base
 *	the device's struct, its registers, counters, trace and delay points,
 *	kernel versions (compat.h)
 * hw
 *	what the device can do, for anybody who drives it: TLB invalidation, the
 *	kernel's copies, the fault rings with replay and cancel.  No process is known
 * mmu
 *	page tables of an address space of the GPU, and what the audit is told
 * mem
 *	shared virtual memory, bottom up: VRAM's pages (vram) and copies (copy); the
 *	mirror (svm, snapshot); home to system memory by CPU fault and eviction, and
 *	the struct pages (to_ram, evict, pagemap); to VRAM, and mapping for the GPU
 *	(migrate, map, exclusive); fault service (fault)
 * jobs
 *	open files, contexts, jobs
 * drm
 *	calls of the render node, buffers, fdinfo
 * test
 *	debugfs, and the interface of the kernel's HMM tests
 * pci
 *	bringing the device up and down, reset, interrupts
 *
 * Another SVM layer than mem/ stands on hw/ and mmu/: it gives a struct hg_vm its
 * pages by hg_mmu_map(), takes them away by hg_mmu_zap() and hg_mmu_flush() in its
 * notifier, and gets faults from hg_fault_drain().
 *
 * Objects
 * =======
 *
 * struct hg_device
 *	a GPU, from probe to the last open file or page of VRAM that needs it
 * struct hg_file
 *	an open file: one mirror, and the contexts that execute in it
 * struct hg_svm
 *	the mirror of the process that opened the file: its notifier, and a struct hg_vm
 * struct hg_vm
 *	an address space of the GPU: number, page tables, what waits to be given back
 * struct hg_pt
 *	a table of it; freed after an invalidation that covers it
 * struct hg_vram, struct hg_chunk
 *	which pages of VRAM are free, and which 2 MiB go first
 * struct hg_bo
 *	a buffer: frames of VRAM without struct pages, above the process's addresses
 * struct hg_ce
 *	the kernel's own context, for copies
 * struct hg_fault_unit
 *	the fault rings
 * struct hg_fault_service, struct hg_fault_queue
 *	who serves one of them: by address space number a queue, and a work for it
 * struct hg_ctx, struct hg_job
 *	a ring of the device with what is to go into it; a launch or copy, with a fence
 *	of our own that nobody outside sees
 * struct hg_user
 *	what a user has of a device, against the limits
 *
 * The way of a fault
 * ==================
 *
 * A warp meets a page without an entry and stalls; the device writes an entry into
 * the ring and interrupts.  The handler (hg_fault_irq()) takes all entries out of the
 * ring (hg_fault_drain()) and puts each into the queue of its address space number.
 * The number's work, hg_fault_work(), takes up to a batch from there, sorts it and drops
 * duplicates.  It finds the mirror (hg_svm_get()), holds the process's memory
 * (mmget_not_zero()), leaves out what is an earlier owner's (first_fault) or of a job
 * that has ended (hg_fault_is_over()), and, until the mirror dies, serves 2 MiB at a
 * time, serve_window():
 *
 * 1. what an entry already permits is done (skip_satisfied());
 * 2. by the policy, pages go to VRAM first (hg_migrate_chunk()), for which others
 *    may have to leave (hg_vram_reserve());
 * 3. hg_svm_map_window() asks the CPU's page table, hmm_range_fault(), and writes
 *    the GPU's entries under pt_lock if the notifier's sequence stands still;
 * 4. what the process may not do is cancelled, after one more look under the mmap
 *    lock (cancel_refused(), hg_fault_cancel()).
 *
 * Faults of copies come from the other ring, if the device has such (hg_fault_error()).
 *
 * One replay then makes all that wait execute their access again, in whatever address
 * space (hg_fault_replay()).  What changed too fast was left alone: it faults again.
 *
 * The other direction: the kernel changes the CPU's entry and calls
 * svm_invalidate(), which clears the GPU's, invalidates the TLBs and waits for the
 * device's answer.  A CPU that touches a page in VRAM gets to hg_migrate_to_ram().
 *
 * Locks
 * =====
 *
 * Outermost first.  pt_lock is taken in MMU notifiers, thus in memory reclaim:
 * under it and what stands below it nothing is allocated with __GFP_RECLAIM, and
 * nothing is waited for that needs fault service.
 *
 * ===========================  ===================================================
 * the kernel's of misc.c       held in dm_open(), which enters the device; taken by
 *                              misc_deregister(), which is not called within it
 * hg_device.users (SRCU)       held over each ioctl of ours (MIGRATE and QUERY: within
 *                              the locks that they wait for) and while a file is
 *                              opened (hg_enter()); the removal waits for all of
 *                              them, and the unplugging of other devices for none
 * hg_dmirror.lock              mutex: one ioctl of such a file at a time; context
 *                              and buffer
 * hg_file.lock                 mutex: contexts come and go
 * hg_vram.evict_lock           mutex: one eviction at a time, over its copies
 * mmap_lock                    the kernel's, for reading: calls, fault service, and
 *                              the CPU fault that comes to hg_migrate_to_ram() (or
 *                              its area's lock); for writing in hg_svm_create(),
 *                              where the notifier is inserted, and over a cancel, if
 *                              nobody has it (hold_still())
 * hg_device.homing             bit locks, up to 6.14: the CPU fault that moves a
 *                              folio home; only tried, nobody waits
 * folio locks                  the kernel's: of pages that migrate or become
 *                              exclusive
 * hg_ctx.submit_lock           mutex: put, next, mem, order of jobs; doorbell,
 *                              restart, end of the context
 * hg_device.out_lock           mutex: jobs whose syncobj is to be told of their end
 * hg_device.bo_lock            mutex: list of buffers, hg_svm.bo_va
 * hg_vm.pt_lock                mutex: page tables and all below it in struct hg_vm;
 *                              from the check of the notifier's sequence to the
 *                              last entry, and over an invalidation
 * hg_ce.free_mask              bits: who has a slot has its list; waits for a slot
 *                              hold no lock below
 * hg_device.hw_sem             rwsem, read: the registers may be used while
 *                              hw_live; write: begin and end of a reset, removal.
 *                              Not held over the reset: nothing allocates under it
 * hg_ce.lock                   mutex: ring, put, next, restarts
 * hg_device.svms (xa_lock)     spinlock: the table of mirrors, and hg_svm.ref of
 *                              one that is found there
 * hg_file.ctxs (xa_lock)       spinlock: the table of contexts, and hg_ctx.ref
 * hg_device.inval_lock         spinlock: invalidation registers, inval_seq
 * hg_fault_unit.lock           spinlock, hard interrupts: the replayable ring, which
 *                              of its entries are answered, the cancel registers
 * hg_fault_service.lock        spinlock, hard interrupts: queues of faults
 * hg_vram.lock                 spinlock, any context (a page is freed where its last
 *                              CPU entry goes): all of struct hg_vram and its chunks;
 *                              nothing is taken under it
 * hg_device.user_lock          spinlock: users and what they have
 * hg_device.ctx_lock           spinlock, hard interrupts: ctxs
 * hg_ctx.lock                  spinlock, hard interrupts: pending, running, done,
 *                              dead, history
 * hg_job.lock                  spinlock: the fence's
 * ===========================  ===================================================
 *
 * From hg_ce.lock on only these are nested: ctx_lock, hg_ctx.lock and hg_job.lock,
 * in this order.  hg_ce.free_mask is no lock to lockdep; who holds a slot takes
 * hw_sem and hg_ce.lock.  Beside the order, and held with none of the above:
 * delay_lock (delay.c), a mutex, for the delay points' settings.
 *
 * What is waited for besides:
 *
 * mmu_interval_notifier_remove()
 *	waits for callbacks under way; no lock is held
 * hg_device.ctx_mem (wait_var_event())
 *	the removal waits until no context has memory that the device may use
 * hg_ce.wait
 *	for a slot and for the end of a list; under mmap_lock, folio locks, evict_lock
 *	and, for the end, hw_sem.  The device alone is needed for it
 * hg_device.reset_wait
 *	who needs the device (hg_hw_lock()) waits for the end of a reset: copies, under
 *	what hg_ce.wait is waited for under, and new contexts, under hg_file.lock.  Reset
 *	takes none of these before it wakes
 * hg_ctx.wait
 *	programs wait for jobs and for room; hg_job_copy() under hg_dmirror.lock
 * hg_reaped
 *	the module's exit, which has removed all devices and holds no lock, waits for who
 *	waits for the last page of VRAM of one
 * RCU
 *	a delay point reads the device's counters (watched of delay.c);
 *	hg_delay_forget() waits for that before the registers go
 * hg_enter() in window_write()
 *	the removal waits for who writes entries with tables that are not linked yet
 * disable_irq(), cancel_work_sync()
 *	reset and removal wait for handlers and hg_fault_late() before they take hw_sem
 *	for writing, for the error work the removal before it too, a reset after it: with
 *	no lock held; the end of a context waits for its pump (which takes submit_lock)
 *	under hg_file.lock.  The removal ends hg_sched_watch_work(), which takes submit_lock
 *	and hw_sem, before all of these, for it begins them
 *
 * Nobody waits for hg_fault_work(), which waits for processes, for as long as these
 * like: it has its mirror by a reference, and the device and the module likewise.  So
 * it may find the mirror dead (hg_vm.dead), the device gone (hw_live, hg_enter()),
 * and the file closed; the last reference frees.
 */
