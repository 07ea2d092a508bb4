/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests/core/test_vec.py: F and D instructions of whole warps, in vectors
 * (vec.h) and lane by lane (fp.c), compared bit by bit.
 */
#include <stdlib.h>

#include "device.h"
#include "access/decode.h"
#include "simt/rvf.h"
#include "simt/vec.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/*
 * `raw` with f1, f2, f3 = a, b, c of 32 lanes, n times, mask[] says which lanes
 * take part.  The first lane of all with another f4 or fcsr, in the state that
 * `vec` leaves; -1: none; -2: no such vec here.  *fast counts lanes that were done in
 * vectors.  mxcsr: what the host's thread has meanwhile; 0: leave it.
 */
int64_t th_vec_fp(HgDev *d, const char *vec, uint32_t raw, uint64_t n, const uint64_t *a,
                  const uint64_t *b, const uint64_t *c, const uint8_t *fcsr, const uint32_t *mask,
                  uint32_t mxcsr, uint64_t *fast)
{
    HgWarp *w = aligned_alloc(_Alignof(HgWarp), 2 * sizeof(HgWarp));
    HgEngine *e = &d->eng[0];
    int64_t found = -1;
    HgInsn in;
#if defined(__x86_64__)
    unsigned saved = _mm_getcsr();
#endif

    if (!w || hg_vec_set(d, vec)) {
        free(w);
        return -2;
    }
    const HgVec *table = d->vec;
    hg_rv_decode(&in, raw);
    memset(w, 0, 2 * sizeof(HgWarp));
    *fast = 0;
    for (uint64_t i = 0; i < n && found < 0; i++) {
        int bad[2];
        for (unsigned k = 0; k < 2; k++) {
            memcpy(w[k].f[1], a + i * HG_LANES, sizeof(w->f[1]));
            memcpy(w[k].f[2], b + i * HG_LANES, sizeof(w->f[2]));
            memcpy(w[k].f[3], c + i * HG_LANES, sizeof(w->f[3]));
            memcpy(w[k].fcsr, fcsr + i * HG_LANES, sizeof(w->fcsr));
            for (unsigned l = 0; l < HG_LANES; l++) {
                w[k].f[4][l] = 0x123456789abcdef0 + l;
            }
        }
#if defined(__x86_64__)
        if (mxcsr) {
            _mm_setcsr(mxcsr);
        }
#endif
        d->vec = table;
        e->fp_ok = hg_vec_fp_ok();
        if (table && table->fp[0][0] && e->fp_ok && in.imm < HG_VEC_FP) {
            HgWarp *t = &w[1];      /* a copy, only to count */
            unsigned f3 = raw >> 12 & 7;
            if (f3 == 0 || f3 == 7) {
                *fast += __builtin_popcount(table->fp[in.imm][raw >> 25 & 1](
                    t->f[4], t->f[1], t->f[2], t->f[3], mask[i], t->fcsr, f3 == 0));
                memcpy(t->f[4], w[0].f[4], sizeof(t->f[4]));
                memcpy(t->fcsr, w[0].fcsr, sizeof(t->fcsr));
            }
        }
        bad[0] = hg_rvf_run(e, &w[0], &in, mask[i]);
#if defined(__x86_64__)
        _mm_setcsr(saved);
#endif
        d->vec = NULL;
        bad[1] = hg_rvf_run(e, &w[1], &in, mask[i]);
        for (unsigned l = 0; l < HG_LANES && found < 0; l++) {
            /* an instruction that ends the launch leaves no state that anybody sees */
            if (bad[0] != bad[1] || (bad[0] < 0 && (w[0].f[4][l] != w[1].f[4][l] ||
                                                    w[0].fcsr[l] != w[1].fcsr[l]))) {
                found = (int64_t)(i * HG_LANES + l);
            }
        }
    }
    d->vec = table;
    free(w);
    return found;
}
