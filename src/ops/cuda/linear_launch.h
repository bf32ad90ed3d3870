// SPDX-License-Identifier: Apache-2.0
// What the host part of the linear layers (linear.cu) hands to a kernel, and the table of kernels:
// one a form, tile of rows and way of adding parts. Each linear_*.cu fills the rows of its forms.
#ifndef COPPICE_OPS_CUDA_LINEAR_LAUNCH_H
#define COPPICE_OPS_CUDA_LINEAR_LAUNCH_H

#include "ops/cuda/gpu.h"
#include "ops/cuda/linear.h"

enum { LINEAR_JOBS = 8 };

// One matrix of a launch, or the two of linear_gate_up.
struct linear_one {
    struct matrix_view w[2]; // the second only in a pair
    float *out;              // [n][out_stride]; of a pair silu(first) * second
    int64_t out_stride;
    bool add, pair;
    int parts;
    int64_t first; // of its units (block of outputs, part) among all of the launch
    // Of linear_stream.cuh, where there are several parts:
    float4 *partial;    // [row tiles * blocks of outputs][parts][warps][2 n_tiles][lanes]
    int warps, n_tiles; // of the kernel that fills it
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
    // Of linear_stream.cuh:
    int units;         // of all jobs
    int slots, stages; // of a warp's ring of weights, of the ring of activations
    int barriers;      // bytes of shared memory in front of the rings
};

typedef void linear_kernel_fn(const struct linear_launch);

// A kernel of linear_stream.cuh: its blocks have up to `warps` warps and one more.
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

// The kernel of a form for tiles of 8 n_tiles rows. loop: the one that takes all parts in one
// block; small: by m16n8k8. NULL kernel where there is none.
struct linear_variant linear_k_variant(int form, int n_tiles, bool loop, bool small);
struct linear_variant linear_b_variant(int form, int n_tiles, bool loop, bool small);
// The same for few rows; bulk: with the copies of sm_90.
struct linear_stream_variant linear_stream_k(int form, int n_tiles, bool bulk);
struct linear_stream_variant linear_stream_b(int form, int n_tiles, bool bulk);

// Queues the end of l's jobs, all of them cut into parts: what linear_stream left in their
// `partial` becomes outputs. Fills in `first` and `units`.
void linear_finish_launch(struct gpu *g, struct linear_launch *l);

#endif
