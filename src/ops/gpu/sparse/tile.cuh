// SPDX-License-Identifier: Apache-2.0
// What the kernels of block-sparse attention with matrix instructions share: queries as fragments,
// and the running softmax over blocks of 128 keys. A warp has 16 rows. Of a tile of scores, and of
// outputs, a lane has those of rows lane / 4 (elements 4 i, 4 i + 1) and lane / 4 + 8 (4 i + 2,
// 4 i + 3) and of columns 8 i + lane % 4 * 2 and + 1, by mma.sync and by wgmma alike; so both
// kernels make the same bits by the functions here. For .cu files only.
#ifndef COPPICE_OPS_GPU_SPARSE_TILE_CUH
#define COPPICE_OPS_GPU_SPARSE_TILE_CUH

#include "ops/gpu/sparse/sparse.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

enum { SPARSE_EXTRA = 10 }; // 2^SPARSE_EXTRA: the weight of a key with the largest score

// The exponent by which a query whose largest magnitude is `max` becomes fp16.
static __device__ __forceinline__ int sparse_exponent(float max) {
    return act_exponent(max, 100);
}
// Takes scores of such a query to units of log 2.
static __device__ __forceinline__ float sparse_factor(const struct sparse_run *u, int e) {
    return u->scale * 1.44269504f * power_of_two(-e);
}

// Queries of the warp's rows `row` + 0 .. 15 as the first operand of products over 16 k at a time;
// zeros for rows that are not here.
template <int D>
static __device__ __forceinline__ void
sparse_queries(const struct sparse_run *u, const struct sparse_item *t, int row,
               unsigned (&a)[D / 16][4], float (&factor)[2]) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int y = 0; y < 2; y++) {
        int own = row + lane / 4 + 8 * y;
        bool has = sparse_has(t, own);
        const float *q = sparse_query(u, t, has ? own : t->begin) + lane % 4 * 2;
        float2 x[D / 8];
        float max = 0;
#pragma unroll
        for (int k = 0; k < D / 8; k++) {
            x[k] = has ? *(const float2 *)(q + k * 8) : make_float2(0, 0);
            max = fmaxf(max, fmaxf(fabsf(x[k].x), fabsf(x[k].y)));
        }
        max = fmaxf(max, warp_across(max, 1));
        max = fmaxf(max, warp_across(max, 2));
        int e = sparse_exponent(max);
        float scale = power_of_two(e);
        factor[y] = sparse_factor(u, e);
#pragma unroll
        for (int k = 0; k < D / 8; k++)
            a[k / 2][k % 2 * 2 + y] = pack(x[k].x * scale, x[k].y * scale);
    }
}

// Of a lane's two rows.
struct sparse_soft {
    float factor[2], max[2], sum[2]; // max: of scores as they are; sum: of the lane's columns
};

static __device__ __forceinline__ void sparse_begin(struct sparse_soft *z) {
    z->max[0] = z->max[1] = -INFINITY;
    z->sum[0] = z->sum[1] = 0;
}

// Scores of keys after the rows, in their own block, to -inf. row: the lane's first.
static __device__ __forceinline__ void sparse_hide(float (&s)[64], int row) {
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i++)
        if (i / 4 * 8 + column + i % 2 > row + i % 4 / 2 * 8)
            s[i] = -INFINITY;
}

// Scores to weights under the new maximum of each row; what was before fades.
static __device__ __forceinline__ void sparse_weigh(struct sparse_soft *z, float (&s)[64],
                                                    float (&fade)[2]) {
    float base[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
        float max = z->max[y];
#pragma unroll
        for (int i = 0; i < 32; i++)
            max = fmaxf(max, s[i / 2 * 4 + 2 * y + i % 2]);
        max = fmaxf(max, warp_across(max, 1));
        max = fmaxf(max, warp_across(max, 2));
        fade[y] = exp2_near((z->max[y] - max) * z->factor[y]);
        base[y] = fmaf(-max, z->factor[y], (float)SPARSE_EXTRA);
        z->max[y] = max;
    }
#pragma unroll
    for (int y = 0; y < 2; y++) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 32; i++) {
            float *p = &s[i / 2 * 4 + 2 * y + i % 2];
            *p = exp2_near(fmaf(*p, z->factor[y], base[y]));
            sum[i % 2] += *p;
        }
        z->sum[y] = fmaf(z->sum[y], fade[y], sum[0] + sum[1]);
    }
}

// Weights as the first operand of products over 16 keys at a time.
static __device__ __forceinline__ void sparse_pack(const float (&s)[64], unsigned (&p)[8][4]) {
#pragma unroll
    for (int i = 0; i < 32; i++)
        p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
}

template <int N>
static __device__ __forceinline__ void sparse_fade(float (&acc)[N], const float (&fade)[2]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        acc[i] *= fade[i % 4 / 2];
}

// acc / sum to the outputs. row: the lane's first.
template <int N>
static __device__ __forceinline__ void
sparse_put(const struct sparse_run *u, const struct sparse_item *t, const struct sparse_soft *z,
           int row, const float (&acc)[N]) {
#pragma unroll
    for (int y = 0; y < 2; y++) {
        float sum = z->sum[y];
        sum += warp_across(sum, 1);
        sum += warp_across(sum, 2);
        float by = 1.0f / sum;
        if (!sparse_has(t, row + 8 * y))
            continue;
        float *out = sparse_out(u, t, row + 8 * y) + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            *(float2 *)(out + 8 * i) =
                make_float2(acc[4 * i + 2 * y] * by, acc[4 * i + 2 * y + 1] * by);
    }
}

#endif

#endif
