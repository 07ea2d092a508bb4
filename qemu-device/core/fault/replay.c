/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replays: every stalled access is sent again, and what software is told of it.
 */
#include "device.h"
#include "fault/replay.h"
#include "base/kick.h"
#include "base/lock.h"
#include "base/time.h"
#include "base/trace.h"
#include "fault/fault.h"
#include "timer/timer.h"

static void replay_update(HgDev *d)
{
    bool any = false;

    while (d->nrq && !d->rq[0].waiting &&
           (d->rq[0].type == HG_REPLAY_START || d->rq[0].owed == 0)) {
        d->replay_done = d->rq[0].seq;
        d->nrq--;
        memmove(&d->rq[0], &d->rq[1], d->nrq * sizeof(d->rq[0]));
        any = true;
    }
    if (any) {
        hg_trace(d, HG_EV_REPLAY, 0, d->replay_done, 0, 0);
    }
}

/* An access that a replay sent again was translated, faulted again, or went away. */
void hg_replay_answer(HgDev *d, uint64_t *owed)
{
    if (!*owed) {
        return;
    }
    for (unsigned i = 0; i < d->nrq; i++) {
        if (d->rq[i].key == *owed) {
            if (d->rq[i].owed) {
                d->rq[i].owed--;
            }
            break;
        }
    }
    *owed = 0;
    replay_update(d);
}

void hg_replay_perform(HgDev *d, uint64_t key)
{
    HgReplay *q = NULL;

    hg_timers_drop_all(d, HG_T_REPEAT);
    hg_fault_drop_hints(d);
    for (unsigned i = 0; i < d->nrq; i++) {
        if (d->rq[i].key == key) {
            q = &d->rq[i];
        }
    }
    for (unsigned i = 0; i < HG_NUM_CTXS; i++) {
        HgCtx *c = &d->ctx[i];
        if (c->rs == HG_RS_LAUNCH && c->sm) {
            for (unsigned s = 0; s < d->nsm; s++) {
                HgCtxSm *cs = &c->sm[s];
                hg_visit(d, d->cfg.warps, 0);
                for (unsigned k = 0; k < d->cfg.warps; k++) {
                    HgWarp *w = &cs->warps[k];
                    if (w->state != HG_W_STALL) {
                        continue;
                    }
                    hg_pend_drop(&d->eng[s], w->fault, w->nfault);
                    w->nfault = 0;
                    w->replay = w->stall_mask;
                    w->stall_mask = 0;
                    if (q && q->type == HG_REPLAY_START_ACK_ALL) {
                        w->owed = key;
                        q->owed++;
                    }
                    w->state = HG_W_ACTIVE;
                    d->stalled_warps--;
                    atomic_fetch_or_explicit(&cs->run_mask, 1u << k, memory_order_release);
                }
            }
        } else if (c->rs == HG_RS_COPY && c->copy.state == HG_CP_STALL &&
                   !c->copy.waits) {
            HgCopy *k = &c->copy;
            hg_pend_drop(&d->eng[d->nsm + k->eng], k->fault, k->nfault);
            k->nfault = 0;
            k->replayed = true;
            if (q && q->type == HG_REPLAY_START_ACK_ALL) {
                k->owed = key;
                q->owed++;
            }
            k->state = HG_CP_RUN;
        }
    }
    if (q) {
        q->waiting = false;
    }
    hg_kick_sms(d);
    hg_kick_ces(d);
    replay_update(d);
}

uint64_t hg_replay(HgDev *d, unsigned type)
{
    uint64_t seq = ++d->replay_seq, key = seq, arg = 0, now = hg_now(d);
    HgInjAct act;
    HgReplay *q;

    d->cnt[HG_CNT_REPLAYS]++;
    hg_trace(d, HG_EV_REPLAY, type, seq, 0, 0);
    if (d->nrq == HG_REPLAY_QUEUE) {
        /* later ones answer together with the last in the queue */
        q = &d->rq[d->nrq - 1];
        q->seq = seq;
        q->type = type > q->type ? type : q->type;
        key = q->key;
    } else {
        q = &d->rq[d->nrq++];
        *q = (HgReplay) { .key = key, .seq = seq, .type = type };
    }
    act = hg_injected(d, HG_INJ_REPLAY, type, &arg);
    if (act == HG_ACT_LOST) {
        replay_update(d);       /* acknowledged, never performed */
        return seq;
    }
    if (act == HG_ACT_DELAY &&
        hg_timer_add(d, hg_later(now, arg), HG_T_REPLAY, 0, key, 0)) {
        q->waiting = true;
        return seq;
    }
    if (!q->waiting) {
        hg_replay_perform(d, key);
    }
    return seq;
}
