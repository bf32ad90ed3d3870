// SPDX-License-Identifier: Apache-2.0
// Adding up what few-row linear layers left of a k that was cut into parts: four outputs of one
// row, in the order of the parts, powers of two taken back. For kernels that finish such sums.
#ifndef COPPICE_OPS_GPU_LINEAR_LINEAR_FINISH_CUH
#define COPPICE_OPS_GPU_LINEAR_LINEAR_FINISH_CUH

#include "ops/gpu/linear/linear_launch.h"

static __device__ __forceinline__ float4 add_fours(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ float exponent_power(signed char e) {
    return __int_as_float((127 - e) << 23);
}

// Outputs 4 i to 4 i + 3 of row `row` of matrix t; back: the row's power of two. All loads of parts
// are under way at once.
static __device__ __forceinline__ float4 finish_four(const struct linear_left &o, int t,
                                                     int64_t row, int64_t i, float back) {
    const float4 *at = (const float4 *)(o.partial + (t * o.n + row) * o.pitch) + i;
    const int64_t step = (o.pair ? 2 : 1) * o.n * o.pitch / 4; // to the next part
    float4 v[LINEAR_PARTS];
#pragma unroll
    for (int p = 0; p < LINEAR_PARTS; p++)
        if (p < o.parts)
            v[p] = __ldcg(at + p * step);
    char4 e = *(const char4 *)(o.exponent[t] + i * 4);
    float4 sum = v[0];
#pragma unroll
    for (int p = 1; p < LINEAR_PARTS; p++)
        if (p < o.parts)
            sum = add_fours(sum, v[p]);
    return make_float4(sum.x * exponent_power(e.x) * back, sum.y * exponent_power(e.y) * back,
                       sum.z * exponent_power(e.z) * back, sum.w * exponent_power(e.w) * back);
}

#endif
