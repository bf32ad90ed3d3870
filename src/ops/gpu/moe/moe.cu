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
static void run_ordered_entries(struct gpu *g, const struct moe_call_args *c) {
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

static void run_entries(struct gpu *g, const struct moe_call_args *c) {
    const struct moe_peaks none = {};
    if (c->entries > MOE_FEW)
        run_ordered_entries(g, c);
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
    const int64_t m = w->gate->m, max = MOE_FEW / l->used;
    const size_t each = (size_t)(MOE_FEW * m) * sizeof(float);
    for (int64_t at = 0; at < l->n; at += max) {
        const struct moe_list some = {min_i64(l->n - at, max), l->used, l->ids + at * l->used};
        float *wide = (float *)gpu_scratch(g, 2 * each);
        if (!wide)
            return;
        for (int i = 0; i < 2; i++) {
            struct moe_call_args c = call_of(&some, i ? w->up : w->gate, in);
            c.x += at * in->stride;
            c.unscale += at;
            c.out = wide + i * MOE_FEW * m;
            c.out_stride = m;
            run_entries(g, &c);
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
        run_ordered_entries(g, &c);
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
    run_entries(g, &c);
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

// A layer of experts of few rows in three launches: the router; gate and up; down, whose weighed
// sum waits for the norm after it (sum.h). A shared expert that is like the others is one more
// entry of each row in the last two. The bits are those of the ops one by one.

static bool same_shape(const struct weight *a, const struct weight *b) {
    return a->form == b->form && a->k == b->k && a->m == b->m;
}

// Whether the shared expert has a gate.
static bool gated(const struct moe_layer_args *a) {
    return a->n_in > 1;
}

// Whether its result joins the others' sum: in the end, times its gate or one.
static bool sums_meet(const struct moe_layer_args *a) {
    const moe_shared_args *s = a->shared;
    if (!s)
        return false;
    if (!gated(a))
        return s->sum.in && s->down.add && s->down.out == a->sum.out && s->down.w->m == a->sum.m;
    return s->sum.add && s->sum.used == 1 && s->sum.out == a->sum.out && s->sum.m == a->sum.m;
}

// Whether the shared expert can go with the others.
static bool joins(const struct moe_layer_args *a) {
    const moe_shared_args *s = a->shared;
    return s && same_shape(s->both.gate, a->both.gate) && same_shape(s->both.up, a->both.up) &&
           same_shape(s->down.w, a->down.w) && s->both.activation == a->both.activation &&
           !s->both.gate_bias && !s->both.up_bias && !s->down.bias && s->down.add != gated(a) &&
           sums_meet(a);
}

static struct moe_call_args layer_call_of(const struct moe_layer_args *a, const struct weight *w,
                                          int64_t beside) {
    const struct moe_list *l = &a->down.list;
    struct moe_call_args c = {};
    c.form = w->form;
    c.experts = (int)w->experts;
    c.ids = l->ids;
    c.listed = l->n * l->used;
    c.entries = c.listed + beside;
    c.distinct = l->n == 1;
    return c;
}

static struct moe_call_args gate_up_of(const struct moe_layer_args *a, bool joined) {
    const struct gate_up *w = &a->both;
    const int64_t m = w->gate->m;
    struct moe_call_args c = layer_call_of(a, w->gate, joined ? a->down.list.n : 0);
    set_matrix(&c.matrix[0], w->gate, w->gate_bias);
    set_matrix(&c.matrix[1], w->up, w->up_bias);
    if (joined) {
        set_matrix(&c.shared[0], a->shared->both.gate, NULL);
        set_matrix(&c.shared[1], a->shared->both.up, NULL);
    }
    c.pair = true;
    c.activation = w->activation;
    c.parts = linear_parts(w->gate->k, 2 * m);
    c.sharers = a->down.list.used;
    c.x = (const __half *)a->x->x;
    c.stride = a->x->stride;
    c.unscale = a->x->unscale;
    c.out = a->mid->wide;
    c.out_stride = a->mid->stride;
    c.shared_out = c.out + c.listed * c.out_stride;
    return c;
}

// Its rows are what gate_up_of left, f32.
static struct moe_call_args down_of(const struct moe_layer_args *a, bool joined) {
    const struct weight *w = a->down.w;
    struct moe_call_args c = layer_call_of(a, w, joined ? a->down.list.n : 0);
    set_matrix(&c.matrix[0], w, a->down.bias);
    if (joined) {
        set_matrix(&c.shared[0], a->shared->down.w, NULL);
        c.shared_out = gated(a) ? a->shared->down.out : (float *)a->shared->sum.in;
    }
    c.parts = linear_parts(w->k, w->m);
    c.sharers = 1;
    c.shared_row = c.listed;
    c.stride = a->mid->stride;
    c.out = a->down.out;
    c.out_stride = w->m;
    return c;
}

static void run_router(struct exec *x, const struct moe_layer_args *a) {
    if (moe_router_launch(gpu_of(x), a))
        return;
    cuda_linear(x, a->in, a->n_in, a->router_in, a->route.n);
    cuda_moe_route(x, &a->route);
    if (a->n_in > 1)
        cuda_moe_route(x, &a->shared->gate);
}

// The sum, and what is left of the shared expert.
static void finish_layer(struct exec *x, const struct moe_layer_args *a, bool joined) {
    const moe_shared_args *s = a->shared;
    const bool meet = sums_meet(a) && (gated(a) || joined);
    struct moe_sum sum = {a->sum, NULL, NULL};
    if (s && !meet)
        cuda_moe_combine(x, &a->sum);
    if (s && !joined) {
        cuda_linear_gate_up(x, &s->both, a->x, a->route.n, s->mid);
        cuda_linear(x, &s->down, 1, s->mid, a->route.n);
    }
    if (meet) {
        sum.shared = s->sum.in;
        sum.shared_weight = gated(a) ? s->sum.weights : NULL;
    }
    if (!s || meet)
        moe_defer_sum(gpu_of(x), &sum);
    else if (gated(a))
        cuda_moe_combine(x, &s->sum);
}

// Gate and up, then down, of f values; false: a fault.
static bool run_experts(struct gpu *g, const struct moe_call_args *pair,
                        const struct moe_call_args *down, int64_t f) {
    const struct moe_peaks none = {}, raises = {NULL, 0, g->peaks, g->epoch};
    const struct moe_peaks from = {pair->out, (int)f, g->peaks, g->epoch};
    const bool one = pair->distinct, units = moe_union_takes(g, down);
    struct moe_order order = {};
    if (!one && units && moe_union_takes(g, pair)) {
        const size_t bytes = moe_order_bytes(pair->listed, pair->experts, MOE_UNION_ROWS);
        unsigned char *memory = (unsigned char *)gpu_scratch(g, bytes);
        if (!memory)
            return false;
        order = moe_order_make(g, pair, MOE_UNION_ROWS, memory);
        moe_union_launch(g, pair, &order, &none, &raises, false);
    } else {
        moe_few_launch(g, pair, &none, &raises, false);
    }
    if (order.tiles || (one && units))
        moe_union_launch(g, down, &order, &from, &none, true);
    else
        moe_few_launch(g, down, &from, &none, true);
    return true;
}

extern "C" bool cuda_moe_layer(struct exec *x, const struct moe_layer_args *a) {
    struct gpu *g = gpu_of(x);
    const int64_t n = a->down.list.n, f = a->both.gate->m;
    const bool room = n * (a->down.list.used + 1) <= MOE_FEW;
    const bool joined = joins(a) && (room || gated(a));
    const int64_t entries = n * a->down.list.used + (joined ? n : 0);
    if (a->both.gate->home || a->down.w->home) // experts that come and go: op by op
        return false;
    if (n == 0 || g->path == CUDA_PATH_SMALL || entries > MOE_FEW || f % 32 ||
        a->both.gate->form != a->both.up->form || !moe_peaks_reserve(g))
        return false;
    cuda_act_shape(a->mid, n * a->down.list.used, f);
    const struct moe_call_args pair = gate_up_of(a, joined), down = down_of(a, joined);
    if ((size_t)(entries * a->mid->stride) * sizeof(float) > g->wide_bytes ||
        !moe_few_fits(g, &down))
        return false;
    g->epoch++;
    run_router(x, a);
    if (!run_experts(g, &pair, &down, f))
        return true;
    finish_layer(x, a, joined);
    return true;
}
