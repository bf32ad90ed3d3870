// SPDX-License-Identifier: Apache-2.0
// What the host part of the linear layers hands to the kernels of linear_mixed.cuh: jobs whose
// weights have several forms, as one launch. Internal to this folder.
#ifndef COPPICE_OPS_CUDA_LINEAR_MIXED_H
#define COPPICE_OPS_CUDA_LINEAR_MIXED_H

#include "ops/cuda/linear_launch.h"

enum {
    MIXED_ROWS = 32, // at most
    MIXED_WARPS = 20,
    MIXED_THREADS = MIXED_WARPS * 32 + 64,
    MIXED_K = 256, // of a stage of activations
};

// Values of k of a stage of weights: as many as find room where the other forms' do.
LINEAR_BOTH constexpr int mixed_step(int form) {
    return form == WEIGHT_Q8_0 ? MIXED_K / 2 : MIXED_K;
}

struct linear_mixed {
    struct linear_one job[LINEAR_JOBS];
    signed char form[LINEAR_JOBS];
    int jobs, units, tiles; // tiles of a unit
    int n;                  // rows
    const __half *x;        // [n][stride]
    int64_t stride;
    const float *unscale; // [n]
    int slots, slot;      // of a warp's ring of weights, bytes of one
    int stages;           // of the ring of rows
};

typedef void linear_mixed_fn(const struct linear_mixed);

// The kernel for up to 8, 16, 24 or 32 rows.
linear_mixed_fn *linear_mixed_8(void);
linear_mixed_fn *linear_mixed_16(void);
linear_mixed_fn *linear_mixed_24(void);
linear_mixed_fn *linear_mixed_32(void);

// Whether linear_mixed_start takes these jobs: several forms, few rows, a device that can.
bool linear_mixed_takes(const struct gpu *g, const struct linear_job *jobs, int n_jobs, int64_t n);

// Queues them. `jobs`: at most LINEAR_JOBS.
void linear_mixed_start(struct gpu *g, const struct linear_job *jobs, int n_jobs,
                        const struct act *in, int64_t n);

#endif
