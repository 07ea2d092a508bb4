/* SPDX-License-Identifier: GPL-2.0 */
/* Which pages of VRAM are free. */
#ifndef HMM_GPU_MEM_VRAM_H
#define HMM_GPU_MEM_VRAM_H

#include "base/device.h"

struct hg_migrate_buf;

int hg_vram_init(struct hg_device *hdev);
void hg_vram_fini(struct hg_device *hdev);
void hg_vram_show(struct hg_device *hdev);
void hg_vram_program(struct hg_device *hdev);
void hg_vram_hide(struct hg_device *hdev);
void hg_vram_close(struct hg_device *hdev);
void hg_vram_restart(struct hg_device *hdev);
void hg_vram_lose(struct hg_device *hdev);
bool hg_vram_lost(struct hg_device *hdev, struct page *page, unsigned long n);
bool hg_vram_frames_lost(struct hg_device *hdev, unsigned long frame, unsigned long n);
unsigned long hg_vram_alloc(struct hg_device *hdev, unsigned long n, struct page **pages);
struct page *hg_vram_alloc_huge(struct hg_device *hdev);
void hg_vram_free_page(struct page *page, unsigned int order);
bool hg_vram_short(struct hg_device *hdev, unsigned long n);
void hg_vram_leave(struct hg_device *hdev, const struct hg_migrate_buf *buf, unsigned long n);
void hg_vram_skip_left(struct hg_device *hdev, struct hg_migrate_buf *buf, unsigned long n);
bool hg_vram_pin(struct hg_device *hdev, unsigned long n, u32 *frames);
void hg_vram_unpin(struct hg_device *hdev, unsigned long n, const u32 *frames);

#endif
