// SPDX-License-Identifier: Apache-2.0
// What single.cu and small.cu share: a block has 64 columns of a value head of one
// sequence, a warp 16 of them, whose base comes straight to registers; heads of 128.
#ifndef COPPICE_OPS_GPU_GDN_COLUMNS_CUH
#define COPPICE_OPS_GPU_GDN_COLUMNS_CUH

#include "ops/gpu/gdn/gdn.cuh"
#include "ops/gpu/gdn/split.cuh"

enum {
    D = SPLIT_K,       // of keys, queries and values
    OWN = 64,          // columns of a block
    OWN_THREADS = 128, // a warp has 16 of them
    EIGHT = 8,         // keys of a warp, rows of a left operand
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ float4 far4(const float *p, bool there) {
    return there ? __ldcg((const float4 *)p) : make_float4(0, 0, 0, 0);
}

// Sums of eight right-hand rows with one chain over k each: high parts, then both mixed ones.
struct chains {
    float c[4], low[2][4];
};

static __device__ __forceinline__ void add_step(struct chains *y, uint4 high, uint4 low, uint4 b) {
    multiply(y->c, high, b.x, b.y);
    multiply(y->low[0], high, b.z, b.w);
    multiply(y->low[1], low, b.x, b.y);
}

static __device__ __forceinline__ void close_chains(struct chains *y) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        y->c[i] += y->low[0][i] + y->low[1][i];
}

// A lane's share of 16 columns of a base: columns 2 (lane / 4) and the next, values 4 (lane % 4) ..
// of k in each step; as they come, and as right-hand operands.
struct columns {
    float2 v[SPLIT_STEPS][4];
};
struct right {
    uint4 b[2][SPLIT_STEPS];
};

static __device__ __forceinline__ void ask_columns(const float *s, struct columns *c) {
    int lane = (int)threadIdx.x % WARP;
    s += lane % 4 * 4 * D + lane / 4 * 2;
#pragma unroll
    for (int i = 0; i < SPLIT_STEPS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c->v[i][e] = __ldcg((const float2 *)(s + (16 * i + e) * D));
}

// Splits them, four neighbouring columns times one power of two. Returns the one that takes sums
// with the lane's columns back.
static __device__ __forceinline__ float split_four(const struct columns &c, struct right *r) {
    float max = 0;
#pragma unroll
    for (int i = 0; i < SPLIT_STEPS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            max = fmaxf(max, fmaxf(fabsf(c.v[i][e].x), fabsf(c.v[i][e].y)));
#pragma unroll
    for (int d = 1; d < 8; d *= 2) // values of k, then the other two columns
        max = fmaxf(max, warp_across(max, d));
    int e = act_exponent(max, 100);
    float scale = power_of_two(e);
#pragma unroll
    for (int i = 0; i < SPLIT_STEPS; i++) {
        const float2 *v = c.v[i];
        r->b[0][i] = split_values(make_float4(v[0].x, v[1].x, v[2].x, v[3].x), scale);
        r->b[1][i] = split_values(make_float4(v[0].y, v[1].y, v[2].y, v[3].y), scale);
    }
    return power_of_two(-e - UP);
}

// Deltas and decays of committed positions on their way to ring and g of shared memory. JOB: has
// the shape; RUN: has known and slot0.
template <class JOB, class SHARED, class RUN>
static __device__ __forceinline__ void ask_log(const JOB &j, SHARED *m, const RUN &r,
                                               const struct gdn_state *st, int head, int first) {
    const float *log_d = gdn_pointer(&st->log_d), *log_g = gdn_pointer(&st->log_g);
    int t = (int)threadIdx.x;
#pragma unroll 4
    for (int i = t; i < r.known * (OWN / 4); i += OWN_THREADS) {
        int p = i / (OWN / 4), c = i % (OWN / 4) * 4, slot = (r.slot0 + p) & (GDN_RING - 1);
        copy_floats<true>((float4 *)&m->ring[p][c],
                          log_d + ((int64_t)slot * j.shape.n_v + head) * D + first + c, 4);
    }
    if (t < GDN_RING) {
        int slot = (r.slot0 + t) & (GDN_RING - 1);
        m->g[t] = t < r.known ? __ldcg(&log_g[slot * j.shape.n_v + head]) : 0;
    }
}

// Running sums of the decays from position `from` on, in position order; a thread is position t.
static __device__ __forceinline__ void sum_log(const float *log_g, float *gone, int t, int from,
                                               int known) {
    float sum = 0;
#pragma unroll 8
    for (int s = from; s < known; s += 4) {
        float4 g = *(const float4 *)&log_g[s];
        sum += s <= t ? g.x : 0;
        sum += s + 1 <= t ? g.y : 0;
        sum += s + 2 <= t ? g.z : 0;
        sum += s + 3 <= t ? g.w : 0;
    }
    gone[t] = sum;
}

#endif

#endif
