// SPDX-License-Identifier: Apache-2.0
// The plans of attention calls, kept while a pass lasts: all layers of a group (same rows, views,
// places and shape) use one, which is built and sent once. Host memory is used again from pass to
// pass.
#ifndef COPPICE_OPS_GPU_ATTEND_CACHE_H
#define COPPICE_OPS_GPU_ATTEND_CACHE_H

#include "ops/attend_plan.h"
#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a call is cut up.
struct attend_cut {
    bool whole;
    int64_t step; // rows of a batch
    struct attend_limits limits;
};

// The plans of a call's batches of rows.
struct attend_plans {
    struct attend_plan *plan; // [n]
    int64_t n;
};

// Plans of this very call that are kept from an earlier layer of the pass (r->pass), or NULL.
const struct attend_plans *attend_find(struct gpu *g, const struct attend_args *a,
                                       const struct rows *r);
// Builds them, and keeps them where r->pass allows it; valid until the next call. NULL: no memory.
const struct attend_plans *attend_make(struct gpu *g, const struct attend_args *a,
                                       const struct rows *r, const struct attend_cut *cut);
// The tables of plan i in device memory, sent now unless they are there; NULL after a fault.
const void *attend_tables(struct gpu *g, const struct attend_plans *p, int64_t i);
void attend_forget(struct gpu *g); // frees everything; for the exec's end

#ifdef __cplusplus
}
#endif

#endif
