// SPDX-License-Identifier: Apache-2.0
// Which pages matter to a query (ops/args/pages.h): bounds of the keys of pages, and of scores with
// them. A bound is a minimum or maximum, which has no order; a score is lanes' sums over every 32nd
// channel, in order, added up by warp_sum: the same bits in any call. Both read what they need
// once, so bytes decide.
#include <math.h>

#include "ops/gpu/kv/stored.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum {
    PAGES = 256, // of a launch: their addresses are a parameter of the kernel
    SHARERS = 8, // of a page's keys
    WARPS = 8,   // a query head each
};

struct bounds_run {
    unsigned char *page[PAGES];
    float *out; // of the first of them
    struct kv_plane k;
    int64_t layer; // bytes from a page to the layer
    int32_t n_kv, dk, codec;
};

// Block (page, kv head), threads (eight values of a head, sharer).
static __global__ void __launch_bounds__(OPS_KEY_MAX / 8 * SHARERS)
    bound_pages(const __grid_constant__ struct bounds_run u) {
    extern __shared__ float part[]; // [2][SHARERS][dk]
    float min[8], max[8], x[8];
    const int at = (int)threadIdx.x * 8, sharer = (int)threadIdx.y;
    unsigned char *page = u.page[blockIdx.x] + u.layer;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        min[j] = INFINITY;
        max[j] = -INFINITY;
    }
    gpu_await();
    gpu_let_next();
    for (int slot = sharer; slot < KV_PAGE; slot += SHARERS) {
        int64_t row = (int64_t)blockIdx.y * KV_PAGE + slot;
        struct kv_row r = {page + u.k.codes + row * u.k.code_row,
                           page + u.k.scales + row * u.k.scale_row};
        kv_load8(u.codec, r, (int)threadIdx.x, x);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            min[j] = fminf(min[j], x[j]);
            max[j] = fmaxf(max[j], x[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        part[sharer * u.dk + at + j] = min[j];
        part[(SHARERS + sharer) * u.dk + at + j] = max[j];
    }
    __syncthreads();
    float *out = u.out + ((int64_t)blockIdx.x * u.n_kv + blockIdx.y) * 2 * u.dk;
    for (int i = (int)(threadIdx.y * blockDim.x + threadIdx.x); i < u.dk;
         i += (int)(blockDim.x * blockDim.y)) {
        float low = part[i], high = part[SHARERS * u.dk + i];
        for (int s = 1; s < SHARERS; s++) {
            low = fminf(low, part[s * u.dk + i]);
            high = fmaxf(high, part[(SHARERS + s) * u.dk + i]);
        }
        out[i] = low;
        out[u.dk + i] = high;
    }
}

extern "C" void cuda_key_bounds(struct exec *x, const struct key_bounds_args *a) {
    struct gpu *g = gpu_of(x);
    const struct kv_shape *s = &a->layout->s;
    struct bounds_run u;
    if (s->dk % 32 || s->dk > OPS_KEY_MAX) {
        gpu_check(g, GPU_NOT_SUPPORTED, "key_bounds: heads that are no multiple of 32");
        return;
    }
    u.k = a->layout->k;
    u.layer = a->layer * a->layout->layer_bytes;
    u.n_kv = s->n_heads;
    u.dk = s->dk;
    u.codec = (int32_t)s->codec_k;
    for (int64_t first = 0; first < a->n; first += PAGES) {
        int64_t n = a->n - first < PAGES ? a->n - first : (int64_t)PAGES;
        for (int64_t i = 0; i < PAGES; i++)
            u.page[i] = a->pages[first + (i < n ? i : 0)];
        u.out = a->out + first * s->n_heads * 2 * s->dk;
        gpu_launch_early(g, "key_bounds", bound_pages, dim3((unsigned)n, (unsigned)s->n_heads),
                         dim3((unsigned)(s->dk / 8), SHARERS),
                         (size_t)(2 * SHARERS * s->dk) * sizeof(float), u);
    }
}

// Block (page, part of the query heads), a warp each.
static __global__ void __launch_bounds__(WARPS *WARP)
    score_pages(const __grid_constant__ struct page_scores_args a) {
    const int lane = (int)threadIdx.x % WARP;
    const int h = (int)(blockIdx.y * WARPS + threadIdx.x / WARP);
    const int64_t page = blockIdx.x;
    float sum = 0;
    gpu_await();
    gpu_let_next();
    if (h >= a.n_heads)
        return;
    const float *q = a.q + (int64_t)h * a.dk;
    const float *min = a.bounds + (page * a.n_kv + h / (a.n_heads / a.n_kv)) * 2 * a.dk;
    for (int d = lane; d < a.dk; d += WARP)
        sum += fmaxf(__ldcg(q + d) * __ldcg(min + d), __ldcg(q + d) * __ldcg(min + a.dk + d));
    sum = warp_sum(sum);
    if (lane == 0)
        a.out[h * a.stride + page] = a.scale * sum;
}

extern "C" void cuda_page_scores(struct exec *x, const struct page_scores_args *a) {
    if (a->n > 0)
        gpu_launch_early(gpu_of(x), "page_scores", score_pages,
                         dim3((unsigned)a->n, (unsigned)((a->n_heads + WARPS - 1) / WARPS)),
                         WARPS * WARP, 0, *a);
}
