/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Named delay points: places where a race is narrow, that a test can widen
 * from debugfs.  A point only ever waits; it never changes what the code does.
 * All of them together cost one static branch each while none is set.
 */
#ifndef HMM_GPU_DELAY_H
#define HMM_GPU_DELAY_H

#include <linux/jump_label.h>
#include <linux/seq_file.h>

#define HG_DELAY_POINTS(X)	\
	X(svm_after_range_fault)	\
	X(svm_before_invalidate)	\
	X(svm_closing_invalidate)	\
	X(svm_after_zap)	\
	X(mmu_before_inval_wait)	\
	X(mmu_after_inval_wait)	\
	X(migrate_after_setup)	\
	X(migrate_before_copy)	\
	X(migrate_after_copy)	\
	X(migrate_before_finalize)	\
	X(migrate_before_map)	\
	X(to_ram_entry)	\
	X(to_ram_after_setup)	\
	X(to_ram_after_copy)	\
	X(to_ram_before_finalize)	\
	X(to_ram_moved)	\
	X(evict_after_setup)	\
	X(fault_after_drain)	\
	X(fault_before_cancel)	\
	X(fault_before_replay)	\
	X(ce_before_run)	\
	X(sched_before_doorbell)	\
	X(exclusive_before_entry)	\
	X(exclusive_before_map)	\
	X(exclusive_before_revoke)	\
	X(query_before_walk)	\
	X(query_after_walk)	\
	X(release_begin)	\
	X(release_before_remove)	\
	X(release_before_asid_free)	\
	X(vram_after_free)

struct hg_device;

enum hg_delay {
#define X(name) HG_DELAY_##name,
	HG_DELAY_POINTS(X)
#undef X
	HG_NUM_DELAYS
};

DECLARE_STATIC_KEY_FALSE(hg_delays_on);

void __hg_delay(enum hg_delay point, bool may_sleep);
int hg_delay_set(struct hg_device *hdev, char *line);
void hg_delay_show(struct seq_file *m);
void hg_delay_clear(void);
void hg_delay_forget(struct hg_device *hdev);

#define hg_delay(name)							\
	do {								\
		if (static_branch_unlikely(&hg_delays_on))		\
			__hg_delay(HG_DELAY_##name, true);		\
	} while (0)

/* For a point that may be reached where sleeping is not allowed. */
#define hg_delay_nosleep(name, may_sleep)				\
	do {								\
		if (static_branch_unlikely(&hg_delays_on))		\
			__hg_delay(HG_DELAY_##name, may_sleep);		\
	} while (0)

#endif
