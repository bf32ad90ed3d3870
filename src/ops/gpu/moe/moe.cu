// SPDX-License-Identifier: Apache-2.0
// moe_gate_up and moe_linear: few entries go through one launch that finds its entries itself
// (few.cuh); many are ordered by expert first, on the device. Which family serves a call
// changes no bits, and no answer of the device is waited for.
#include "base/num.h"
#include "ops/gpu/linear/form/values.h"
#include "ops/gpu/moe/moe.h"
#include "ops/gpu/moe/store.h"

static void set_matrix(struct moe_matrix *m, const struct weight *w, const float *bias) {
    m->w = w->view;
    m->step = w->step;
    m->place = w->place;
    m->at = w->at;
    m->bias = bias;
}

static struct moe_call_args call_of(const struct moe_list *l, const struct weight *w,
                                    const struct act *in) {
    struct moe_call_args c = {};
    set_matrix(&c.matrix[0], w, NULL);
    c.form = w->form;
    c.parts = linear_parts(w->k, w->m);
    c.experts = (int)w->experts;
    c.ids = l->ids;
    c.entries = c.listed = l->n * l->used;
    c.sharers = l->used;
    c.distinct = l->n == 1;
    c.x = (const __half *)in->x;
    c.stride = in->stride;
    c.unscale = in->unscale;
    return c;
}

// Entries that are ordered first.
static void run_many(struct gpu *g, const struct moe_call_args *c) {
    const bool gemm = moe_gemm_takes(g, c->form);
    const int each =
        gemm ? (int)MOE_GEMM_ROWS : moe_tile_rows(c->form, g->path == CUDA_PATH_SMALL, g->shared);
    const size_t order = moe_order_bytes(c->entries, c->experts, each);
    const size_t rows = gemm ? moe_gemm_bytes(c->entries, c->stride) : 0;
    unsigned char *memory = (unsigned char *)gpu_scratch(g, order + rows);
    if (!memory)
        return;
    const struct moe_order o = moe_order_make(g, c, each, memory);
    if (gemm)
        moe_gemm_launch(g, c, &o, memory + order);
    else
        moe_tiles_launch(g, c, &o);
}

static void run(struct gpu *g, const struct moe_call_args *c) {
    const struct moe_peaks none = {};
    if (c->entries > MOE_FEW)
        run_many(g, c);
    else
        moe_few_launch(g, c, &none, &none, false);
}

bool moe_peaks_reserve(struct gpu *g) {
    if (!g->peaks)
        g->peaks = (unsigned long long *)gpu_alloc(g, PEAKS * sizeof *g->peaks);
    return g->peaks != NULL;
}

// Peaks of this many entries of m values, if they can be raised.
static struct moe_peaks raise_peaks(struct gpu *g, int64_t entries, int64_t m) {
    struct moe_peaks p = {};
    if (entries > MOE_FEW || m % 32 || !moe_peaks_reserve(g))
        return p;
    p.peaks = g->peaks;
    p.epoch = ++g->epoch;
    return p;
}

// Matrices of two forms: each on its own, then joined, a slice of rows at a time.
static void gate_up_apart(struct gpu *g, const struct gate_up *w, const struct moe_list *l,
                          const struct act *in, struct act *out) {
    const int64_t m = w->gate->m, most = MOE_FEW / l->used;
    const size_t each = (size_t)(MOE_FEW * m) * sizeof(float);
    for (int64_t at = 0; at < l->n; at += most) {
        const struct moe_list some = {min_i64(l->n - at, most), l->used, l->ids + at * l->used};
        float *wide = (float *)gpu_scratch(g, 2 * each);
        if (!wide)
            return;
        for (int i = 0; i < 2; i++) {
            struct moe_call_args c = call_of(&some, i ? w->up : w->gate, in);
            c.x += at * in->stride;
            c.unscale += at;
            c.out = wide + i * MOE_FEW * m;
            c.out_stride = m;
            run(g, &c);
        }
        const struct values_join join = {wide,
                                         wide + MOE_FEW * m,
                                         m,
                                         m,
                                         w->gate_bias,
                                         w->up_bias,
                                         some.ids,
                                         m,
                                         w->activation,
                                         out->wide + at * l->used * out->stride,
                                         out->stride};
        values_join(g, &join, some.n * l->used);
    }
}

extern "C" void cuda_moe_gate_up(struct exec *x, const struct gate_up *w, const struct moe_list *l,
                                 const struct act *in, struct act *out) {
    struct gpu *g = gpu_of(x);
    const int64_t m = w->gate->m, entries = l->n * l->used;
    cuda_act_shape(out, entries, m);
    if (entries == 0)
        return;
    if (w->gate->home)
        moe_bring(g, w->gate->home, l, false);
    if (w->gate->form != w->up->form) {
        gate_up_apart(g, w, l, in, out);
        cuda_act_finish(x, out, entries);
        return;
    }
    struct moe_call_args c = call_of(l, w->gate, in);
    const struct moe_peaks none = {}, raises = raise_peaks(g, entries, m);
    c.matrix[0].bias = w->gate_bias;
    set_matrix(&c.matrix[1], w->up, w->up_bias);
    c.pair = true;
    c.activation = w->activation;
    c.parts = linear_parts(w->gate->k, 2 * m);
    c.out = out->wide;
    c.out_stride = out->stride;
    if (entries > MOE_FEW)
        run_many(g, &c);
    else
        moe_few_launch(g, &c, &none, &raises, false);
    if (!raises.peaks) {
        cuda_act_finish(x, out, entries);
        return;
    }
    act_defer(g, out, entries);
}

extern "C" void cuda_moe_linear(struct exec *x, const struct moe_linear_args *a) {
    struct gpu *g = gpu_of(x);
    const struct moe_peaks none = {};
    struct moe_call_args c = call_of(&a->list, a->w, a->in);
    struct act wide;
    if (c.entries == 0)
        return;
    if (a->w->home)
        moe_bring(g, a->w->home, &a->list, true);
    c.matrix[0].bias = a->bias;
    c.sharers = a->entries ? 1 : a->list.used;
    c.out = a->out;
    c.out_stride = a->w->m;
    if (a->entries && c.entries <= MOE_FEW && act_take(g, a->in->x, c.entries, &wide)) {
        const struct moe_peaks from = {wide.wide, (int)wide.k, g->peaks, g->epoch};
        const bool ahead = gpu_may_read(g, MEMORY_WEIGHTS | MEMORY_LISTS);
        if (moe_few_launch(g, &c, &from, &none, ahead))
            return;
        cuda_act_finish(x, &wide, c.entries);
    }
    run(g, &c);
}

// Of gate_up_apart, and of ordered entries with their rows.
extern "C" size_t moe_scratch(const struct gpu *g, const struct exec_limits *l) {
    if (!l->entries)
        return 0;
    const size_t apart = 2 * (size_t)(MOE_FEW * l->expert_width) * sizeof(float);
    const int least = moe_tile_rows(WEIGHT_Q6_K, g->path == CUDA_PATH_SMALL, g->shared);
    const size_t order = moe_order_bytes(l->entries, (int)l->experts, least);
    const int64_t stride = round_up(l->expert_width, ACT_ALIGN);
    const bool gemm = moe_gemm_takes(g, WEIGHT_Q4_K);
    return max_size(apart, order + (gemm ? moe_gemm_bytes(l->entries, stride) : 0));
}
