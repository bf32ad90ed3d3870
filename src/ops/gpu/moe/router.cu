// SPDX-License-Identifier: Apache-2.0
// The router's product and its choice in one launch, for few rows. A block has 16 logits of some
// rows, a warp one part of k of them; besides those of the router there may be one more block for
// the gate of a shared expert, which also turns that into its weight. Its weights are in shared
// memory before it waits. The last block for some rows multiplies nothing: it waits for their
// logits, each of which comes as one word with the launch's number, and routes them. The blocks
// that it waits for have been started before it. Logits are linear's to the bit: the chain of
// matrix instructions of ops/gpu/linear/many/tiles.cuh, parts added in order.
#include "ops/args/mlp.h"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/moe/few.cuh"
#include "ops/gpu/moe/moe.h"
#include "ops/gpu/runtime/ops_cuda.h"

// How one warp routes a row: lane l has the experts l, l + 32, ...; the best is found by one
// maximum over the warp of keys that order values like numbers, and among equal ones the least
// expert. Sums over the chosen go in their order.

// Larger for larger values; 0 for none.
static __device__ __forceinline__ unsigned order_key(float v) {
    const unsigned b = __float_as_uint(v);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

static __device__ __forceinline__ unsigned least_of(unsigned v) {
    return ~warp_largest(~v);
}

// A row's experts of one lane.
template <int EACH> struct route_lane {
    float p[EACH];      // probabilities, or logits where the chosen ones' are wanted
    unsigned key[EACH]; // of the choice; 0: out

    // The best expert in question, which is out from then on.
    __device__ __forceinline__ int take(int lane) {
        unsigned maximum = 0, at = 0xFFFFFFFFu;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            maximum = max(maximum, key[i]);
        maximum = warp_largest(maximum);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            at = key[i] == maximum ? (unsigned)(i * WARP + lane) : at;
        at = least_of(at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            key[i] = at == (unsigned)(i * WARP + lane) ? 0 : key[i];
        return (int)at;
    }
    // p of an expert, in all lanes.
    __device__ __forceinline__ float of(int expert) const {
        float v = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v = i == expert / WARP ? p[i] : v;
        return warp_from(v, expert % WARP);
    }
};

// p: logits, -INFINITY where there is no expert.
template <int EACH>
static __device__ __forceinline__ void probabilities(const moe_route_args &a, int lane,
                                                     route_lane<EACH> &r) {
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        max = fmaxf(max, r.p[i]);
    if (a.score == ROUTE_SOFTMAX) {
        max = warp_max(max);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float e = i * WARP + lane < a.experts ? expf(r.p[i] - max) : 0.0f;
            sum += e;
            r.key[i] = __float_as_uint(e);
        }
        sum = warp_sum(sum);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int expert = i * WARP + lane;
        const float logit = r.p[i];
        if (a.score == ROUTE_SOFTMAX)
            r.p[i] = __uint_as_float(r.key[i]) / sum;
        else if (a.score == ROUTE_SIGMOID)
            r.p[i] = 1.0f / (1.0f + expf(-logit));
        float by = r.p[i];
        if (a.bias && expert < a.experts)
            by += a.bias[expert];
        by = by == by && logit == logit ? by + 0.0f : -INFINITY; // and never -0
        r.key[i] = expert < a.experts ? order_key(by) : 0;
    }
}

// Takes all experts out that are not in the best groups. by, best: of the warp, in shared memory.
template <int EACH>
static __device__ __forceinline__ void drop_groups(const moe_route_args &a, int lane,
                                                   route_lane<EACH> &r, float *by) {
    const int size = a.experts / a.groups;
    unsigned key[EACH], chosen[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const unsigned k = r.key[i];
        const float v = __uint_as_float(k & 0x80000000u ? k & 0x7FFFFFFFu : ~k);
        if (i * WARP + lane < a.experts)
            by[i * WARP + lane] = v;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int group = i * WARP + lane;
        float first = -INFINITY, second = -INFINITY;
        for (int j = 0; group < a.groups && j < size; j++) {
            const float v = by[group * size + j];
            second = v > first ? first : v > second ? v : second;
            first = v > first ? v : first;
        }
        const float as_good = a.group_best || size == 1 ? first : first + second;
        key[i] = group < a.groups ? order_key(as_good + 0.0f) : 0;
        chosen[i] = 0;
    }
    for (int n = 0; n < a.groups_used; n++) {
        unsigned maximum = 0, at = 0xFFFFFFFFu;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            maximum = max(maximum, key[i]);
        maximum = warp_largest(maximum);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            at = key[i] == maximum ? (unsigned)(i * WARP + lane) : at;
        at = least_of(at);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool here = at == (unsigned)(i * WARP + lane);
            key[i] = here ? 0 : key[i];
            chosen[i] = here ? 1 : chosen[i];
        }
    }
    __syncwarp();
    unsigned *in = (unsigned *)by;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i * WARP + lane < a.groups)
            in[i * WARP + lane] = chosen[i];
    __syncwarp();
    // An expert outside of them may still be chosen where all others are no numbers: never, since
    // the groups that are left have experts enough.
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i * WARP + lane < a.experts && !in[(i * WARP + lane) / size])
            r.key[i] = 0;
    __syncwarp();
}

// Lane i has the weight of the row's i-th expert, whose number is `expert`.
static __device__ __forceinline__ float weigh_expert(const moe_route_args &a, int lane, int expert,
                                                     float w) {
    float sum = 0;
    if (a.score == ROUTE_SOFTMAX_CHOSEN) {
        const float max = warp_max(lane < a.used ? w : -INFINITY);
        w = expf(w - max);
        for (int i = 0; i < a.used; i++)
            sum += warp_from(w, i);
        w /= sum;
        sum = 0;
    }
    for (int i = 0; i < a.used; i++)
        sum += warp_from(w, i);
    if (a.normalise)
        w /= sum + 1e-20f;
    w *= a.scale;
    return a.expert_scale ? w * a.expert_scale[expert] : w;
}

// Routes one row, whose logits are in r.p; by: EACH * WARP floats of the warp.
template <int EACH>
static __device__ __forceinline__ void route_logits(const moe_route_args &a, int64_t row,
                                                    route_lane<EACH> &r, float *by) {
    const int lane = threadIdx.x % WARP;
    probabilities<EACH>(a, lane, r);
    if (a.groups > 1)
        drop_groups<EACH>(a, lane, r, by);
    int own = 0;
    float w = 0;
    for (int i = 0; i < a.used; i++) {
        const int expert = r.take(lane);
        const float p = r.of(expert);
        own = lane == i ? expert : own;
        w = lane == i ? p : w;
    }
    w = weigh_expert(a, lane, own, w);
    if (lane < a.used) {
        a.ids[row * a.used + lane] = own;
        a.weights[row * a.used + lane] = w;
    }
}

// The same for a row of logits in memory, which other blocks may have written.
template <int EACH>
static __device__ __forceinline__ void route_row(const moe_route_args &a, int64_t row, float *by) {
    const float *logits = a.logits + row * a.experts + threadIdx.x % WARP;
    route_lane<EACH> r;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        r.p[i] =
            i * WARP + (int)threadIdx.x % WARP < a.experts ? __ldcg(logits + i * WARP) : -INFINITY;
    route_logits<EACH>(a, row, r, by);
}

enum { ROUTER_THREADS = LINEAR_PARTS * WARP, WORDS = 32768 };

typedef unsigned long long router_word; // a launch's number above a logit's bits

struct moe_router {
    struct matrix_view w[2]; // of the experts, of the gate
    int tiles, parts;        // of the experts; of both
    int begin[LINEAR_PARTS + 1];
    const float *bias; // [experts], or NULL
    const __half *x;   // [n][stride]
    int64_t stride;
    const float *unscale;       // [n]
    float *out[2];              // [n][experts], [n]
    struct moe_route_args r[2]; // of each
    int columns, pitch;         // rows of a block, at most; bytes from row to row
    int rows, sums;             // where these begin in shared memory
    router_word *word;          // [n][experts]
    uint32_t number;            // of the launch
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
// The rows to shared memory, as moe_take does.
static __device__ __forceinline__ void router_take(const moe_router &a, int64_t first, int n,
                                                   unsigned char *to) {
    const int groups = (int)(a.stride / 32);
    for (int i = threadIdx.x; i < groups * n; i += blockDim.x) {
        const int r = i / groups, at = i - r * groups;
        const uint4 *from = (const uint4 *)(a.x + (first + r) * a.stride) + at * 4;
        uint4 *place = (uint4 *)(to + r * a.pitch) + at * 4, v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = __ldcg(from + j);
        place[0] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
        place[1] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
        place[2] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
        place[3] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
    }
}

static __device__ __forceinline__ void router_give(router_word *to, uint32_t number, float v) {
    store_relaxed(to, (router_word)number << 32 | __float_as_uint(v));
}

// The logit, when it is there.
static __device__ __forceinline__ float router_get(const router_word *from, uint32_t number) {
    router_word v;
    do {
        v = load_relaxed(from);
    } while (v >> 32 != number);
    return __uint_as_float((uint32_t)v);
}

// Adds up a block's parts.
static __device__ __forceinline__ void router_finish(const moe_router &a, int gate, int tile,
                                                     int64_t first, int n, const float *sums,
                                                     float power) {
    const matrix_view &w = a.w[gate];
    for (int i = threadIdx.x; i < n * TILE_ROWS; i += blockDim.x) {
        const int r = i / TILE_ROWS, o = i % TILE_ROWS;
        const int64_t m = (int64_t)tile * TILE_ROWS + o, at = (first + r) * w.m + m;
        if (m >= w.m)
            continue;
        const float *from = sums + r * MOE_SUM_PITCH + o;
        float sum = from[0];
        for (int p = 1; p < a.parts; p++)
            sum += from[p * MOE_SUMS];
        float v = sum * power * __ldcg(a.unscale + first + r);
        if (!gate && a.bias)
            v = __fadd_rn(v, a.bias[m]);
        if (!gate)
            router_give(a.word + at, a.number, v);
        a.out[gate][at] = v;
    }
}

// Routes n rows as soon as their logits are there.
template <int EACH>
static __device__ __forceinline__ void router_choose(const moe_router &a, int64_t first, int n,
                                                     float *by) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, experts = a.r[0].experts;
    for (int r = warp; r < n; r += (int)blockDim.x / WARP) {
        const router_word *from = a.word + (first + r) * experts + lane;
        route_lane<EACH> logits;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            logits.p[i] =
                i * WARP + lane < experts ? router_get(from + i * WARP, a.number) : -INFINITY;
        __syncwarp();
        route_logits<EACH>(a.r[0], first + r, logits, by + warp * EACH * WARP);
    }
}
#endif

// Block (tile, group of rows); after the tiles the gate's, then the one that routes.
template <int FORM, int EACH>
static __global__ void __launch_bounds__(ROUTER_THREADS)
    router_kernel(const __grid_constant__ struct moe_router a) {
#if __CUDA_ARCH__ >= 800 // the launcher takes no other devices
    enum { SPAN = dequant<FORM>::SPAN, CHUNK = dequant<FORM>::CHUNK };
    extern __shared__ __align__(128) unsigned char shared[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t first = (int64_t)blockIdx.y * a.columns, left = a.r[0].n - first;
    const int n = left < a.columns ? (int)left : a.columns;
    if (blockIdx.x + 1 == gridDim.x) {
        gpu_await();
        gpu_let_next();
        router_choose<EACH>(a, first, n, (float *)shared);
        return;
    }
    const int gate = (int)blockIdx.x == a.tiles, tile = gate ? 0 : (int)blockIdx.x;
    const unsigned char *from = a.w[gate].data + tile * a.w[gate].pitch;
    const int begin = a.begin[warp], end = a.begin[warp + 1];
    for (int at = begin / SPAN * CHUNK + lane * 16; at < (end + SPAN - 1) / SPAN * CHUNK; at += 512)
        copy16<false>(shared + at, from + at);
    copies_end<false>();
    const int e = a.w[gate].exponent[tile * TILE_ROWS + threadIdx.x % TILE_ROWS];
    const float power = __int_as_float((127 - e) << 23);
    gpu_await();
    gpu_let_next();
    router_take(a, first, n, shared + a.rows);
    copies_wait<false, 0>();
    __syncthreads();
    const int column = lane / 4 < n ? lane / 4 : 0;
    const moe_lane_row row = {shared + a.rows + column * a.pitch + lane % 4 * 16, true};
    float d[4] = {0, 0, 0, 0};
#pragma unroll 2
    for (int k = begin; k < end; k += 64) {
        const unsigned char *chunk = shared + k / SPAN * CHUNK;
        dequant<FORM> q;
        q.open(chunk, 0, lane);
        q.section(chunk, 0, lane);
        moe_section<FORM, false>(d, q, row, k);
    }
    float *sums = (float *)(shared + a.sums);
    float *to = sums + warp * MOE_SUMS + lane % 4 * 2 * MOE_SUM_PITCH;
    to[lane / 4] = d[0];
    to[lane / 4 + MOE_SUM_PITCH] = d[1];
    to[lane / 4 + 8] = d[2];
    to[lane / 4 + 8 + MOE_SUM_PITCH] = d[3];
    __syncthreads();
    router_finish(a, gate, tile, first, n, sums, power);
    __syncthreads();
    for (int r = warp; gate && r < n; r += (int)blockDim.x / WARP)
        route_row<1>(a.r[1], first + r, NULL);
#else
    gpu_await();
    (void)a;
#endif
}

typedef void router_fn(const struct moe_router);

template <int FORM> static router_fn *kernel_of(int experts) {
    return experts <= 128   ? router_kernel<FORM, 4>
           : experts <= 256 ? router_kernel<FORM, 8>
                            : router_kernel<FORM, 32>;
}

// Divides shared memory for a block of that many rows; its size.
static int share_memory(struct moe_router *a, int columns) {
    const int max = 32 * 32 * LINEAR_PARTS * (int)sizeof(float); // of route_row
    const int weights = (int)a->w[0].pitch;
    a->columns = columns;
    a->pitch = (int)a->stride * 2 + 64;
    a->rows = (weights + 127) / 128 * 128;
    a->sums = a->rows + columns * a->pitch;
    const int bytes = a->sums + a->parts * MOE_SUMS * (int)sizeof(float);
    return bytes > max ? bytes : max;
}

// As few rows a block as leave all blocks a multiprocessor each, and as find room.
static int choose_rows(const struct gpu *g, struct moe_router *a, int64_t n, int blocks) {
    int columns = 1;
    while (columns < MOE_COLUMNS && (n + columns - 1) / columns * blocks > g->processors)
        columns *= 2;
    while (columns > 1 && share_memory(a, columns) > g->shared - 64)
        columns /= 2;
    const int bytes = share_memory(a, columns);
    return bytes > g->shared - 64 ? 0 : bytes;
}

static bool need_words(struct gpu *g) {
    if (!g->route_words)
        g->route_words = (router_word *)gpu_alloc(g, WORDS * sizeof(router_word));
    return g->route_words != NULL;
}

extern "C" size_t moe_kept(void) {
    return WORDS * sizeof(router_word);
}

extern "C" bool moe_reserve(struct gpu *g) {
    return need_words(g) && moe_sum_reserve(g);
}

bool moe_router_launch(struct gpu *g, const struct moe_layer_args *l) {
    const struct weight *w = l->in[0].w, *gate = l->n_in > 1 ? l->in[1].w : NULL;
    const int form = w->form;
    struct moe_router a = {};
    a.parts = linear_parts(w->k, w->m);
    if ((form != WEIGHT_FLOAT && form != WEIGHT_HALF) || l->in[0].add ||
        (gate && (gate->form != form || gate->k != w->k || l->in[1].add || l->in[1].bias ||
                  gate->m != 1 || linear_parts(gate->k, gate->m) != a.parts)))
        return false;
    a.w[0] = w->view;
    a.tiles = (int)w->view.tiles;
    a.bias = l->in[0].bias;
    for (int p = 0; p <= a.parts; p++)
        a.begin[p] = (int)linear_part_begin(w->k, a.parts, p);
    a.begin[a.parts] = (int)w->k;
    a.x = (const __half *)l->router_in->x;
    a.stride = l->router_in->stride;
    a.unscale = l->router_in->unscale;
    a.out[0] = l->in[0].out;
    a.r[0] = l->route;
    if (gate) {
        a.w[1] = gate->view;
        a.out[1] = l->in[1].out;
        a.r[1] = l->shared->gate;
    }
    const int blocks = a.tiles + (gate != NULL) + 1,
              shared = choose_rows(g, &a, l->route.n, blocks);
    router_fn *kernel = form == WEIGHT_FLOAT ? kernel_of<WEIGHT_FLOAT>(a.r[0].experts)
                                             : kernel_of<WEIGHT_HALF>(a.r[0].experts);
    if (!shared || l->route.n * w->m > WORDS || !need_words(g) ||
        !gpu_allow_max_shared(g, (const void *)kernel, "moe_route"))
        return false;
    a.word = g->route_words;
    a.number = g->epoch;
    dim3 grid((unsigned)blocks, (unsigned)((l->route.n + a.columns - 1) / a.columns));
    gpu_launch_early(g, "moe_route", kernel, grid, dim3((unsigned)a.parts * WARP), (size_t)shared,
                     a);
    return true;
}

// The choice on its own, a warp a row.
enum { ROUTE_THREADS = 128, ROUTE_ROWS = ROUTE_THREADS / WARP };

template <int EACH>
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_rows(const __grid_constant__ struct moe_route_args a) {
    __shared__ float by[ROUTE_ROWS][EACH * WARP];
    gpu_await();
    gpu_let_next();
    const int warp = threadIdx.x / WARP;
    const int64_t row = (int64_t)blockIdx.x * ROUTE_ROWS + warp;
    if (row < a.n)
        route_row<EACH>(a, row, by[warp]);
}

extern "C" void cuda_moe_route(struct exec *x, const struct moe_route_args *a) {
    struct gpu *g = gpu_of(x);
    const unsigned blocks = (unsigned)((a->n + ROUTE_ROWS - 1) / ROUTE_ROWS);
    if (a->n == 0)
        return;
    if (a->experts <= 128)
        gpu_launch_early(g, "moe_route", route_rows<4>, blocks, ROUTE_THREADS, 0, *a);
    else if (a->experts <= 256)
        gpu_launch_early(g, "moe_route", route_rows<8>, blocks, ROUTE_THREADS, 0, *a);
    else
        gpu_launch_early(g, "moe_route", route_rows<32>, blocks, ROUTE_THREADS, 0, *a);
}
