// SPDX-License-Identifier: GPL-2.0
/* The trace points: what each of them tells stands in hmm_gpu_trace.h. */

#define CREATE_TRACE_POINTS
#include "base/hmm_gpu_trace.h"
