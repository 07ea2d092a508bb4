/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-mailbox: requests and answers through memory, while the machine stands.
 * The one source of its registers and of the layout of its memory: the device,
 * the agent (agent/chan_mailbox.c) and Python (hmmbench.vm.mailbox) read it.
 *
 * The memory belongs to both sides, but never at the same time: the guest uses
 * it while the machine runs, the host while it stands.  The guest says that it
 * is done by writing HM_REG_STAND, and the machine stands behind that write
 * until QMP's `cont`.  So there is nothing to poll, to wait for or to order.
 *
 * Everything is little endian.  Python reads only the lines of the form
 * "#define NAME number-expression".
 */
#ifndef HMM_MAILBOX_HW_H
#define HMM_MAILBOX_HW_H

#include <stdint.h>

/* PCI identity; the vendor is the GPU's */
#define HM_PCI_VENDOR_ID	0x1234
#define HM_PCI_DEVICE_ID	0x4d42
#define HM_PCI_CLASS		0x0880	/* system peripheral, other */
#define HM_BAR_REGS		0
#define HM_BAR_MEMORY		2	/* 64 bit, prefetchable; a power of two that holds the memory */

/* BAR0: 32-bit registers, aligned 4-byte accesses only; others read 0 and write nothing */
#define HM_BAR0_SIZE		0x1000
#define HM_REG_ID		0x00	/* RO: HM_ID_MAGIC */
#define HM_ID_MAGIC		0x424d4d48	/* "HMMB" */
#define HM_REG_VERSION		0x04	/* RO: HM_VERSION */
#define HM_VERSION		2
#define HM_REG_SIZE		0x08	/* RO: bytes of memory in BAR2; what is beyond is nothing */
#define HM_REG_STAND		0x0c	/* WO: HM_STAND_*: the machine stands behind this write */

/* Why the machine stands */
#define HM_STAND_READY		1	/* the agent has nothing to do: it has just started, or was let go without a request */
#define HM_STAND_ENDED		2	/* a program's operations have ended, or its time is over; its processes live */
#define HM_STAND_ANSWER		3	/* a request is answered and what it made has settled */

#define HM_PROCESSES		4	/* of a program, at most */
#define HM_NO_PHASE		0xffff	/* in place of a phase: no program runs */
#define HM_AFTER_PHASE		0xfffe	/* that, in a schedule's decisions, behind the program */

/*
 * The memory: struct hm_head, and at HM_FRAME one frame (struct hb_header of
 * agent/protocol.h and its payload), first the request, then its answer.
 */
#define HM_FRAME		0x40
#define HM_SIZE			0x2001000	/* what the bench gives: a frame of HB_MAX_PAYLOAD and the head, in whole pages */

struct hm_head {		/* 64 bytes */
	uint32_t magic;		/* HM_ID_MAGIC, by the host before the machine starts */
	uint32_t version;	/* HM_VERSION, likewise */
	uint32_t request;	/* number of the latest request, by the host; 0: none yet */
	uint32_t request_len;	/* of its frame */
	uint32_t answer;	/* number of the request that was answered last, by the guest */
	uint32_t answer_len;	/* of its frame */
	uint32_t stands;	/* how often the machine stood, by the guest before it stands */
	uint32_t why;		/* HM_STAND_* of the latest, likewise */
	uint32_t under_way[HM_PROCESSES];	/* operations of a program's processes that have begun and not ended, by the guest while it runs */
	uint32_t phase;		/* of the program that runs, likewise; behind its last: that and one; or HM_NO_PHASE */
	uint32_t more;
	uint64_t time;		/* CLOCK_MONOTONIC when it stood last, in ns, by the guest before it stands */
};

#endif
