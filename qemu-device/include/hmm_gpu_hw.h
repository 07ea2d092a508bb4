/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: the hardware interface.  The one source of registers, page-table
 * entries, fault entries and descriptors: the device core, the kernel driver
 * and Python (hmmbench.device.cheader) all read this file.
 *
 * Everything is little endian.  Registers are 32 bit unless marked (64); a
 * 64-bit register may be accessed as one 8-byte or two 4-byte accesses (a
 * write takes effect when its high half, or the whole, is written).
 * Python reads only the lines of the form "#define NAME number-expression".
 */
#ifndef HMM_GPU_HW_H
#define HMM_GPU_HW_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

/* PCI identity */
#define HG_PCI_VENDOR_ID		0x1234
#define HG_PCI_DEVICE_ID		0x4d47
#define HG_PCI_CLASS			0x0302	/* 3D controller */
#define HG_BAR_REGS			0
#define HG_BAR_VRAM			2
#define HG_BAR_MSIX			4

/* MSI-X vectors, and bits of INTR_STATUS / INTR_ENABLE */
#define HG_VEC_FAULT			0	/* replayable fault ring went non-empty, or GET was written while non-empty */
#define HG_VEC_FENCE			1	/* a FENCE with HG_FENCE_IRQ was executed */
#define HG_VEC_ERROR			2	/* context error, non-replayable fault, bad descriptor, bus error */
#define HG_VEC_INVAL			3	/* INVAL_DONE advanced (only if enabled) */
#define HG_NUM_VECTORS			4

/* Sizes */
#define HG_PAGE_SHIFT			12
#define HG_HUGE_SHIFT			21
#define HG_VA_BITS			48
#define HG_PT_LEVELS			4
#define HG_PT_ENTRIES			512
#define HG_LANES			32
#define HG_MAX_SMS			16
#define HG_MAX_WARPS			32
#define HG_MAX_CES			4
#define HG_NUM_ASIDS			256
#define HG_NUM_CTXS			64
#define HG_MAX_BLOCK			1024	/* threads a block; also bounded by warps a SM x 32 */

/* BAR0 layout */
#define HG_BAR0_SIZE			0x100000

/* -- identity and control -- */
#define HG_REG_ID			0x0000	/* RO: HG_ID_MAGIC */
#define HG_ID_MAGIC			0x474d4d48	/* "HMMG" */
#define HG_REG_VERSION			0x0004	/* RO */
#define HG_VERSION			1
#define HG_REG_CAPS			0x0008	/* RO: SMs[7:0] warps a SM[15:8] lanes[23:16] copy engines[31:24] */
#define HG_REG_CAPS2			0x000c	/* RO: ASIDs[15:0] contexts[31:16] */
#define HG_REG_VRAM_SIZE		0x0010	/* RO (64) bytes */
#define HG_REG_BAR2_SIZE		0x0018	/* RO (64) bytes of VRAM, from 0, that the CPU can reach */
#define HG_REG_UTLB_MISSES		0x0020	/* RO: outstanding misses a micro-TLB */
#define HG_REG_FEATURES			0x0024	/* RO: HG_FEATURE_* */
#define HG_FEATURE_COHERENT		0x1	/* BAR2 is all of VRAM, and CPUs may use it as they use RAM */
#define HG_FEATURE_RESET_LOSES_VRAM	0x2	/* a reset of the function (FLR, bus) leaves nothing of VRAM; CTRL.RESET does not touch it */
#define HG_FEATURE_WALK_CACHE		0x4	/* upper levels are cached too: a table that is taken away needs an invalidation of all it covers */
#define HG_FEATURE_BIG_PAGES		0x8	/* HG_PTE_BIG has a meaning */
/*
 * HG_PTE_CACHED, HG_OP_FLUSH, HG_INVAL_MEMBAR and HG_FENCE_MEMBAR have a meaning, and writes to
 * system memory are posted
 */
#define HG_FEATURE_DATA_CACHE		0x10
#define HG_FEATURE_CE_FAULTS		0x20	/* HG_CTX_STALL and HG_CTX_FAULTED have a meaning */
/* groups of SMs have one miss table: a page that two of them miss is reported once */
#define HG_FEATURE_SHARED_MISSES	0x40
/* the mirror audit knows where bus addresses lead to */
#define HG_FEATURE_AUDIT_BUS		0x80
#define HG_REG_TIME			0x0028	/* RO (64) virtual nanoseconds */
#define HG_REG_CTRL			0x0030
#define HG_CTRL_ENABLE			0x1	/* engines may run; clearing it parks them at an instruction boundary */
#define HG_CTRL_RESET			0x2	/* W: soft reset: everything but VRAM content goes to its power-on value */
#define HG_REG_STATUS			0x0034	/* RO */
#define HG_STATUS_IDLE			0x1	/* no engine runs and no ring has work */
#define HG_STATUS_PARKED		0x2	/* CTRL.ENABLE is clear and every engine is parked */
#define HG_REG_INTR_STATUS		0x0040	/* R: pending, W1C */
#define HG_REG_INTR_ENABLE		0x0044
#define HG_REG_SCRATCH			0x0048	/* RW, no effect */

/*
 * -- address spaces: HG_REG_ASID + asid * HG_ASID_STRIDE --
 * Changing ROOT does not invalidate TLBs.
 */
#define HG_REG_ASID			0x1000
#define HG_ASID_STRIDE			0x10
#define HG_ASID_ROOT			0x0	/* (64) HG_ROOT_* | table address */
#define HG_ROOT_ENABLE			0x1
#define HG_ROOT_VRAM			0x10	/* table in VRAM (offset); else bus address */
#define HG_ASID_CTRL			0x8
#define HG_ASID_MODE_REPLAY		0	/* global replay */
#define HG_ASID_MODE_FATAL		3	/* non-replayable ring, context dies */

/*
 * -- TLB invalidation --
 * Write ASID/START/LEN as needed, then CMD.  Each CMD gets the next sequence
 * number (SEQ: last given).  DONE >= n means: every access in flight under a
 * translation that invalidation n removes has finished, and later accesses
 * walk the tables again.  Invalidations complete in order.
 */
#define HG_REG_INVAL_ASID		0x2000
#define HG_REG_INVAL_START		0x2008	/* (64) virtual address, rounded down to a page */
#define HG_REG_INVAL_LEN		0x2010	/* (64) bytes, rounded up to a page */
#define HG_REG_INVAL_CMD		0x2018	/* W: HG_INVAL_*; R: 0 */
#define HG_INVAL_ALL			1
#define HG_INVAL_ASID			2
#define HG_INVAL_RANGE			3
/*
 * | one of them, with HG_FEATURE_DATA_CACHE: DONE also means that posted writes of before are
 * visible
 */
#define HG_INVAL_MEMBAR			0x10
#define HG_REG_INVAL_SEQ		0x2020	/* RO (64) */
#define HG_REG_INVAL_DONE		0x2028	/* RO (64) */

/*
 * -- fault rings: replayable at HG_REG_FAULT, non-replayable at HG_REG_NRFAULT --
 * Entries between GET and PUT may become VALID out of order: software spins on
 * VALID, clears it, then advances GET.  When the ring is full a fault is
 * dropped, OVERFLOW is set in GET and PUT, and nothing more is delivered until
 * software writes GET with OVERFLOW set (write one to clear; the index is
 * taken as well).  When OVERFLOW is set the ring's interrupt is raised, also if
 * the ring is empty.  Dropped faults appear again after the next replay.
 */
#define HG_REG_FAULT			0x2100
#define HG_REG_NRFAULT			0x2120
#define HG_FAULT_BASE			0x00	/* (64) bus address, page aligned */
#define HG_FAULT_SIZE			0x08	/* entries, power of two, 2..65536; full at SIZE - 1 */
#define HG_FAULT_CTRL			0x0c
#define HG_FAULT_CTRL_ENABLE		0x1
#define HG_FAULT_GET			0x10	/* index[30:0], OVERFLOW W1C; writing it while GET != PUT, or OVERFLOW stays, raises the interrupt again */
#define HG_FAULT_PUT			0x14	/* RO */
#define HG_FAULT_OVERFLOW		0x80000000
#define HG_FAULT_INDEX_MASK		0x7fffffff

/* -- fault responses -- */
#define HG_REG_REPLAY			0x2140	/* W: HG_REPLAY_* */
#define HG_REPLAY_START			1	/* done when every stalled access has been sent again */
#define HG_REPLAY_START_ACK_ALL		2	/* done when each of them was translated or faulted again */
#define HG_REG_REPLAY_SEQ		0x2148	/* RO (64) last given */
#define HG_REG_REPLAY_DONE		0x2150	/* RO (64) */
#define HG_REG_CANCEL_ADDR		0x2160	/* (64) */
#define HG_REG_CANCEL_ASID		0x2168
#define HG_REG_CANCEL_CLIENT		0x216c	/* engine[7:0] sm[15:8] client[23:16], as in the fault entry */
#define HG_REG_CANCEL_CMD		0x2170	/* W: type[3:0], scope[7:4] */
#define HG_CANCEL_ADDR			1	/* stalled accesses to the page of CANCEL_ADDR in CANCEL_ASID */
#define HG_CANCEL_CLIENT		2	/* stalled accesses of CANCEL_CLIENT in CANCEL_ASID */
#define HG_CANCEL_GLOBAL		3	/* every stalled access in CANCEL_ASID */
#define HG_CANCEL_SCOPE_ALL		0x00
#define HG_CANCEL_SCOPE_WRITE		0x10	/* writes and atomics only */
#define HG_CANCEL_SCOPE_ATOMIC		0x20

/*
 * -- VRAM in use: for the protocol checks alone (docs/checks.md) --
 * A bitmap, one bit a 4 KiB page of VRAM from bit 0 of byte 0: 1 = software
 * gave the page to somebody.  Software sets a bit before anything uses the
 * page and clears it when nothing can any more.
 */
#define HG_REG_VRAM_MAP			0x2180	/* (64) bus address, page aligned, | HG_VRAM_MAP_ENABLE */
#define HG_VRAM_MAP_ENABLE		0x1

/*
 * -- page tables given back: for the protocol checks alone (docs/checks.md) --
 * With SHOWN set, software writes the address of each page table to TABLE_FREE
 * right before it uses the page for something else: when nothing leads to the
 * table any more and after that one invalidation of all that it translated is
 * complete (or the engines were parked, or no context of its address space was
 * ACTIVE).
 */
#define HG_REG_TABLE_CTRL		0x2188
#define HG_TABLE_CTRL_SHOWN		0x1
#define HG_REG_TABLE_FREE		0x2190	/* W (64): table address | HG_ROOT_VRAM if that is an offset in VRAM; R: 0 */

/*
 * -- contexts: HG_REG_CTX + ctx * HG_CTX_STRIDE --
 * Clearing ENABLE aborts what the context does; STATUS.ACTIVE reads 0 when no
 * engine touches the context or its memory any more.  Clear before changing
 * BASE, SIZE or ASID (writes to them are ignored while enabled).
 */
#define HG_REG_CTX			0x3000
#define HG_CTX_STRIDE			0x40
#define HG_CTX_RING_BASE		0x00	/* (64) bus address, page aligned */
#define HG_CTX_RING_SIZE		0x08	/* entries, power of two, 2..4096; full at SIZE - 1 */
#define HG_CTX_ASID			0x0c
#define HG_CTX_CTRL			0x10
#define HG_CTX_ENABLE			0x1
#define HG_CTX_PRIV			0x2	/* may use physical addresses in COPY and runs on copy engine 0 alone */
/*
 * with HG_FEATURE_CE_FAULTS: a COPY that misses a page reports that to the non-replayable ring and
 * waits for FAULTED
 */
#define HG_CTX_STALL			0x4
#define HG_CTX_STATUS			0x14	/* RO */
#define HG_CTX_ACTIVE			0x1
#define HG_CTX_HALTED			0x2	/* stopped by a bad descriptor or bus error: see ERROR; ENABLE 0 then 1 restarts at GET = PUT = 0 */
#define HG_CTX_GET			0x18	/* RO: next descriptor to execute */
#define HG_CTX_PUT			0x1c	/* RO: last doorbell */
#define HG_CTX_ERROR			0x20	/* RO: HG_ERR_* of the last failed job or of the halt */
/* R: 1 while a COPY waits; W: HG_FAULTED_*, ignored if none does */
#define HG_CTX_FAULTED			0x24
#define HG_FAULTED_GO_ON		1	/* try again */
#define HG_FAULTED_GIVE_UP		2	/* the job ends with HG_ERR_FAULT */
#define HG_CTX_ERROR_ADDR		0x28	/* RO (64) */
#define HG_CTX_TIMESLICE		0x30	/* microseconds on the SMs before another context may preempt; 0 = default 1000 */
/*
 * (64) Where FENCE and WAIT words and reports of the context may lie: a bus address, aligned
 * to its size, | log2 of the size in bytes.  0 = anywhere.  Elsewhere they are bad
 * descriptors.  Taken like RING_BASE.
 */
#define HG_CTX_SYNC			0x38
#define HG_SYNC_ORDER_MASK		0x3f
#define HG_SYNC_ORDER_MAX		52

/* -- counters: HG_REG_COUNTER + HG_CNT_* * 8, RO (64); cleared by reset, but VIOLATIONS -- */
#define HG_REG_COUNTER			0x4000
#define HG_CNT_FAULTS			0	/* entries written to the replayable ring */
#define HG_CNT_FAULTS_DROPPED		1
#define HG_CNT_FAULTS_NONREPLAY		2
#define HG_CNT_REPLAYS			3
#define HG_CNT_CANCELS			4
#define HG_CNT_INVALS			5
#define HG_CNT_UTLB_HITS		6
#define HG_CNT_UTLB_MISSES		7
#define HG_CNT_L2TLB_HITS		8
#define HG_CNT_L2TLB_MISSES		9	/* page-table walks */
#define HG_CNT_INSTRS			10	/* lane instructions */
#define HG_CNT_LOADS			11	/* lane loads done */
#define HG_CNT_STORES			12
#define HG_CNT_ATOMICS			13
#define HG_CNT_READ_VRAM		14	/* bytes, engines, by aperture */
#define HG_CNT_READ_SYS			15
#define HG_CNT_WRITE_VRAM		16
#define HG_CNT_WRITE_SYS		17
#define HG_CNT_COPIES			18	/* copy pieces done */
#define HG_CNT_COPY_BYTES		19
#define HG_CNT_LAUNCHES			20	/* launches finished, also with an error */
#define HG_CNT_FENCES			21
#define HG_CNT_PREEMPTS			22
#define HG_CNT_IRQS			23
#define HG_CNT_GUEST_ERRORS		24	/* bad register writes, descriptors, bus errors */
#define HG_CNT_STALLED_WARPS		25	/* gauge: warps stalled on a fault now */
#define HG_CNT_PENDING_FAULTS		26	/* gauge: (engine, page) faults outstanding now */
#define HG_CNT_ACTIVE_CTXS		27	/* gauge: contexts enabled */
#define HG_CNT_VIOLATIONS		28	/* what the device's own checks found, since the host cleared them */
#define HG_NUM_COUNTERS			29
/* X(symbol after HG_CNT_, name): what host and guest call them in every list */
#define HG_DEVICE_COUNTERS(X) \
	X(FAULTS, "faults") X(FAULTS_DROPPED, "faults_dropped") \
	X(FAULTS_NONREPLAY, "faults_nonreplay") X(REPLAYS, "replays") X(CANCELS, "cancels") \
	X(INVALS, "invals") X(UTLB_HITS, "utlb_hits") X(UTLB_MISSES, "utlb_misses") \
	X(L2TLB_HITS, "l2tlb_hits") X(L2TLB_MISSES, "l2tlb_misses") X(INSTRS, "instrs") \
	X(LOADS, "loads") X(STORES, "stores") X(ATOMICS, "atomics") X(READ_VRAM, "read_vram") \
	X(READ_SYS, "read_sys") X(WRITE_VRAM, "write_vram") X(WRITE_SYS, "write_sys") \
	X(COPIES, "copies") X(COPY_BYTES, "copy_bytes") X(LAUNCHES, "launches") \
	X(FENCES, "fences") X(PREEMPTS, "preempts") X(IRQS, "irqs") \
	X(GUEST_ERRORS, "guest_errors") X(STALLED_WARPS, "stalled_warps") \
	X(PENDING_FAULTS, "pending_faults") X(ACTIVE_CTXS, "active_ctxs") \
	X(VIOLATIONS, "violations")

/*
 * -- mirror audit: what the device has to know of the CPU's page tables --
 * For checking alone: nothing the device does depends on these registers.
 * HG_REG_AUDIT_ASID + asid * 8 (64): physical address of the process's root
 * table, its levels, and ENABLE.  Without HG_FEATURE_AUDIT_BUS only where bus
 * addresses of RAM are physical addresses.  Take it out and invalidate the
 * address space before the table can go away.  GPU addresses that mirror no CPU
 * address have an ASID that is not enabled here, or bit HG_AUDIT_USER_BITS set:
 * those lead to VRAM that is the GPU's alone, and a system frame there is a
 * violation.
 * HG_REG_AUDIT_ENC + HG_ENC_* * 8 (64): the kernel's encodings, written while
 * CTRL is 0; CTRL 1 makes them valid.
 */
#define HG_REG_AUDIT_CTRL		0x2200
#define HG_AUDIT_CTRL_READY		0x1
#define HG_REG_AUDIT_CMD		0x2208	/* W: 1: audit every enabled address space now; refused unless the host allows it and has the audit on */
#define HG_REG_AUDIT_ENC		0x2240
#define HG_ENC_PRESENT			0	/* masks of a CPU entry */
#define HG_ENC_WRITE			1
#define HG_ENC_PSE			2
#define HG_ENC_PROTNONE			3
#define HG_ENC_PFN			4	/* the address bits; of a page: the low 12 are 0 */
#define HG_ENC_NONE_IGNORE		5	/* bits that an empty entry may have */
#define HG_ENC_FLAGS			6
#define HG_ENC_INVERT			0x1	/* frames and swap offsets of entries that are not present are inverted */
#define HG_ENC_SWAP			7	/* type: first bit[7:0], bits[15:8]; offset: first bit[23:16], bits[31:24] */
#define HG_ENC_SWAP_PFN			8	/* mask of the frame in a swap offset */
#define HG_ENC_TYPES			9	/* swap types, byte HG_ENC_T_*; 0xff: there is none */
#define HG_ENC_T_DEV_READ		0
#define HG_ENC_T_DEV_WRITE		1
#define HG_ENC_T_EXCL_A			2
#define HG_ENC_T_EXCL_B			3
#define HG_ENC_T_MIG_READ		4
#define HG_ENC_T_MIG_READ_EXCL		5
#define HG_ENC_T_MIG_WRITE		6
#define HG_ENC_NUM_TYPES		7
#define HG_ENC_DEV_PFN			10	/* frame of the device-private or -coherent page of VRAM offset 0 */
#define HG_NUM_ENC			11
#define HG_REG_AUDIT_ASID		0x6000
#define HG_AUDIT_ENABLE			0x1
#define HG_AUDIT_LEVELS_SHIFT		4
#define HG_AUDIT_LEVELS_MASK		0x70	/* 4 or 5 */
#define HG_AUDIT_USER_BITS		47

/* -- doorbells: one page a context, write the new PUT index (32 bit) at offset 0 -- */
#define HG_REG_DOORBELL			0x40000
#define HG_DOORBELL_STRIDE		0x1000

/*
 * Page-table entries (all levels, 64 bit).  Level 3 is the root; level 0 holds
 * 4 KiB leaves; an entry of level 1 with HG_PTE_HUGE is a 2 MiB leaf; other
 * entries of levels 1..3 point to the next table (VALID, aperture VRAM or SYS,
 * frame).  A walk reads each entry with one 64-bit atomic load.
 */
#define HG_PTE_VALID			0x1
#define HG_PTE_WRITE			0x2
#define HG_PTE_ATOMIC			0x4
#define HG_PTE_HUGE			0x8
#define HG_PTE_BIG			0x40	/* level 0, with HG_FEATURE_BIG_PAGES: one of 16 aligned entries that are a leaf of 64 KiB */
/* leaf in VRAM, with HG_FEATURE_DATA_CACHE: through the data cache */
#define HG_PTE_CACHED			0x80
#define HG_PTE_APER_MASK		0x30
#define HG_PTE_APER_VRAM		0x00	/* frame is an offset in VRAM */
#define HG_PTE_APER_SYS			0x10	/* frame is a bus address */
#define HG_PTE_APER_PEER		0x20	/* reserved for peers: faults with HG_REASON_APERTURE */
#define HG_PTE_FRAME_MASK		0x000ffffffffff000

/* Fault entry: 8 words of 32 bit */
#define HG_FAULT_ENTRY_SIZE		32
#define HG_FE_ADDR_LO			0	/* page aligned */
#define HG_FE_ADDR_HI			1
#define HG_FE_TIME_LO			2	/* ns */
#define HG_FE_TIME_HI			3
#define HG_FE_ASID			4	/* asid[15:0], context[31:16] */
#define HG_FE_SOURCE			5	/* engine[7:0] (HG_ENGINE_*), sm or copy engine number[15:8], client (warp)[23:16] */
#define HG_FE_INFO			6	/* access[3:0], reason[11:4], level[15:12] where the walk ended */
#define HG_FE_FLAGS			7
#define HG_FE_VALID			0x80000000
#define HG_FE_REPLAYABLE		0x1
/* not replayable; the context waits for HG_CTX_FAULTED */
#define HG_FE_WAITS			0x2

#define HG_ENGINE_SM			0
#define HG_ENGINE_CE			1

#define HG_ACCESS_READ			0	/* also instruction fetch */
#define HG_ACCESS_WRITE			1
#define HG_ACCESS_ATOMIC		2
#define HG_ACCESS_PREFETCH		3	/* nobody waits; may be left alone, never a reason to end a job */

#define HG_REASON_PTE			0	/* leaf or table entry not valid */
#define HG_REASON_WRITE			1	/* write to an entry without WRITE */
#define HG_REASON_ATOMIC		2	/* atomic on an entry without ATOMIC */
#define HG_REASON_RANGE			3	/* address beyond 48 bits: never replayable, ends the job */
#define HG_REASON_ASID			4	/* address space not enabled */
#define HG_REASON_APERTURE		5
#define HG_REASON_POISON		6	/* frame outside VRAM, or bus error on the access or the walk: ends the job */

/*
 * Ring descriptors: 64 bytes, 8 words of 64 bit.  Word 0: opcode[7:0],
 * flags[31:8].  They are copied once, validated, executed in order; the next
 * starts when the one before is done.
 */
#define HG_DESC_SIZE			64
#define HG_OP_NOP			0
/*
 * LAUNCH: w1 entry pc (VA), w2 args (VA; a0 and CSR ARGS of each thread),
 * w3 grid[31:0] blocks, block[63:32] threads, w4 local base (VA), w5 bytes of
 * local memory a hardware thread slot[31:0] and of shared memory a block[63:32]
 * (<= HG_SHARED_MAX), w6 instruction budget a thread (0 = none), w7 report bus
 * address (0 = none).
 * sp = local base + (slot + 1) * bytes, slot = (sm * warps + warp) * 32 + lane.
 */
#define HG_OP_LAUNCH			1
/*
 * COPY: w1 src, w2 dst, w3 bytes, w7 report.  Spaces by flags; with FILL w1 is
 * the 64-bit pattern (repeated; bytes a multiple of 8 and dst 8-aligned).
 * Physical spaces only in a PRIV context.
 */
#define HG_OP_COPY			2
/* COPY_LIST: w1 bus address of the list, w2 entries (1..4096), w7 report.  An entry is 4 words: src, dst, bytes, flags. */
#define HG_OP_COPY_LIST			3
/* FENCE: w1 bus address (8-aligned), w2 value: stores the 64-bit value when all before is done and visible; IRQ by flag. */
#define HG_OP_FENCE			4
/* WAIT: w1 bus address, w2 value: waits until the 64-bit value there is >= w2 (unsigned). */
#define HG_OP_WAIT			5
/*
 * INVALIDATE: w1 HG_INVAL_*[1:0] HG_INVAL_MEMBAR asid[31:16], w2 start, w3 bytes: done when
 * complete.
 */
#define HG_OP_INVALIDATE		6
/*
 * FLUSH, with HG_FEATURE_DATA_CACHE and in a PRIV context: w1 offset in VRAM, w2 bytes: what
 * the data cache has of these pages and VRAM has not is written there, and pages that no
 * translation of a micro-TLB leads to are forgotten.
 */
#define HG_OP_FLUSH			7

#define HG_SPACE_VIRT			0
#define HG_SPACE_VRAM			1
#define HG_SPACE_SYS			2
#define HG_COPY_SRC_SHIFT		8
#define HG_COPY_DST_SHIFT		10
#define HG_COPY_FILL			0x1000
#define HG_FENCE_IRQ			0x100
/* with HG_FEATURE_DATA_CACHE: without it, posted writes of before may become visible later */
#define HG_FENCE_MEMBAR			0x200
#define HG_COPY_LIST_MAX		4096
#define HG_COPY_MAX_BYTES		0x40000000

/* Report: 64 bytes, written before the job counts as done. */
#define HG_REPORT_SIZE			64
#define HG_RPT_STATUS			0	/* u32 HG_ERR_* */
#define HG_RPT_REASON			4	/* u32 HG_REASON_* if STATUS is HG_ERR_FAULT */
#define HG_RPT_ADDR			8	/* u64 faulting VA or bad value */
#define HG_RPT_PC			16	/* u64; of a fetch that fails after a JALR: the JALR's */
#define HG_RPT_BLOCK			24	/* u32 */
#define HG_RPT_THREAD			28	/* u32 in block */
#define HG_RPT_INSTRS			32	/* u64 lane instructions of the launch */
#define HG_RPT_TIME			40	/* u64 ns from start to end */
#define HG_RPT_DONE			48	/* u64 HG_RPT_DONE_MAGIC, written last */
#define HG_RPT_DONE_MAGIC		0x656e6f64

/* Error codes of jobs and contexts */
#define HG_ERR_NONE			0
#define HG_ERR_FAULT			1	/* access fault, cancelled or not replayable */
#define HG_ERR_ILLEGAL			2	/* illegal instruction; ADDR is the instruction word */
#define HG_ERR_MISALIGNED		3	/* jump, AMO or LR/SC */
#define HG_ERR_BREAK			4	/* ebreak */
#define HG_ERR_BUDGET			5	/* instruction budget used up */
#define HG_ERR_DESC			6	/* bad descriptor: the context halts */
#define HG_ERR_BUS			7	/* bus error reading ring, list or writing fence/report: the context halts */
#define HG_ERR_ABORTED			8	/* context disabled or device reset */
#define HG_ERR_BARRIER			9	/* barrier that can never complete */

/*
 * SIMT: each lane is an RV64IMAFD hart (plus Zicsr and Zifencei).  A thread
 * starts with a0 = args, sp as above, pc = entry, other registers (fcsr too) 0.
 */
#define HG_CSR_FFLAGS			0x001	/* these three can be written, no others */
#define HG_CSR_FRM			0x002
#define HG_CSR_FCSR			0x003
#define HG_CSR_CYCLE			0xc00
#define HG_CSR_TIME			0xc01
#define HG_CSR_INSTRET			0xc02
#define HG_CSR_TID			0xcc0	/* thread in block */
#define HG_CSR_BID			0xcc1	/* block in grid */
#define HG_CSR_NTID			0xcc2	/* threads a block */
#define HG_CSR_NBID			0xcc3	/* blocks in the grid */
#define HG_CSR_LANE			0xcc4
#define HG_CSR_WARP			0xcc5
#define HG_CSR_SM			0xcc6
#define HG_CSR_ARGS			0xcc7
#define HG_CSR_SHARED			0xcc8	/* bytes of the block's shared memory, at HG_SHARED_BASE */
/* custom-0 (opcode 0x0b), all other fields 0: */
#define HG_INSN_EXIT			0x0000000b	/* thread ends (so does ecall) */
#define HG_INSN_BARRIER			0x0000100b	/* funct3 1: block barrier */
#define HG_INSN_WARP_SYNC		0x0200100b	/* funct7 1: waits for all live lanes of the warp */
/*
 * R-type, among the lanes that execute it together.  SHUFFLE: rd = rs1 of
 * another lane, or of itself if that one does not take part or does not exist.
 * VOTE: rd from the lanes whose rs1 is not 0.
 */
#define HG_INSN_SHUFFLE			0x0000200b	/* funct3 2, funct7: */
#define HG_SHUFFLE_IDX			0	/* lane rs2 modulo 32 */
#define HG_SHUFFLE_UP			1	/* own - rs2 */
#define HG_SHUFFLE_DOWN			2	/* own + rs2 */
#define HG_SHUFFLE_XOR			3	/* own ^ rs2 */
#define HG_INSN_VOTE			0x0000300b	/* funct3 3, rs2 0, funct7: */
#define HG_VOTE_BALLOT			0	/* mask of them */
#define HG_VOTE_ANY			1
#define HG_VOTE_ALL			2

/* Shared memory of a block: these addresses mean each block's own, zero at its start. */
#define HG_SHARED_BASE			0x0001000000000000
#define HG_SHARED_MAX			65536	/* a block, and all blocks of a context on one SM */

#endif /* HMM_GPU_HW_H */
