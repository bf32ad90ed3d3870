// SPDX-License-Identifier: Apache-2.0
// Activations: rows of f32 become fp16 times a power of two of their own, chosen so that the
// largest magnitude lies in [2^14, 2^15). Scaling by a power of two is exact, so fp16's 11 bits are
// the only rounding; linear layers take the power back. One block makes one row, in a fixed order.
#include "ops/gpu/linear/finish.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/form/conv.cuh"
#include "ops/gpu/moe/sum.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum {
    THREADS = 512,
    WARPS = THREADS / WARP,
    NARROW = 128,      // threads of a row where there are so many rows that the device is full
    NARROW_FOURS = 10, // of each of those threads, at most
    MANY_ROWS = 512,
    SHARERS = 8,      // blocks of a cluster
    SHARED_ROWS = 64, // that clusters make, at most
    GROUPS = 256,     // of a row, at most
    TWO_ROWS = 32,    // more of them, of more than TWO_WARPS * SHARERS groups, have two a warp
    TWO_WARPS = 8,
};

// Sum and maximum over the block in a fixed tree; every thread gets both.
static __device__ float2 block_reduce(float sum, float max) {
    __shared__ float2 part[WARPS];
    sum = warp_sum(sum);
    max = warp_max(max);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = make_float2(sum, max);
    __syncthreads();
    float2 v = part[threadIdx.x % WARPS];
    for (int d = WARPS / 2; d; d /= 2) {
        v.x += warp_across(v.x, d);
        v.y = fmaxf(v.y, warp_across(v.y, d));
    }
    return v;
}

// Rows in fours of values: thread t has fours t, t + THREADS, ... of its row, at most R.
struct rows_run {
    const float *in, *w; // [n][step]; [k] or NULL: no norm
    float eps;
    int64_t step, k, stride;
    __half *x; // [n][stride]
    float *unscale;
    float *plain; // [n][k], the same rows as f32; NULL: not wanted
};

// The values of a row: those at `in`. early: what may be read before the wait, four i of the row.
struct rows_stored {
    __device__ __forceinline__ void early(const float4 *, int) {
    }
    __device__ __forceinline__ void open(int64_t) {
    }
    __device__ __forceinline__ float4 operator()(const float4 *in, int i) const {
        return __ldcg(in + i);
    }
};

// Those that the parts of a linear layer add up to, which are then stored there.
struct rows_left {
    struct linear_left o;
    bool before; // what is added to is read early
    bool read;
    int64_t row;
    float back;
    float4 old;
    char4 e;
    __device__ __forceinline__ void early(const float4 *in, int i) {
        read = before;
        if (!before)
            return;
        e = finish_exponents(o, 0, i);
        if (o.add)
            old = __ldcg(in + i);
    }
    __device__ __forceinline__ void open(int64_t r) {
        row = r;
        back = __ldcg(o.unscale + r);
    }
    __device__ __forceinline__ float4 operator()(const float4 *in, int i) {
        if (!read) {
            e = finish_exponents(o, 0, i);
            if (o.add)
                old = __ldcg(in + i);
        }
        float4 v = finish_four(o, 0, row, i, back, e);
        v = o.add ? add_fours(old, v) : v;
        ((float4 *)in)[i] = v;
        return v;
    }
};

// Those that a layer of experts adds up to, likewise.
struct rows_summed {
    struct moe_sum s;
    int64_t row;
    __device__ __forceinline__ void early(const float4 *, int) {
    }
    __device__ __forceinline__ void open(int64_t r) {
        row = r;
    }
    __device__ __forceinline__ float4 operator()(const float4 *in, int i) {
        float v[4];
        moe_sum_values<4>(s, row, i, v);
        const float4 sum = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)in)[i] = sum;
        return sum;
    }
};

// T threads make a row.
template <int R, int T, class SOURCE>
static __global__ void __launch_bounds__(T) make_rows(struct rows_run a, SOURCE source) {
    enum { GROUPS_OF = R * T / WARP };
    gpu_let_ahead();
    gpu_await();
    const float4 *in = (const float4 *)(a.in + blockIdx.x * a.step);
    int fours = (int)(a.k / 4), all = (int)(a.stride / 4);
    __shared__ float2 group[GROUPS_OF];
    float4 v[R];
    source.open(blockIdx.x);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = r * T + threadIdx.x;
        v[r] = i < fours ? source(in, i) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = r * T + threadIdx.x;
        float4 by = make_float4(0, 0, 0, 0);
        if (a.w && i < fours)
            by = ((const float4 *)a.w)[i];
        float2 seen = act_survey(v[r], by, a.w != NULL);
        if (threadIdx.x % WARP == 0)
            group[i / 32] = seen;
        v[r] = act_weighted(v[r], by, a.w != NULL);
    }
    __syncthreads();
    float2 whole = make_float2(0, 0);
    for (int g = threadIdx.x % WARP; g < GROUPS_OF; g += 32)
        whole = act_gather(whole, group[g]);
    const act_scale scale(whole, a.w != NULL, a.k, a.eps);
    uint2 *x = (uint2 *)(a.x + blockIdx.x * a.stride);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = r * T + threadIdx.x;
        if (i < all)
            x[i] = scale.pack(v[r]);
        if (a.plain && i < fours)
            ((float4 *)(a.plain + blockIdx.x * a.k))[i] = scale.times(v[r]);
    }
    if (threadIdx.x == 0)
        a.unscale[blockIdx.x] = power_of_two(-scale.e);
}

// The same for few rows: a cluster of SHARERS blocks makes a row, N groups a warp.
template <int N, class SOURCE> static __global__ void share_rows(struct rows_run a, SOURCE source) {
    gpu_let_ahead();
    __shared__ float2 group[GROUPS];
    const int lane = threadIdx.x % WARP, warps = SHARERS * blockDim.x / WARP;
    const int row = blockIdx.x / SHARERS, fours = (int)(a.k / 4);
    const int own = (int)(blockIdx.x % SHARERS * blockDim.x + threadIdx.x) / 32;
    const float4 *in = (const float4 *)(a.in + row * a.step);
    float4 v[N] = {}, by[N] = {};
    SOURCE from[N];
    cluster_arrive();
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int i = (own + n * warps) * 32 + lane;
        from[n] = source;
        if (a.w && i < fours)
            by[n] = ((const float4 *)a.w)[i];
        if (i < fours)
            from[n].early(in, i);
    }
    gpu_await();
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int i = (own + n * warps) * 32 + lane;
        from[n].open(row);
        if (i < fours)
            v[n] = from[n](in, i);
    }
    float2 seen[N];
#pragma unroll
    for (int n = 0; n < N; n++)
        seen[n] = act_survey(v[n], by[n], a.w != NULL);
    cluster_wait();
#pragma unroll
    for (int n = 0; n < N; n++)
        if (lane < SHARERS)
            cluster_store(&group[own + n * warps], lane, seen[n]);
    cluster_arrive();
    cluster_wait();
    float2 whole = make_float2(0, 0);
    for (int g = lane; g < N * warps; g += 32)
        whole = act_gather(whole, group[g]);
    const act_scale scale(whole, a.w != NULL, a.k, a.eps);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int i = (own + n * warps) * 32 + lane;
        v[n] = act_weighted(v[n], by[n], a.w != NULL);
        if (i * 4 < a.stride)
            ((uint2 *)(a.x + row * a.stride))[i] = scale.pack(v[n]);
        if (a.plain && i < fours)
            ((float4 *)(a.plain + row * a.k))[i] = scale.times(v[n]);
    }
    if (own == 0 && lane == 0)
        a.unscale[row] = power_of_two(-scale.e);
}

// The same for rows of any length and place.
static __global__ void __launch_bounds__(THREADS) make_odd_rows(struct rows_run a) {
    gpu_let_ahead();
    gpu_await();
    const float *in = a.in + blockIdx.x * a.step;
    float sum = 0, max = 0;
    for (int64_t i = threadIdx.x; i < a.k; i += THREADS) {
        sum = fmaf(in[i], in[i], sum);
        max = fmaxf(max, fabsf(a.w ? in[i] * a.w[i] : in[i]));
    }
    float2 whole = block_reduce(sum, max);
    float factor = a.w ? 1.0f / sqrtf(whole.x / (float)a.k + a.eps) : 1.0f;
    int e = act_exponent(whole.y * factor, 126);
    for (int64_t i = threadIdx.x; i < a.stride; i += THREADS) {
        float v = i < a.k ? (a.w ? in[i] * a.w[i] : in[i]) * factor : 0;
        a.x[blockIdx.x * a.stride + i] = __float2half_rn(v * power_of_two(e));
        if (a.plain && i < a.k)
            a.plain[blockIdx.x * a.k + i] = v;
    }
    if (threadIdx.x == 0)
        a.unscale[blockIdx.x] = power_of_two(-e);
}

// All of these let the next launch begin before they wait, and store rows that they add up.
static const struct launch_says MAKES = {MEMORY_WEIGHTS, MEMORY_ACTS, true, NULL, false};
static const struct launch_says ADDS = {MEMORY_WEIGHTS, MEMORY_ACTS | MEMORY_ROWS, true, NULL,
                                        false};

static struct launch_says stores(const struct rows_run *a) {
    return a->plain ? ADDS : MAKES;
}

template <int R, int T>
static void launch_rows_of(struct gpu *g, const struct rows_run *a, unsigned blocks,
                           const char *what) {
    rows_left left = {};
    rows_summed summed = {};
    if (a->w && linear_take_sums(g, a->in, blocks, a->k, &left.o))
        gpu_launch_saying({g, what, ADDS}, make_rows<R, T, rows_left>, blocks, T, 0, *a, left);
    else if (a->w && moe_take_sum(g, a->in, blocks, a->k, &summed.s))
        gpu_launch_saying({g, what, ADDS}, make_rows<R, T, rows_summed>, blocks, T, 0, *a, summed);
    else
        gpu_launch_saying({g, what, stores(a)}, make_rows<R, T, rows_stored>, blocks, T, 0, *a,
                          rows_stored());
}

static bool odd(const struct rows_run *a) {
    const size_t places = (size_t)a->in | (size_t)a->w | (size_t)a->plain;
    return a->k % 4 || a->step % 4 || places % 16;
}

static bool is_shared(const struct gpu *g, const struct rows_run *a, int64_t n) {
    return !odd(a) && g->clusters && n <= SHARED_ROWS && a->stride <= GROUPS * 128;
}

// share_rows with as many groups a warp as it takes: long rows that are many have two, so that the
// device has room for all blocks.
template <class SOURCE>
static void launch_source(const struct gpu_said &what, const struct rows_run *a, unsigned n,
                          const SOURCE &source) {
    const int groups = (int)((a->stride + 127) / 128), one = (groups + SHARERS - 1) / SHARERS;
    const bool two = one > TWO_WARPS && n > TWO_ROWS;
    const unsigned warps = (unsigned)(two ? (one + 1) / 2 : one);
    gpu_launch_cluster(what, two ? share_rows<2, SOURCE> : share_rows<1, SOURCE>, SHARERS,
                       dim3(n * SHARERS), dim3(warps * 32), *a, source);
}

static void launch_shared(struct gpu *g, const struct rows_run *a, unsigned n, const char *what) {
    rows_left left = {};
    rows_summed summed = {};
    struct launch_says adds = ADDS;
    left.before = gpu_may_read(g, MEMORY_ROWS);
    adds.early |= left.before ? (unsigned)MEMORY_ROWS : 0u;
    if (linear_take_sums(g, a->in, n, a->k, &left.o))
        launch_source({g, what, adds}, a, n, left);
    else if (moe_take_sum(g, a->in, n, a->k, &summed.s))
        launch_source({g, what, ADDS}, a, n, summed);
    else
        launch_source({g, what, stores(a)}, a, n, rows_stored());
}

static void launch_rows(struct gpu *g, const struct rows_run *a, int64_t n, const char *what) {
    int64_t each = (a->stride / 4 + THREADS - 1) / THREADS;
    unsigned blocks = (unsigned)n;
    if (n == 0)
        return;
    if (odd(a) || each > 16)
        gpu_launch_saying({g, what, stores(a)}, make_odd_rows, blocks, THREADS, 0, *a);
    else if (is_shared(g, a, n))
        launch_shared(g, a, blocks, what);
    else if (n >= MANY_ROWS && a->stride <= NARROW_FOURS * 4 * NARROW)
        launch_rows_of<NARROW_FOURS, NARROW>(g, a, blocks, what);
    else if (each <= 1)
        launch_rows_of<1, THREADS>(g, a, blocks, what);
    else if (each <= 3)
        launch_rows_of<3, THREADS>(g, a, blocks, what);
    else if (each <= 9)
        gpu_launch_saying({g, what, stores(a)}, make_rows<9, THREADS, rows_stored>, blocks, THREADS,
                          0, *a, rows_stored());
    else
        gpu_launch_saying({g, what, stores(a)}, make_rows<16, THREADS, rows_stored>, blocks,
                          THREADS, 0, *a, rows_stored());
}

// A convolution and `a` of its rows as one launch, where they are of a kind that has it; what it
// reads of a linear layer's parts is added up there.
static bool launch_convolved(struct gpu *g, const struct block_conv_args *c,
                             const struct rows_run *a, const char *what) {
    const size_t places = (size_t)c->in | (size_t)c->base | (size_t)c->out | (size_t)c->own;
    rows_convolved source = {};
    if (!is_shared(g, a, c->n) || c->group % 4 || c->own_stride % 4 || places % 16)
        return false;
    source.c = *c;
    const bool fits = c->own_stride <= c->dim; // a row's threads store all of its kernels
    if (!fits || !linear_take_product(g, c->own, c->n, c->own_stride, NULL, &source.kernels))
        linear_take_product(g, c->in, c->n, c->dim, a->unscale, &source.rows);
    launch_source({g, what, ADDS}, a, (unsigned)c->n, source);
    return true;
}

// w silu(z) of four neighbouring values of a head.
static __device__ __forceinline__ float4 gate_of(float4 z, float4 w) {
    float v[4] = {z.x, z.y, z.z, z.w};
    silu_all(v);
    return make_float4(w.x * v[0], w.y * v[1], w.z * v[2], w.w * v[3]);
}

// A head of at most 128 values in fours, four a lane: normed and gated.
static __device__ __forceinline__ float4 gated_head(const struct gated_norm_args *a, float4 v,
                                                    float4 gate) {
    float sum = 0;
    sum = fmaf(v.x, v.x, sum);
    sum = fmaf(v.y, v.y, sum);
    sum = fmaf(v.z, v.z, sum);
    sum = fmaf(v.w, v.w, sum);
    float factor = 1.0f / sqrtf(warp_sum(sum) / (float)a->dv + a->eps);
    return make_float4(v.x * factor * gate.x, v.y * factor * gate.y, v.z * factor * gate.z,
                       v.w * factor * gate.w);
}

// The fours of gates that a warp has, in heads w, w + WARPS, ... of row `row`: at `z`, or a single
// row's that are left in parts.
template <int R, bool MANY>
static __device__ __forceinline__ void load_gates(const struct gated_norm_args &a,
                                                  const struct linear_left &left, float4 (&z)[R]) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, at = lane * 4;
    const float *gate = a.z + (int64_t)blockIdx.x * a.heads * a.dv;
    const bool parts = !MANY && left.parts;
    const float back = parts ? __ldcg(left.unscale) : 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int head = warp + r * WARPS;
        z[r] = make_float4(0, 0, 0, 0);
        if (head >= a.heads || at >= a.dv)
            continue;
        z[r] = parts ? finish_four(left, 0, 0, (head * a.dv + at) / 4, back)
                     : __ldcg((const float4 *)(gate + head * a.dv + at));
    }
}

// Blocks of gated_rows on a multiprocessor, of which 7.5 has room for two.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { GATED_BLOCKS = 2 };
#else
enum { GATED_BLOCKS = 3 };
#endif

// Block: a row. Warp w has heads w, w + WARPS, ... of it, at most R. Gates are read early; those of
// a single row may be left in parts, and are stored then. With few rows they are computed while the
// kernel in front ends, with MANY after the other loads.
template <int R, bool MANY>
static __global__ void __launch_bounds__(THREADS, !MANY    ? 1
                                                  : R <= 3 ? (int)GATED_BLOCKS
                                                           : 2)
    gated_rows(struct gated_norm_args a, __half *x, float *unscale, int64_t stride,
               const __grid_constant__ struct linear_left left) {
    gpu_let_ahead();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, at = lane * 4, k = a.heads * a.dv;
    const float *in = a.in + (int64_t)blockIdx.x * k;
    float4 v[R], z[R], raw[R], w = make_float4(0, 0, 0, 0);
    float max = 0;
    if (at < a.dv)
        w = *(const float4 *)(a.w + at);
    load_gates<R, MANY>(a, left, raw);
#pragma unroll
    for (int r = 0; r < R && !MANY; r++)
        z[r] = gate_of(raw[r], w);
    gpu_await();
#pragma unroll
    for (int r = 0; r < R; r++) {
        int head = warp + r * WARPS;
        v[r] = make_float4(0, 0, 0, 0);
        if (head < a.heads && at < a.dv)
            v[r] = __ldcg((const float4 *)(in + head * a.dv + at));
        if (!MANY && left.parts && head < a.heads && at < a.dv)
            *(float4 *)(left.out + head * a.dv + at) = raw[r];
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (MANY)
            z[r] = gate_of(raw[r], w);
        v[r] = gated_head(&a, v[r], z[r]);
        max = fmaxf(max, largest(v[r]));
    }
    max = block_reduce(0, max).y;
    int e = act_exponent(max, 126);
    __half *out = x + blockIdx.x * stride;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int head = warp + r * WARPS;
        if (head < a.heads && at < a.dv)
            *(uint2 *)(out + head * a.dv + at) = act_pack(v[r], power_of_two(e));
    }
    for (int64_t i = k + threadIdx.x; i < stride; i += THREADS)
        out[i] = __float2half_rn(0);
    if (threadIdx.x == 0)
        unscale[blockIdx.x] = power_of_two(-e);
}

// Any shape: one warp a head; rows go to the wide form at `wide`.
static __global__ void gated_norm(struct gated_norm_args a, float *wide, int64_t stride) {
    gpu_let_ahead();
    gpu_await();
    int64_t h = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (h >= a.n * a.heads)
        return;
    int lane = threadIdx.x % WARP;
    const float *in = a.in + h * a.dv, *z = a.z + h * a.dv;
    float sum = 0;
    for (int i = lane; i < a.dv; i += 32)
        sum = fmaf(in[i], in[i], sum);
    float factor = 1.0f / sqrtf(warp_sum(sum) / (float)a.dv + a.eps);
    float *out = wide + h / a.heads * stride + h % a.heads * a.dv;
    for (int i = lane; i < a.dv; i += 32)
        out[i] = in[i] * factor * a.w[i] * (z[i] / (1.0f + expf(-z[i])));
}

extern "C" void cuda_act_shape(struct act *a, int64_t n, int64_t k) {
    (void)n;
    a->k = k;
    a->stride = (k + ACT_ALIGN - 1) / ACT_ALIGN * ACT_ALIGN;
}

// Rows at `in`, which are `step` values apart, to `a`, which has its shape.
static struct rows_run rows_to(struct act *a, const float *in, int64_t step) {
    return {in, NULL, 0, step, a->k, a->stride, (__half *)a->x, a->unscale, NULL};
}

extern "C" void cuda_act_finish(struct exec *x, struct act *a, int64_t n) {
    const struct rows_run run = rows_to(a, a->wide, a->stride);
    launch_rows(gpu_of(x), &run, n, "act_finish");
}

extern "C" void act_defer(struct gpu *g, struct act *a, int64_t n) {
    g->deferred_act = a;
    g->deferred_rows = n;
    g->deferred_plain = false;
}

extern "C" void act_defer_plain(struct gpu *g, struct act *a, int64_t n) {
    act_defer(g, a, n);
    g->deferred_plain = true;
}

static bool take_deferred(struct gpu *g, const void *x, int64_t n, bool plain, struct act *a) {
    if (g->deferred_rows != n || g->deferred_act->x != x || g->deferred_plain != plain)
        return false;
    *a = *g->deferred_act;
    g->deferred_rows = 0;
    return true;
}

extern "C" bool act_take(struct gpu *g, const void *x, int64_t n, struct act *a) {
    return take_deferred(g, x, n, false, a);
}

extern "C" bool act_take_plain(struct gpu *g, const void *x, int64_t n, struct act *a) {
    return take_deferred(g, x, n, true, a);
}

extern "C" void act_flush(struct gpu *g) {
    const int64_t n = g->deferred_rows;
    g->deferred_rows = 0;
    if (n)
        cuda_act_finish((struct exec *)g, g->deferred_act, n);
}

extern "C" void cuda_to_act(struct exec *x, const float *in, int64_t n, int64_t k,
                            struct act *out) {
    cuda_act_shape(out, n, k);
    const struct rows_run run = rows_to(out, in, k);
    launch_rows(gpu_of(x), &run, n, "to_act");
}

// Block (row, piece). Rows of `out` are `stride` values apart.
static __global__ void __launch_bounds__(THREADS)
    convolve_rows(const __grid_constant__ struct block_conv_args a, float *to, int64_t stride) {
    gpu_await();
    const int64_t i = blockIdx.x, c = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (c >= a.dim)
        return;
    const float *own = a.own + i * a.own_stride + c / a.group;
    const int64_t before = i % a.block, groups = a.dim / a.group;
    float y = 0;
    for (int o = 0; o < a.taps && o <= before; o++) {
        const float k = __fadd_rn(a.base[o * a.dim + c], __ldcg(own + o * groups));
        const float v = __fmul_rn(k, __ldcg(a.in + (i - o) * a.dim + c));
        y = o ? __fadd_rn(y, v) : v;
    }
    float *out = to + i * stride + c;
    *out = a.add ? __fadd_rn(__ldcg(out), y) : y;
}

static void convolve(struct gpu *g, const struct block_conv_args *a, float *out, int64_t stride) {
    dim3 grid((unsigned)a->n, (unsigned)((a->dim + THREADS - 1) / THREADS));
    if (a->n > 0)
        gpu_launch_early(g, "block_conv", convolve_rows, grid, THREADS, 0, *a, out, stride);
}

// A row of norm, one block: each thread writes what it alone has read, so that out may be in.
static __global__ void __launch_bounds__(THREADS) norm_row(struct norm_args a) {
    gpu_await();
    const float *in = a.in + blockIdx.x * a.k;
    float *out = a.out + blockIdx.x * a.k, sum = 0;
    for (int64_t i = threadIdx.x; i < a.k; i += THREADS)
        sum = fmaf(__ldcg(in + i), __ldcg(in + i), sum);
    float factor = 1.0f / sqrtf(block_reduce(sum, 0).x / (float)a.k + a.eps);
    for (int64_t i = threadIdx.x; i < a.k; i += THREADS) {
        float y = __ldcg(in + i) * factor * (a.w ? a.w[i] : 1.0f);
        out[i] = a.add ? __ldcg(out + i) + y : y;
    }
}

extern "C" void cuda_norm(struct exec *x, const struct norm_args *a) {
    const struct launch_says says = {MEMORY_WEIGHTS, MEMORY_ROWS, false, NULL, false};
    struct gpu *g = gpu_of(x);
    if (!a->act) {
        if (a->n)
            gpu_launch_saying({g, "norm", says}, norm_row, (unsigned)a->n, THREADS, 0, *a);
        return;
    }
    cuda_act_shape(a->act, a->n, a->k);
    struct rows_run run = rows_to(a->act, a->in, a->k);
    run.w = a->w;
    run.eps = a->eps;
    run.plain = a->out;
    if (a->conv && a->n && launch_convolved(g, a->conv, &run, "norm"))
        return;
    if (a->conv)
        cuda_block_conv(x, a->conv);
    launch_rows(g, &run, a->n, "norm");
}

extern "C" void cuda_block_conv(struct exec *x, const struct block_conv_args *a) {
    if (!a->act) {
        convolve(gpu_of(x), a, a->out, a->dim);
        return;
    }
    cuda_act_shape(a->act, a->n, a->dim);
    const struct rows_run run = rows_to(a->act, a->in, a->dim);
    if (a->n && launch_convolved(gpu_of(x), a, &run, "block_conv"))
        return;
    convolve(gpu_of(x), a, a->act->wide, a->act->stride);
    cuda_act_finish(x, a->act, a->n);
}

extern "C" void cuda_norm_to_act(struct exec *x, const float *in, const float *w, float eps,
                                 int64_t n, int64_t k, struct act *out) {
    cuda_act_shape(out, n, k);
    struct rows_run run = rows_to(out, in, k);
    run.w = w;
    run.eps = eps;
    launch_rows(gpu_of(x), &run, n, "norm_to_act");
}

template <int R> static void launch_gated(struct gpu *g, const struct gated_norm_args *a) {
    struct linear_left left = {};
    struct launch_says says = {MEMORY_WEIGHTS | MEMORY_ROWS, MEMORY_ACTS, true, NULL, false};
    if (a->n == 1 && linear_take_held(g, a->z, (int64_t)a->heads * a->dv, &left)) {
        says.early |= MEMORY_SUMS | MEMORY_ACTS;
        says.writes |= MEMORY_ROWS;
    }
    gpu_launch_saying({g, "gated_norm_to_act", says},
                      a->n > SHARED_ROWS ? gated_rows<R, true> : gated_rows<R, false>,
                      (unsigned)a->n, THREADS, 0, *a, (__half *)a->out->x, a->out->unscale,
                      a->out->stride, left);
}

extern "C" void cuda_gated_norm_to_act(struct exec *x, const struct gated_norm_args *a) {
    struct gpu *g = gpu_of(x);
    int64_t heads = a->n * a->heads;
    size_t places = (size_t)a->in | (size_t)a->z | (size_t)a->w;
    cuda_act_shape(a->out, a->n, (int64_t)a->heads * a->dv);
    if (heads == 0)
        return;
    if (a->dv > 128 || a->dv % 4 || places % 16 || a->heads > 4 * WARPS) {
        unsigned blocks = (unsigned)((heads + WARPS - 1) / WARPS);
        gpu_launch_saying({g, "gated_norm_to_act", MAKES}, gated_norm, blocks, THREADS, 0, *a,
                          a->out->wide, a->out->stride);
        cuda_act_finish(x, a->out, a->n);
        return;
    }
    if (a->heads <= WARPS)
        launch_gated<1>(g, a);
    else if (a->heads <= 3 * WARPS)
        launch_gated<3>(g, a);
    else
        launch_gated<4>(g, a);
}
