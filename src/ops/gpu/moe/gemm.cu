// SPDX-License-Identifier: Apache-2.0
// Experts of many entries on sm_90a: rows of the entries are copied side by side in the order of
// their experts, so that the copy engine brings a tile's as it does for linear layers, and
// ops/gpu/linear/many/gemm.cuh multiplies tiles of one expert each. How many tiles there are the
// device knows alone. Outputs go where their entries have their places.
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/many/gemm.cuh"
#include "ops/gpu/moe/moe.h"

enum { N = MOE_GEMM_ROWS, GATHER_THREADS = 128 };

struct moe_gemm_tile {
    int expert, block, first, n; // of outputs; of its entries in the order
    int row;                     // first, for the copies
};

struct moe_gemm {
    typedef moe_gemm_tile tile;
    enum { AHEAD = false };
    gpu_tile_map rows;
    struct moe_call_args c;
    struct moe_order o;
    int blocks; // of outputs of an expert

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __device__ __forceinline__ int64_t all_tiles(void) const {
        return (int64_t)__ldcg(o.tiles) * blocks;
    }
    __device__ __forceinline__ int64_t values(void) const {
        return c.stride;
    }
    __device__ __forceinline__ moe_gemm_tile tile_at(int64_t at, int) const {
        const int i = (int)at / blocks;
        const int4 v = __ldcg((const int4 *)(o.tile + i)); // struct moe_tile
        return {v.x, (int)at - i * blocks, v.y, v.z, v.y};
    }
    __device__ __forceinline__ const unsigned char *data(const moe_gemm_tile &t, int warp,
                                                         int i) const {
        const moe_matrix &m = c.matrix[c.pair ? i : 0];
        const int64_t own =
            c.pair ? t.block * BRINGERS + warp : (t.block * BRINGERS + warp) * WARP_TILES + i;
        return moe_data(m, t.expert) + (own < m.w.tiles ? own : m.w.tiles - 1) * m.w.pitch;
    }
    __device__ __forceinline__ bool is_pair(const moe_gemm_tile &) const {
        return c.pair;
    }
    __device__ __forceinline__ int parts(const moe_gemm_tile &) const {
        return c.parts;
    }
    __device__ __forceinline__ int64_t inputs(const moe_gemm_tile &) const {
        return c.matrix[0].w.k;
    }
    template <int ROWS>
    __device__ __forceinline__ void store(const moe_gemm_tile &t, const float (&d)[ROWS / 2]) const;
#endif
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A lane's two outputs of a tile: places, powers of two to take back, 0 where there is none, and
// biases.
struct moe_outputs {
    int64_t m[2];
    float power[2], bias[2];

    __device__ __forceinline__ moe_outputs(const moe_gemm &a, const moe_gemm_tile &t) {
        const int lane = threadIdx.x % WARP, sixteen = threadIdx.x / WARP - BRINGERS;
        m[0] = a.c.pair ? t.block * (OUTPUTS / 2) + sixteen * 8 + lane / 4
                        : t.block * OUTPUTS + sixteen * 16 + lane / 4;
        m[1] = a.c.pair ? m[0] : m[0] + 8;
        for (int h = 0; h < 2; h++) {
            const moe_matrix &own = a.c.matrix[a.c.pair ? h : 0];
            const bool there = m[h] < own.w.m;
            const signed char *e = own.w.exponent + t.expert * own.w.tiles * TILE_ROWS;
            power[h] = there ? __int_as_float((127 - e[m[h]]) << 23) : 0;
            bias[h] = there && own.bias ? own.bias[t.expert * own.w.m + m[h]] : 0;
        }
    }
};

template <int ROWS>
__device__ __forceinline__ void moe_gemm::store(const moe_gemm_tile &t,
                                                const float (&d)[ROWS / 2]) const {
    enum { EACH = 16 };
    const moe_outputs u(*this, t);
    const bool first = u.m[0] < c.matrix[0].w.m, second = u.m[1] < c.matrix[0].w.m;
    const bool biased = c.matrix[0].bias || (c.pair && c.matrix[1].bias);
    const int row0 = threadIdx.x % 4 * 2, left = first ? t.n - row0 : 0;
    const int32_t *entry = o.entry + t.first + row0;
#pragma unroll
    for (int i0 = 0; i0 < ROWS / 4 && left > 0; i0 += EACH) {
        int e[EACH];
        float back[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int row = (i0 + i) / 2 * 8 + (i0 + i) % 2;
            e[i] = __ldcg(entry + (row < left ? row : left - 1));
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            back[i] = __ldcg(c.unscale + e[i] / c.sharers);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = (i0 + i) / 2 * 4 + (i0 + i) % 2, row = (i0 + i) / 2 * 8 + (i0 + i) % 2;
            float v0 = d[at] * u.power[0] * back[i], v1 = d[at + 2] * u.power[1] * back[i];
            float *out = c.out + e[i] * c.out_stride + u.m[0];
            if (row >= left)
                continue;
            if (biased) {
                v0 = c.matrix[0].bias ? __fadd_rn(v0, u.bias[0]) : v0;
                v1 = c.matrix[c.pair ? 1 : 0].bias ? __fadd_rn(v1, u.bias[1]) : v1;
            }
            out[0] = c.pair ? activated(c.activation, v0, v1) : v0;
            if (!c.pair && second)
                out[8] = v1;
        }
    }
}
#endif

// Rows of entries, in their order. Block: an entry.
static __global__ void __launch_bounds__(GATHER_THREADS)
    gather_rows(const __grid_constant__ struct moe_call_args c, const int32_t *entry, uint4 *to) {
    gpu_await();
    gpu_let_next();
    const int64_t pieces = c.stride / 8, row = __ldcg(entry + blockIdx.x) / c.sharers;
    const uint4 *from = (const uint4 *)c.x + row * pieces;
    for (int64_t i = threadIdx.x; i < pieces; i += GATHER_THREADS)
        to[blockIdx.x * pieces + i] = __ldcg(from + i);
}

template <int FORM> static void launch_gemm(struct gpu *g, const struct moe_gemm *a) {
    const int bytes = gemm_shape<FORM, N>::BYTES;
    gpu_allow_shared(g, (const void *)(linear_gemm<FORM, N, true, moe_gemm>), bytes, "moe (gemm)");
    gpu_launch_early(g, "moe (gemm)", linear_gemm<FORM, N, true, moe_gemm>,
                     dim3((unsigned)g->processors), THREADS, (size_t)bytes, *a);
}

bool moe_gemm_takes(const struct gpu *g, int form) {
    return g->path == CUDA_PATH_WGMMA && form <= WEIGHT_HALF;
}

size_t moe_gemm_bytes(int64_t entries, int64_t stride) {
    return (size_t)(entries * stride) * sizeof(__half);
}

void moe_gemm_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o,
                     void *rows) {
    static void (*const launchers[])(struct gpu *, const struct moe_gemm *) = {
        launch_gemm<WEIGHT_Q2_K>,     launch_gemm<WEIGHT_LEVELS8>, launch_gemm<WEIGHT_Q4_K>,
        launch_gemm<WEIGHT_Q5_K>,     launch_gemm<WEIGHT_Q6_K>,    launch_gemm<WEIGHT_Q8_0>,
        launch_gemm<WEIGHT_Q4_0>,     launch_gemm<WEIGHT_MXFP4>,   launch_gemm<WEIGHT_NVFP4>,
        launch_gemm<WEIGHT_LEVELS16>, launch_gemm<WEIGHT_Q5_1>,    launch_gemm<WEIGHT_HALF>};
    struct moe_gemm a;
    const int64_t each = c->pair ? OUTPUTS / 2 : OUTPUTS;
    a.c = *c;
    a.o = *o;
    a.blocks = (int)((c->matrix[0].w.m + each - 1) / each);
    if (!gpu_check(g, gpu_make_map(gpu_maps(g), &a.rows, rows, c->stride, c->entries, STEP, N),
                   "moe (gemm)"))
        return;
    gpu_launch_early(g, "moe (rows)", gather_rows, (unsigned)c->entries, GATHER_THREADS, 0, *c,
                     o->entry, (uint4 *)rows);
    launchers[c->form](g, &a);
}
