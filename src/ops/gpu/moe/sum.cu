// SPDX-License-Identifier: Apache-2.0
// Weighed sums of entries, queued at once or deferred (sum.h).
#include "ops/gpu/moe/sum.h"

#include <stdlib.h>

enum { THREADS = 128, MOST_ROWS = 32768 }; // of grid.y

// Block (piece, row): four values a thread, or one.
template <int V>
static __global__ void __launch_bounds__(THREADS)
    combine_rows(const __grid_constant__ struct moe_sum s) {
    gpu_await();
    gpu_let_next();
    const int64_t row = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i * V >= s.a.m)
        return;
    float sum[V], *out = s.a.out + row * s.a.m + i * V;
    moe_sum_values<V>(s, row, i, sum);
    if constexpr (V == 4)
        *(float4 *)out = *(float4 *)sum;
    else
        out[0] = sum[0];
}

static bool in_fours(const struct moe_sum *s) {
    return s->a.m % 4 == 0 && ((size_t)s->a.in | (size_t)s->a.out | (size_t)s->shared) % 16 == 0;
}

static void launch_sum(struct gpu *g, const struct moe_sum *s) {
    const bool fours = in_fours(s);
    const int64_t each = THREADS * (fours ? 4 : 1);
    dim3 grid((unsigned)((s->a.m + each - 1) / each), (unsigned)s->a.n);
    gpu_launch_early(g, "moe_combine", fours ? combine_rows<4> : combine_rows<1>, grid, THREADS, 0,
                     *s);
}

extern "C" void cuda_moe_combine(struct exec *x, const struct moe_combine_args *a) {
    for (int64_t row = 0; row < a->n; row += MOST_ROWS) {
        struct moe_sum some = {*a, NULL, NULL};
        some.a.n = a->n - row < MOST_ROWS ? a->n - row : (int64_t)MOST_ROWS;
        some.a.in += row * a->used * a->m;
        some.a.weights += row * a->used;
        some.a.out += row * a->m;
        launch_sum(gpu_of(x), &some);
    }
}

bool moe_sum_reserve(struct gpu *g) {
    if (!g->deferred_combine)
        g->deferred_combine = (struct moe_sum *)calloc(1, sizeof *g->deferred_combine);
    return g->deferred_combine != NULL;
}

void moe_defer_sum(struct gpu *g, const struct moe_sum *s) {
    gpu_flush(g);
    if (!moe_sum_reserve(g)) {
        launch_sum(g, s);
        return;
    }
    *g->deferred_combine = *s;
    g->combine_deferred = true;
}

bool moe_take_sum(struct gpu *g, const float *rows, int64_t n, int64_t k, struct moe_sum *s) {
    if (!g->combine_deferred)
        return false;
    const struct moe_sum *d = g->deferred_combine;
    if (d->a.out != rows || d->a.n != n || d->a.m != k || !in_fours(d))
        return false;
    *s = *d;
    g->combine_deferred = false;
    return true;
}

extern "C" void moe_flush(struct gpu *g) {
    if (!g->combine_deferred)
        return;
    g->combine_deferred = false;
    launch_sum(g, g->deferred_combine);
}
