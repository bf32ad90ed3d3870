// SPDX-License-Identifier: Apache-2.0
// The lanes of a warp: how many there are, votes among them, and values that pass between them. All
// functions are called by all lanes of a warp together; a lane is threadIdx.x % WARP where
// blockDim.x is a multiple of WARP. With GPU_PLAIN the headers of this folder are plain C++ but for
// these exchanges, which nothing plainer can express.
#ifndef COPPICE_OPS_GPU_MATRIX_WARP_CUH
#define COPPICE_OPS_GPU_MATRIX_WARP_CUH

#include <stdint.h>

static constexpr int WARP = 32; // lanes; fragments of matrices (mma.cuh) are laid out for that many

typedef uint32_t warp_mask; // bit i: lane i
static constexpr warp_mask WARP_ALL = 0xFFFFFFFFu;

// The lanes for which v holds, in all lanes.
static __device__ __forceinline__ warp_mask warp_vote(bool v) {
    return __ballot_sync(WARP_ALL, v);
}
static __device__ __forceinline__ bool warp_any(bool v) {
    return __any_sync(WARP_ALL, v);
}
static __device__ __forceinline__ bool warp_all(bool v) {
    return __all_sync(WARP_ALL, v);
}

// How many lanes a mask has; the first of them (-1: none); those of a mask that come before `lane`.
static __device__ __forceinline__ int mask_count(warp_mask m) {
    return __popc(m);
}
static __device__ __forceinline__ int mask_first(warp_mask m) {
    return __ffs((int)m) - 1;
}
static __device__ __forceinline__ int mask_before(warp_mask m, int lane) {
    return __popc(m & ((1u << lane) - 1));
}

// v of another lane: of `lane`; of the lane whose number differs in the bits of `by`; of the lane
// `by` below, and the own v where there is none. T: 4 or 8 bytes.
template <typename T> static __device__ __forceinline__ T warp_from(T v, int lane) {
    return __shfl_sync(WARP_ALL, v, lane);
}
template <typename T> static __device__ __forceinline__ T warp_across(T v, int by) {
    return __shfl_xor_sync(WARP_ALL, v, by);
}
template <typename T> static __device__ __forceinline__ T warp_below(T v, int by) {
    return __shfl_up_sync(WARP_ALL, v, by);
}

// Sum or maximum over groups of LANES neighbouring lanes; all of them get it. The order of the sum
// is fixed: lanes LANES / 2 apart first.
template <int LANES = WARP, typename T> static __device__ __forceinline__ T warp_sum(T v) {
    for (int d = LANES / 2; d; d /= 2)
        v += warp_across(v, d);
    return v;
}
template <int LANES = WARP> static __device__ __forceinline__ float warp_max(float v) {
    for (int d = LANES / 2; d; d /= 2)
        v = fmaxf(v, warp_across(v, d));
    return v;
}

// Largest v of the warp, in all lanes. T: int or uint32_t.
template <typename T> static __device__ __forceinline__ T warp_largest(T v) {
#if __CUDA_ARCH__ >= 800 && !defined(GPU_PLAIN)
    return __reduce_max_sync(WARP_ALL, v);
#else
    for (int d = WARP / 2; d; d /= 2) {
        T o = warp_across(v, d);
        v = o > v ? o : v;
    }
    return v;
#endif
}

#endif
