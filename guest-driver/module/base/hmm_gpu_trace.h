/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM hmm_gpu

#if !defined(HMM_GPU_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define HMM_GPU_TRACE_H

#include <linux/tracepoint.h>

/* One entry of a fault ring, as taken out. */
TRACE_EVENT(hmm_gpu_fault,
	TP_PROTO(u32 asid, u64 addr, u32 access, u32 source, u32 info),
	TP_ARGS(asid, addr, access, source, info),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u32, asid)
		__field(u32, access)
		__field(u32, source)
		__field(u32, info)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->asid = asid;
		__entry->access = access;
		__entry->source = source;
		__entry->info = info;
	),
	TP_printk("asid=%u addr=%#llx access=%u source=%#x info=%#x", __entry->asid,
		  __entry->addr, __entry->access, __entry->source, __entry->info)
);

TRACE_EVENT(hmm_gpu_batch,
	TP_PROTO(u32 faults, u32 pages),
	TP_ARGS(faults, pages),
	TP_STRUCT__entry(
		__field(u32, faults)
		__field(u32, pages)
	),
	TP_fast_assign(
		__entry->faults = faults;
		__entry->pages = pages;
	),
	TP_printk("faults=%u pages=%u", __entry->faults, __entry->pages)
);

TRACE_EVENT(hmm_gpu_cancel,
	TP_PROTO(u32 asid, u64 addr, u32 cmd),
	TP_ARGS(asid, addr, cmd),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u32, asid)
		__field(u32, cmd)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->asid = asid;
		__entry->cmd = cmd;
	),
	TP_printk("asid=%u addr=%#llx cmd=%#x", __entry->asid, __entry->addr, __entry->cmd)
);

TRACE_EVENT(hmm_gpu_map,
	TP_PROTO(u32 asid, u64 addr, u64 pte),
	TP_ARGS(asid, addr, pte),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, pte)
		__field(u32, asid)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->pte = pte;
		__entry->asid = asid;
	),
	TP_printk("asid=%u addr=%#llx pte=%#llx", __entry->asid, __entry->addr, __entry->pte)
);

TRACE_EVENT(hmm_gpu_unmap,
	TP_PROTO(u32 asid, u64 start, u64 last, u64 pages),
	TP_ARGS(asid, start, last, pages),
	TP_STRUCT__entry(
		__field(u64, start)
		__field(u64, last)
		__field(u64, pages)
		__field(u32, asid)
	),
	TP_fast_assign(
		__entry->start = start;
		__entry->last = last;
		__entry->pages = pages;
		__entry->asid = asid;
	),
	TP_printk("asid=%u %#llx..%#llx pages=%llu", __entry->asid, __entry->start,
		  __entry->last, __entry->pages)
);

TRACE_EVENT(hmm_gpu_invalidate,
	TP_PROTO(u32 asid, u64 start, u64 end, u32 event),
	TP_ARGS(asid, start, end, event),
	TP_STRUCT__entry(
		__field(u64, start)
		__field(u64, end)
		__field(u32, asid)
		__field(u32, event)
	),
	TP_fast_assign(
		__entry->start = start;
		__entry->end = end;
		__entry->asid = asid;
		__entry->event = event;
	),
	TP_printk("asid=%u %#llx..%#llx event=%u", __entry->asid, __entry->start,
		  __entry->end, __entry->event)
);

TRACE_EVENT(hmm_gpu_tlb_invalidate,
	TP_PROTO(u32 asid, u64 start, u64 last),
	TP_ARGS(asid, start, last),
	TP_STRUCT__entry(
		__field(u64, start)
		__field(u64, last)
		__field(u32, asid)
	),
	TP_fast_assign(
		__entry->start = start;
		__entry->last = last;
		__entry->asid = asid;
	),
	TP_printk("asid=%u %#llx..%#llx", __entry->asid, __entry->start, __entry->last)
);

DECLARE_EVENT_CLASS(hmm_gpu_migrate,
	TP_PROTO(u32 asid, u64 start, u64 end, u64 moved),
	TP_ARGS(asid, start, end, moved),
	TP_STRUCT__entry(
		__field(u64, start)
		__field(u64, end)
		__field(u64, moved)
		__field(u32, asid)
	),
	TP_fast_assign(
		__entry->start = start;
		__entry->end = end;
		__entry->moved = moved;
		__entry->asid = asid;
	),
	TP_printk("asid=%u %#llx..%#llx moved=%llu", __entry->asid, __entry->start,
		  __entry->end, __entry->moved)
);

DEFINE_EVENT(hmm_gpu_migrate, hmm_gpu_to_device,
	TP_PROTO(u32 asid, u64 start, u64 end, u64 moved),
	TP_ARGS(asid, start, end, moved));

DEFINE_EVENT(hmm_gpu_migrate, hmm_gpu_to_system,
	TP_PROTO(u32 asid, u64 start, u64 end, u64 moved),
	TP_ARGS(asid, start, end, moved));

TRACE_EVENT(hmm_gpu_cpu_fault,
	TP_PROTO(u64 addr, u64 moved, bool done),
	TP_ARGS(addr, moved, done),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, moved)
		__field(bool, done)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->moved = moved;
		__entry->done = done;
	),
	TP_printk("addr=%#llx moved=%llu done=%d", __entry->addr, __entry->moved, __entry->done)
);

TRACE_EVENT(hmm_gpu_evict,
	TP_PROTO(u32 chunk, u64 moved),
	TP_ARGS(chunk, moved),
	TP_STRUCT__entry(
		__field(u64, moved)
		__field(u32, chunk)
	),
	TP_fast_assign(
		__entry->moved = moved;
		__entry->chunk = chunk;
	),
	TP_printk("chunk=%u moved=%llu", __entry->chunk, __entry->moved)
);

TRACE_EVENT(hmm_gpu_job,
	TP_PROTO(u32 ctx, u64 job, u32 op),
	TP_ARGS(ctx, job, op),
	TP_STRUCT__entry(
		__field(u64, job)
		__field(u32, ctx)
		__field(u32, op)
	),
	TP_fast_assign(
		__entry->job = job;
		__entry->ctx = ctx;
		__entry->op = op;
	),
	TP_printk("ctx=%u job=%llu op=%#x", __entry->ctx, __entry->job, __entry->op)
);

TRACE_EVENT(hmm_gpu_job_done,
	TP_PROTO(u32 ctx, u64 job, u32 status, int error),
	TP_ARGS(ctx, job, status, error),
	TP_STRUCT__entry(
		__field(u64, job)
		__field(u32, ctx)
		__field(u32, status)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->job = job;
		__entry->ctx = ctx;
		__entry->status = status;
		__entry->error = error;
	),
	TP_printk("ctx=%u job=%llu status=%u error=%d", __entry->ctx, __entry->job,
		  __entry->status, __entry->error)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH base
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE hmm_gpu_trace
#include <trace/define_trace.h>
