// SPDX-License-Identifier: Apache-2.0
// The end of few-row linear layers whose k was cut into parts (ops/gpu/linear/few/stream.cuh).
// Their sums are deferred until the next thing is queued: a norm of the very rows takes them up
// itself (act.cu), before anything else this kernel adds them up, and stores, adds or joins. One
// thread four outputs.
#include <stdlib.h>

#include "ops/gpu/linear/finish.cuh"
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/runtime/cuda.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 128 };

struct linear_deferred {
    struct linear_left job[LINEAR_JOBS];
    int64_t first[LINEAR_JOBS]; // of its fours among all of the launch
    int jobs;
    int64_t fours;
};

static __device__ __forceinline__ float4 joined(float4 gate, float4 up) {
    float v[4] = {gate.x, gate.y, gate.z, gate.w};
    silu_all(v);
    return make_float4(v[0] * up.x, v[1] * up.y, v[2] * up.z, v[3] * up.w);
}

// ahead: the next launch may begin before this one waits.
static __global__ void __launch_bounds__(THREADS)
    linear_finish(const __grid_constant__ struct linear_deferred a, bool ahead) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = blockIdx.y;
    int j = 0;
    const bool there = i < a.fours;
    if (ahead)
        gpu_let_ahead();
    while (j + 1 < a.jobs && i >= a.first[j + 1])
        j++;
    const struct linear_left &o = a.job[j];
    i -= a.first[j];
    char4 e[2] = {};
    for (int t = 0; there && t < 1 + o.pair; t++)
        e[t] = finish_exponents(o, t, i);
    gpu_await();
    gpu_let_next();
    if (!there)
        return;
    float back = __ldcg(o.unscale + row);
    float4 v = finish_four(o, 0, row, i, back, e[0]);
    if (o.pair) {
        float4 up = finish_four(o, 1, row, i, back, e[1]);
        v = joined(v, up);
    }
    float *out = o.out + row * o.out_stride + i * 4;
    if (i * 4 + 4 <= o.m && (size_t)out % 16 == 0) {
        *(float4 *)out = o.add ? add_fours(__ldcg((const float4 *)out), v) : v;
        return;
    }
    const float each[4] = {v.x, v.y, v.z, v.w};
    for (int e = 0; e < 4 && i * 4 + e < o.m; e++)
        out[e] = o.add ? out[e] + each[e] : each[e];
}

bool linear_defer_reserve(struct gpu *g) {
    if (!g->deferred_sums)
        g->deferred_sums = (struct linear_deferred *)calloc(1, sizeof *g->deferred_sums);
    if (!g->held_sums)
        g->held_sums = (struct linear_left *)calloc(1, sizeof *g->held_sums);
    return g->deferred_sums != NULL && g->held_sums != NULL;
}

bool linear_defer(struct gpu *g, const struct linear_one *job, const struct linear_launch *l) {
    if (!linear_defer_reserve(g))
        return gpu_check(g, GPU_OUT_OF_MEMORY, "sums of linear layers");
    struct linear_deferred *a = g->deferred_sums;
    if (!g->sums_deferred)
        a->jobs = 0;
    struct linear_left *o = &a->job[a->jobs++];
    *o = {};
    o->partial = job->partial;
    o->n = l->n;
    o->m = job->w[0].m;
    o->pitch = job->w[0].tiles * TILE_ROWS;
    o->parts = job->parts;
    o->add = job->add;
    o->pair = job->pair;
    o->out = job->out;
    o->out_stride = job->out_stride;
    o->unscale = l->unscale;
    for (int t = 0; t < 1 + job->pair; t++)
        o->exponent[t] = job->w[t].exponent;
    g->sums_deferred = true;
    return true;
}

// A single row's launch is short, and lets what comes after it begin during the products.
static void launch_finish(struct gpu *g, struct linear_deferred *a) {
    const bool ahead = a->job[0].n == 1;
    a->fours = 0;
    for (int j = 0; j < a->jobs; j++) {
        a->first[j] = a->fours;
        a->fours += a->job[j].pitch / 4;
    }
    dim3 grid((unsigned)((a->fours + THREADS - 1) / THREADS), (unsigned)a->job[0].n);
    const struct launch_says says = {MEMORY_WEIGHTS, MEMORY_ROWS | MEMORY_SUMS, ahead, NULL, false};
    gpu_launch_saying({g, "linear", says}, linear_finish, grid, THREADS, 0, *a, ahead);
}

extern "C" void linear_flush(struct gpu *g) {
    if (!g->sums_deferred)
        return;
    g->sums_deferred = false;
    launch_finish(g, g->deferred_sums);
}

void linear_hold(struct gpu *g, const struct linear_left *left) {
    *g->held_sums = *left;
    g->sums_held = true;
}

extern "C" void linear_release(struct gpu *g) {
    if (!g->sums_held)
        return;
    g->sums_held = false;
    struct linear_deferred a = {};
    a.job[a.jobs++] = *g->held_sums;
    launch_finish(g, &a);
}

bool linear_take_held(struct gpu *g, const float *row, int64_t m, struct linear_left *left) {
    if (!g->sums_held || g->held_sums->out != row || g->held_sums->m != m)
        return false;
    *left = *g->held_sums;
    g->sums_held = false;
    return true;
}

bool linear_take_sums(struct gpu *g, const float *rows, int64_t n, int64_t k,
                      struct linear_left *left) {
    if (!g->sums_deferred || g->deferred_sums->jobs != 1)
        return false;
    const struct linear_left *o = &g->deferred_sums->job[0];
    if (o->pair || o->out != rows || o->n != n || o->m != k || o->out_stride != k)
        return false;
    *left = *o;
    g->sums_deferred = false;
    return true;
}

bool linear_take_product(struct gpu *g, const float *rows, int64_t n, int64_t k,
                         const float *written, struct linear_left *left) {
    if (!g->sums_deferred)
        return false;
    const struct linear_left *o = &g->deferred_sums->job[0];
    return !o->add && o->unscale != written && linear_take_sums(g, rows, n, k, left);
}

int linear_left_parts(const struct gpu *g) {
    int max = 0;
    for (int j = 0; g->sums_deferred && j < g->deferred_sums->jobs; j++)
        max = g->deferred_sums->job[j].parts > max ? g->deferred_sums->job[j].parts : max;
    return max;
}

// Takes all sums that were left, if they are of n rows, whose outputs are among rows[count] (and
// width[i] a row, unless width is NULL); with `other` one job's may be elsewhere: left[count].
static bool take_left(struct gpu *g, const float *const *rows, const int64_t *width, int count,
                      bool other, int64_t n, struct linear_left *left) {
    const struct linear_deferred *d = g->deferred_sums;
    int place[LINEAR_JOBS];
    bool taken[LINEAR_JOBS + 1] = {};
    if (!g->sums_deferred || count + other > LINEAR_JOBS)
        return false;
    for (int j = 0; j < d->jobs; j++) {
        const struct linear_left *o = &d->job[j];
        int at = 0;
        while (at < count && rows[at] != o->out)
            at++;
        if (o->add || o->pair || o->n != n || taken[at] || (at == count && !other))
            return false;
        if (width && at < count && (o->m != width[at] || o->out_stride != o->m))
            return false;
        taken[at] = true;
        place[j] = at;
    }
    for (int j = 0; j < d->jobs; j++)
        left[place[j]] = d->job[j];
    g->sums_deferred = false;
    return true;
}

bool linear_take_rows(struct gpu *g, const float *const *rows, const int64_t *width, int count,
                      int64_t n, struct linear_left *left) {
    return take_left(g, rows, width, count, false, n, left);
}

bool linear_take_row(struct gpu *g, const float *const *rows, int count, bool other,
                     struct linear_left *left) {
    return take_left(g, rows, NULL, count, other, 1, left);
}
