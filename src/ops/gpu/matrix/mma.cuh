// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by one warp: halves in, f32 sums. An operand is spread over the lanes;
// with g = lane / 4 and t = lane % 4, each 32-bit register holding two halves, the lower first:
//   a (16 x K):  a[0]: row g, k = 2 t and 2 t + 1; a[1]: row g + 8, the same k;
//                a[2], a[3]: the same rows, k + 8 (K = 16 only)
//   b (K x 8):   b0: k = 2 t and 2 t + 1 of column g; b1: k + 8 (K = 16 only)
//   c (16 x 8):  c[0], c[1]: row g, columns 2 t and 2 t + 1; c[2], c[3]: row g + 8
// All lanes of the warp call together. How the terms of one call are added up is the device's; it
// must not depend on the place in the tile (tests/gpu/test_tiles.cu).
#ifndef COPPICE_OPS_GPU_MATRIX_MMA_CUH
#define COPPICE_OPS_GPU_MATRIX_MMA_CUH

#include "ops/gpu/matrix/warp.cuh"
#include "ops/gpu/runtime/gpu.h"

#ifdef GPU_PLAIN
static __device__ inline float plain_half(uint32_t two, int which) {
    return __half2float(__ushort_as_half((unsigned short)(which ? two >> 16 : two & 0xFFFF)));
}

// c += a b over 8 of k: `left` has rows 0 to 7 and 8 to 15.
static __device__ __noinline__ void plain_mma(float *c, uint32_t left0, uint32_t left1,
                                              uint32_t right) {
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll 1
    for (int k = 0; k < 8; k++)
        for (int e = 0; e < 4; e++) {
            const uint32_t a = warp_from(e / 2 ? left1 : left0, lane / 4 * 4 + k / 2);
            const uint32_t b = warp_from(right, (lane % 4 * 2 + e % 2) * 4 + k / 2);
            c[e] = fmaf(plain_half(a, k % 2), plain_half(b, k % 2), c[e]);
        }
}
#endif

// c += a b over 16 of k. From compute capability 8.0 on.
static __device__ __forceinline__ void mma_k16(float *c, const uint32_t *a, uint32_t b0,
                                               uint32_t b1) {
#ifdef GPU_PLAIN
    plain_mma(c, a[0], a[1], b0);
    plain_mma(c, a[2], a[3], b1);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// c += a b over 8 of k: a[0], a[1] and b0.
static __device__ __forceinline__ void mma_k8(float *c, const uint32_t *a, uint32_t b0) {
#ifdef GPU_PLAIN
    plain_mma(c, a[0], a[1], b0);
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, "
                 "{%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
#endif
}

#endif
