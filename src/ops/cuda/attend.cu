// SPDX-License-Identifier: Apache-2.0
// The attention op: plans the work (attend_plan.c), queues one of the two kernels, and folds the
// parts of each row from left to right where blocks have made them apart. Rows are taken in
// batches that keep the parts' room small; a row's bits do not depend on it.
#include <stdlib.h>

#include "ops/cuda/attend.cuh"
#include "ops/cuda/ops_cuda.h"

enum { THREADS = 256, VALUES = OPS_HEAD_MAX / 32 };
static const size_t ROOM = (size_t)96 << 20; // bytes of parts at once

// One warp a (row, head).
static __global__ void __launch_bounds__(THREADS)
    fold_parts(const __grid_constant__ struct attend_run u) {
    gpu_await();
    int64_t at = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (at >= u.n_rows * u.n_heads)
        return;
    int lane = threadIdx.x % 32;
    int32_t row = (int32_t)(u.begin + at / u.n_heads), head = (int32_t)(at % u.n_heads);
    struct attend_row r = u.rows[row];
    int32_t first = r.first < r.split ? attend_part(r.first / ATTEND_CHUNK) : 0;
    int32_t end = r.first < r.split ? attend_parts(r.split) : 0;
    float most = -INFINITY, sum = 0, x[VALUES] = {};
    for (int32_t part = first; part <= end; part++) {
        int64_t from = attend_slot(&u, part < end ? part - u.part0 : u.slots - 1, row, head);
        float2 ml = *(const float2 *)(u.ml + from * 2), f = attend_fold(&most, ml.x);
        sum = fmaf(ml.y, f.y, sum * f.x);
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            if (i * 32 >= u.head_dim)
                break;
            x[i] = fmaf(u.acc[from * u.head_dim + i * 32 + lane], f.y, x[i] * f.x);
        }
    }
    float *out = u.out + row * u.out_stride + (int64_t)head * u.head_dim;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        if (i * 32 >= u.head_dim)
            break;
        out[i * 32 + lane] = attend_output(&u, row, head, i * 32 + lane, x[i], sum);
    }
}

// What is the same for all batches.
static struct attend_run run_of(const struct attend_args *a) {
    const struct kv_layout *l = a->layout;
    struct attend_run u = {};
    u.q = a->q;
    u.gate = a->gate;
    u.gate_stride = a->gate_stride;
    u.out = a->out->wide;
    u.out_stride = a->out->stride;
    u.n_heads = a->n_heads;
    u.n_kv = a->n_kv;
    u.group = a->n_heads / a->n_kv;
    u.head_dim = a->head_dim;
    u.type_k = l->type_k;
    u.type_v = l->type_v;
    u.layer = a->layer * l->layer_bytes;
    u.v_begin = (int64_t)l->n_heads * KV_PAGE * l->k_bytes;
    u.k_bytes = l->k_bytes;
    u.v_bytes = l->v_bytes;
    u.scale = a->scale;
    return u;
}

static bool takes_matrix(const struct gpu *g, const struct attend_args *a) {
    int d = a->head_dim;
    return g->sm >= 80 && g->path != CUDA_PATH_SMALL && (d == 64 || d == 128 || d == 256) &&
           a->layout->type_k != TYPE_F32 && a->layout->type_v != TYPE_F32;
}

// Rows whose parts fit into ROOM, at least one.
static int64_t batch_rows(const struct attend_args *a, const struct rows *r) {
    int64_t first = INT64_MAX, last = 0;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t from = a->window > 0 && r->pos[i] > a->window ? r->pos[i] - a->window : 0;
        first = from < first ? from : first;
        last = r->pos[i] > last ? r->pos[i] : last;
    }
    int32_t parts = attend_parts((int32_t)last) - attend_part((int32_t)(first / ATTEND_CHUNK));
    size_t row =
        (size_t)(parts + 2) * (size_t)a->n_heads * (size_t)(a->head_dim + 2) * sizeof(float);
    return row < ROOM ? (int64_t)(ROOM / row) : 1;
}

static void set_tables(struct attend_run *u, const struct attend_plan *p, const void *device) {
    const unsigned char *b = (const unsigned char *)device;
    u->rows = (const struct attend_row *)(b + p->rows);
    u->list = (const int32_t *)(b + p->list);
    u->path = (const int32_t *)(b + p->path);
    u->items = (const struct attend_item *)(b + p->items);
    u->pages = (unsigned char *const *)(b + p->pages);
    u->store = (const struct kv_slot *)(b + p->store);
    u->begin = p->begin;
    u->n_rows = p->end - p->begin;
    u->slots = p->slots;
    u->part0 = p->part0;
}

static void run_batch(struct gpu *g, struct attend_run *u, const struct attend_plan *p,
                      bool matrix) {
    const void *device = gpu_stage(g, p->blob, p->bytes);
    if (!device)
        return;
    set_tables(u, p, device);
    int64_t heads = u->n_rows * u->n_heads;
    if (!p->whole) {
        size_t values = (size_t)(u->slots * heads);
        float *parts = (float *)gpu_scratch(g, values * (size_t)(u->head_dim + 2) * sizeof(float));
        if (!parts)
            return;
        u->acc = parts;
        u->ml = parts + values * (size_t)u->head_dim;
    }
    if (matrix)
        attend_matrix(g, u, p);
    else
        attend_plain(g, u, p);
    if (p->whole)
        return;
    unsigned blocks = (unsigned)((heads + THREADS / 32 - 1) / (THREADS / 32));
    gpu_launch_early(g, "attend", fold_parts, blocks, THREADS, 0, *u);
}

extern "C" void cuda_attend(struct exec *x, const struct attend_args *a, const struct rows *r) {
    struct gpu *g = gpu_of(x);
    if (r->n == 0)
        return;
    cuda_act_shape(a->out, r->n, (int64_t)a->n_heads * a->head_dim);
    struct attend_run u = run_of(a);
    bool matrix = takes_matrix(g, a), wide = a->head_dim == 256;
    struct attend_limits m = {1, 1, g->processors};
    if (matrix) {
        m.tiles_whole = wide ? 6 : 8;
        m.tiles_split = wide ? 4 : 8;
    }
    bool whole = attend_plan_whole(a, r, &m);
    int64_t step = whole ? r->n : batch_rows(a, r);
    for (int64_t begin = 0; begin < r->n; begin += step) {
        struct attend_plan p;
        int64_t end = begin + step < r->n ? begin + step : r->n;
        if (attend_plan_build(&p, a, r, begin, end, whole, &m))
            run_batch(g, &u, &p, matrix);
        else
            gpu_check(g, GPU_OUT_OF_MEMORY, "attend: no host memory");
        free(p.blob);
    }
    cuda_act_finish(x, a->out, r->n);
}
