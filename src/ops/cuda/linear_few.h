// SPDX-License-Identifier: Apache-2.0
// What the host part of the linear layers hands to the kernels of linear_few.cuh: jobs for the same
// few rows, whatever forms their weights have, as one launch. Internal to this folder.
#ifndef COPPICE_OPS_CUDA_LINEAR_FEW_H
#define COPPICE_OPS_CUDA_LINEAR_FEW_H

#include "ops/cuda/gpu_map.h"
#include "ops/cuda/linear_launch.h"

// FEW_SLOTS: stages of a warp's ring of weights; more would only stand in front of the rows in the
// queue.
enum {
    FEW_ROWS = 64, // at most
    FEW_K = 256,   // of a stage of rows
    FEW_SLOTS = 2,
    FEW_PANEL = 64, // values of k that lie together in shared memory
};

// Warps of a block that multiply, a tile each, for kernels of `rows` rows: as many as find
// registers.
LINEAR_BOTH constexpr int few_warps(int rows) {
    return rows > 48 ? 16 : 20;
}

// Threads of a block: one more warp brings the rows, or of 48 rows a whole warpgroup, which gives
// registers to the others.
LINEAR_BOTH constexpr int few_threads(int rows) {
    return few_warps(rows) * 32 + (rows == 48 ? 128 : 32);
}

// Bytes of shared memory in front of the rings, for kernels of `rows` rows: 2 KB of barriers and
// what copies turn to, and room in which the warps of a pair join their values.
LINEAR_BOTH constexpr int few_front(int rows) {
    return (2048 + few_warps(rows) / 2 * rows * TILE_ROWS * 4 + 1023) / 1024 * 1024;
}

// Values of k of a stage of weights, for kernels of `rows` rows.
LINEAR_BOTH constexpr int few_step(int form, int rows) {
    return form <= WEIGHT_Q6_K || form == WEIGHT_Q4_0    ? FEW_K
           : form == WEIGHT_Q8_0                         ? 128
           : form == WEIGHT_HALF && rows <= FEW_ROWS / 2 ? 128
                                                         : 64;
}

// How a job is cut into units: its parts one after the other, each into groups of tiles, the first
// `larger` of which have one tile more than the others. All is divided here, since a division in
// front of the first copy would be waited for.
struct linear_few_cut {
    int first;                   // of its units among all of the launch
    int groups, each, larger;    // units of a part; tiles of a unit; units with one more
    int begin[LINEAR_PARTS + 1]; // k of the parts; the last is the end
};

struct linear_few {
    struct linear_one job[LINEAR_JOBS];
    struct linear_few_cut cut[LINEAR_JOBS];
    signed char form[LINEAR_JOBS];
    int jobs, units, n;   // n: rows
    const float *unscale; // [n]
    int slot;             // bytes of a stage of weights
    int stages;           // of the ring of rows
    gpu_tile_map rows;    // in tiles of FEW_PANEL values x rows of the kernel
};

typedef void linear_few_fn(const struct linear_few);

// The kernel for up to 8, 16, 24, 32, 48 or 64 rows.
linear_few_fn *linear_few_8(void);
linear_few_fn *linear_few_16(void);
linear_few_fn *linear_few_24(void);
linear_few_fn *linear_few_32(void);
linear_few_fn *linear_few_48(void);
linear_few_fn *linear_few_64(void);

// Whether the jobs of l, `forms` of which have their weights, go through linear_few_start.
bool linear_few_takes(const struct gpu *g, const struct linear_launch *l, const int *forms);

// Queues them; sums that are left to add up wait. Of the scratch memory the first `kept` bytes are
// in use.
void linear_few_start(struct gpu *g, const struct linear_launch *l, const int *forms, size_t kept);

#endif
