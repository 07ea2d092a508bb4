/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: the core's trace callback as QEMU trace events and guest-error log.
 *
 * In an exact machine the events can be kept as well, with the virtual time, which
 * changes nothing in it; and it can be told to stand where a check finds something.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/log.h"
#include "qemu/timer.h"
#include "hw/core/cpu.h"
#include "system/cpus.h"
#include "hmm-gpu.h"
#include "trace.h"

/* Events that are kept at most: 9 MiB */
#define HMM_GPU_KEPT 200000

void hmm_gpu_keep_events(HmmGpuState *s)
{
    if (!s->kept) {
        s->kept = g_array_new(false, false, sizeof(HmmGpuKept));
    }
    g_array_set_size(s->kept, 0);
}

bool hmm_gpu_write_events(HmmGpuState *s, const char *path, Error **errp)
{
    g_autoptr(GError) error = NULL;

    if (!s->kept) {
        error_setg(errp, "no events were kept");
        return false;
    }
    if (!g_file_set_contents(path, s->kept->data, s->kept->len * sizeof(HmmGpuKept),
                             &error)) {
        error_setg(errp, "%s", error->message);
        return false;
    }
    return true;
}

static void hmm_gpu_keep(HmmGpuState *s, HgTraceEvent ev, uint64_t a, uint64_t b,
                         uint64_t c, uint64_t d)
{
    HmmGpuKept e = {
        .ns = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL), .arg = { a, b, c, d },
        .what = ev,
    };

    if (s->kept && ev != HG_EV_MMIO_READ && ev != HG_EV_MMIO_WRITE &&
        s->kept->len < HMM_GPU_KEPT) {
        g_array_append_val(s->kept, e);
    }
    /* Who looks at everything while the machine stands finds it standing. */
    if (s->stand_at_violation && ev == HG_EV_VIOLATION && qemu_in_vcpu_thread()) {
        hmm_exact_stand(0);
    }
}

void hmm_gpu_trace(void *host, HgTraceEvent ev, uint64_t a, uint64_t b,
                   uint64_t c, uint64_t d)
{
    if (hmm_exact_on()) {
        hmm_gpu_keep(host, ev, a, b, c, d);
    }
    switch (ev) {
    case HG_EV_MMIO_READ:
        trace_hmm_gpu_mmio_read(a, b);
        break;
    case HG_EV_MMIO_WRITE:
        trace_hmm_gpu_mmio_write(a, b);
        break;
    case HG_EV_FAULT:
        trace_hmm_gpu_fault(a >> 32, a, b, c);
        break;
    case HG_EV_FAULT_DROPPED:
        trace_hmm_gpu_fault_dropped(a >> 32, a, b, c);
        break;
    case HG_EV_REPLAY:
        trace_hmm_gpu_replay(a, b);
        break;
    case HG_EV_CANCEL:
        trace_hmm_gpu_cancel(a >> 32, a, b, c);
        break;
    case HG_EV_INVAL_START:
        trace_hmm_gpu_inval_start(a >> 32, a, b, c, d);
        break;
    case HG_EV_INVAL_DONE:
        trace_hmm_gpu_inval_done(a);
        break;
    case HG_EV_LAUNCH:
        trace_hmm_gpu_launch(a, b, c, d);
        break;
    case HG_EV_LAUNCH_DONE:
        trace_hmm_gpu_launch_done(a, b, c);
        break;
    case HG_EV_COPY:
        trace_hmm_gpu_copy(a, b, c, d);
        break;
    case HG_EV_COPY_DONE:
        trace_hmm_gpu_copy_done(a, b);
        break;
    case HG_EV_FENCE:
        trace_hmm_gpu_fence(a, b, c);
        break;
    case HG_EV_PREEMPT:
        trace_hmm_gpu_preempt(a, b);
        break;
    case HG_EV_TLB_FILL:
        trace_hmm_gpu_tlb_fill(a >> 32, a, b, c);
        break;
    case HG_EV_GUEST_ERROR:
        trace_hmm_gpu_guest_error(a, b, c);
        qemu_log_mask(LOG_GUEST_ERROR,
                      "hmm-gpu: guest error %" PRIu64 " at 0x%" PRIx64
                      ", value 0x%" PRIx64 "\n", a, b, c);
        break;
    case HG_EV_IRQ:
        trace_hmm_gpu_irq(a);
        break;
    case HG_EV_INJECT:
        trace_hmm_gpu_inject(a, b);
        break;
    case HG_EV_RESET:
        trace_hmm_gpu_core_reset();
        break;
    case HG_EV_VIOLATION:
        trace_hmm_gpu_violation(hg_check_name((uint32_t)a), a >> 32, b, c, d);
        break;
    case HG_EV_COUNT:
        g_assert_not_reached();
    }
}
