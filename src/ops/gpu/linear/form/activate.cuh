// SPDX-License-Identifier: Apache-2.0
// What stands between gate and up (enum activation), of single values: one function for all kernels
// that join them, so that a layer has the same bits whichever of them serves it.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_ACTIVATE_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_ACTIVATE_CUH

#include "ops/args/mlp.h"

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

#endif
