/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu core: what watches the GPU and makes it misbehave.  For the host, beside
 * hmm_gpu_core.h, whose rules hold here as well.
 */
#ifndef HMM_GPU_OBSERVE_H
#define HMM_GPU_OBSERVE_H

#include "hmm_gpu_core.h"

/*
 * Checks, audit and injection for a device just made: before hg_start() and hg_load().
 * False: no memory.  All below needs it.  The registers of checks and audit
 * are there from now on.
 */
bool hg_observe(HgDev *d);

/*
 * Injection: replace the rule list.  One rule a line or ';':
 *   EVENT [nth=N | prob=P | match=HEX[/MASK]] [count=N] ACTION[=ARG]
 * docs/device.md has events and actions.  "" removes all.  -1 and a message
 * for a bad rule (the old list stays).  hg_inject_get: the current text with
 * hits, for the host to show.
 */
int hg_inject(HgDev *d, const char *rules, char *err, size_t errlen);
size_t hg_inject_get(HgDev *d, char *buf, size_t len);

/*
 * Checks of what software does with the device.  Each has a stable name.  What
 * they find goes into one ring (the last HG_VIOLATIONS stay) with the counter
 * HG_CNT_VIOLATIONS and HG_EV_VIOLATION.  A new check: a value here, its name
 * in violation.c, and hg_report() from any thread that does not hold report.lock.
 */
typedef enum {
    HG_CHECK_NONE,
    /* mirror: the GPU maps a system page, the CPU's entry ... */
    HG_CHECK_SYS_UNMAPPED,      /* is empty */
    HG_CHECK_SYS_FRAME,         /* has another page */
    HG_CHECK_SYS_READONLY,      /* forbids writing, the GPU's permits it */
    HG_CHECK_SYS_PROTNONE,      /* forbids everything */
    HG_CHECK_SYS_IN_VRAM,       /* is device-private */
    HG_CHECK_SYS_MIGRATING,
    HG_CHECK_SYS_SWAPPED,       /* is something else that is not present */
    HG_CHECK_SYS_NOWHERE,       /* is whatever it is: the GPU's bus address leads nowhere */
    /* mirror: the GPU maps a VRAM page, the CPU's entry ... */
    HG_CHECK_VRAM_UNMAPPED,
    HG_CHECK_VRAM_IN_SYS,
    HG_CHECK_VRAM_PAGE,         /* is device-private of another page */
    HG_CHECK_VRAM_READONLY,
    HG_CHECK_VRAM_MIGRATING,    /* says that this page is on its way out */
    HG_CHECK_VRAM_SWAPPED,
    /* full audit: device-private entries of the CPU */
    HG_CHECK_VRAM_RANGE,        /* names no page of VRAM */
    HG_CHECK_VRAM_OWNERS,       /* a page twice in one address space */
    /* protocol: what no correct driver does, whatever the timing (check.c, docs/checks.md) */
    HG_CHECK_PROTOCOL,
    HG_CHECK_FENCE_BACKWARDS = HG_CHECK_PROTOCOL, HG_CHECK_DOORBELL_OVERRUN,
    HG_CHECK_FAULT_GET_RANGE, HG_CHECK_FAULT_UNREADY, HG_CHECK_FAULT_VALID_KEPT,
    HG_CHECK_COPY_SOURCE_WRITTEN, HG_CHECK_COPY_TARGET_USED, HG_CHECK_COPY_OVERLAP,
    HG_CHECK_VRAM_FREE_USED, HG_CHECK_ASID_REUSE, HG_CHECK_REPLAY_STALE,
    HG_CHECK_DMA_REFUSED, HG_CHECK_TABLE_FREED_USED,
    HG_CHECK_COUNT
} HgCheck;

#define HG_VIOLATIONS 64

typedef struct HgViolation {
    uint64_t seq;               /* 1, 2, ...; given by hg_report() */
    uint64_t time;              /* virtual nanoseconds; given by hg_report() */
    uint64_t va, gpu_pte, cpu_entry, pc;
    uint64_t a, b;              /* protocol checks: as docs/checks.md says; va is their address */
    uint64_t fill_time;         /* of the engine's micro-TLB entry; 0: not known */
    uint64_t inval_seq, inval_time; /* last invalidation that covers va; 0: not known */
    uint32_t check;             /* HgCheck */
    uint16_t asid;
    uint8_t cpu_level, engine, unit, warp, access;
    bool at_rest;               /* found by the full audit, not at an access */
} HgViolation;

void hg_report(HgDev *d, HgViolation *v);
/*
 * A check came to its bound and did not look at all there was: that it found nothing
 * says nothing.  Any thread that does not hold report.lock.
 */
void hg_unlooked(HgDev *d, HgCheck check);
const char *hg_check_name(unsigned check);
uint64_t hg_violations(HgDev *d);
uint64_t hg_check_count(HgDev *d, unsigned check);  /* of one check */
void hg_violations_clear(HgDev *d);
/* JSON text, zero-terminated if it fits; the length it needs without the zero. */
size_t hg_violations_json(HgDev *d, char *buf, size_t len);

/*
 * "off", "fill", "sampled" (one access of HG_AUDIT_EVERY), "sampled=N", "access";
 * -1: none of these
 */
enum { HG_AUDIT_OFF, HG_AUDIT_FILL, HG_AUDIT_SAMPLED, HG_AUDIT_ACCESS };
#define HG_AUDIT_EVERY 16
int hg_audit_set(HgDev *d, const char *mode);
const char *hg_audit_name(unsigned mode);
unsigned hg_audit_mode(HgDev *d);
/*
 * Deterministic mode: an engine waits for an empty entry of the CPU.  A host that
 * holds up CPUs lets all of them run while this is so.
 */
bool hg_audit_waits(HgDev *d);
/*
 * Every valid GPU entry of every enabled address space against the CPU's
 * table, and every device-private entry of the CPU against VRAM.  Only when
 * their processes are at rest.  How many entries were compared.
 */
uint64_t hg_audit_full(HgDev *d);

#endif /* HMM_GPU_OBSERVE_H */
