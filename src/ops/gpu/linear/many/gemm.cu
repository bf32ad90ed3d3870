// SPDX-License-Identifier: Apache-2.0
// Launches of gemm.cuh for jobs that share their rows.
#include "ops/gpu/linear/many/many.h"

#include "ops/gpu/linear/many/gemm.cuh"

struct gemm_call {
    typedef many_tile tile;
    enum { AHEAD = true };
    gpu_tile_map rows; // activations, in tiles of 64 values x N rows
    struct linear_launch l;
    int64_t tiles; // of all jobs; row tiles of one block of outputs follow each other

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __device__ __forceinline__ int64_t all_tiles(void) const {
        return tiles;
    }
    __device__ __forceinline__ int64_t values(void) const {
        return l.stride;
    }
    __device__ __forceinline__ many_tile tile_at(int64_t at, int rows_each) const {
        many_tile t;
        int j = 0;
        t.block = at / l.row_tiles;
        t.row = at % l.row_tiles * rows_each;
        while (j + 1 < l.jobs && t.block >= l.job[j + 1].first)
            j++;
        t.job = &l.job[j];
        t.block -= t.job->first;
        return t;
    }
    // Beyond the last tile it is repeated.
    __device__ __forceinline__ const unsigned char *data(const many_tile &t, int warp,
                                                         int i) const {
        const matrix_view &v = t.job->w[t.job->pair ? i : 0];
        const int64_t own =
            t.job->pair ? t.block * BRINGERS + warp : (t.block * BRINGERS + warp) * WARP_TILES + i;
        return v.data + (own < v.tiles ? own : v.tiles - 1) * v.pitch;
    }
    __device__ __forceinline__ bool is_pair(const many_tile &t) const {
        return t.job->pair;
    }
    __device__ __forceinline__ int parts(const many_tile &t) const {
        return t.job->parts;
    }
    __device__ __forceinline__ int64_t inputs(const many_tile &t) const {
        return t.job->w[0].k;
    }
    template <int N>
    __device__ __forceinline__ void store(const many_tile &t, const float (&d)[N / 2]) const {
        store_tile<N>(l, t, threadIdx.x / WARP - BRINGERS, d);
    }
#endif
};

template <int FORM, int N, bool PARTS> static void launch(struct gpu *g, struct gemm_call *c) {
    const int bytes = gemm_shape<FORM, N>::BYTES;
    c->l.row_tiles = (c->l.n + N - 1) / N;
    c->tiles *= c->l.row_tiles;
    gpu_error made = gpu_make_map(gpu_maps(g), &c->rows, c->l.x, c->l.stride, c->l.n, STEP, N);
    if (!gpu_check(g, made, "linear (gemm)"))
        return;
    gpu_allow_shared(g, (const void *)(linear_gemm<FORM, N, PARTS, gemm_call>), bytes,
                     "linear (gemm)");
    int64_t blocks = c->tiles < g->processors ? c->tiles : g->processors;
    gpu_launch_saying({g, "linear (gemm)", LINEAR_WHOLE}, linear_gemm<FORM, N, PARTS, gemm_call>,
                      dim3((unsigned)blocks), THREADS, (size_t)bytes, *c);
}

template <int FORM> static void launch_form(struct gpu *g, struct gemm_call *c, bool parts) {
    if (parts || c->l.n <= 128)
        launch<FORM, 128, true>(g, c);
    else
        launch<FORM, 256, false>(g, c);
}

void linear_gemm_launch(struct gpu *g, int form, struct linear_launch *l) {
    static void (*const launchers[])(struct gpu *, struct gemm_call *, bool) = {
        launch_form<WEIGHT_Q2_K>,     launch_form<WEIGHT_LEVELS8>, launch_form<WEIGHT_Q4_K>,
        launch_form<WEIGHT_Q5_K>,     launch_form<WEIGHT_Q6_K>,    launch_form<WEIGHT_Q8_0>,
        launch_form<WEIGHT_Q4_0>,     launch_form<WEIGHT_MXFP4>,   launch_form<WEIGHT_NVFP4>,
        launch_form<WEIGHT_LEVELS16>, launch_form<WEIGHT_Q5_1>,    launch_form<WEIGHT_HALF>};
    struct gemm_call c;
    bool parts = false;
    c.tiles = 0;
    for (int j = 0; j < l->jobs; j++) {
        struct linear_one *o = &l->job[j];
        int64_t each = o->pair ? OUTPUTS / 2 : OUTPUTS;
        o->first = c.tiles;
        c.tiles += (o->w[0].m + each - 1) / each;
        parts = parts || o->parts > 1;
    }
    c.l = *l;
    launchers[form](g, &c, parts);
}
