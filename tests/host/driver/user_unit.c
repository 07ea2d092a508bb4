// SPDX-License-Identifier: GPL-2.0-or-later
/* base/user.c and those who ask it: how much one user gets, who pays, how long a slice is. */
static int privileged;
static unsigned int uid;
#define capable(c)		privileged
#define current_uid()		((kuid_t){ uid })
#define uid_eq(a, b)		((a).v == (b).v)
#define drm_gem_object_put(o)	nop()
#define DRM_MM_INSERT_BEST	0
#include "base/user.c"
#include "jobs/file.c"
#include "jobs/sched.c"
#define to_bo	bo_of
#include "drm/bo.c"

static struct hg_device hdev;
static struct pci_dev pdev;

struct hg_svm *hg_svm_create(struct hg_device *h)
{
	struct hg_svm *svm = calloc(1, sizeof(*svm));

	svm->vm.hdev = h;
	svm->vm.mm = current->mm;
	return svm;
}

void hg_svm_destroy(struct hg_svm *svm) { hg_user_close(svm->vm.hdev, svm->user); }
bool hg_hw_lock(struct hg_device *h) { down_read(&h->hw_sem); return true; }
bool hg_vram_pin(struct hg_device *h, unsigned long n, u32 *frames) { return true; }
struct hg_ce_slot *hg_ce_get(struct hg_device *h) { static struct hg_ce_slot slot; return &slot; }

static int buffer(struct hg_file *hf, u64 pages)
{
	struct drm_hmm_gpu_bo_create args = { .size = pages << PAGE_SHIFT };
	struct drm_file file = { .driver_priv = hf };

	return hg_bo_create_ioctl(&hdev.drm, &args, &file);
}

static u32 slice(u32 ctx_id)
{
	return readl(hdev.regs + HG_REG_CTX + ctx_id * HG_CTX_STRIDE + HG_CTX_TIMESLICE);
}

/* Opens until it may not, then makes contexts likewise: what another user finds. */
static void take_all(unsigned int *files, unsigned int *ctxs)
{
	struct hg_file *hf, *one = NULL;
	u32 id;

	for (*files = 0; *files < 1000; ++*files, one = hf) {
		hf = hg_file_create(&hdev);
		if (IS_ERR(hf))
			break;
	}
	CHECK(IS_ERR(hf) ? PTR_ERR(hf) == -EDQUOT : *files == 1000);
	for (*ctxs = 0; one && *ctxs < 1000; ++*ctxs)
		if (hg_ctx_create(one, 0, false, &id))
			break;
}

int main(int argc, char **argv)
{
	const char *name = argv[argc - 1];
	unsigned int files, ctxs;
	struct hg_file *hf;
	u32 id;

	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	hdev.pdev = &pdev;
	hdev.hw_live = true;
	hdev.num_asids = 256;
	hdev.num_ctxs = HG_NUM_CTXS;
	hdev.vram_size = 64 << 20;
	hdev.vram.limit = (64 << 20) / PAGE_SIZE;
	INIT_LIST_HEAD(&hdev.user_list);
	INIT_LIST_HEAD(&hdev.bos);
	uid = 1000;
	if (!strcmp(name, "limits")) {
		take_all(&files, &ctxs);
		CHECK(files == 127 && ctxs == 31);
		uid = 1001;
		take_all(&files, &ctxs);
		CHECK(files == 127 && ctxs == 31);
		uid = 0;
		privileged = 1;
		take_all(&files, &ctxs);
		CHECK(files == 1000);
	}
	if (!strcmp(name, "buffers")) {
		hf = hg_file_create(&hdev);
		CHECK(buffer(hf, hdev.vram.limit) == -EDQUOT);
		CHECK(buffer(hf, hdev.vram.limit / 4) == 0);
		CHECK(buffer(hf, hdev.vram.limit / 4) == 0);
		CHECK(buffer(hf, 1) == -EDQUOT);
		hg_bo_drop_all(&hdev);
		CHECK(buffer(hf, hdev.vram.limit / 2) == 0);
	}
	if (!strcmp(name, "slices")) {
		hf = hg_file_create(&hdev);
		CHECK(hg_ctx_create(hf, 0, false, &id) == 0 && slice(id) == 0);
		CHECK(hg_ctx_create(hf, 5000, false, &id) == 0 && slice(id) == 5000);
		CHECK(hg_ctx_create(hf, ~0u, false, &id) == 0 && slice(id) == 100000);
	}
	if (!strcmp(name, "accounted")) {
		hf = hg_file_create(&hdev);
		CHECK(hg_ctx_create(hf, 0, false, &id) == 0 && buffer(hf, 1) == 0);
		CHECK(all_gfp & __GFP_ACCOUNT);
	}
	if (!strcmp(name, "given_back")) {
		for (int i = 0; i < 500; i++) {
			hf = hg_file_create(&hdev);
			CHECK(!IS_ERR(hf));
			CHECK(hg_ctx_create(hf, 0, false, &id) == 0);
			CHECK(hg_ctx_destroy(hf, id) == 0);
			hdev.ctx_ida.next = 0;
			hg_file_destroy(hf);
		}
		CHECK(list_empty(&hdev.user_list));
	}
	return 0;
}
