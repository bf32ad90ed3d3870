// SPDX-License-Identifier: Apache-2.0
// How one warp routes a row: lane l has the experts l, l + 32, ...; the best is found by one
// maximum over the warp of keys that order values like numbers, and among equal ones the least
// expert. Sums over the chosen go in their order.
#ifndef COPPICE_OPS_GPU_MOE_ROUTE_CUH
#define COPPICE_OPS_GPU_MOE_ROUTE_CUH

#include "ops/args/mlp.h"
#include "ops/gpu/linear/form/act.cuh"

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
        unsigned most = 0, at = 0xFFFFFFFFu;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            most = max(most, key[i]);
        most = warp_largest(most);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            at = key[i] == most ? (unsigned)(i * WARP + lane) : at;
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
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        most = fmaxf(most, r.p[i]);
    if (a.score == ROUTE_SOFTMAX) {
        most = warp_max(most);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float e = i * WARP + lane < a.experts ? expf(r.p[i] - most) : 0.0f;
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
        unsigned most = 0, at = 0xFFFFFFFFu;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            most = max(most, key[i]);
        most = warp_largest(most);
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            at = key[i] == most ? (unsigned)(i * WARP + lane) : at;
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
static __device__ __forceinline__ float weigh(const moe_route_args &a, int lane, int expert,
                                              float w) {
    float sum = 0;
    if (a.score == ROUTE_SOFTMAX_CHOSEN) {
        const float most = warp_max(lane < a.used ? w : -INFINITY);
        w = expf(w - most);
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
    w = weigh(a, lane, own, w);
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

#endif
