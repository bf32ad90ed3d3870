// SPDX-License-Identifier: Apache-2.0
// The rotation of ops/kv/rotate.h by a warp: value i * WARP + lane of a head is x[i]. Distances
// below WARP are across lanes, larger ones from register to register, in the order of the scalar
// function; an element goes through the same f32 operations and gets the same bits. Heads and so
// groups are multiples of WARP. For .cu files only.
#ifndef COPPICE_OPS_GPU_KV_ROTATE_CUH
#define COPPICE_OPS_GPU_KV_ROTATE_CUH

#include "ops/gpu/matrix/warp.cuh"
#include "ops/kv/rotate.h"

enum { ROTATE_AT_ONCE = KV_ROTATE_MAX / WARP }; // registers of the largest group

static __device__ __forceinline__ void rotate_two(float *a, float *b) {
    const float x = *a, y = *b;
    *a = x + y;
    *b = x - y;
}

// N registers, in groups of `each` (1, 2 or 4).
template <int N> static __device__ __forceinline__ void rotate_flip(float *x, int each, int lane) {
    const uint32_t signs[ROTATE_AT_ONCE] = KV_ROTATE_SIGNS;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t s = each == 1 ? signs[0] : each == 2 ? signs[i % 2] : signs[i];
        x[i] = s >> lane & 1 ? -x[i] : x[i];
    }
}

template <int N>
static __device__ __forceinline__ void rotate_transform(float *x, int each, int lane) {
    const float scales[] = KV_ROTATE_SCALES; // of groups of 32, 64 and 128 values: 5, 6 and 7
#pragma unroll
    for (int h = 1; h < WARP; h *= 2)
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float other = warp_across(x[i], h);
            x[i] = lane & h ? other - x[i] : x[i] + other;
        }
    if (each > 1)
#pragma unroll
        for (int i = 0; i + 1 < N; i += 2)
            rotate_two(&x[i], &x[i + 1]);
    if (N == 4 && each > 2) {
        rotate_two(&x[0], &x[N == 4 ? 2 : 0]);
        rotate_two(&x[N == 4 ? 1 : 0], &x[N - 1]);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] *= each == 1 ? scales[5] : each == 2 ? scales[6] : scales[7];
}

template <bool BACK, int N>
static __device__ __forceinline__ void rotate_some(float *x, int each, int lane) {
    if (!BACK)
        rotate_flip<N>(x, each, lane);
    rotate_transform<N>(x, each, lane);
    if (BACK)
        rotate_flip<N>(x, each, lane);
}

// The first `dim` values of a head, as kv_rotate or, with BACK, as kv_rotate_back; group 0: as they
// are. All lanes of a warp, with the same dim and group.
template <bool BACK, int N>
static __device__ __forceinline__ void rotate_head(float (&x)[N], int dim, int group, int lane) {
    constexpr int WHOLE = N / ROTATE_AT_ONCE * ROTATE_AT_ONCE, REST = N - WHOLE;
    if (!group)
        return;
#pragma unroll
    for (int i = 0; i < WHOLE; i += ROTATE_AT_ONCE)
        if (i * WARP < dim)
            rotate_some<BACK, ROTATE_AT_ONCE>(x + i, group / WARP, lane);
    if constexpr (REST > 0)
        if (WHOLE * WARP < dim)
            rotate_some<BACK, REST>(x + WHOLE, group / WARP, lane);
}

#endif
