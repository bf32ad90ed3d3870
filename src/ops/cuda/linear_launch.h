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
};

typedef void linear_kernel_fn(const struct linear_launch);

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

#endif
