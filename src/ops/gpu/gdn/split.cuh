// SPDX-License-Identifier: Apache-2.0
// The delta rule's products by matrix instructions: f32 values as two halves, high and low, which
// keep 22 bits; keys and queries times a fixed power of two, four columns of a base times one of
// their own. matrix.cu and blocks.cu make every product through this file, so that theirs
// have the same bits: each is one chain of instructions over k in this order, whatever stands next
// to it. Owns no memory.
#ifndef COPPICE_OPS_GPU_GDN_SPLIT_CUH
#define COPPICE_OPS_GPU_GDN_SPLIT_CUH

#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/mma.cuh"

enum {
    SPLIT_K = 128,              // of the key dimension, at most
    PIECES = SPLIT_K / 4,       // of a row of split values
    SPLIT_STEPS = SPLIT_K / 16, // matrix instructions over k
    UP = 8,                     // keys and queries are split times 2^UP
};

// e^x of a decay: 0 or below.
static __device__ __forceinline__ float decay_of(float x) {
    return exp2_near(x * 1.44269504f);
}

// A piece holds four neighbouring values: halves (high 0, 1), (high 2, 3), (low 0, 1), (low 2, 3).
// Piece i of a row lies in place i ^ (row % 2) * 4, so that two rows' pieces lie in different
// banks.
static __device__ __forceinline__ uint4 *piece(uint4 *rows, int row, int i) {
    return rows + row * PIECES + (i ^ (row & 1) << 2);
}

static __device__ __forceinline__ uint32_t two_halves(float a, float b) {
    __half2 h = __floats2half2_rn(a, b);
    return *(uint32_t *)&h;
}

static __device__ __forceinline__ uint4 split_values(float4 v, float scale) {
    float x[4] = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
    uint4 s;
    s.x = two_halves(x[0], x[1]);
    s.y = two_halves(x[2], x[3]);
    float2 a = __half22float2(*(__half2 *)&s.x), b = __half22float2(*(__half2 *)&s.y);
    s.z = two_halves(x[0] - a.x, x[1] - a.y);
    s.w = two_halves(x[2] - b.x, x[3] - b.y);
    return s;
}

// One warp: four columns of a base become rows row .. row + 3 of `to`; the lane has its values
// 4 lane .. 4 lane + 3 of k in x. Returns the power of two that takes sums with keys back.
static __device__ __forceinline__ float split_columns(uint4 *to, int row, const float4 *x) {
    int lane = (int)threadIdx.x % WARP;
    float max = fmaxf(fmaxf(largest(x[0]), largest(x[1])), fmaxf(largest(x[2]), largest(x[3])));
    int e = act_exponent(warp_max(max), 100);
    float scale = power_of_two(e);
    *piece(to, row, lane) = split_values(make_float4(x[0].x, x[1].x, x[2].x, x[3].x), scale);
    *piece(to, row + 1, lane) = split_values(make_float4(x[0].y, x[1].y, x[2].y, x[3].y), scale);
    *piece(to, row + 2, lane) = split_values(make_float4(x[0].z, x[1].z, x[2].z, x[3].z), scale);
    *piece(to, row + 3, lane) = split_values(make_float4(x[0].w, x[1].w, x[2].w, x[3].w), scale);
    return power_of_two(-e - UP);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

static __device__ __forceinline__ void multiply(float *c, uint4 a, uint32_t b0, uint32_t b1) {
    const uint32_t four[4] = {a.x, a.y, a.z, a.w};
    mma_k16(c, four, b0, b1);
}

// Eight rows as the left operand, keys in its upper rows, queries in the lower; each register of an
// instruction as one load brings it.
struct left {
    uint4 high[SPLIT_STEPS], low[SPLIT_STEPS];
};

// Piece i of a row's key and query as parts of left operands. Returns the key's, for the right.
static __device__ __forceinline__ uint4 put_left(uint4 *high, uint4 *low, int row, int i,
                                                 float4 key, float4 query) {
    uint4 k = split_values(key, power_of_two(UP)), q = split_values(query, power_of_two(UP));
    *piece(high, row, i) = make_uint4(k.x, q.x, k.y, q.y);
    *piece(low, row, i) = make_uint4(k.z, q.z, k.w, q.w);
    return k;
}

// The lane's share of the eight rows that hold row `at` (at % 8 is lane / 4).
static __device__ __forceinline__ void load_left(struct left *a, uint4 *high, uint4 *low, int at) {
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++) {
        a->high[s] = *piece(high, at, 4 * s + lane % 4);
        a->low[s] = *piece(low, at, 4 * s + lane % 4);
    }
}

// Sixteen rows of split values from `row` on. c[n][2 h], c[n][2 h + 1]: sums for the place lane / 4
// and the rows 8 n + 2 (lane % 4) and the next; h: of keys, of queries.
static __device__ __forceinline__ void multiply_rows(const struct left &a, uint4 *rows, int row,
                                                     float c[2][4]) {
    enum { PART = 2 };
    int lane = (int)threadIdx.x % WARP;
    float low[4][4] = {};
    row += lane / 4;
#pragma unroll
    for (int i = 0; i < 8; i++)
        c[i / 4][i % 4] = 0;
    uint4 *to = rows + row * PIECES;
    int turn = (row & 1) << 2;
#pragma unroll
    for (int h = 0; h < SPLIT_STEPS; h += PART) {
        uint4 b[2 * PART]; // all on their way before the first is used
#pragma unroll
        for (int i = 0; i < 2 * PART; i++)
            b[i] = to[i % 2 * 8 * PIECES + ((4 * (h + i / 2) + lane % 4) ^ turn)];
#pragma unroll
        for (int i = 0; i < 2 * PART; i++) {
            multiply(c[i % 2], a.high[h + i / 2], b[i].x, b[i].y);
            multiply(low[i % 2], a.high[h + i / 2], b[i].z, b[i].w);
            multiply(low[2 + i % 2], a.low[h + i / 2], b[i].x, b[i].y);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        c[i / 4][i % 4] += low[i / 4][i % 4] + low[2 + i / 4][i % 4];
}

#endif

#endif
