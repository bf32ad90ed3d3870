// SPDX-License-Identifier: Apache-2.0
// The weighed sum of a row's entries, and of a shared expert's result after them. It is deferred
// until the next thing is queued: a norm of the very rows takes it up itself (act.cu), before
// anything else sum.cu adds up.
#ifndef COPPICE_OPS_GPU_MOE_SUM_H
#define COPPICE_OPS_GPU_MOE_SUM_H

#include "ops/args/mlp.h"
#include "ops/gpu/runtime/ops_cuda.h"

struct moe_sum {
    struct moe_combine_args a;
    const float *shared;        // [n][m], or NULL
    const float *shared_weight; // [n]; NULL: 1
};

bool moe_sum_reserve(struct gpu *g); // memory for a sum; false: none

// Defers a sum; n is at most 32768 rows.
void moe_defer_sum(struct gpu *g, const struct moe_sum *s);

// Whether what is deferred is the sum of exactly rows[n][k]: then it is the caller's to add up by
// its next launch, in fours of values.
bool moe_take_sum(struct gpu *g, const float *rows, int64_t n, int64_t k, struct moe_sum *s);

#ifdef __CUDACC__
// Values i .. i + V - 1 of a row, V 4 or 1, i in units of V: one fma after another.
template <int V>
static __device__ __forceinline__ void moe_sum_values(const moe_sum &s, int64_t row, int64_t i,
                                                      float (&sum)[V]) {
    const moe_combine_args &a = s.a;
    const float *in = a.in + row * a.used * a.m + i * V, *w = a.weights + row * a.used;
    const float *old = a.out + row * a.m + i * V, *beside = s.shared + row * a.m + i * V;
    float last[V], by_last = 0;
#pragma unroll
    for (int v = 0; v < V; v++) {
        sum[v] = 0;
        last[v] = 0;
    }
    if constexpr (V == 4) {
        if (a.add)
            *(float4 *)sum = __ldcg((const float4 *)old);
        if (s.shared)
            *(float4 *)last = __ldcg((const float4 *)beside);
    } else {
        if (a.add)
            sum[0] = __ldcg(old);
        if (s.shared)
            last[0] = __ldcg(beside);
    }
    if (s.shared)
        by_last = s.shared_weight ? __ldcg(s.shared_weight + row) : 1.0f;
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
#pragma unroll
    for (int v = 0; v < V; v++)
        sum[v] = s.shared ? fmaf(by_last, last[v], sum[v]) : sum[v];
}
#endif

#endif
