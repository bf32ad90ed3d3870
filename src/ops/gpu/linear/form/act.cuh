// SPDX-License-Identifier: Apache-2.0
// How a row of f32 becomes fp16 times a power of two of its own: the exponent that takes its
// largest magnitude into [2^14, 2^15), and sums and maxima over a block in a fixed order. For the
// .cu files whose kernels finish activations.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_ACT_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_ACT_CUH

#include <stdint.h>

#include "ops/gpu/matrix/cluster.cuh"
#include "ops/gpu/runtime/gpu.h"

static __device__ inline float power_of_two(int e) { // -126 .. 127
    return __int_as_float((e + 127) << 23);
}

// 14 - floor(log2(most)), at most `top`; 0 for what has no magnitude.
static __device__ inline int act_exponent(float max, int top) {
    int field = __float_as_int(max) >> 23 & 255;
    return max > 0 && max < INFINITY ? min(14 + 127 - field, top) : 0;
}

// Largest value over all threads of a cluster of at most 8 blocks of THREADS threads, which have
// called cluster_arrive once; all get it.
template <int THREADS> static __device__ __forceinline__ float cluster_max(float v) {
    __shared__ float part[THREADS / WARP];
    v = warp_max(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __shared__ float of_block[8];
    const unsigned rank = cluster_rank(), size = cluster_size();
    cluster_wait();
    if (threadIdx.x < size) {
        for (int i = 0; i < THREADS / WARP; i++)
            v = fmaxf(v, part[i]);
        cluster_store(&of_block[rank], threadIdx.x, v);
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    v = of_block[0];
    for (unsigned i = 1; i < size; i++)
        v = fmaxf(v, of_block[i]);
#endif
    return v;
}

// The largest magnitude of a row that many blocks make, without one that begins it: a word of an
// epoch, which grows from op to op, above the magnitude's bits.
static __device__ __forceinline__ void peak_raise(unsigned long long *peak, uint32_t epoch,
                                                  float max) {
    atomicMax(peak, (unsigned long long)epoch << 32 | (uint32_t)__float_as_int(max));
}
static __device__ __forceinline__ float peak_of(const unsigned long long *peak, uint32_t epoch) {
    const unsigned long long v = __ldcg(peak);
    return v >> 32 == epoch ? __int_as_float((int)(uint32_t)v) : 0.0f;
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

// A row is surveyed by groups of 128 values, a warp's fours: sum of squares (0 without a norm) and
// largest magnitude. Then each warp gathers the groups, lane l those at l, l + 32, ...; so the
// order of a row's sum does not depend on who makes it.

// Four values times the norm's weights, if there is a norm.
static __device__ __forceinline__ float4 act_weighted(float4 v, float4 w, bool norm) {
    return norm ? make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w) : v;
}

// The warp's group; v: fours of a row and w the norm's, zeros after the row's end.
static __device__ __forceinline__ float2 act_survey(float4 v, float4 w, bool norm) {
    float sum = 0;
    if (norm) {
        sum = fmaf(v.x, v.x, sum);
        sum = fmaf(v.y, v.y, sum);
        sum = fmaf(v.z, v.z, sum);
        sum = fmaf(v.w, v.w, sum);
        sum = warp_sum(sum);
    }
    return make_float2(sum, warp_max(largest(act_weighted(v, w, norm))));
}

static __device__ __forceinline__ float2 act_gather(float2 whole, float2 group) {
    return make_float2(whole.x + group.x, fmaxf(whole.y, group.y));
}

// What a row is multiplied with.
struct act_scale {
    float factor; // of the norm
    int e;        // then a power of two

    // whole: this lane's gathered groups.
    __device__ __forceinline__ act_scale(float2 whole, bool norm, int64_t k, float eps) {
        float sum = warp_sum(whole.x), max = warp_max(whole.y);
        factor = norm ? 1.0f / sqrtf(sum / (float)k + eps) : 1.0f;
        e = act_exponent(max * factor, 126);
    }

    // v: weighted.
    __device__ __forceinline__ float4 times(float4 v) const {
        return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    }
    __device__ __forceinline__ uint2 pack(float4 v) const {
        return act_pack(times(v), power_of_two(e));
    }
};

#endif
