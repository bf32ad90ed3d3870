// SPDX-License-Identifier: Apache-2.0
// Experts of many entries by mma.sync: ops/gpu/linear/many/tiles.cuh with rows that are looked up.
// A block makes 128 outputs (a pair: 64 of each matrix) of up to 64 entries of one expert over all
// of k, or of 32 where shared memory has no room for more, adding parts in their order, so its bits
// are those of the linear layers of this path.
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/many/tiles.cuh"
#include "ops/gpu/moe/moe.h"

// Eights of entries of a tile, and where there is no room for that many.
enum { WHOLE = MOE_TILE_ROWS / 8, HALF = WHOLE / 2 };

struct moe_tiles {
    struct moe_call_args c;
    struct moe_order order;
};

// What one block does.
struct moe_work {
    struct moe_tile t;
    matrix_view w[WARP_TILES]; // the matrix of each of this warp's tiles
    int64_t tile[WARP_TILES];
    const unsigned char *data[WARP_TILES];
    const int *entry; // [8 NT] shared; those beyond t.n repeat the last
};

template <int NT>
static __device__ __forceinline__ void find_work(const moe_tiles &a, moe_work &w, int *entry) {
    const int warp = threadIdx.x / WARP;
    w.t = a.order.tile[blockIdx.y];
    w.entry = entry;
    for (int i = 0; i < WARP_TILES; i++) {
        w.w[i] = moe_expert(a.c.matrix[a.c.pair ? i : 0], w.t.expert);
        w.tile[i] = a.c.pair ? (int64_t)blockIdx.x * LINEAR_WARPS + warp
                             : ((int64_t)blockIdx.x * LINEAR_WARPS + warp) * WARP_TILES + i;
        const int64_t last = w.w[i].tiles - 1;
        w.data[i] = w.w[i].data + (w.tile[i] < last ? w.tile[i] : last) * w.w[i].pitch;
    }
    if (threadIdx.x < NT * 8) {
        const int i = threadIdx.x < w.t.n ? threadIdx.x : w.t.n - 1;
        entry[threadIdx.x] = a.order.entry[w.t.first + i];
    }
    __syncthreads();
}

// Starts the copies of the stage at k0 into `to` (copy_stage of ops/gpu/linear/many/tiles.cuh).
template <int FORM, int NT, bool SMALL>
static __device__ __forceinline__ void copy_entries(const moe_tiles &a, const moe_work &w,
                                                    unsigned char *to, int64_t k0) {
    using S = linear_shape<FORM, NT, SMALL>;
    const int64_t left = (w.w[0].k - k0 + 63) / 64;
    const int sections = left < S::STAGE_K / 64 ? (int)left : S::STAGE_K / 64;
    const int pieces = sections * 64 / S::SPAN * dequant<FORM>::CHUNK / 16;
    const int64_t at = k0 / S::SPAN * dequant<FORM>::CHUNK;
    for (int i = 0; i < WARP_TILES; i++) {
        unsigned char *tile = to + (threadIdx.x / WARP * WARP_TILES + i) * S::TILE_BYTES;
        for (int p = threadIdx.x % WARP; p < pieces; p += WARP)
            copy16<SMALL>(tile + p * 16, w.data[i] + at + p * 16);
    }
    unsigned char *b = to + S::WEIGHT_BYTES;
    for (int p = threadIdx.x; p < NT * 8 * (S::STAGE_K / 8); p += LINEAR_THREADS) {
        const int r = p / (S::STAGE_K / 8), c = p % (S::STAGE_K / 8);
        const int64_t row = w.entry[r] / a.c.sharers;
        if (c < sections * 8)
            copy16<SMALL>(b + r * S::PITCH + c * 16,
                          (const unsigned char *)(a.c.x + row * a.c.stride + k0) + c * 16);
    }
}

// The outputs: powers of two taken back, biases added, then stored or joined.
template <int NT>
static __device__ __forceinline__ void store_entries(const moe_tiles &a, const moe_work &w,
                                                     const linear_sums<NT> &c) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        const int r = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (r >= w.t.n)
            continue;
        const int64_t entry = w.entry[r];
        const float back = a.c.unscale[entry / a.c.sharers];
        float value[WARP_TILES];
        for (int t = 0; t < WARP_TILES; t++) {
            const int64_t m = w.tile[t] * TILE_ROWS + lane / 4 + i % 4 / 2 * 8;
            if (w.tile[t] >= w.w[t].tiles || m >= w.w[t].m)
                continue;
            const float *bias = a.c.matrix[a.c.pair ? t : 0].bias;
            const float power = __int_as_float((127 - w.w[t].exponent[m]) << 23);
            value[t] = c.v[t][i / 4][i % 4] * power * back;
            value[t] = bias ? __fadd_rn(value[t], bias[w.t.expert * w.w[t].m + m]) : value[t];
            float *out = a.c.out + entry * a.c.out_stride + m;
            if (!a.c.pair)
                *out = value[t];
            else if (t)
                *out = activated(a.c.activation, value[0], value[1]);
        }
    }
}

// Block (outputs, tile of entries).
template <int FORM, int NT, bool ANY_SMALL>
static __global__ void __launch_bounds__(LINEAR_THREADS)
    moe_tiles_kernel(const __grid_constant__ struct moe_tiles a) {
#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
    const bool SMALL = ANY_SMALL;
#else
    const bool SMALL = true; // the launcher takes no other path there
#endif
    using S = linear_shape<FORM, NT, SMALL>;
    extern __shared__ __align__(16) unsigned char stages[];
    __shared__ int entry[NT * 8];
    gpu_await();
    if ((int)blockIdx.y >= *a.order.tiles)
        return;
    struct moe_work w;
    find_work<NT>(a, w, entry);
    const int64_t k = w.w[0].k;
    dequant<FORM> q[WARP_TILES];
    linear_sums<NT> c = {}, total;
    int64_t next = 0; // of the copies
    for (int s = 0; s < S::STAGES - 1; s++, next += S::STAGE_K) {
        if (next < k)
            copy_entries<FORM, NT, SMALL>(a, w, stages + s * S::STAGE_BYTES, next);
        copies_end<SMALL>();
    }
    int part = 0, slot = 0, fill = S::STAGES - 1;
    for (int64_t at = 0; at < k; at += S::STAGE_K, next += S::STAGE_K) {
        copies_wait<SMALL, S::STAGES - 2>();
        __syncthreads();
        if (next < k)
            copy_entries<FORM, NT, SMALL>(a, w, stages + fill * S::STAGE_BYTES, next);
        copies_end<SMALL>();
        if (S::STAGES == 1)
            __syncthreads();
        const unsigned char *stage = stages + slot * S::STAGE_BYTES;
        const unsigned char *own = stage + threadIdx.x / WARP * WARP_TILES * S::TILE_BYTES;
        multiply_stage<FORM, NT, SMALL>(c, q, own, stage + S::WEIGHT_BYTES, at, k);
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        fill = fill + 1 == S::STAGES ? 0 : fill + 1;
        if (at + S::STAGE_K >= k || at + S::STAGE_K == linear_part_begin(k, a.c.parts, part + 1)) {
            if (part == 0)
                total = c;
            else
                add_sums<NT>(total, c);
            c = {};
            part++;
        }
    }
    store_entries<NT>(a, w, total);
}

typedef void moe_tiles_fn(const struct moe_tiles);

struct tiles_variant {
    moe_tiles_fn *kernel;
    int shared;
};

template <int FORM, int NT, bool SMALL> static struct tiles_variant variant(void) {
    return {moe_tiles_kernel<FORM, NT, SMALL>, linear_shape<FORM, NT, SMALL>::BYTES};
}

// What a block has at least from 8.0 on, without what the kernel holds itself.
enum { LEAST_SHARED = (99 << 10) - MOE_TILE_ROWS * (int)sizeof(int) };

template <int FORM> static struct tiles_variant variant_for(int rows, bool small) {
    if (small)
        return variant<FORM, WHOLE, true>();
    if constexpr ((int)linear_shape<FORM, WHOLE, false>::BYTES > LEAST_SHARED)
        if (rows <= HALF * 8)
            return variant<FORM, HALF, false>();
    return variant<FORM, WHOLE, false>();
}

// The kernel of a form for tiles of that many entries.
static struct tiles_variant variant_of(int form, int rows, bool small) {
    switch (form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        return variant_for<WEIGHT_##name>(rows, small);
        WEIGHT_FORMS_LIST(X)
#undef X
    default:
        return {};
    }
}

int moe_tile_rows(int form, bool small, int shared) {
    const int list = MOE_TILE_ROWS * (int)sizeof(int); // that the kernel holds itself
    const bool room = variant_of(form, MOE_TILE_ROWS, small).shared + list <= shared;
    return small || room ? (int)MOE_TILE_ROWS : HALF * 8;
}

int moe_tile_bytes(int form, bool small, int rows) {
    return variant_of(form, rows, small).shared;
}

void moe_tiles_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o) {
    const struct tiles_variant v = variant_of(c->form, o->rows, g->path == CUDA_PATH_SMALL);
    const int64_t tiles = c->matrix[0].w.tiles, each = LINEAR_WARPS * (c->pair ? 1 : WARP_TILES);
    dim3 grid((unsigned)((tiles + each - 1) / each), (unsigned)o->max);
    if (gpu_allow_shared(g, (const void *)v.kernel, v.shared, "moe"))
        gpu_launch_early(g, "moe", v.kernel, grid, LINEAR_THREADS, (size_t)v.shared, {*c, *o});
}
