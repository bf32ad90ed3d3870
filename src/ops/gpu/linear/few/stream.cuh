// SPDX-License-Identifier: Apache-2.0
// Linear layers of few rows, where reading the weights is all the work (sm_80 and newer). Blocks
// stay for the whole launch and walk its units (some tiles of outputs, one part of k). Each warp
// keeps a ring of stages of its own two tiles in shared memory and refills a stage once it has used
// it, running ahead over the units' ends, so that copies are always under way. One more warp brings
// the activations, which all warps share, into a ring of their own. Nothing but mbarriers ties
// warps together. A launch of other weights for the same rows fills its rings next to the one in
// front of it, on multiprocessors that that one leaves free. sm_90a has kernel.cuh.
//
// Sums of a job that is cut into parts are left in memory for ops/gpu/linear/finish.cu. The chain
// of matrix instructions of an element is that of ops/gpu/linear/many/tiles.cuh, and so are its
// bits.
#ifndef COPPICE_OPS_GPU_LINEAR_FEW_STREAM_CUH
#define COPPICE_OPS_GPU_LINEAR_FEW_STREAM_CUH

#include "ops/gpu/linear/many/tiles.cuh"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/bulk_copy.cuh"

// A ring of `n` stages in shared memory; full barriers, and for the shared ring empty ones.
struct stream_ring {
    uint32_t at, bar; // of stage 0; barriers are 8 bytes apart
    int n, slot;
    uint32_t phase;

    __device__ __forceinline__ void step(void) {
        if (++slot == n) {
            slot = 0;
            phase ^= 1;
        }
    }
};

template <int NT> struct stream_limits {
    enum {
        WARPS = NT <= 4 ? 15 : 11, // and one more: 128 or 168 registers
        THREADS = (WARPS + 1) * 32,
    };
};

// A unit of work as one warp sees it.
struct stream_unit {
    const struct linear_one *job;
    int unit, part;
    int row;        // first of its rows
    int begin, end; // of k
    int64_t tile[WARP_TILES];
};

static __device__ __forceinline__ stream_unit unit_of(const struct linear_launch &l, int unit,
                                                      int rows, int warp, int warps) {
    stream_unit u;
    u.unit = unit;
    int at = unit / (int)l.row_tiles, j = 0;
    u.row = (unit - at * (int)l.row_tiles) * rows;
    while (j + 1 < l.jobs && at >= (int)l.job[j + 1].first)
        j++;
    u.job = &l.job[j];
    at -= (int)u.job->first;
    int group = at / u.job->parts;
    u.part = at - group * u.job->parts;
    u.begin = (int)linear_part_begin(u.job->w[0].k, u.job->parts, u.part);
    u.end = (int)linear_part_begin(u.job->w[0].k, u.job->parts, u.part + 1);
    u.end = u.end < (int)u.job->w[0].k ? u.end : (int)u.job->w[0].k;
    for (int i = 0; i < WARP_TILES; i++)
        u.tile[i] = u.job->pair ? (int64_t)group * warps + warp
                                : ((int64_t)group * warps + warp) * WARP_TILES + i;
    return u;
}

// What a warp's copies do next: they run ahead of its products, over the ends of units.
template <int FORM, int NT> struct stream_weights {
    using S = linear_shape<FORM, NT, false>;
    const unsigned char *from[WARP_TILES];
    int unit, left; // values of k of this unit

    __device__ __forceinline__ void open(const struct linear_launch &l, int next, int warp,
                                         int warps) {
        unit = next;
        left = 0;
        if (unit >= l.units)
            return;
        stream_unit u = unit_of(l, unit, NT * 8, warp, warps);
        left = u.end - u.begin;
        for (int i = 0; i < WARP_TILES; i++) {
            const struct matrix_view *v = &u.job->w[u.job->pair ? i : 0];
            int64_t t = u.tile[i] < v->tiles ? u.tile[i] : v->tiles - 1;
            from[i] = v->data + t * v->pitch + u.begin / S::SPAN * dequant<FORM>::CHUNK;
        }
    }

    // Starts the copies of one stage, if there is one.
    __device__ __forceinline__ void start(const struct linear_launch &l, const stream_ring &r,
                                          int slot, int warp, int warps) {
        if (left <= 0)
            open(l, unit + (int)gridDim.x, warp, warps);
        if (left <= 0)
            return;
        int k = left < S::STAGE_K ? (left + 63) / 64 * 64 : S::STAGE_K;
        int bytes = k / S::SPAN * dequant<FORM>::CHUNK;
        uint32_t to = r.at + slot * (WARP_TILES * S::TILE_BYTES), bar = r.bar + slot * 8;
        for (int i = 0; i < WARP_TILES; i++)
            for (int p = threadIdx.x % WARP * 16; p < bytes; p += 512)
                copy_once(to + i * S::TILE_BYTES + p, from[i] + p);
        barrier_follow(bar);
        for (int i = 0; i < WARP_TILES; i++)
            from[i] += bytes;
        left -= S::STAGE_K;
    }
};

// Starts the copies of one stage of activations: `rows` rows of `bytes`.
template <int FORM, int NT>
static __device__ __forceinline__ void start_rows(const stream_ring &r, const __half *x,
                                                  int64_t stride, int rows, int bytes) {
    using S = linear_shape<FORM, NT, false>;
    int lane = threadIdx.x % WARP;
    uint32_t to = r.at + r.slot * (NT * 8 * S::PITCH), bar = r.bar + r.slot * 8;
    const int pieces = S::STAGE_K / 8;
    for (int p = lane; p < rows * pieces; p += 32) {
        int i = p / pieces, c = p % pieces * 16;
        if (c < bytes)
            copy_piece(to + i * S::PITCH + c, (const unsigned char *)(x + i * stride) + c);
    }
    barrier_follow(bar);
}

// The warp that brings activations: all units of this block, a stage as soon as all have left it.
template <int FORM, int NT>
static __device__ __forceinline__ void stream_rows(const struct linear_launch &l, stream_ring r,
                                                   uint32_t empty) {
    using S = linear_shape<FORM, NT, false>;
    for (int unit = blockIdx.x; unit < l.units; unit += gridDim.x) {
        stream_unit u = unit_of(l, unit, NT * 8, 0, 1);
        int rows = (int)l.n - u.row < NT * 8 ? (int)l.n - u.row : NT * 8;
        const __half *x = l.x + u.row * l.stride;
        for (int k0 = u.begin; k0 < u.end; k0 += S::STAGE_K, r.step()) {
            int left = (u.end - k0 + 63) / 64 * 128; // bytes
            int bytes = left < S::STAGE_K * 2 ? left : S::STAGE_K * 2;
            barrier_wait(empty + r.slot * 8, r.phase ^ 1);
            start_rows<FORM, NT>(r, x + k0, l.stride, rows, bytes);
        }
    }
}

// Leaves this warp's sums in memory, by rows (linear_left).
template <int NT>
static __device__ __forceinline__ void leave_part(const struct linear_launch &l,
                                                  const stream_unit &u, const linear_sums<NT> &c) {
    const struct linear_one *o = u.job;
    int lane = threadIdx.x % WARP, n0 = u.row + lane % 4 * 2, left = (int)l.n - n0;
    const int64_t pitch = o->w[0].tiles * TILE_ROWS;
#pragma unroll
    for (int t = 0; t < WARP_TILES; t++) {
        int matrix = o->pair ? 2 * u.part + t : u.part;
        float *at = o->partial + (matrix * l.n + n0) * pitch + u.tile[t] * TILE_ROWS + lane / 4;
        if (u.tile[t] >= o->w[0].tiles)
            break;
#pragma unroll
        for (int i = 0; i < NT * 4; i++)
            if (i / 4 * 8 + i % 2 < left)
                __stcg(at + (i / 4 * 8 + i % 2) * pitch + i % 4 / 2 * 8, c.v[t][i / 4][i % 4]);
    }
}

// Powers of two of a tile's two outputs of this lane; 0 where there is no such output.
static __device__ __forceinline__ void tile_powers(const struct matrix_view &v, int64_t tile,
                                                   float *power) {
    for (int h = 0; h < 2; h++) {
        int64_t m = tile * TILE_ROWS + threadIdx.x % WARP / 4 + h * 8;
        power[h] = m < v.m ? __int_as_float((127 - v.exponent[m]) << 23) : 0.0f;
    }
}

// The outputs: powers of two taken back, then stored, added or joined. All loads come first.
template <int NT>
static __device__ __forceinline__ void finish_sums(const struct linear_launch &l,
                                                   const stream_unit &u, linear_sums<NT> &c) {
    const struct linear_one *o = u.job;
    int lane = threadIdx.x % WARP, n0 = u.row + lane % 4 * 2, left = (int)l.n - n0;
    float back[NT][2], power[WARP_TILES][2];
#pragma unroll
    for (int i = 0; i < NT * 2; i++)
        back[i / 2][i % 2] =
            i / 2 * 8 + i % 2 < left ? __ldcg(l.unscale + n0 + i / 2 * 8 + i % 2) : 0.0f;
#pragma unroll
    for (int t = 0; t < WARP_TILES; t++)
        tile_powers(o->w[o->pair ? t : 0], u.tile[t], power[t]);
#pragma unroll
    for (int i = 0; i < WARP_TILES * NT * 4; i++) {
        int t = i / (4 * NT), j = i / 4 % NT, e = i % 4;
        c.v[t][j][e] = c.v[t][j][e] * power[t][e / 2] * back[j][e % 2];
    }
    const int64_t stride = o->out_stride;
    if (o->pair) {
        float *out = o->out + n0 * stride + u.tile[0] * TILE_ROWS + lane / 4;
        int64_t below = o->w[0].m - (u.tile[0] * TILE_ROWS + lane / 4);
#pragma unroll
        for (int i = 0; i < NT * 4; i++) {
            float g = c.v[0][i / 4][i % 4];
            if (i / 4 * 8 + i % 2 < left && i % 4 / 2 * 8 < below)
                out[(i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8] =
                    g / (1.0f + expf(-g)) * c.v[1][i / 4][i % 4];
        }
        return;
    }
#pragma unroll
    for (int t = 0; t < WARP_TILES; t++) {
        float *out = o->out + n0 * stride + u.tile[t] * TILE_ROWS + lane / 4, old[NT * 4];
        int64_t below = o->w[0].m - (u.tile[t] * TILE_ROWS + lane / 4);
#pragma unroll
        for (int i = 0; i < NT * 4; i++)
            if (o->add && i / 4 * 8 + i % 2 < left && i % 4 / 2 * 8 < below)
                old[i] = out[(i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8];
#pragma unroll
        for (int i = 0; i < NT * 4; i++)
            if (i / 4 * 8 + i % 2 < left && i % 4 / 2 * 8 < below)
                out[(i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8] =
                    o->add ? old[i] + c.v[t][i / 4][i % 4] : c.v[t][i / 4][i % 4];
    }
}

template <int FORM, int NT>
static __device__ __forceinline__ void
stream_products(const struct linear_launch &l, stream_ring weights, stream_ring rows,
                uint32_t empty, stream_weights<FORM, NT> &next) {
    using S = linear_shape<FORM, NT, false>;
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t base = shared_address(shared);
    int warp = threadIdx.x / WARP, warps = blockDim.x / WARP - 1;
    dequant<FORM> q[WARP_TILES];
    for (int unit = blockIdx.x; unit < l.units; unit += gridDim.x) {
        stream_unit u = unit_of(l, unit, NT * 8, warp, warps);
        linear_sums<NT> c = {};
        for (int k0 = u.begin; k0 < u.end; k0 += S::STAGE_K) {
            barrier_wait(weights.bar + weights.slot * 8, weights.phase);
            barrier_wait(rows.bar + rows.slot * 8, rows.phase);
            multiply_stage<FORM, NT, false>(
                c, q, shared + (weights.at - base) + weights.slot * (WARP_TILES * S::TILE_BYTES),
                shared + (rows.at - base) + rows.slot * (NT * 8 * S::PITCH), k0, u.end);
            __syncwarp();
            if (threadIdx.x % WARP == 0)
                barrier_arrive(empty + rows.slot * 8);
            next.start(l, weights, weights.slot, warp, warps);
            weights.step();
            rows.step();
        }
        if (u.job->parts > 1)
            leave_part<NT>(l, u, c);
        else
            finish_sums<NT>(l, u, c);
    }
}

template <int FORM, int NT>
static __global__ void __launch_bounds__(stream_limits<NT>::THREADS, 1)
    linear_stream(const __grid_constant__ struct linear_launch l) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using S = linear_shape<FORM, NT, false>;
    extern __shared__ __align__(128) unsigned char shared[];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP - 1;
    uint32_t base = shared_address(shared), empty = base + 8 * l.stages;
    stream_ring rows = {base + l.barriers, base, l.stages, 0, 0};
    stream_ring weights = {base + l.barriers + l.stages * (NT * 8 * S::PITCH) +
                               warp * l.slots * (WARP_TILES * S::TILE_BYTES),
                           base + 8 * (2 * l.stages + warp * l.slots), l.slots, 0, 0};
    stream_weights<FORM, NT> next;
    if (warp == warps) {
        if (lane < l.stages) {
            barrier_init(rows.bar + lane * 8, 32);
            barrier_init(empty + lane * 8, warps);
        }
    } else if (lane < l.slots) {
        barrier_init(weights.bar + lane * 8, 32);
    }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    barriers_ready();
    show_all();
#endif
    __syncwarp();
    if (warp < warps) {
        next.open(l, blockIdx.x, warp, warps);
        for (int s = 0; s < l.slots; s++)
            next.start(l, weights, s, warp, warps);
    }
    __syncthreads();
    gpu_await();
    if (l.lets)
        gpu_let_next();
    if (warp == warps)
        stream_rows<FORM, NT>(l, rows, empty);
    else
        stream_products<FORM, NT>(l, weights, rows, empty, next);
#endif
}

#endif
