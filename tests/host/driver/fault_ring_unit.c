// SPDX-License-Identifier: GPL-2.0-or-later
/* hw/fault_unit.c: a fault of a job that has ended, or of a number's former owner, stays one. */
#define upper_32_bits(x)	((u32)((x) >> 32))
#define BIT_ULL(n)		(1ULL << (n))
#define time_before(a, b)	time_after(b, a)

#include "hw/fault_unit.c"

static struct hg_device hdev;
static struct hg_fault got;
static unsigned int taken;

static void take(struct hg_device *d, const struct hg_fault *f)
{
	got = *f;
	taken++;
}

static u32 *reg(u32 r)
{
	return (u32 *)(hdev.regs + r);
}

/* What the device does when context @ctx faults; it may finish the entry later. */
static __le32 *fault(bool copy, u32 ctx, u64 addr)
{
	u32 *put = reg((copy ? HG_REG_NRFAULT : HG_REG_FAULT) + HG_FAULT_PUT);
	__le32 *e = (copy ? hdev.fault.nrring : hdev.fault.ring) + (*put)++ * HG_FAULT_WORDS;

	e[HG_FE_ADDR_LO] = addr;
	e[HG_FE_ASID] = ctx << 16 | 1;
	if (copy) {
		e[HG_FE_FLAGS] = HG_FE_VALID | HG_FE_WAITS;
		*reg(faulted_reg(ctx)) = 1;
	}
	return e;
}

int main(void)
{
	struct hg_fault of_copy;
	__le32 *late;
	u64 owner;

	fake_regs = hdev.regs = calloc(1, HG_BAR0_SIZE);
	hdev.hw_live = hdev.ce_faults = true;
	hdev.num_ctxs = 4;
	CHECK(!hg_fault_unit_init(&hdev));
	hg_fault_program(&hdev);

	/* One is in the ring, and not finished, when its job ends; its number has another owner. */
	late = fault(false, 1, 0x1000);
	hg_fault_jobs_ended(&hdev, 1);
	owner = hg_fault_count(&hdev);
	/* Meanwhile a copy waits, and is served. */
	fault(true, 2, 0x2000);
	hg_fault_drain_nonreplay(&hdev, take);
	of_copy = got;
	CHECK(taken == 1 && of_copy.addr == 0x2000 && !hg_fault_is_over(&hdev, &of_copy));
	hg_fault_replay(&hdev, 0);
	CHECK(*reg(faulted_reg(2)) == HG_FAULTED_GO_ON);
	late[HG_FE_FLAGS] = HG_FE_VALID;
	CHECK(hg_fault_drain(&hdev, take) < 0);
	CHECK(taken == 2 && got.addr == 0x1000);
	CHECK(hg_fault_is_over(&hdev, &got) && got.num < owner);

	/* Of the copy's job, too, once that has ended: no fault of the other ring came since. */
	hg_fault_jobs_ended(&hdev, 2);
	CHECK(hg_fault_is_over(&hdev, &of_copy));

	/* One that nobody has taken yet; in the same context another copy waits by now. */
	fault(true, 2, 0x3000);
	hg_fault_jobs_ended(&hdev, 2);
	fault(true, 2, 0x4000);
	hg_fault_drain_nonreplay(&hdev, take);
	CHECK(taken == 3 && got.addr == 0x4000 && !hg_fault_is_over(&hdev, &got));

	/* A reset makes all of them old. */
	*reg(HG_REG_FAULT + HG_FAULT_PUT) = *reg(HG_REG_NRFAULT + HG_FAULT_PUT) = 0;
	*reg(HG_REG_FAULT + HG_FAULT_GET) = *reg(HG_REG_NRFAULT + HG_FAULT_GET) = 0;
	hg_fault_jobs_ended(&hdev, 2);
	hg_fault_program(&hdev);
	CHECK(hg_fault_is_over(&hdev, &got));
	fault(true, 2, 0x5000);
	hg_fault_drain_nonreplay(&hdev, take);
	CHECK(taken == 4 && !hg_fault_is_over(&hdev, &got));
	return 0;
}
