// SPDX-License-Identifier: Apache-2.0
// What linear layers, norms and experts of the op table take. Pointers are device memory of the
// backend unless a comment says host.
#ifndef COPPICE_OPS_ARGS_MLP_H
#define COPPICE_OPS_ARGS_MLP_H

#include <stdbool.h>
#include <stdint.h>

struct weight; // a matrix in the layout the backend's kernels want
struct act;    // rows in the form that linear layers read (f32 and int8 blocks on the CPU)

// One matrix product of `linear`. All jobs of a call read the same activation.
struct linear_job {
    const struct weight *w; // [k -> m]
    float *out;             // [n][m]
    bool add;               // out += instead of out =
    const float *bias;      // [m], added to what that leaves in out; NULL: none
};

// What stands between the two matrices of a gated feed-forward layer, of their outputs g and u.
enum activation {
    ACTIVATION_SILU,          // g sigmoid(g) u (SwiGLU, arXiv 2002.05202)
    ACTIVATION_GELU_TANH,     // gelu(g) u, gelu in its tanh form (GEGLU, the same; 1606.08415)
    ACTIVATION_SWIGLU_CLAMPED // gpt-oss: g to at most 7, u to -7 .. 7, g sigmoid(1.702 g) (u + 1)
};

// The two matrices of linear_gate_up.
struct gate_up {
    const struct weight *gate, *up;   // [k -> m]
    const float *gate_bias, *up_bias; // [m], before the activation; NULL: none
    enum activation activation;
};

struct norm_args {
    const float *in; // [n][k]
    const float *w;  // [k]; NULL: ones
    float eps;
    int64_t n, k;
    float *out; // [n][k]; may be in
    bool add;   // out += instead of out = (a norm behind a block, before the residual)
};

// RMSNorm of each head of dv values, times silu(z).
struct gated_norm_args {
    const float *in, *z; // [n][heads][dv]
    const float *w;      // [dv]
    float eps;
    int64_t n;
    int heads, dv;
    struct act *out; // [n][heads * dv]
};

#endif
