/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the bench says to a session: a process of the user's in the guest that
 * owns memory and uses the GPU.  Little endian.  Python (hmmbench.gpu.process)
 * reads the "#define NAME number" lines and mirrors the structs.
 *
 *	request		u32 length of the payload, u32 HS_*, payload
 *	answer		u32 length of what follows, s32 status, payload
 *
 * status: 0, or -errno with a text that says what failed.  What the bench cannot
 * have meant - a bad address, half a request - ends the process with a line on
 * its standard error.
 */
#ifndef HMMBENCH_SESSION_H
#define HMMBENCH_SESSION_H

#include <stdint.h>

#define HS_VERSION		1
#define HS_MAX_ARGS		512	/* bytes of a kernel's arguments */
#define HS_MAX_KERNELS		64
#define HS_MAX_JOBS		256	/* launched and not waited for */
#define HS_STACK_SIZE		0x40000	/* of HS_MEM_STACK, all allocations together */
#define HS_GLOBAL_SIZE		0x40000	/* of HS_MEM_GLOBAL */

#define HS_HELLO		1	/* - -> u32 HS_VERSION, u32 pid */
#define HS_ALLOC		2	/* struct hs_alloc, path for HS_MEM_FILE -> u64 address */
#define HS_FREE			3	/* struct hs_alloc with addr */
#define HS_WRITE		4	/* u64 address, bytes */
#define HS_READ			5	/* u64 address, u64 length -> bytes */
#define HS_LOAD			6	/* ELF file -> u32 number of the kernel file */
#define HS_SYMBOL		7	/* u32 kernel file, name -> u64 address */
#define HS_LAUNCH		8	/* struct hs_launch, name, arguments -> u64 job */
#define HS_COPY			9	/* u64 dst, src, length -> u64 job */
#define HS_FILL			10	/* u64 dst, pattern, length -> u64 job */
#define HS_WAIT			11	/* u64 job -> struct hs_result, function 0, file 0, report 0 (strings) */
#define HS_MIGRATE		12	/* struct hs_migrate -> u64 moved, u64 failed (pages) */
#define HS_QUERY		13	/* u64 address, u64 pages -> u32 HMM_GPU_Q_* a page */
#define HS_POLICY		14	/* u32 HMM_GPU_POLICY_* */
#define HS_CALL			15	/* u32 length of the name, name, arguments -> s64 what the function returned */
#define HS_PRINTED		16	/* - -> text of hmm_printf() since the last time */

/* Where memory comes from */
#define HS_MEM_MALLOC		0
#define HS_MEM_ANON		1	/* private anonymous mapping */
#define HS_MEM_SHARED		2	/* shared anonymous mapping */
#define HS_MEM_FILE		3	/* shared mapping of the file `path`, made or made longer */
#define HS_MEM_STACK		4	/* of the main thread; not freed */
#define HS_MEM_GLOBAL		5	/* .bss; not freed */
#define HS_MEM_DEVICE		6	/* hmmgpu_malloc(); READ and WRITE go by the copy engine */

struct hs_alloc {		/* 24 bytes */
	uint32_t kind;
	uint32_t pad;
	uint64_t size;
	uint64_t addr;
};

struct hs_launch {		/* 40 bytes */
	uint32_t kernel;	/* file */
	uint32_t name_len;
	uint32_t grid, block;
	uint32_t shared_size;
	uint32_t local_size;	/* 0: the library's default */
	uint64_t budget;	/* 0: none */
	uint64_t pad;
};

struct hs_migrate {		/* 24 bytes */
	uint64_t addr;		/* any; the pages that hold the bytes */
	uint64_t len;
	uint32_t to_device;
	uint32_t map;		/* also map it on the GPU: prefetch */
};

struct hs_result {		/* 48 bytes */
	int32_t error;
	uint32_t line;		/* in file; 0: not known */
	uint32_t block, thread;
	uint64_t addr, pc;
	uint64_t instrs;
	uint64_t printed;	/* bytes that HS_PRINTED has */
};

#endif
