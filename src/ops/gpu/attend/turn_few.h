// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope_store of few rows (turn_few.cu).
#ifndef COPPICE_OPS_GPU_ATTEND_TURN_FEW_H
#define COPPICE_OPS_GPU_ATTEND_TURN_FEW_H

#include "ops/args/args.h"
#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// The arrays of a call on the device.
struct turn_tables {
    const int64_t *pos;          // [n]
    const struct kv_slot *store; // [n]
    const double *freq;          // [rope.dims / 2] radians a position
};

// Queues the call where there is a kernel of its form for n rows; false: nothing is queued. Sums
// that the projections of just these rows have left are added up on the way.
bool turn_few(struct gpu *g, const struct qk_args *a, const struct turn_tables *t, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
