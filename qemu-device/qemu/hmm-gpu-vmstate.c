/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hmm-gpu: migration and snapshots.
 *
 * VRAM travels as a RAM block; PCI configuration and MSI-X by their own
 * descriptions; everything else is one byte string made and checked by the
 * core.  A stream is hostile input: the length is bounded before memory is
 * allocated, and what the core refuses fails the load with its message.
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qapi/error.h"
#include "hw/pci/msix.h"
#include "migration/qemu-file-types.h"
#include "migration/register.h"
#include "migration/vmstate.h"
#include "system/runstate.h"
#include "hmm-gpu.h"
#include "trace.h"

static int hmm_gpu_put_core(QEMUFile *f, void *pv, size_t size,
                            const VMStateField *field, JSONWriter *vmdesc)
{
    HmmGpuState *s = container_of(pv, HmmGpuState, gpu);
    g_autofree uint8_t *buf = NULL;
    size_t len;

    s->quiet = true;
    len = hg_save_size(s->gpu);
    buf = g_malloc(len);
    len = hg_save(s->gpu, buf, len);
    s->quiet = false;
    assert(len && len <= hg_save_max(s->gpu));
    trace_hmm_gpu_save(len);
    qemu_put_be32(f, len);
    qemu_put_buffer(f, buf, len);
    return 0;
}

static int hmm_gpu_get_core(QEMUFile *f, void *pv, size_t size,
                            const VMStateField *field)
{
    HmmGpuState *s = container_of(pv, HmmGpuState, gpu);
    uint32_t len = qemu_get_be32(f);
    g_autofree uint8_t *buf = NULL;
    char err[256] = "";
    int ret;

    if (!len || len > hg_save_max(s->gpu)) {
        error_report("hmm-gpu: bad length %u of device state", len);
        return -EINVAL;
    }
    buf = g_try_malloc(len);
    if (!buf) {
        return -ENOMEM;
    }
    if (qemu_get_buffer(f, buf, len) != len) {
        error_report("hmm-gpu: device state is cut short");
        return -EINVAL;
    }
    hmm_gpu_stop(s);            /* at rest already: the machine is stopped */
    ret = hg_load(s->gpu, buf, len, err, sizeof(err));
    trace_hmm_gpu_load(len, ret);
    if (ret) {
        error_report("hmm-gpu: device state refused: %s", err);
        return -EINVAL;
    }
    return 0;
}

static const VMStateInfo hmm_gpu_core_info = {
    .name = "hmm-gpu core",
    .get = hmm_gpu_get_core,
    .put = hmm_gpu_put_core,
};

/* -- a snapshot within an example: when engines step, and interrupts come -- */

static bool hmm_gpu_within(void *opaque)
{
    HmmGpuState *s = opaque;

    return s->cfg.deterministic && hmm_exact_on() && hmm_exact_within();
}

static int hmm_gpu_exact_pre_save(void *opaque)
{
    HmmGpuState *s = opaque;
    HmmExactEvent *step = &s->step_event, *irq = &s->irq_event;

    s->saved.step_ns = step->pending ? step->due : INT64_MAX;
    s->saved.irq_ns = irq->pending ? irq->due : INT64_MAX;
    s->saved.irq_first = step->pending && irq->pending && hmm_exact_before(irq, step);
    return 0;
}

static int hmm_gpu_exact_post_load(void *opaque, int version_id)
{
    HmmGpuState *s = opaque;
    HmmExactEvent *step = &s->step_event, *irq = &s->irq_event;

    if (s->saved.irq_first && s->saved.irq_ns != INT64_MAX) {
        hmm_exact_event_at(irq, s->saved.irq_ns);
    }
    if (s->saved.step_ns != INT64_MAX) {
        hmm_exact_event_at(step, s->saved.step_ns);
    }
    if (!s->saved.irq_first && s->saved.irq_ns != INT64_MAX) {
        hmm_exact_event_at(irq, s->saved.irq_ns);
    }
    s->resumes = true;
    return 0;
}

static const VMStateDescription hmm_gpu_exact_vmstate = {
    .name = TYPE_HMM_GPU "/exact",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = hmm_gpu_within,
    .pre_save = hmm_gpu_exact_pre_save,
    .post_load = hmm_gpu_exact_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_INT64(saved.step_ns, HmmGpuState),
        VMSTATE_INT64(saved.irq_ns, HmmGpuState),
        VMSTATE_BOOL(saved.irq_first, HmmGpuState),
        VMSTATE_END_OF_LIST()
    }
};

static int hmm_gpu_post_load(void *opaque, int version_id)
{
    HmmGpuState *s = opaque;
    uint32_t vectors = MAKE_64BIT_MASK(0, HG_NUM_VECTORS);

    /* The upper ones are in no state of before, which had the same width. */
    if (s->irq_pending & ~(vectors | vectors << HMM_GPU_IRQ_AGAIN)) {
        error_report("hmm-gpu: bad pending vectors 0x%x", s->irq_pending);
        s->irq_pending = 0;
        return -EINVAL;
    }
    if (s->resumes) {
        /* That goes on, too. */
    } else if (s->irq_pending && hmm_exact_on()) {
        hmm_exact_event_at(&s->irq_event, qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL));
    } else if (s->irq_pending) {
        qemu_bh_schedule(s->irq_bh);
    }
    hmm_gpu_update_bus_master(s, true);
    return 0;
}

/*
 * Deterministic mode: a machine that stands has engines in the middle of
 * accesses to memory.  They finish before any of it is saved; the core's own
 * state, which comes last, would be too late.  A machine that runs is stopped
 * for it later.  Within an example they would do something else then than they would
 * have done: there they have to be at rest.
 */
static int hmm_gpu_save_prepare(void *opaque, Error **errp)
{
    HmmGpuState *s = opaque;

    if (hmm_gpu_within(s)) {
        for (unsigned i = 0; i < hg_engines(s->gpu); i++) {
            if (hg_engine_at(s->gpu, i) != HG_AT_REST) {
                error_setg(errp, "hmm-gpu: within an example, and engine %u is in the "
                           "middle of its work: only between its slices what it does "
                           "can be saved", i);
                return -EBUSY;
            }
        }
        return 0;
    }
    if (!runstate_is_running()) {
        hmm_gpu_stop(s);
        if (!hmm_exact_on()) {
            hmm_gpu_irq_flush(s);
        }
    }
    return 0;
}

static const SaveVMHandlers hmm_gpu_save_handlers = {
    .save_prepare = hmm_gpu_save_prepare,   /* nothing of its own in the stream */
};

void hmm_gpu_vmstate_init(HmmGpuState *s)
{
    if (s->cfg.deterministic) {
        register_savevm_live(TYPE_HMM_GPU "/park", VMSTATE_INSTANCE_ID_ANY, 1,
                             &hmm_gpu_save_handlers, s);
    }
}

void hmm_gpu_vmstate_exit(HmmGpuState *s)
{
    if (s->cfg.deterministic) {
        unregister_savevm(NULL, TYPE_HMM_GPU "/park", s);
    }
}

static bool hmm_gpu_has_step_timer(void *opaque, int version_id)
{
    HmmGpuState *s = opaque;

    return s->cfg.deterministic;
}

const VMStateDescription hmm_gpu_vmstate = {
    .name = TYPE_HMM_GPU,
    .version_id = 1,
    .minimum_version_id = 1,
    .post_load = hmm_gpu_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, HmmGpuState),
        VMSTATE_MSIX(parent_obj, HmmGpuState),
        VMSTATE_UINT32(irq_pending, HmmGpuState),
        VMSTATE_TIMER_PTR_TEST(step_timer, HmmGpuState,
                               hmm_gpu_has_step_timer),
        {
            .name = "core",
            .info = &hmm_gpu_core_info,
            .flags = VMS_SINGLE,
            .offset = offsetof(HmmGpuState, gpu),
        },
        VMSTATE_END_OF_LIST()
    },
    .subsections = (const VMStateDescription *const []) {
        &hmm_gpu_exact_vmstate,
        NULL
    }
};
