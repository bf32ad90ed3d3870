// SPDX-License-Identifier: Apache-2.0
// Linear layers by mma.sync, for any number of rows. A block of four warps makes 128 outputs (a
// warp two tiles of 16; of linear_gate_up one tile of each matrix) times 8 NT rows over one part
// of k. Weights and activations of a stage come to shared memory by asynchronous copies, a few
// stages ahead; a warp copies its own tiles. Parts meet in memory: the block that comes last adds
// them up in order. With LOOP a block takes all parts itself and adds them in the same order, which
// is better once there are blocks enough.
//
// A row's bits depend on neither NT, LOOP nor the grid: each output element goes through the same
// chain of matrix instructions, and the same additions of parts.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_TILES_CUH
#define COPPICE_OPS_GPU_LINEAR_MANY_TILES_CUH

#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/linear/launch.h"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/ldmatrix.cuh"
#include "ops/gpu/matrix/mma.cuh"

enum { LINEAR_THREADS = 128, LINEAR_WARPS = 4, WARP_TILES = 2 };

template <int FORM, int NT, bool SMALL> struct linear_shape {
    enum {
        SPAN = dequant<FORM>::SPAN,
        STAGE_K = weight_of_fours(FORM)                         ? 256
                  : FORM == WEIGHT_HALF || FORM == WEIGHT_FLOAT ? 64
                                                                : 128,
        TILE_BYTES = STAGE_K / SPAN * dequant<FORM>::CHUNK,
        PITCH = STAGE_K * 2 + 16, // bytes between rows of activations: no bank conflicts
        WEIGHT_BYTES = LINEAR_WARPS * WARP_TILES * TILE_BYTES,
        STAGE_BYTES = WEIGHT_BYTES + NT * 8 * PITCH,
        // Three blocks find room on a multiprocessor of 228 KB.
        STAGES = SMALL                          ? 1
                 : STAGE_BYTES * 3 <= 72 * 1024 ? 3
                                                : 2,
        BYTES = STAGES * STAGE_BYTES,
    };
};

// The path `small` is for devices without asynchronous copies and products of 16 of k.
template <bool SMALL>
static __device__ __forceinline__ void copy16(unsigned char *to, const unsigned char *from) {
    if constexpr (SMALL)
        *(uint4 *)to = *(const uint4 *)from;
    else
        copy_piece(shared_address(to), from);
}

template <bool SMALL> static __device__ __forceinline__ void copies_end() {
    if constexpr (!SMALL)
        copies_close();
}

template <bool SMALL, int LEFT> static __device__ __forceinline__ void copies_wait() {
    if constexpr (!SMALL)
        copies_wait<LEFT>();
}

// c += a b, over 16 values of k.
template <bool SMALL>
static __device__ __forceinline__ void multiply(float *c, const uint32_t *a, uint32_t b0,
                                                uint32_t b1) {
    if constexpr (SMALL) {
        mma_k8(c, a, b0);
        mma_k8(c, a + 2, b1);
    } else {
        mma_k16(c, a, b0, b1);
    }
}

// What one block does.
struct linear_work {
    const struct linear_one *job;
    int64_t block;       // of 128 outputs (64 pairs)
    int part, parts_end; // parts of k: part .. parts_end - 1
    int64_t row;         // first of its rows
    int64_t slot, step;  // where its partial sums go, and how far apart those of its parts are
    int64_t tile[WARP_TILES];
    const unsigned char *data[WARP_TILES]; // of this warp's tiles
};

static __device__ __forceinline__ struct linear_work work_of(const struct linear_launch &l,
                                                             int rows, bool loop) {
    struct linear_work w;
    int64_t at = blockIdx.x, tile = at % l.row_tiles, unit = at / l.row_tiles;
    int j = 0;
    while (j + 1 < l.jobs && unit >= l.job[j + 1].first)
        j++;
    w.job = &l.job[j];
    unit -= w.job->first;
    int cut = loop ? 1 : w.job->parts;
    w.block = unit / cut;
    w.part = (int)(unit % cut);
    w.parts_end = loop ? w.job->parts : w.part + 1;
    w.row = tile * rows;
    w.step = l.row_tiles;
    w.slot = at - w.part * w.step;
    int warp = threadIdx.x / WARP;
    for (int i = 0; i < WARP_TILES; i++) {
        const struct matrix_view *v = &w.job->w[w.job->pair ? i : 0];
        int64_t t = w.job->pair ? w.block * LINEAR_WARPS + warp
                                : (w.block * LINEAR_WARPS + warp) * WARP_TILES + i;
        w.tile[i] = t;
        w.data[i] = v->data + (t < v->tiles ? t : v->tiles - 1) * v->pitch;
    }
    return w;
}

// Starts the copies of the stage at k0 into `to`.
template <int FORM, int NT, bool SMALL>
static __device__ __forceinline__ void copy_stage(const struct linear_launch &l,
                                                  const struct linear_work &w, unsigned char *to,
                                                  int64_t k0) {
    using S = linear_shape<FORM, NT, SMALL>;
    int64_t k = w.job->w[0].k, left = (k - k0 + 63) / 64;
    int sections = left < S::STAGE_K / 64 ? (int)left : S::STAGE_K / 64;
    int pieces = sections * 64 / S::SPAN * dequant<FORM>::CHUNK / 16;
    int64_t at = k0 / S::SPAN * dequant<FORM>::CHUNK;
    for (int i = 0; i < WARP_TILES; i++) {
        unsigned char *tile = to + (threadIdx.x / WARP * WARP_TILES + i) * S::TILE_BYTES;
        for (int p = threadIdx.x % WARP; p < pieces; p += 32)
            copy16<SMALL>(tile + p * 16, w.data[i] + at + p * 16);
    }
    unsigned char *b = to + S::WEIGHT_BYTES;
    for (int p = threadIdx.x; p < NT * 8 * (S::STAGE_K / 8); p += LINEAR_THREADS) {
        int r = p / (S::STAGE_K / 8), c = p % (S::STAGE_K / 8);
        int64_t row = w.row + r < l.n ? w.row + r : l.n - 1;
        if (c < sections * 8)
            copy16<SMALL>(b + r * S::PITCH + c * 16,
                          (const unsigned char *)(l.x + row * l.stride + k0) + c * 16);
    }
}

template <int NT> struct linear_sums {
    float v[WARP_TILES][NT][4];
};

// Adds the products of one section of 64 values of k.
template <int FORM, int NT, bool SMALL>
static __device__ __forceinline__ void multiply_section(linear_sums<NT> &c, const dequant<FORM> *q,
                                                        uint32_t b_at) {
    using S = linear_shape<FORM, NT, SMALL>;
    const int terms = dequant<FORM>::TERMS;
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        uint32_t b[NT][4];
#pragma unroll
        for (int j = 0; j < NT; j++)
            load_four(b[j], b_at + j * 8 * S::PITCH + pair * 64);
#pragma unroll
        for (int i = 0; i < 2 * WARP_TILES; i++) {
            int h = i / WARP_TILES, tile = i % WARP_TILES;
            uint32_t a[terms][4];
            q[tile].step(2 * pair + h, a);
#pragma unroll
            for (int j = 0; j < NT * terms; j++)
                multiply<SMALL>(c.v[tile][j / terms], a[j % terms], b[j / terms][2 * h],
                                b[j / terms][2 * h + 1]);
        }
    }
}

// Adds the products of one stage: a: this warp's tiles, rows: the activations.
template <int FORM, int NT, bool SMALL>
static __device__ __forceinline__ void
multiply_stage(linear_sums<NT> &c, dequant<FORM> *q, const unsigned char *a,
               const unsigned char *rows, int64_t k0, int64_t k) {
    using S = linear_shape<FORM, NT, SMALL>;
    int lane = threadIdx.x % WARP;
    uint32_t b = shared_address(rows + lane % 8 * S::PITCH + lane / 8 * 16);
#pragma unroll(S::SPAN == 256 ? 1 : 4)
    for (int at = 0; at < S::STAGE_K; at += S::SPAN) {
        if (S::SPAN < S::STAGE_K && k0 + at >= k)
            break;
        const unsigned char *chunk[WARP_TILES];
        for (int i = 0; i < WARP_TILES; i++) {
            chunk[i] = a + i * S::TILE_BYTES + at / S::SPAN * dequant<FORM>::CHUNK;
            q[i].open(chunk[i], k0 + at, lane);
        }
#pragma unroll
        for (int sec = 0; sec < S::SPAN / 64; sec++) {
            for (int i = 0; i < WARP_TILES; i++)
                q[i].section(chunk[i], sec, lane);
            multiply_section<FORM, NT, SMALL>(c, q, b + (at + sec * 64) * 2);
        }
    }
}

template <int NT>
static __device__ __forceinline__ void add_sums(linear_sums<NT> &to, const linear_sums<NT> &from) {
#pragma unroll
    for (int i = 0; i < WARP_TILES * NT * 4; i++)
        to.v[i / (4 * NT)][i / 4 % NT][i % 4] += from.v[i / (4 * NT)][i / 4 % NT][i % 4];
}

// Leaves this block's sums in memory. The last block of its parts then collects all of them, in
// order, and returns true.
template <int NT>
static __device__ bool collect_parts(const struct linear_launch &l, const struct linear_work &w,
                                     linear_sums<NT> &c) {
    const int vectors = WARP_TILES * NT;
    float4 *at = (float4 *)l.partial + w.slot * vectors * LINEAR_THREADS + threadIdx.x;
    float4 *own = at + w.part * w.step * vectors * LINEAR_THREADS;
#pragma unroll
    for (int i = 0; i < vectors; i++) {
        const float *v = c.v[i / NT][i % NT];
        __stcg(own + i * LINEAR_THREADS, make_float4(v[0], v[1], v[2], v[3]));
    }
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(l.ticket + w.slot, 1u) == (unsigned)w.job->parts - 1;
    __syncthreads();
    if (!last)
        return false;
    __threadfence();
    for (int p = 0; p < w.job->parts; p++) {
        linear_sums<NT> one;
#pragma unroll
        for (int i = 0; i < vectors; i++) {
            float4 v = __ldcg(at + (p * w.step * vectors + i) * LINEAR_THREADS);
            float *to = one.v[i / NT][i % NT];
            to[0] = v.x;
            to[1] = v.y;
            to[2] = v.z;
            to[3] = v.w;
        }
        if (p == 0)
            c = one;
        else
            add_sums<NT>(c, one);
    }
    if (threadIdx.x == 0)
        l.ticket[w.slot] = 0;
    return true;
}

// The outputs: powers of two taken back, then stored, added or joined.
template <int NT>
static __device__ void store_sums(const struct linear_launch &l, const struct linear_work &w,
                                  const linear_sums<NT> &c) {
    int lane = threadIdx.x % WARP;
    const struct linear_one *o = w.job;
#pragma unroll
    for (int i = 0; i < (NT * 4); i++) {
        int64_t n = w.row + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (n >= l.n)
            continue;
        float back = l.unscale[n], value[WARP_TILES];
        for (int t = 0; t < WARP_TILES; t++) {
            const struct matrix_view *v = &o->w[o->pair ? t : 0];
            int64_t m = w.tile[t] * TILE_ROWS + lane / 4 + i % 4 / 2 * 8;
            if (w.tile[t] >= v->tiles || m >= v->m)
                continue;
            float power = __int_as_float((127 - v->exponent[m]) << 23);
            value[t] = c.v[t][i / 4][i % 4] * power * back;
            float *out = o->out + n * o->out_stride + m;
            if (!o->pair)
                *out = o->add ? *out + value[t] : value[t];
            else if (t)
                *out = value[0] / (1.0f + expf(-value[0])) * value[t];
        }
    }
}

template <int FORM, int NT, bool LOOP, bool SMALL>
static __global__ void __launch_bounds__(LINEAR_THREADS)
    linear_kernel(const __grid_constant__ struct linear_launch l) {
    gpu_await();
#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
    const bool small = SMALL;
#else
    const bool small = true; // the launcher takes no other path there
#endif
    using S = linear_shape<FORM, NT, small>;
    extern __shared__ __align__(16) unsigned char stages[];
    struct linear_work w = work_of(l, NT * 8, LOOP);
    int64_t k = w.job->w[0].k;
    int64_t at = linear_part_begin(k, w.job->parts, w.part);
    int64_t end = linear_part_begin(k, w.job->parts, w.parts_end);
    end = end < k ? end : k;
    dequant<FORM> q[WARP_TILES];
    linear_sums<NT> c = {}, total;
    int64_t next = at; // of the copies
    for (int s = 0; s < S::STAGES - 1; s++, next += S::STAGE_K) {
        if (next < end)
            copy_stage<FORM, NT, small>(l, w, stages + s * S::STAGE_BYTES, next);
        copies_end<small>();
    }
    int part = w.part, slot = 0, fill = S::STAGES - 1;
    for (; at < end; at += S::STAGE_K, next += S::STAGE_K) {
        copies_wait<small, S::STAGES - 2>();
        __syncthreads();
        if (next < end)
            copy_stage<FORM, NT, small>(l, w, stages + fill * S::STAGE_BYTES, next);
        copies_end<small>();
        if (S::STAGES == 1)
            __syncthreads();
        const unsigned char *stage = stages + slot * S::STAGE_BYTES;
        const unsigned char *own = stage + threadIdx.x / WARP * WARP_TILES * S::TILE_BYTES;
        multiply_stage<FORM, NT, small>(c, q, own, stage + S::WEIGHT_BYTES, at, k);
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        fill = fill + 1 == S::STAGES ? 0 : fill + 1;
        if (LOOP && (at + S::STAGE_K >= end ||
                     at + S::STAGE_K == linear_part_begin(k, w.job->parts, part + 1))) {
            if (part == 0)
                total = c;
            else
                add_sums<NT>(total, c);
            c = {};
            part++;
        }
    }
    if (LOOP)
        c = total;
    else if (w.job->parts > 1 && !collect_parts<NT>(l, w, c))
        return;
    store_sums<NT>(l, w, c);
}

template <int FORM, int NT, bool LOOP, bool SMALL>
static struct linear_variant tiles_variant(void) {
    using S = linear_shape<FORM, NT, SMALL>;
    return {linear_kernel<FORM, NT, LOOP, SMALL>, S::BYTES, NT, LINEAR_THREADS};
}

// The kernel of a form for the table of ops/gpu/linear/launch.h.
template <int FORM>
static struct linear_variant tiles_variant_of(int n_tiles, bool loop, bool small) {
    if (small) {
        if (!loop && n_tiles == 8)
            return tiles_variant<FORM, 8, false, true>();
        return !loop && n_tiles == 1 ? tiles_variant<FORM, 1, false, true>() : linear_variant{};
    }
    if (n_tiles == 8)
        return loop ? tiles_variant<FORM, 8, true, false>()
                    : tiles_variant<FORM, 8, false, false>();
    if (n_tiles == 4)
        return loop ? tiles_variant<FORM, 4, true, false>()
                    : tiles_variant<FORM, 4, false, false>();
    return {};
}

#endif
