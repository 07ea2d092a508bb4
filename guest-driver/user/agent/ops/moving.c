// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on where memory is: migration, policy, eviction, and asking for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu.h"
#include "op.h"

/* The driver is opened before the operation's memory is looked at. */
static int get_range(const struct op_call *call, struct hmmgpu **dev, void **addr)
{
	int ret = gpu_get(dev, 0, NULL);

	if (ret)
		return ret;
	*addr = op_range(call->op);
	return *addr ? 0 : -EINVAL;
}

static int op_migrate(const struct op_call *call)
{
	const struct hb_op *op = call->op;
	struct hb_op_result *r = call->result;
	struct hmmgpu *dev;
	void *addr;
	int ret = get_range(call, &dev, &addr);

	if (ret)
		return ret;
	if (op->a & HMM_GPU_MIGRATE_MAP)
		return hmmgpu_prefetch(dev, addr, op->len, op->arg, &r->aux0, &r->aux1);
	return hmmgpu_migrate(dev, addr, op->len, op->arg, &r->aux0, &r->aux1);
}

static int op_policy(const struct op_call *call)
{
	struct hmmgpu *dev;
	int ret = gpu_get(&dev, 0, NULL);

	return ret ? ret : hmmgpu_set_policy(dev, call->op->arg);
}

static int op_evict(const struct op_call *call)
{
	char text[32];

	if (call->op->a)
		snprintf(text, sizeof(text), "%llu", (unsigned long long)call->op->a);
	else
		strcpy(text, "all");
	return debugfs_write("evict", text);
}

static int op_query(const struct op_call *call)
{
	uint64_t npages = call->op->len / PAGE_SIZE;
	struct hmmgpu *dev;
	uint32_t at;
	void *addr;
	int ret = get_range(call, &dev, &addr);

	if (ret)
		return ret;
	at = atomic_fetch_add(&sh->data_used, npages * 4);
	if (at + npages * 4 > MAX_DATA)
		return -ENOSPC;
	ret = hmmgpu_query(dev, addr, npages, (uint32_t *)(sh->data + at));
	if (ret == 0) {
		call->result->data_off = at;
		call->result->data_len = npages * 4;
	}
	return ret;
}

static const struct op_kind moving[] = {
	/* region off len; arg = HMM_GPU_MIGRATE_SYSTEM/DEVICE; a = flags. aux0 = migrated, aux1 = failed */
	{ 10, "migrate", op_migrate, OP_GPU, NULL },
	/* arg = HMM_GPU_POLICY_* for this process */
	{ 11, "policy", op_policy, OP_GPU, NULL },
	/* a = pages to evict from VRAM, 0 = all (debugfs) */
	{ 12, "evict", op_evict, 0, NULL },
	/* region off len -> data: u32 a page */
	{ 13, "query", op_query, OP_GPU, NULL },
};
OP_FAMILY(moving);
