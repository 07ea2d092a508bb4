// SPDX-License-Identifier: GPL-2.0
/*
 * The delay points' settings: see delay.h.
 *
 * Locking: delay_lock serialises writers and the on/off state of the static
 * key.  A point reads its own setting without a lock; each field is read once
 * and a torn combination only gives another delay.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/kernel.h>
#include <linux/mutex.h>
#include <linux/string.h>

#include "delay.h"

#define HG_DELAY_MAX_USEC	1000000
#define HG_DELAY_MAX_ATOMIC	2000

struct delay_point {
	const char *name;
	u32 usec;
	u32 permille;
	atomic_t rng;
	atomic_long_t hits;
};

static struct delay_point points[HG_NUM_DELAYS] = {
#define X(n) [HG_DELAY_##n] = { .name = #n },
	HG_DELAY_POINTS(X)
#undef X
};

DEFINE_STATIC_KEY_FALSE(hg_delays_on);
static DEFINE_MUTEX(delay_lock);

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

void __hg_delay(enum hg_delay point, bool may_sleep)
{
	struct delay_point *p = &points[point];
	u32 usec = READ_ONCE(p->usec);

	if (!usec)
		return;
	if (READ_ONCE(p->permille) < 1000 && next_random(p) % 1000 >= READ_ONCE(p->permille))
		return;
	atomic_long_inc(&p->hits);
	if (may_sleep) {
		fsleep(usec);
		return;
	}
	usec = min_t(u32, usec, HG_DELAY_MAX_ATOMIC);
	mdelay(usec / 1000);
	udelay(usec % 1000);
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
	}
	update_key();
	mutex_unlock(&delay_lock);
}

/**
 * hg_delay_set() - take one line of settings
 * @line: "NAME USEC [PERMILLE [SEED]]" or "clear"; changed by parsing
 *
 * Return: 0, or -EINVAL for an unknown name or a value out of range.
 */
int hg_delay_set(char *line)
{
	u32 v[3] = { 0, 1000, 1 };
	char *name, *tok;
	unsigned int i, n = 0;

	line = strim(line);
	if (!*line)
		return 0;
	if (!strcmp(line, "clear")) {
		hg_delay_clear();
		return 0;
	}
	name = strsep(&line, " \t");
	while ((tok = strsep(&line, " \t"))) {
		if (!*tok)
			continue;
		if (n == ARRAY_SIZE(v) || kstrtou32(tok, 0, &v[n++]))
			return -EINVAL;
	}
	if (!n || v[0] > HG_DELAY_MAX_USEC || v[1] > 1000)
		return -EINVAL;
	for (i = 0; i < HG_NUM_DELAYS; i++)
		if (!strcmp(points[i].name, name))
			break;
	if (i == HG_NUM_DELAYS)
		return -EINVAL;

	mutex_lock(&delay_lock);
	WRITE_ONCE(points[i].permille, v[1]);
	/* xorshift must not start at 0; the name makes equal seeds differ */
	atomic_set(&points[i].rng, (v[2] * 2654435761u + i * 40503u) | 1);
	WRITE_ONCE(points[i].usec, v[0]);
	update_key();
	mutex_unlock(&delay_lock);
	return 0;
}

void hg_delay_show(struct seq_file *m)
{
	unsigned int i;

	for (i = 0; i < HG_NUM_DELAYS; i++)
		seq_printf(m, "%s %u %u %ld\n", points[i].name, READ_ONCE(points[i].usec),
			   points[i].usec ? READ_ONCE(points[i].permille) : 0,
			   atomic_long_read(&points[i].hits));
}
