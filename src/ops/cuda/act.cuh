// SPDX-License-Identifier: Apache-2.0
// How a row of f32 becomes fp16 times a power of two of its own: the exponent that takes its
// largest magnitude into [2^14, 2^15), and sums and maxima over a block in a fixed order. For the
// .cu files whose kernels finish activations.
#ifndef COPPICE_OPS_CUDA_ACT_CUH
#define COPPICE_OPS_CUDA_ACT_CUH

#include "ops/cuda/gpu.h"

static __device__ inline float power_of_two(int e) { // -126 .. 127
    return __int_as_float((e + 127) << 23);
}

// 14 - floor(log2(most)), at most `top`; 0 for what has no magnitude.
static __device__ inline int act_exponent(float most, int top) {
    int field = __float_as_int(most) >> 23 & 255;
    return most > 0 && most < INFINITY ? min(14 + 127 - field, top) : 0;
}

static __device__ inline float warp_sum(float v) {
    for (int d = 16; d; d /= 2)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, d);
    return v;
}

static __device__ inline float warp_max(float v) {
    for (int d = 16; d; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    return v;
}

// Four values times a power of two, as four halves.
static __device__ inline uint2 act_pack(float4 v, float scale) {
    __half2 a = __floats2half2_rn(v.x * scale, v.y * scale);
    __half2 b = __floats2half2_rn(v.z * scale, v.w * scale);
    return make_uint2(*(unsigned *)&a, *(unsigned *)&b);
}

static __device__ inline float largest(float4 v) {
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

#endif
