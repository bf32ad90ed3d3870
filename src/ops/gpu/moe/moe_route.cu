// SPDX-License-Identifier: Apache-2.0
// The router and the weighed sum of a row's entries. A warp has a row of logits, lane l the experts
// l, l + 32, ...; the best is found by one maximum over the warp of keys that order values like
// numbers, and among equal ones the least expert. Sums over the chosen go in their order.
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 128, ROWS = THREADS / 32 };

// Larger for larger values; 0 for none.
static __device__ __forceinline__ unsigned order_key(float v) {
    const unsigned b = __float_as_uint(v);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

static __device__ __forceinline__ unsigned most_of(unsigned v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFFu, v);
#else
    for (int d = 16; d; d /= 2)
        v = max(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    return v;
#endif
}

static __device__ __forceinline__ unsigned least_of(unsigned v) {
    return ~most_of(~v);
}

// A row's experts of one lane.
template <int EACH> struct route_lane {
    float p[EACH];      // probabilities, or logits where the chosen ones' are wanted
    unsigned key[EACH]; // of the choice; 0: out

    // The best expert in question, which is out from then on.
    __device__ __forceinline__ int take(int lane) {
        unsigned most = 0, at = 0xFFFFFFFFu;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            most = max(most, key[i]);
        most = most_of(most);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            at = key[i] == most ? (unsigned)(i * 32 + lane) : at;
        at = least_of(at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            key[i] = at == (unsigned)(i * 32 + lane) ? 0 : key[i];
        return (int)at;
    }
    // p of an expert, in all lanes.
    __device__ __forceinline__ float of(int expert) const {
        float v = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v = i == expert / 32 ? p[i] : v;
        return __shfl_sync(0xFFFFFFFFu, v, expert % 32);
    }
};

template <int EACH>
static __device__ __forceinline__ void probabilities(const moe_route_args &a, const float *logits,
                                                     int lane, route_lane<EACH> &r) {
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        r.p[i] = i * 32 + lane < a.experts ? __ldcg(logits + i * 32 + lane) : -INFINITY;
        most = fmaxf(most, r.p[i]);
    }
    if (a.score == ROUTE_SOFTMAX) {
        most = warp_max(most);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float e = i * 32 + lane < a.experts ? expf(r.p[i] - most) : 0.0f;
            sum += e;
            r.key[i] = __float_as_uint(e);
        }
        sum = warp_sum(sum);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int expert = i * 32 + lane;
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
        if (i * 32 + lane < a.experts)
            by[i * 32 + lane] = v;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int group = i * 32 + lane;
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
        unsigned most = 0, at = 0xFFFFFFFFu;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            most = max(most, key[i]);
        most = most_of(most);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            at = key[i] == most ? (unsigned)(i * 32 + lane) : at;
        at = least_of(at);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool here = at == (unsigned)(i * 32 + lane);
            key[i] = here ? 0 : key[i];
            chosen[i] = here ? 1 : chosen[i];
        }
    }
    __syncwarp();
    unsigned *in = (unsigned *)by;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i * 32 + lane < a.groups)
            in[i * 32 + lane] = chosen[i];
    __syncwarp();
    // An expert outside of them may still be chosen where all others are no numbers: never, since
    // the groups that are left have experts enough.
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i * 32 + lane < a.experts && !in[(i * 32 + lane) / size])
            r.key[i] = 0;
    __syncwarp();
}

// Lane i has the weight of the row's i-th expert, whose number is `expert`.
static __device__ __forceinline__ float weigh(const moe_route_args &a, int lane, int expert,
                                              float w) {
    float sum = 0;
    if (a.score == ROUTE_SOFTMAX_CHOSEN) {
        const float most = warp_max(lane < a.used ? w : -INFINITY);
        w = expf(w - most);
        for (int i = 0; i < a.used; i++)
            sum += __shfl_sync(0xFFFFFFFFu, w, i);
        w /= sum;
        sum = 0;
    }
    for (int i = 0; i < a.used; i++)
        sum += __shfl_sync(0xFFFFFFFFu, w, i);
    if (a.normalise)
        w /= sum + 1e-20f;
    w *= a.scale;
    return a.expert_scale ? w * a.expert_scale[expert] : w;
}

template <int EACH>
static __global__ void __launch_bounds__(THREADS)
    route_rows(const __grid_constant__ struct moe_route_args a) {
    __shared__ float by[ROWS][EACH * 32];
    gpu_await();
    gpu_let_next();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
    if (row >= a.n)
        return;
    route_lane<EACH> r;
    probabilities<EACH>(a, a.logits + row * a.experts, lane, r);
    if (a.groups > 1)
        drop_groups<EACH>(a, lane, r, by[warp]);
    int own = 0;
    float w = 0;
    for (int i = 0; i < a.used; i++) {
        const int expert = r.take(lane);
        const float p = r.of(expert);
        own = lane == i ? expert : own;
        w = lane == i ? p : w;
    }
    w = weigh(a, lane, own, w);
    if (lane < a.used) {
        a.ids[row * a.used + lane] = own;
        a.weights[row * a.used + lane] = w;
    }
}

extern "C" void cuda_moe_route(struct exec *x, const struct moe_route_args *a) {
    struct gpu *g = gpu_of(x);
    const unsigned blocks = (unsigned)((a->n + ROWS - 1) / ROWS);
    if (a->n == 0)
        return;
    if (a->experts <= 128)
        gpu_launch_early(g, "moe_route", route_rows<4>, blocks, THREADS, 0, *a);
    else if (a->experts <= 256)
        gpu_launch_early(g, "moe_route", route_rows<8>, blocks, THREADS, 0, *a);
    else
        gpu_launch_early(g, "moe_route", route_rows<32>, blocks, THREADS, 0, *a);
}

// Block (piece, row): four values a thread, or one.
template <int V>
static __global__ void __launch_bounds__(THREADS)
    combine_rows(const __grid_constant__ struct moe_combine_args a) {
    gpu_await();
    gpu_let_next();
    const int64_t row = blockIdx.y, i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i >= a.m)
        return;
    float *out = a.out + row * a.m + i;
    const float *in = a.in + row * a.used * a.m + i, *w = a.weights + row * a.used;
    float sum[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        sum[v] = 0;
    if (a.add && V == 4)
        *(float4 *)sum = __ldcg((const float4 *)out);
    else if (a.add)
        sum[0] = __ldcg(out);
#pragma unroll 8
    for (int j = 0; j < a.used; j++) {
        const float by = __ldcg(w + j);
        float each[V];
        if constexpr (V == 4)
            *(float4 *)each = __ldcg((const float4 *)(in + j * a.m));
        else
            each[0] = __ldcg(in + j * a.m);
#pragma unroll
        for (int v = 0; v < V; v++)
            sum[v] = fmaf(by, each[v], sum[v]);
    }
    if constexpr (V == 4)
        *(float4 *)out = *(float4 *)sum;
    else
        out[0] = sum[0];
}

extern "C" void cuda_moe_combine(struct exec *x, const struct moe_combine_args *a) {
    struct gpu *g = gpu_of(x);
    const int64_t most = 32768; // of grid.y
    const bool fours = a->m % 4 == 0 && ((size_t)a->in | (size_t)a->out) % 16 == 0;
    const int64_t each = THREADS * (fours ? 4 : 1);
    for (int64_t row = 0; row < a->n; row += most) {
        struct moe_combine_args some = *a;
        some.n = a->n - row < most ? a->n - row : most;
        some.in += row * a->used * a->m;
        some.weights += row * a->used;
        some.out += row * a->m;
        dim3 grid((unsigned)((a->m + each - 1) / each), (unsigned)some.n);
        gpu_launch_early(g, "moe_combine", fours ? combine_rows<4> : combine_rows<1>, grid, THREADS,
                         0, some);
    }
}
