// SPDX-License-Identifier: Apache-2.0
// What the host part of the linear layers hands to the kernels of few rows (kernel.cuh, warp.cuh):
// jobs for the same few rows, whatever forms their weights have, as one launch. Internal to this
// folder.
#ifndef COPPICE_OPS_GPU_LINEAR_FEW_FEW_H
#define COPPICE_OPS_GPU_LINEAR_FEW_FEW_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/gpu_map.h"

enum {
    FEW_ROWS = 128,   // at most
    LEAST_STAGES = 2, // of the ring of rows
    FEW_PANEL = 64,   // values of k that lie together in shared memory
    FEW_SCALES = 512, // bytes in which a warp shares scales
    FEW_SLOTS = 2     // stages of a warp's ring of weights
};

// Warps of a block that multiply, a tile each, for kernels of `rows` rows: as many as find
// registers.
LINEAR_BOTH constexpr int few_warps(int rows) {
    return rows > 64 ? 16 : 20;
}

// Threads of a block: of 16 and 24 rows one more warp brings the rows, which leaves 80 registers to
// each; of more, where registers are dear, the last one, which is the first to have no tile.
LINEAR_BOTH constexpr int few_threads(int rows) {
    return few_warps(rows) * 32 + (rows > 8 && rows <= 24 ? 32 : 0);
}
LINEAR_BOTH constexpr int few_bringer(int rows) {
    return few_threads(rows) - 32;
}

// Threads for which a kernel's registers are bounded. Of 8 rows more than there are, so that a
// small kernel's block finds registers next to this one's and waits there for its end: each of a
// multiprocessor's four parts has 16,384, of which five warps here take 12,800.
LINEAR_BOTH constexpr int few_bounds(int rows) {
    return rows == 8 ? 768 : few_threads(rows);
}

// Rows whose values the warps of a pair join at a time: of more the room would cost stages of rows.
LINEAR_BOTH constexpr int few_joined(int rows) {
    return rows > 48 ? 16 : rows;
}

// In front of the rings, for kernels of `rows` rows: 2 KB of barriers and what copies turn to, room
// in which the warps of a pair join their values, scales of the warps. Where those begin, in bytes,
// and where all that ends.
LINEAR_BOTH constexpr int few_scales(int rows) {
    return 2048 + few_warps(rows) / 2 * few_joined(rows) * TILE_ROWS * 4;
}
LINEAR_BOTH constexpr int few_front(int rows) {
    return (few_scales(rows) + few_warps(rows) * FEW_SCALES + 1023) / 1024 * 1024;
}

// Values of k of a stage of rows, for kernels of `rows` rows, more than 8. (With 24 rows a warp's
// place in the ring of rows is in local memory, so it is read half as often.)
LINEAR_BOTH constexpr int few_k(int rows) {
    return rows == 24 ? 512 : rows <= 64 ? 256 : 128;
}

// Bytes from one row to the next where `span` values of each are kept for the kernel of 8 rows: two
// rows have different banks.
LINEAR_BOTH constexpr int few_pitch(int span) {
    return span * 2 + 64;
}

// Values of k of a stage of weights, for kernels of `rows` rows.
LINEAR_BOTH constexpr int few_step(int form, int rows) {
    return weight_of_fours(form)               ? 256
           : form == WEIGHT_Q8_0               ? 128
           : form == WEIGHT_HALF && rows <= 32 ? 128
                                               : 64;
}

// Kernels of 16 to 32 rows by the matrix instruction of a warp (warp.cuh): warps that
// multiply, at most, to which one comes that brings the rows; tiles of a block, at most; values of
// k of a stage of rows. 16 warps find 128 registers each, one more finds 96.
enum {
    FEW_WARP_WARPS = 14,
    FEW_WARP_TILES = 24,
    FEW_WARP_THREADS = (FEW_WARP_WARPS + 1) * 32,
    FEW_WARP_K = 256,
    // Bytes: in front of the rings; of 8 rows by 32 values of k, which a warp loads at once; of a
    // warp, in which it shares scales of two tiles or, where it has one of a pair, hands half of
    // its rows to the other's warp.
    FEW_WARP_FRONT = 2048,
    FEW_WARP_PIECE = 512,
    FEW_WARP_AREA = 2 * FEW_SCALES,
};

LINEAR_BOTH constexpr int few_warp_stage(int rows) {
    return rows * FEW_WARP_K * 2;
}

// How a job is cut into units: its parts one after the other, each into groups of tiles, the first
// `larger` of which have one tile more than the others. All is divided here, since a division in
// front of the first copy would be waited for.
struct linear_few_cut {
    int first;                   // of its units among all of the launch
    int groups, each, larger;    // units of a part; tiles of a unit; units with one more
    unsigned inverse;            // 2^32 / groups, rounded up, if there are several
    int bytes;                   // of a stage of weights
    int begin[LINEAR_PARTS + 1]; // k of the parts; the last is the end
    // Of the parts: bytes of a tile in front of one, stages of it, bytes of its last stage.
    int from[LINEAR_PARTS], stages[LINEAR_PARTS], last[LINEAR_PARTS];
};

struct linear_few {
    struct linear_one job[LINEAR_JOBS];
    struct linear_few_cut cut[LINEAR_JOBS];
    signed char form[LINEAR_JOBS];
    int jobs, units, n;   // n: rows
    const float *unscale; // [n]
    int row_bytes, slot;  // bytes of what is kept of the rows, of a stage of weights
    int ahead;            // stages of weights that are copied before the rows
    int stages;           // of kernels of more than 8 rows: of the ring of rows
    int twice;            // of warp.cuh: warps that have two tiles
    // Where a warpgroup multiplies: how rows come, a stage at a time, panel by panel.
    gpu_tile_map rows;
    // Elsewhere: where they are.
    const __half *x; // [n][stride]
    int64_t stride;
    // Of 8 rows: values of k that are kept at a time, rows (n or the next power of two).
    int span, columns;
    // If wide: x and unscale are made of f32 rows first, wide_k values each, whose peaks are there.
    // Of a pair without parts peaks are raised (act.cuh), if there is room for them.
    const float *wide; // [n][stride]
    int wide_k;
    unsigned long long *peaks;
    uint32_t epoch;
    int slots;  // of 8 rows: stages of a warp's ring of weights, FEW_SLOTS or
    bool whole; // all that it has, which are copied before the rows
};

typedef void linear_few_fn(const struct linear_few);

// The kernels by numbers of rows, one a file (kernel.cu.in): of kernel.cuh, and of warp.cuh by the
// matrix instruction of a warp.
#define FEW_KERNELS(X)      X(8) X(16) X(24) X(32) X(48) X(64) X(96) X(128)
#define FEW_WARP_KERNELS(X) X(16) X(24) X(32)
#define X(rows)             linear_few_fn *linear_few_##rows(void);
FEW_KERNELS(X)
#undef X
#define X(rows) linear_few_fn *linear_few_warp_##rows(void);
FEW_WARP_KERNELS(X)
#undef X

// Whether a block can hold the jobs of l, `forms` of which have their weights; l->n is at most
// FEW_ROWS.
bool linear_few_fits(const struct gpu *g, const struct linear_launch *l, const int *forms);

// Queues them; sums that are left to add up wait. Of the scratch memory the first `kept` bytes are
// in use.
void linear_few_start(struct gpu *g, const struct linear_launch *l, const int *forms, size_t kept);

#endif
