// SPDX-License-Identifier: Apache-2.0
// Activations (enum activation), sigmoids and SiLUs, to the bit as the plain expressions give them.
// A division checks whether exponents are near their limits and branches, so the values of a loop
// wait for one another, about 150 cycles each. Of several values at once the steps that it takes
// for usual numbers stand without the question, so that values run side by side, and one branch
// leads to divisions if any value is unusual. All 2^32 floats are compared (gpu_tests, suite
// sigmoid).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_ACTIVATION_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_ACTIVATION_CUH

#include "ops/args/mlp.h"
#include "ops/gpu/matrix/thread.cuh"
#include "ops/rowmath.h"

// What stands between gate and up, of single values: one function for all kernels that join them,
// so that a layer has the same bits whichever of them serves it.
static __device__ __forceinline__ float activated(int activation, float g, float u) {
    if (activation == ACTIVATION_SILU)
        return g / (1.0f + expf(-g)) * u;
    if (activation == ACTIVATION_GELU_TANH) { // as row_gelu_tanh (rowmath.h)
        const float y = __fmul_rn(1.59576912f, fmaf(__fmul_rn(__fmul_rn(0.044715f, g), g), g, g));
        return g / (1.0f + expf(-y)) * u;
    }
    g = fminf(g, 7.0f);
    u = fminf(fmaxf(u, -7.0f), 7.0f);
    return g / (1.0f + expf(__fmul_rn(-1.702f, g))) * __fadd_rn(u, 1.0f);
}

// 1 / d, rounded correctly, for 1 <= d < 2^126.
static __device__ __forceinline__ float usual_inverse(float d) {
    const float r = inverse_near(d);
    return fmaf(r, fmaf(-d, r, 1.0f), r);
}

// x / d, likewise, for 2^-100 <= |x| < 2^100 and a quotient that is no smaller than 2^-120.
static __device__ __forceinline__ float usual_quotient(float x, float d) {
    const float r = usual_inverse(d), q = __fmul_rn(x, r);
    return fmaf(r, fmaf(-d, q, x), q);
}

// Sigmoids of such values have 1 + e^-x < 2^116.
#define SIGMOID_LEAST (-80.0f)
#define SILU_LEAST    7.8886091e-31f // 2^-100, of |x|
#define SILU_MOST     80.0f

// x = 1 / (1 + e^-x).
template <int R> static __device__ __forceinline__ void sigmoid_all(float (&x)[R]) {
    bool usual = true;
#pragma unroll
    for (int i = 0; i < R; i++)
        usual &= x[i] >= SIGMOID_LEAST;
    if (usual) {
#pragma unroll
        for (int i = 0; i < R; i++)
            x[i] = usual_inverse(1.0f + expf(-x[i]));
    } else {
#pragma unroll
        for (int i = 0; i < R; i++)
            x[i] = 1.0f / (1.0f + expf(-x[i]));
    }
}

// x = x / (1 + e^-x).
template <int R> static __device__ __forceinline__ void silu_all(float (&x)[R]) {
    bool usual = true;
#pragma unroll
    for (int i = 0; i < R; i++)
        usual &= fabsf(x[i]) >= SILU_LEAST & fabsf(x[i]) <= SILU_MOST;
    if (usual) {
#pragma unroll
        for (int i = 0; i < R; i++)
            x[i] = usual_quotient(x[i], 1.0f + expf(-x[i]));
    } else {
#pragma unroll
        for (int i = 0; i < R; i++)
            x[i] = x[i] / (1.0f + expf(-x[i]));
    }
}

// x = row_silu(x).
template <int R> static __device__ __forceinline__ void row_silu_all(float (&x)[R]) {
    bool usual = true;
#pragma unroll
    for (int i = 0; i < R; i++)
        usual &= x[i] >= SIGMOID_LEAST;
    if (usual) {
#pragma unroll
        for (int i = 0; i < R; i++)
            x[i] *= usual_inverse(1.0f + row_exp(-x[i]));
    } else {
#pragma unroll
        for (int i = 0; i < R; i++)
            x[i] = row_silu(x[i]);
    }
}

#endif
