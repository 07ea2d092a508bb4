// SPDX-License-Identifier: GPL-2.0
/*
 * The delay points' settings: see base/delay.h.
 *
 * Locking: delay_lock serialises writers and the on/off state of the static
 * key.  A point reads its own setting without a lock; each field is read once
 * and a torn combination only gives another delay.  watched is RCU's: a point
 * reads the device's counters inside a read section, and only while hw_live;
 * hg_delay_forget() waits for those before the registers go.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/string.h>

#include "base/delay.h"
#include "base/regs.h"
#include "base/stats.h"

#define HG_DELAY_MAX_USEC	30000000
#define HG_DELAY_MAX_ATOMIC	2000

/* delay_point.until: a point, HG_NUM_DELAYS + a counter of the device, or none */
#define HG_UNTIL_NONE		(HG_NUM_DELAYS + HG_NUM_COUNTERS)

struct delay_point {
	const char *name;
	u32 usec;
	u32 permille;
	u32 nth;
	u32 times;
	u32 until;
	atomic_t rng;
	atomic_long_t hits;
	atomic_long_t passed;
	atomic_long_t met;
};

static struct delay_point points[HG_NUM_DELAYS] = {
#define X(n) [HG_DELAY_##n] = { .name = #n, .until = HG_UNTIL_NONE },
	HG_DELAY_POINTS(X)
#undef X
};

DEFINE_STATIC_KEY_FALSE(hg_delays_on);
static DEFINE_MUTEX(delay_lock);
static struct hg_device __rcu *watched;

/* xorshift32; two CPUs in it at once only lose a step */
static u32 next_random(struct delay_point *p)
{
	u32 x = atomic_read(&p->rng);

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	atomic_set(&p->rng, x);
	return x;
}

/* How often that was passed, or what the device has counted. */
static u64 passages(u32 what)
{
	struct hg_device *hdev;
	u64 n = 0;

	if (what < HG_NUM_DELAYS)
		return atomic_long_read(&points[what].passed);
	rcu_read_lock();
	hdev = rcu_dereference(watched);
	if (hdev && READ_ONCE(hdev->hw_live))
		n = hg_read64(hdev, HG_REG_COUNTER + (what - HG_NUM_DELAYS) * 8);
	rcu_read_unlock();
	return n;
}

static void wait_usec(u32 usec, bool may_sleep)
{
	if (may_sleep) {
		fsleep(usec);
		return;
	}
	mdelay(usec / 1000);
	udelay(usec % 1000);
}

/* Until others get that far, but no longer than usec. */
static bool wait_until(u32 what, u32 usec, bool may_sleep)
{
	ktime_t end = ktime_add_us(ktime_get(), usec);
	u64 before = passages(what);

	do {
		wait_usec(20, may_sleep);
		if (passages(what) != before)
			return true;
	} while (ktime_before(ktime_get(), end));
	return false;
}

void __hg_delay(enum hg_delay point, bool may_sleep)
{
	struct delay_point *p = &points[point];
	u32 usec = READ_ONCE(p->usec), nth = READ_ONCE(p->nth), until = READ_ONCE(p->until);
	u32 times = READ_ONCE(p->times);
	long passed = atomic_long_inc_return(&p->passed);

	if (!usec || (nth && passed != nth))
		return;
	/* some more may come in at once */
	if (times && atomic_long_read(&p->hits) >= times)
		return;
	if (READ_ONCE(p->permille) < 1000 && next_random(p) % 1000 >= READ_ONCE(p->permille))
		return;
	atomic_long_inc(&p->hits);
	if (!may_sleep)
		usec = min_t(u32, usec, HG_DELAY_MAX_ATOMIC);
	if (until == HG_UNTIL_NONE)
		wait_usec(usec, may_sleep);
	else if (wait_until(until, usec, may_sleep))
		atomic_long_inc(&p->met);
}

static void update_key(void)
{
	unsigned int i;
	bool on = false;

	for (i = 0; i < HG_NUM_DELAYS; i++)
		on |= points[i].usec != 0;
	if (on)
		static_branch_enable(&hg_delays_on);
	else
		static_branch_disable(&hg_delays_on);
}

void hg_delay_clear(void)
{
	unsigned int i;

	mutex_lock(&delay_lock);
	for (i = 0; i < HG_NUM_DELAYS; i++) {
		WRITE_ONCE(points[i].usec, 0);
		atomic_long_set(&points[i].hits, 0);
		atomic_long_set(&points[i].passed, 0);
		atomic_long_set(&points[i].met, 0);
	}
	update_key();
	mutex_unlock(&delay_lock);
}

void hg_delay_forget(struct hg_device *hdev)
{
	mutex_lock(&delay_lock);
	if (rcu_access_pointer(watched) == hdev)
		RCU_INIT_POINTER(watched, NULL);
	mutex_unlock(&delay_lock);
	synchronize_rcu();
}

static int point_of(const char *name)
{
	int i;

	for (i = 0; name && i < HG_NUM_DELAYS; i++)
		if (!strcmp(points[i].name, name))
			return i;
	return -EINVAL;
}

/* What a point may wait for: another (or itself), or "dev_" and a counter. */
static int until_of(const char *name)
{
	int i;

	if (!name || strncmp(name, "dev_", 4))
		return point_of(name);
	for (i = 0; i < HG_NUM_COUNTERS; i++)
		if (!strcmp(hg_device_counter_names[i], name + 4))
			return HG_NUM_DELAYS + i;
	return -EINVAL;
}

static char *next_word(char **line)
{
	char *tok;

	while ((tok = strsep(line, " \t")))
		if (*tok)
			break;
	return tok;
}

/**
 * hg_delay_set() - take one line of settings
 * @hdev: whose counters "until dev_..." means
 * @line: "NAME [at N | until OTHER] USEC [PERMILLE [SEED [TIMES]]]" or "clear";
 *	changed by parsing
 *
 * at N waits at the Nth passage alone, counted since "clear"; TIMES: no more
 * waits than that since then (0: any number).  until OTHER
 * ends the wait when another thread passes OTHER (a point, or "dev_COUNTER":
 * when that counter of the device rises), after USEC at the latest.
 *
 * Return: 0, or -EINVAL for an unknown name or a value out of range.
 */
int hg_delay_set(struct hg_device *hdev, char *line)
{
	u32 v[4] = { 0, 1000, 1, 0 }, nth = 0;
	int point, until = HG_UNTIL_NONE;
	unsigned int n = 0;
	char *tok;

	line = strim(line);
	if (!*line)
		return 0;
	if (!strcmp(line, "clear")) {
		hg_delay_clear();
		return 0;
	}
	point = point_of(next_word(&line));
	if (point < 0)
		return point;
	tok = next_word(&line);
	if (tok && !strcmp(tok, "at")) {
		tok = next_word(&line);
		if (!tok || kstrtou32(tok, 0, &nth) || !nth)
			return -EINVAL;
		tok = next_word(&line);
	} else if (tok && !strcmp(tok, "until")) {
		until = until_of(next_word(&line));
		if (until < 0)
			return until;
		tok = next_word(&line);
	}
	for (; tok; tok = next_word(&line))
		if (n == ARRAY_SIZE(v) || kstrtou32(tok, 0, &v[n++]))
			return -EINVAL;
	if (!n || v[0] > HG_DELAY_MAX_USEC || v[1] > 1000)
		return -EINVAL;

	mutex_lock(&delay_lock);
	rcu_assign_pointer(watched, hdev);
	WRITE_ONCE(points[point].nth, nth);
	WRITE_ONCE(points[point].until, until);
	WRITE_ONCE(points[point].times, v[3]);
	WRITE_ONCE(points[point].permille, v[1]);
	/* xorshift must not start at 0; the name makes equal seeds differ */
	atomic_set(&points[point].rng, (v[2] * 2654435761u + point * 40503u) | 1);
	WRITE_ONCE(points[point].usec, v[0]);
	update_key();
	mutex_unlock(&delay_lock);
	return 0;
}

/* Name, usec, permille, waits, passages while any point was set, waits that OTHER ended. */
void hg_delay_show(struct seq_file *m)
{
	unsigned int i;

	for (i = 0; i < HG_NUM_DELAYS; i++)
		seq_printf(m, "%s %u %u %ld %ld %ld\n", points[i].name, READ_ONCE(points[i].usec),
			   points[i].usec ? READ_ONCE(points[i].permille) : 0,
			   atomic_long_read(&points[i].hits),
			   atomic_long_read(&points[i].passed), atomic_long_read(&points[i].met));
}
