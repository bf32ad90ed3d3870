// SPDX-License-Identifier: Apache-2.0
// What the host part of the linear layers (linear.cu) hands to a kernel, and the table of kernels:
// one a form, tile of rows and way of adding parts.
#ifndef COPPICE_OPS_GPU_LINEAR_LAUNCH_H
#define COPPICE_OPS_GPU_LINEAR_LAUNCH_H

#include "ops/gpu/linear/operands.h"
#include "ops/gpu/runtime/gpu.h"

enum { LINEAR_JOBS = 8, LINEAR_PARTS = 8 };

// One matrix of a launch, or the two of linear_gate_up.
struct linear_one {
    struct matrix_view w[2]; // the second only in a pair
    float *out;              // [n][out_stride]; of a pair silu(first) * second
    int64_t out_stride;
    bool add, pair;
    int parts;
    int64_t first;  // of its units (block of outputs, part) among all of the launch
    float *partial; // of ops/gpu/linear/few/stream.cuh, where there are several parts: as in
                    // linear_left
};

struct linear_launch {
    struct linear_one job[LINEAR_JOBS];
    int jobs;
    int64_t n, row_tiles; // rows, and tiles of rows
    const __half *x;      // [n][stride]
    int64_t stride;
    const float *unscale; // [n]
    float *partial;       // [blocks][threads][sums] where parts meet
    unsigned *ticket;     // [blocks] zeros, and zeros again afterwards
    // Of ops/gpu/linear/few/stream.cuh:
    int units;         // of all jobs
    int slots, stages; // of a warp's ring of weights, of the ring of activations
    int barriers;      // bytes of shared memory in front of the rings
    bool lets;         // the next launch may begin after this one's wait
};

typedef void linear_kernel_fn(const struct linear_launch);

// A kernel of ops/gpu/linear/few/stream.cuh: its blocks have up to `warps` warps and one more.
struct linear_stream_variant {
    linear_kernel_fn *kernel;
    int n_tiles, warps;
    int slot, stage; // bytes
};

struct linear_variant {
    linear_kernel_fn *kernel;
    int shared;  // bytes of dynamic shared memory
    int n_tiles; // of 8 rows
    int threads;
};

// The kernel of a form for tiles of 8 n_tiles rows, for many rows and for whatever no kernel of few
// rows takes. loop: the one that takes all parts in one block; small: by m16n8k8. NULL kernel where
// there is none.
#define X(name, span, chunk)                                                                       \
    struct linear_variant linear_tiles_##name(int n_tiles, bool loop, bool small);
WEIGHT_FORMS_LIST(X)
#undef X
// The same for few rows.
struct linear_stream_variant linear_stream_variant_of(int form, int n_tiles);

// Sums of a job that ops/gpu/linear/few/stream.cuh left in memory.
struct linear_left {
    const float *partial; // [parts][matrices][n][pitch]
    int64_t n, m, pitch;  // rows, outputs, outputs rounded up to whole tiles
    int parts;
    bool add, pair;                 // as in linear_one
    const signed char *exponent[2]; // [pitch] of the matrices
    const float *unscale;           // [n]
    float *out;                     // [n][out_stride]
    int64_t out_stride;
};

// A launch of products, by its jobs: those in several parts leave sums, a pair's outputs are an
// activation. Results may lie in scratch, too (gate_up_apart).
static inline struct launch_says linear_says(const struct linear_one *job, int jobs) {
    struct launch_says s = {MEMORY_WEIGHTS, 0, false, NULL, false};
    for (int j = 0; j < jobs; j++)
        s.writes |= job[j].parts > 1 ? MEMORY_SUMS
                    : job[j].pair    ? MEMORY_ACTS
                                     : MEMORY_ROWS | MEMORY_SUMS;
    return s;
}

// The same for kernels that add up parts themselves.
static const struct launch_says LINEAR_WHOLE = {
    MEMORY_WEIGHTS, MEMORY_SUMS | MEMORY_ROWS | MEMORY_ACTS, false, NULL, false};

// Bytes of what a job of n rows leaves: `partial` above.
static inline size_t linear_left_bytes(const struct linear_one *job, int64_t n) {
    size_t sums = (size_t)(job->parts * (1 + job->pair) * n * job->w[0].tiles) * TILE_ROWS;
    return job->parts < 2 ? 0 : sums * sizeof(float);
}

// The longest part of some jobs, in PART_UNITs of k.
static inline int64_t linear_longest_part(const struct linear_one *job, int jobs) {
    int64_t max = 0;
    for (int j = 0; j < jobs; j++) {
        const int64_t units = (job[j].w[0].k + PART_UNIT - 1) / PART_UNIT;
        const int64_t part = (units + job[j].parts - 1) / job[j].parts;
        max = part > max ? part : max;
    }
    return max;
}

// Bytes of what jobs of n rows leave; gives them places for it from `at` on, whose end it returns.
static inline size_t linear_all_left_bytes(const struct linear_one *job, int jobs, int64_t n) {
    size_t bytes = 0;
    for (int j = 0; j < jobs; j++)
        bytes += linear_left_bytes(&job[j], n);
    return bytes;
}
static inline unsigned char *linear_place_left(struct linear_one *job, int jobs, int64_t n,
                                               unsigned char *at) {
    for (int j = 0; j < jobs; j++) {
        job[j].partial = (float *)at;
        at += linear_left_bytes(&job[j], n);
    }
    return at;
}

// At most that many bytes a row of the sums of one job, or pair, of up to m outputs, rounded to
// whole blocks of outputs.
static inline size_t linear_sums_bytes(int64_t m) {
    return (size_t)((m <= 5120 ? LINEAR_PARTS * m : LINEAR_PARTS * 5120) + LINEAR_PARTS * 128) *
           sizeof(float);
}

// Memory for the ends of jobs (linear_defer). False: no memory.
bool linear_defer_reserve(struct gpu *g);

// Defers the end of a job, all of whose parts are queued, until something else is queued (cuda.h,
// gpu_flush). False without memory; the fault is set.
bool linear_defer(struct gpu *g, const struct linear_one *job, const struct linear_launch *l);

// Whether what is deferred is one job whose outputs are exactly rows[n][k]: then it is the caller's
// to finish by its next launch.
bool linear_take_sums(struct gpu *g, const float *rows, int64_t n, int64_t k,
                      struct linear_left *left);

#endif
